//! Answers of HTTP/1: what was taken is read again as the same by the client.

use super::{arrivals, assert_is_lines};
use crate::proxy::h1::encode::{self, Answer, Persistence};
use crate::proxy::h1::framing::Body;
use crate::proxy::h1::limits::{HEAD_BYTES_MAX, INTERIM_RESPONSES_MAX};
use crate::proxy::h1::request::MethodKind;
use crate::proxy::h1::{Framing, ResponseHead, Scanner};
use crate::proxy::message::Response;
use crate::proxy::message::encode::response_to_h1;

/// The answer to one request, up to its end or as far as it came.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    heads: Vec<(ResponseHead, Vec<u8>)>,
    data: Vec<u8>,
    consumed: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Done,
    Open,
    Refused,
}

pub(super) fn run(stream: &[u8]) {
    for method in [MethodKind::Other, MethodKind::Head] {
        let [at_once, pieces @ ..] = arrivals(stream);
        let whole = read(stream, method, &at_once);
        for ends in &pieces {
            assert_eq!(read(stream, method, ends), whole, "pieces {ends:?}");
        }
        for (head, bytes) in &whole.heads {
            is_sound(head, method);
            for persistence in [Persistence::Close, Persistence::Implied, Persistence::KeepAlive] {
                is_read_again((head, bytes), method, persistence);
            }
            crosses(head, bytes, method);
        }
    }
}

fn read(stream: &[u8], method: MethodKind, ends: &[usize]) -> Read {
    let mut read = Read { heads: Vec::new(), data: Vec::new(), consumed: 0, state: State::Open };
    let mut arrived = 0;
    let mut ends = ends.iter();
    let mut scanner = Scanner::response();
    let mut body: Option<Body> = None;
    loop {
        let buffered = &stream[read.consumed..arrived];
        let progress = match &mut body {
            Some(body) => match body.next(buffered) {
                Ok(segment) => {
                    let n = segment.framing + segment.data;
                    read.data.extend_from_slice(&buffered[segment.framing..n]);
                    read.consumed += n;
                    n > 0
                }
                Err(_) => return refused(read),
            },
            None => match scanner.scan(buffered) {
                Ok(Some(place)) => {
                    let bytes = buffered[place.clone()].to_vec();
                    read.consumed += place.end;
                    let mut head = ResponseHead::default();
                    if head.parse(&bytes, method).is_err()
                        || read.heads.len() > INTERIM_RESPONSES_MAX as usize
                    {
                        return refused(read);
                    }
                    scanner = Scanner::response();
                    if !head.is_interim() {
                        body = Some(Body::new(head.framing));
                    }
                    read.heads.push((head, bytes));
                    true
                }
                Ok(None) => false,
                Err(_) => return refused(read),
            },
        };
        if body.as_ref().is_some_and(Body::is_done) {
            return Read { state: State::Done, ..read };
        }
        if !progress {
            let Some(end) = ends.next() else { return read };
            arrived = *end;
        }
    }
}

/// How much was read before a fault came to light depends on the pieces.
fn refused(read: Read) -> Read {
    Read { consumed: 0, data: Vec::new(), state: State::Refused, ..read }
}

fn is_sound(head: &ResponseHead, method: MethodKind) {
    assert!((100..1000).contains(&head.status));
    if head.status < 200 || matches!(head.status, 204 | 304) || method == MethodKind::Head {
        assert_eq!(head.framing, Framing::None);
    }
    assert!(head.framing != Framing::UntilClose || !head.keep_alive);
    assert!(head.upgrade.is_none() || head.status == 101);
}

fn parse(bytes: &[u8], method: MethodKind) -> Option<ResponseHead> {
    assert_is_lines(bytes);
    if bytes.len() > HEAD_BYTES_MAX {
        return None;
    }
    let place = Scanner::response().scan(bytes);
    assert_eq!(place, Ok(Some(0..bytes.len())), "{}", bytes.escape_ascii());
    let mut head = ResponseHead::default();
    head.parse(bytes, method).unwrap_or_else(|error| panic!("{error}: {}", bytes.escape_ascii()));
    Some(head)
}

fn is_read_again((head, bytes): (&ResponseHead, &[u8]), method: MethodKind, persistence: Persistence) {
    let mut out = Vec::new();
    encode::response(head, bytes, persistence, Answer::default(), &mut out);
    let Some(again) = parse(&out, method) else { return };
    assert_eq!((again.status, again.framing), (head.status, head.framing), "{}", out.escape_ascii());
    let is_kept_alive = persistence != Persistence::Close && head.framing != Framing::UntilClose;
    assert_eq!(again.keep_alive, is_kept_alive, "{}", out.escape_ascii());
    assert!(again.kept(&out).eq(head.kept(bytes)), "{}", out.escape_ascii());
    let upgrade =
        |head: &ResponseHead, bytes: &[u8]| head.upgrade.map(|upgrade| upgrade.bytes(bytes).to_vec());
    assert_eq!(upgrade(&again, &out), upgrade(head, bytes));
}

/// As a value and back to bytes.
fn crosses(head: &ResponseHead, bytes: &[u8], method: MethodKind) {
    let Ok(response) = Response::of_h1(head, bytes) else { return };
    let mut out = Vec::new();
    response_to_h1(&response, head.framing, Persistence::Implied, &mut out);
    let Some(again) = parse(&out, method) else { return };
    assert_eq!((again.status, again.framing), (head.status, head.framing), "{}", out.escape_ascii());
}
