//! Messages of HTTP/2 that are sent on by HTTP/1: whatever the codec lets through is one message there, and the same.
//!
//! Inputs are text, so that they can be read and written by hand: a first line, then fields, an empty line, then
//! trailers. They stand for what the codec hands over, which has decoded HPACK and put pseudo-fields into their places.

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use http::uri::{PathAndQuery, Scheme};
use http::{StatusCode, Uri};

use super::assert_is_lines;
use crate::proxy::h1::chunked::Decoder;
use crate::proxy::h1::encode::Persistence;
use crate::proxy::h1::limits::{FIELDS_MAX, HEAD_BYTES_MAX, REQUEST_LINE_BYTES_MAX, TRAILER_BYTES_MAX};
use crate::proxy::h1::request::{Asked, MethodKind};
use crate::proxy::h1::{Framing, RequestHead, ResponseHead, Scanner};
use crate::proxy::message::{Request, Response, encode, fields};
use crate::reading::FORWARDED;
use crate::snapshot::{RequestView as _, Rewrite};

/// The words of the first line, fields, trailers.
type Message<'a> = (Vec<&'a [u8]>, HeaderMap, HeaderMap);

/// First line: method, `:authority` or `-`, `:path`, and `end` where no body follows.
pub(super) fn requests(text: &[u8]) {
    let Some((words, headers, trailers)) = message(text) else { return };
    sent_trailers(trailers);
    let Some((parts, has_ended)) = parts(&words, headers) else { return };
    let Ok(request) = Request::of_h2(parts, has_ended) else { return };
    if request.asked == Asked::Server {
        return;
    }
    let mut out = Vec::new();
    encode::request_to_h1(&request, FORWARDED, (&Rewrite::default(), &[]), &mut out);
    assert_is_lines(&out);
    is_read_as(&request, &out);
    let Ok(sent) = encode::request_to_h2(&request, FORWARDED, (&Rewrite::default(), &[]), Scheme::HTTPS)
    else {
        return;
    };
    let again = Request::of_h2(sent.into_parts().0, has_ended).expect("what is sent is taken");
    assert_eq!(routed(&again), routed(&request));
    assert_eq!(again.framing, request.framing);
}

fn routed(request: &Request) -> (&str, &str, Option<&str>, &str) {
    (request.host(), request.path(), request.query(), request.method())
}

/// By our own parser, which `differential` compares with another.
fn is_read_as(request: &Request, out: &[u8]) {
    let n_first = out.iter().position(|byte| *byte == b'\n').expect("a first line") + 1;
    let n_lines = out.iter().filter(|byte| **byte == b'\n').count();
    if out.len() > HEAD_BYTES_MAX || n_first > REQUEST_LINE_BYTES_MAX || n_lines > FIELDS_MAX + 2 {
        return;
    }
    assert_eq!(Scanner::request().scan(out), Ok(Some(0..out.len())), "{}", out.escape_ascii());
    let mut head = RequestHead::default();
    head.parse(out).unwrap_or_else(|error| panic!("{error}: {}", out.escape_ascii()));
    // `content-length: 0` is no body in either.
    let framing = if request.framing == Framing::Length(0) { Framing::None } else { request.framing };
    assert_eq!(head.framing, framing, "{}", out.escape_ascii());
    assert!(head.keep_alive && head.upgrade.is_none(), "{}", out.escape_ascii());
    let again = Request::of_h1(&head, out).expect("a head of ours");
    assert_eq!(routed(&again), routed(request));
    assert_eq!(head.view(out).claimed("x-forwarded-for"), Some(FORWARDED.client.as_bytes()));
}

/// First line: status, and any of `end` (no body follows), `head` (the answer to one) and `1.0` (for such a client).
pub(super) fn responses(text: &[u8]) {
    let Some((words, headers, trailers)) = message(text) else { return };
    sent_trailers(trailers);
    let Some((status, marks)) = words.split_first() else { return };
    let Ok(status) = StatusCode::from_bytes(status) else { return };
    let is = |mark: &str| marks.contains(&mark.as_bytes());
    let mut answer = http::Response::new(());
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    let Ok(response) = Response::of_h2(answer.into_parts().0) else { return };
    assert_ne!(response.status.as_u16(), 101, "HTTP/2 knows no such answer");
    let method = if is("head") { MethodKind::Head } else { MethodKind::Other };
    let is_bodyless = response.status.is_informational()
        || method == MethodKind::Head
        || matches!(response.status.as_u16(), 204 | 304);
    let framing = encode::framing_for_h1(&response, is("end") || is_bodyless, is("1.0"));
    if framing == Framing::None && !is_bodyless && !response.fields.contains_key(CONTENT_LENGTH) {
        // The caller says then that the length is 0.
        return;
    }
    let mut out = Vec::new();
    encode::response_to_h1(&response, framing, Persistence::Implied, &mut out);
    assert_is_lines(&out);
    if out.len() > HEAD_BYTES_MAX || response.fields.len() > FIELDS_MAX - 2 {
        return;
    }
    assert_eq!(Scanner::response().scan(&out), Ok(Some(0..out.len())), "{}", out.escape_ascii());
    let mut head = ResponseHead::default();
    head.parse(&out, method).unwrap_or_else(|error| panic!("{error}: {}", out.escape_ascii()));
    assert_eq!(head.status, response.status.as_u16());
    if !is("end") || is_bodyless {
        let framing = if framing == Framing::Length(0) { Framing::None } else { framing };
        assert_eq!(head.framing, framing, "{}", out.escape_ascii());
    }
    assert!(head.upgrade.is_none());
}

/// Trailers end a chunked body and do nothing else.
fn sent_trailers(mut trailers: HeaderMap) {
    fields::keep_trailers(&mut trailers);
    let mut out = b"0\r\n".to_vec();
    encode::trailers_to_h1(Some(&trailers), &mut out);
    assert_is_lines(&out);
    if out.len() > TRAILER_BYTES_MAX as usize {
        return;
    }
    let mut decoder = Decoder::keeping_trailers();
    let segment = decoder.next(&out).unwrap_or_else(|error| panic!("{error}: {}", out.escape_ascii()));
    assert!(decoder.is_done() && segment.framing == out.len(), "{}", out.escape_ascii());
    assert_eq!(fields::trailers(decoder.section()).len(), trailers.len());
}

fn parts(words: &[&[u8]], headers: HeaderMap) -> Option<(http::request::Parts, bool)> {
    let [method, authority, path, marks @ ..] = words else { return None };
    let mut uri = Uri::builder().path_and_query(PathAndQuery::try_from(*path).ok()?);
    if *authority != b"-" {
        uri = uri.scheme(Scheme::HTTPS).authority(*authority);
    }
    let mut request = http::Request::new(());
    *request.method_mut() = http::Method::from_bytes(method).ok()?;
    *request.uri_mut() = uri.build().ok()?;
    *request.headers_mut() = headers;
    Some((request.into_parts().0, marks.contains(&&b"end"[..])))
}

/// Lines that are no fields are passed over: the codec refuses them.
fn message(text: &[u8]) -> Option<Message<'_>> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let words = lines.next()?.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
    let mut maps = [HeaderMap::new(), HeaderMap::new()];
    let mut section = 0;
    for line in lines {
        if line.is_empty() && section == 0 {
            section = 1;
            continue;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_lowercase(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            maps[section].append(name, value);
        }
    }
    let [headers, trailers] = maps;
    Some((words, headers, trailers))
}
