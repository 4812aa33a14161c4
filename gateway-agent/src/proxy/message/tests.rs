//! Translation between the versions, against the parser of HTTP/1.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::uri::Scheme;
use proptest::prelude::*;

use super::encode::{request_to_h1, request_to_h2};
use super::{Request, Response, fields};
use crate::proxy::h1::encode::Forwarded;
use crate::proxy::h1::{Framing, HeadError, RequestHead, Scanner};
use crate::snapshot::{ForwardedStyle, HeaderChanges, RequestView as _, Rewrite};

const FORWARDED: Forwarded<'_> = Forwarded {
    client: "192.0.2.7",
    proto: "https",
    port: 443,
    local: "192.0.2.1:443",
    request_id: "id",
    style: ForwardedStyle::XForwarded,
    is_trusted: false,
};

fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> http::request::Parts {
    let mut request = http::Request::builder().method(method).uri(uri).body(()).unwrap();
    for (name, value) in headers {
        request.headers_mut().append(
            HeaderName::from_lowercase(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    request.into_parts().0
}

fn to_h1(request: &Request, changes: &HeaderChanges) -> String {
    let mut out = Vec::new();
    request_to_h1(request, FORWARDED, (&Rewrite::default(), changes), &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn request_of_h2_is_one_request_of_h1() {
    let headers = [("x-a", "1"), ("cookie", "a=b"), ("x-a", "2"), ("cookie", "c=d"), ("te", "trailers")];
    let request =
        Request::of_h2(parts("PUT", "https://A.example:443/%61/./b?q=%20", &headers), false).unwrap();
    assert_eq!((request.host(), request.path(), request.query()), ("a.example", "/a/b", Some("q=%20")));
    assert_eq!(request.header("host"), Some(&b"A.example:443"[..]));
    assert_eq!(request.framing, Framing::Chunked);
    let expected = "PUT /a/b?q=%20 HTTP/1.1\r\nhost: A.example:443\r\nx-a: 1\r\nx-a: 2\r\ncookie: a=b; c=d\r\n\
        X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: A.example:443\r\n\
        X-Forwarded-Port: 443\r\nX-Request-Id: id\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!(to_h1(&request, &HeaderChanges::default()), expected);
}

#[test]
fn filters_that_change_nothing_leave_what_is_sent() {
    let headers = [("x-a", "1"), ("x-forwarded-for", "10.0.0.1"), ("x-a", "2"), ("expect", "100-Continue")];
    let request = Request::of_h2(parts("PUT", "https://a.example/", &headers), false).unwrap();
    let sorted = |changes: &HeaderChanges| {
        let sent = to_h1(&request, changes).to_ascii_lowercase();
        let mut lines: Vec<String> = sent.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let none = HeaderChanges::new(["x-absent"], [("", ""); 0], [("", ""); 0]).unwrap();
    assert!(!none.is_empty());
    assert_eq!(sorted(&none), sorted(&HeaderChanges::default()));
}

#[test]
fn request_of_h1_is_one_request_of_h2() {
    let message = "POST http://a.example:81/x?y HTTP/1.1\r\nHost: a.example:81\r\nConnection: x-b\r\nX-B: 1\r\n\
        X-A: 1\r\nTransfer-Encoding: chunked\r\nTE: gzip\r\nUpgrade: h2c\r\nForwarded: for=6\r\n\r\n";
    let mut head = RequestHead::default();
    head.parse(message.as_bytes()).unwrap();
    let request = Request::of_h1(&head, message.as_bytes()).unwrap();
    let sent = request_to_h2(&request, FORWARDED, (&Rewrite::default(), &[]), Scheme::HTTP).unwrap();
    assert_eq!(sent.uri(), "http://a.example:81/x?y");
    let names: Vec<&str> = sent.headers().keys().map(HeaderName::as_str).collect();
    let said =
        ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-request-id"];
    assert_eq!(names, [&["x-a"][..], &said].concat());
    // Of a trusted client.
    let trusted = Forwarded { is_trusted: true, style: ForwardedStyle::Forwarded, ..FORWARDED };
    let sent = request_to_h2(&request, trusted, (&Rewrite::default(), &[]), Scheme::HTTP).unwrap();
    assert_eq!(sent.headers()["forwarded"], "for=6, for=192.0.2.7;host=\"a.example:81\";proto=https");
}

#[test]
fn filters_change_fields_as_they_do_in_h1() {
    let changes = HeaderChanges::new(
        ["x-gone"],
        [("x-set", "1"), ("x-new", "2")],
        [("x-add", "3"), ("x-add", "4"), ("set-cookie", "e=f")],
    )
    .unwrap();
    let mut map = HeaderMap::new();
    for (name, value) in
        [("x-gone", "0"), ("x-set", "0"), ("x-add", "0"), ("x-add", "1"), ("set-cookie", "a=b,c")]
    {
        map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    fields::apply(&changes, &mut map);
    let mut shown: Vec<String> =
        map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    shown.sort();
    let expected =
        ["set-cookie: a=b,c", "set-cookie: e=f", "x-add: 0", "x-add: 1,3,4", "x-new: 2", "x-set: 1"];
    assert_eq!(shown, expected);
}

#[test]
fn what_h1_would_read_otherwise_is_refused() {
    for (method, uri, headers, error) in [
        ("GET", "http://a/", &[("transfer-encoding", "chunked")][..], HeadError::TransferEncoding),
        ("GET", "http://a/", &[("connection", "close")], HeadError::ConnectionOptions),
        ("GET", "http://a/", &[("upgrade", "h2c")], HeadError::ConnectionOptions),
        ("GET", "http://a/", &[("te", "gzip")], HeadError::TransferEncoding),
        ("GET", "http://a/", &[("a\"b", "1")], HeadError::Syntax),
        ("GET", "http://a/", &[("content-length", "")], HeadError::ContentLength),
        ("GET", "http://a/", &[("content-length", "0"), ("content-length", "0")], HeadError::ContentLength),
        ("GET", "http://a/", &[("content-length", "7")], HeadError::ContentLength),
        ("GET", "http://a/", &[("expect", "x")], HeadError::Expectation),
        ("GET", "http://a/", &[("host", "b")], HeadError::Host),
        ("GET", "/", &[], HeadError::Host),
        ("GET", "http://u@a/", &[], HeadError::Host),
        ("GET", "http://a/%00", &[], HeadError::Target),
        ("GET", "*", &[("host", "a")], HeadError::Target),
        ("CONNECT", "a:443", &[], HeadError::Connect),
        ("GET", "ftp://a/", &[], HeadError::Target),
    ] {
        let refused = Request::of_h2(parts(method, uri, headers), true);
        assert_eq!(refused.err(), Some(error), "{method} {uri} {headers:?}");
    }
}

#[test]
fn answers_that_h1_would_read_otherwise_are_refused() {
    let answer = |status: u16, headers: &[(&str, &str)]| {
        let mut response = http::Response::builder().status(status).body(()).unwrap();
        for (name, value) in headers {
            response.headers_mut().append(
                HeaderName::from_lowercase(name.as_bytes()).unwrap(),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        Response::of_h2(response.into_parts().0).map(|response| response.fields.len())
    };
    assert_eq!(answer(200, &[("content-length", "5"), ("content-length", "5")]), Ok(1));
    for (status, headers, error) in [
        // What follows would be taken for another protocol.
        (101, &[][..], HeadError::Status),
        (200, &[("content-length", "5"), ("content-length", "6")], HeadError::ContentLength),
        (200, &[("content-length", "+5")], HeadError::ContentLength),
        (200, &[("a\"b", "1")], HeadError::Syntax),
    ] {
        assert_eq!(answer(status, headers), Err(error), "{status} {headers:?}");
    }
    let mut trailers = HeaderMap::new();
    trailers.append(HeaderName::from_lowercase(b"a\"b").unwrap(), HeaderValue::from_static("1"));
    trailers.append("x-sum", HeaderValue::from_static("1"));
    fields::keep_trailers(&mut trailers);
    assert_eq!(trailers.len(), 1);
}

proptest! {
    /// Whatever passes, our own strict parser of HTTP/1 reads out of it what was routed: one head, to its end.
    #[test]
    fn what_is_sent_by_h1_reads_back_as_what_was_routed(
        method in "[A-Z!#]{1,7}",
        authority in "[a-zA-Z0-9.:@%-]{0,12}",
        path in "/[ -~]{0,16}",
        host in prop::option::of("[a-z.:0-9]{0,8}"),
        fields in prop::collection::vec(
            ("(x|te|host|cookie|expect|content-length|transfer-encoding|connection|keep-alive|x-forwarded-for|upgrade|[a-z!_-]{1,8})",
                "[ -~\u{80}-\u{ff}\t]{0,12}|[0-9]{1,3}|chunked|trailers"),
            0..6,
        ),
        has_ended in any::<bool>(),
    ) {
        let uri = format!("http://{authority}{path}");
        let Ok(request) = http::Request::builder().method(method.as_str()).uri(uri).body(()) else { return Ok(()) };
        let mut parts = request.into_parts().0;
        for (name, value) in host.iter().map(|host| ("host".to_owned(), host.clone())).chain(fields) {
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_lowercase(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()))
            {
                parts.headers.append(name, value);
            }
        }
        let Ok(request) = Request::of_h2(parts, has_ended) else { return Ok(()) };
        let mut out = Vec::new();
        request_to_h1(&request, FORWARDED, (&Rewrite::default(), &[]), &mut out);
        let place = Scanner::request().scan(&out).unwrap();
        prop_assert_eq!(place, Some(0..out.len()));
        let mut head = RequestHead::default();
        head.parse(&out).unwrap();
        let view = head.view(&out);
        prop_assert_eq!(view.path(), request.path());
        prop_assert_eq!(view.query(), request.query());
        prop_assert_eq!(view.method(), request.method());
        prop_assert_eq!(head.host(), request.host());
        // `content-length: 0` is no body in either.
        let framing = if request.framing == Framing::Length(0) { Framing::None } else { request.framing };
        prop_assert_eq!(head.framing, framing);
        prop_assert!(head.keep_alive && head.upgrade.is_none());
        prop_assert_eq!(view.claimed("x-forwarded-for"), Some(&b"192.0.2.7"[..]));
        // And once more into HTTP/2 it is the same.
        let again = Request::of_h1(&head, &out).unwrap();
        prop_assert_eq!((again.host(), again.path(), again.framing), (request.host(), request.path(), framing));
    }
}
