//! The header before a connection's first byte: the same however it is cut, ended by its last byte, and of nothing but
//! its own addresses.

use super::arrivals;
use crate::proxy::proxy_protocol::{HEADER_BYTES_MAX, Header, Invalid, Parser, encode};
use crate::snapshot::ProxyVersion;

pub(super) fn run(wire: &[u8]) {
    let at_once = Parser::default().feed(wire);
    for ends in arrivals(wire) {
        assert_eq!(in_pieces(wire, &ends), at_once, "pieces {ends:?}");
    }
    let Ok((n_taken, header)) = at_once else { return };
    assert!(n_taken <= HEADER_BYTES_MAX.min(wire.len()));
    let Some(header) = header else {
        assert_eq!(n_taken, wire.len(), "all is taken where more is wanted");
        return;
    };
    // Not a byte of what follows is looked at, and none less would do.
    assert_eq!(Parser::default().feed(&wire[..n_taken]), at_once);
    assert_eq!(Parser::default().feed(&wire[..n_taken - 1]), Ok((n_taken - 1, None)));
    let Header::Proxied(ends) = header else { return };
    // What this proxy says in its turn is understood as it was.
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let said = encode(version, ends, "");
        assert_eq!(Parser::default().feed(&said), Ok((said.len(), Some(header))), "{version:?}");
    }
}

/// What is known once the header is whole, or all of it was fed.
fn in_pieces(wire: &[u8], ends: &[usize]) -> Result<(usize, Option<Header>), Invalid> {
    let (mut parser, mut n_taken) = (Parser::default(), 0);
    for end in ends {
        let (n, header) = parser.feed(&wire[n_taken..*end])?;
        n_taken += n;
        if header.is_some() {
            return Ok((n_taken, header));
        }
    }
    Ok((n_taken, None))
}
