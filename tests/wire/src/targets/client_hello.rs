//! The server name of a ClientHello: known with its last byte, whatever the pieces and the records.

use super::arrivals;
use crate::proxy::tls::hello::{Hello, Parser, Progress};

pub(super) fn run(wire: &[u8]) {
    let at_once = Parser::default().feed(wire);
    for ends in arrivals(wire) {
        assert_eq!(in_pieces(wire, &ends).0, at_once, "pieces {ends:?}");
    }
    let (_, n) = in_pieces(wire, &(1..=wire.len()).collect::<Vec<_>>());
    let Progress::Hello(Hello { server_name }) = &at_once else { return };
    // No earlier, and no later: a hello is acted upon when it is whole.
    assert_eq!(Parser::default().feed(&wire[..n - 1]), Progress::NeedMore);
    assert_eq!(Parser::default().feed(&wire[..n]), at_once);
    if let Some(name) = server_name {
        assert!((1..=253).contains(&name.len()), "{name:?}");
        assert!(
            name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.')),
            "{name:?}"
        );
        assert!(name.split('.').all(|label| (1..=63).contains(&label.len())), "{name:?}");
    }
    // O02
    let message = handshake_bytes(wire);
    for record_bytes in [1, 100, 16_384] {
        let records: Vec<u8> = message.chunks(record_bytes).flat_map(record).collect();
        assert_eq!(Parser::default().feed(&records), at_once, "records of {record_bytes}");
    }
}

/// The first answer that is not to wait, and after how many bytes it came.
fn in_pieces(wire: &[u8], ends: &[usize]) -> (Progress, usize) {
    let mut parser = Parser::default();
    let mut at = 0;
    for end in ends {
        let progress = parser.feed(&wire[at..*end]);
        at = *end;
        if progress != Progress::NeedMore {
            return (progress, at);
        }
    }
    (Progress::NeedMore, at)
}

fn record(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("a record's length").to_be_bytes();
    [&[22, 3, 1][..], &length, content].concat()
}

/// What the records hold, as far as they are whole.
fn handshake_bytes(wire: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    let mut rest = wire;
    while let [22, _, _, high, low, behind @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (content, next) = behind.split_at(length.min(behind.len()));
        message.extend(content);
        rest = next;
    }
    message
}
