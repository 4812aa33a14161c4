//! Requests of HTTP/1 and their bodies: whatever was taken is read again as the same, by whoever is behind.

use super::{arrivals, assert_is_lines};
use crate::proxy::h1::limits::{FIELDS_MAX, HEAD_BYTES_MAX, REQUEST_LINE_BYTES_MAX};
use crate::proxy::h1::request::Asked;
use crate::proxy::h1::{Framing, RequestHead};
use crate::reading::{End, Message, requests};

pub(super) fn run(stream: &[u8]) {
    let [at_once, ..] = arrivals(stream);
    let (messages, end) = requests(stream, &at_once);
    for ends in &arrivals(stream)[1..] {
        let (others, other_end) = requests(stream, ends);
        assert_eq!(other_end, end, "pieces {ends:?}");
        assert_eq!(others.len(), messages.len(), "pieces {ends:?}");
        for (one, other) in messages.iter().zip(&others) {
            assert_eq!(one.summary(), other.summary(), "pieces {ends:?}");
            assert_eq!((&one.bytes, &one.raw_body), (&other.bytes, &other.raw_body));
        }
    }
    let mut sent = Vec::new();
    let mut expected = Vec::new();
    for message in messages.iter().filter(|message| message.head.asked == Asked::Path) {
        is_sound(message);
        if is_read_again(message) {
            sent.extend(message.forwarded());
            expected.push(message.body.clone());
        }
    }
    // As on one connection to one server: no message becomes a part of another, nor two of one.
    for ends in arrivals(&sent) {
        let (read, end) = requests(&sent, &ends);
        let bodies: Vec<_> = read.into_iter().map(|message| message.body).collect();
        assert_eq!((&bodies, end), (&expected, End::Open));
    }
    recycled_is_as_good_as_new(&messages);
}

/// What the proxy takes for granted of every head that was taken.
fn is_sound(message: &Message) {
    let Message { head, bytes, body, raw_body, .. } = message;
    let path = head.path(bytes);
    assert!(path.starts_with('/') && path.is_ascii(), "{path:?}");
    assert!(!path.split('/').any(|segment| matches!(segment, "." | "..")), "{path:?}");
    assert_eq!(head.host(), head.host().to_ascii_lowercase());
    match head.framing {
        Framing::None => assert!(body.is_empty() && raw_body.is_empty()),
        Framing::Length(length) => assert_eq!((body.len() as u64, raw_body), (length, body)),
        Framing::Chunked => assert!(raw_body.len() > body.len()),
        Framing::UntilClose => panic!("a request that ends with its connection"),
    }
    assert!(head.upgrade.is_none() || head.framing == Framing::None);
}

/// Sends `message` on and reads that. False: it has grown beyond what is taken.
fn is_read_again(message: &Message) -> bool {
    let head = message.forwarded_head();
    assert_is_lines(&head);
    let n_lines = head.windows(2).filter(|pair| pair == b"\r\n").count();
    let n_first = head.windows(2).position(|pair| pair == b"\r\n").expect("a first line");
    if head.len() > HEAD_BYTES_MAX || n_first + 2 > REQUEST_LINE_BYTES_MAX || n_lines > FIELDS_MAX + 2 {
        return false;
    }
    let sent = message.forwarded();
    let (read, end) = requests(&sent, &[sent.len()]);
    assert_eq!((read.len(), end), (1, End::Open), "{}", sent.escape_ascii());
    let [again] = &read[..] else { return false };
    assert_eq!(again.bytes.len(), head.len());
    let mut expected = message.summary();
    let has_authority = message.head.authority(&message.bytes).is_some();
    if !has_authority {
        // HTTP/1.0: the address that was connected to stands in.
        expected.host = again.head.host().to_owned();
    }
    assert_eq!(again.summary(), expected, "{}", sent.escape_ascii());
    assert_eq!(again.raw_body, message.raw_body);
    // What was kept comes in the same order, and this proxy's own word last and once.
    let named = |name: &[u8]| !name.eq_ignore_ascii_case(b"host");
    let kept = message.fields().into_iter().filter(|(name, _)| named(name));
    assert!(again.fields().into_iter().filter(|(name, _)| named(name)).eq(kept), "{}", sent.escape_ascii());
    if has_authority {
        assert_eq!(again.forwarded_head(), head);
    }
    true
}

/// One value is parsed into for all requests of a connection.
fn recycled_is_as_good_as_new(messages: &[Message]) {
    let mut recycled = RequestHead::default();
    for message in messages.iter().chain(messages.iter().rev()) {
        recycled.parse(&message.bytes).expect("was parsed before");
        let recycled = Message { head: recycled.clone(), ..message.clone() };
        assert_eq!(recycled.summary(), message.summary());
        assert_eq!(recycled.forwarded_head(), message.forwarded_head());
        assert_eq!(recycled.head.keep_alive, message.head.keep_alive);
    }
}
