//! Whole heads through scanner, parser and encoder.

use proptest::prelude::*;

use super::encode::{self, Answer, Forwarded, Persistence};
use super::request::{Asked, MethodKind};
use super::{Framing, HeadError, RequestHead, ResponseHead, Scanner};
use crate::snapshot::{ForwardedStyle, HeaderChanges, PathChange, RequestView, Rewrite};

const FORWARDED: Forwarded<'static> = Forwarded {
    client: "192.0.2.1",
    proto: "http",
    // Neither is said.
    port: 0,
    request_id: "",
    local: "198.51.100.1:8080",
    style: ForwardedStyle::XForwarded,
    is_trusted: false,
};

fn parse(message: &[u8]) -> Result<RequestHead, HeadError> {
    let place = Scanner::request().scan(message)?.expect("whole head");
    let mut head = RequestHead::default();
    head.parse(&message[place]).map(|()| head)
}

fn refused(message: &str) -> HeadError {
    parse(message.as_bytes()).expect_err(message)
}

/// What the server behind gets for `message`.
fn forwarded(message: &str) -> String {
    let head = parse(message.as_bytes()).unwrap_or_else(|error| panic!("{error}: {message}"));
    let mut out = Vec::new();
    encode::request(&head, message.as_bytes(), FORWARDED, (&KEPT, &[]), &mut out);
    String::from_utf8(out).unwrap()
}

fn answer(message: &str, method: MethodKind) -> Result<ResponseHead, HeadError> {
    let place = Scanner::response().scan(message.as_bytes())?.expect("whole head");
    let mut head = ResponseHead::default();
    head.parse(&message.as_bytes()[place], method).map(|()| head)
}

fn returned(message: &str, method: MethodKind, persistence: Persistence) -> String {
    let mut out = Vec::new();
    encode::response(
        &answer(message, method).unwrap(),
        message.as_bytes(),
        persistence,
        Answer::default(),
        &mut out,
    );
    String::from_utf8(out).unwrap()
}

/// No rewriting.
const KEPT: Rewrite = Rewrite { hostname: None, path: None };

fn changed(changes: &HeaderChanges) -> Answer<'_> {
    Answer { changes, ..Answer::default() }
}

type Changes<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a [(&'a str, &'a str)]);

fn changes((remove, set, add): Changes<'_>) -> HeaderChanges {
    HeaderChanges::new(remove.iter().copied(), set.iter().copied(), add.iter().copied()).unwrap()
}

// `HTTPHeaderFilter` in `httproute_types.go`, its examples among them.
#[test]
fn header_filters_change_what_is_sent_and_nothing_else() {
    let cases: [(Changes<'_>, &str, &str); 9] = [
        ((&[], &[("My-Header", "bar")], &[]), "my-header: foo\r\nB: c", "B: c\r\nmy-header: bar"),
        ((&[], &[], &[("my-header", "bar,baz")]), "My-Header: foo", "my-header: foo,bar,baz"),
        (
            (&["my-header1", "my-header3"], &[], &[]),
            "My-Header1: a\r\nmy-header2: b\r\nMY-HEADER3: c",
            "my-header2: b",
        ),
        ((&[], &[("x", "1")], &[("y", "2")]), "A: b", "A: b\r\nx: 1\r\ny: 2"),
        ((&[], &[("x", "1")], &[]), "X: a\r\nB: c\r\nx: d", "B: c\r\nx: 1"),
        ((&[], &[], &[("x", "3"), ("x", "4")]), "X: 1\r\nB: c\r\nX: 2", "X: 1\r\nB: c\r\nx: 2,3,4"),
        ((&[], &[], &[("x", "1")]), "X:\r\nB: c", "B: c\r\nx: 1"),
        ((&["x"], &[], &[]), "A: b", "A: b"),
        ((&[], &[("x", "")], &[]), "A: b", "A: b\r\nx: "),
    ];
    for (filter, fields, expected) in cases {
        let message = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n");
        let mut out = Vec::new();
        let head = parse(message.as_bytes()).unwrap();
        encode::request(&head, message.as_bytes(), FORWARDED, (&KEPT, &changes(filter)), &mut out);
        let sent = String::from_utf8(out).unwrap();
        // What this proxy says of the client stands between what was kept and what was added.
        let own = |line: &&str| !line.starts_with("X-Forwarded-");
        let sent: Vec<&str> = sent.split("\r\n").filter(own).collect();
        assert_eq!(sent.join("\r\n"), format!("GET / HTTP/1.1\r\nHost: h\r\n{expected}\r\n\r\n"));
        let message = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n\r\n");
        let mut out = Vec::new();
        let answer = answer(&message, MethodKind::Other).unwrap();
        encode::response(
            &answer,
            message.as_bytes(),
            Persistence::Implied,
            changed(&changes(filter)),
            &mut out,
        );
        let sent = String::from_utf8(out).unwrap();
        assert_eq!(sent, format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{expected}\r\n\r\n"));
    }
}

#[test]
fn filters_of_the_owner_overrule_what_the_proxy_says_of_the_client_and_clients_do_not() {
    let message =
        "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 10.9.9.9\r\nX-Forwarded-Proto: gopher\r\n\r\n";
    let head = parse(message.as_bytes()).unwrap();
    let mut out = Vec::new();
    let filter: Changes<'_> =
        (&["X-Forwarded-Host"], &[("X-Forwarded-Proto", "https")], &[("X-Forwarded-For", "198.51.100.9")]);
    encode::request(&head, message.as_bytes(), FORWARDED, (&KEPT, &changes(filter)), &mut out);
    let expected = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.1\r\nx-forwarded-proto: https\r\n\
                    x-forwarded-for: 198.51.100.9\r\n\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn cookies_that_are_set_stay_fields_of_their_own() {
    let message = "HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Expires=Thu, 01 Jan\r\nContent-Length: 0\r\n\r\n";
    let answer = answer(message, MethodKind::Other).unwrap();
    let mut out = Vec::new();
    let filter: Changes<'_> = (&[], &[], &[("set-cookie", "b=2"), ("Set-Cookie", "c=3")]);
    encode::response(&answer, message.as_bytes(), Persistence::Implied, changed(&changes(filter)), &mut out);
    let expected = "HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Expires=Thu, 01 Jan\r\nContent-Length: 0\r\n\
                    set-cookie: b=2\r\nset-cookie: c=3\r\n\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

// O36
#[test]
fn rewritten_host_is_written_once_and_the_query_stays() {
    let path = PathChange::Prefix { matched: "/a".into(), replacement: "/x".into() };
    let rewrite = Rewrite { hostname: Some("one.example.org".into()), path: Some(path) };
    for (message, target, asked) in [
        ("GET /a/b?c=/a HTTP/1.1\r\nA: 1\r\nHost: h:80\r\nB: 2\r\n\r\n", "/x/b?c=/a", "h:80"),
        ("GET http://h/%61?q HTTP/1.1\r\nhOST: other\r\nA: 1\r\nB: 2\r\n\r\n", "/x?q", "h"),
        ("GET /a HTTP/1.0\r\nA: 1\r\nB: 2\r\n\r\n", "/x", ""),
    ] {
        let mut out = Vec::new();
        let head = parse(message.as_bytes()).unwrap();
        encode::request(&head, message.as_bytes(), FORWARDED, (&rewrite, &[]), &mut out);
        let said = if asked.is_empty() { String::new() } else { format!("X-Forwarded-Host: {asked}\r\n") };
        let expected = format!(
            "GET {target} HTTP/1.1\r\nHost: one.example.org\r\nA: 1\r\nB: 2\r\n\
             X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: http\r\n{said}\r\n"
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

#[test]
fn what_cors_owns_is_said_once() {
    let message =
        "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nVary: Accept\r\nContent-Length: 0\r\n\r\n";
    let changes = changes((&[], &[("access-control-allow-origin", "http://x")], &[("b", "1")]));
    let lines = b"Vary: Origin\r\nAccess-Control-Allow-Origin: http://a\r\n";
    let head = answer(message, MethodKind::Other).unwrap();
    let mut out = Vec::new();
    let own = Answer { changes: &changes, lines, owns_cors: true, owns_id: false };
    encode::response(&head, message.as_bytes(), Persistence::Implied, own, &mut out);
    let expected = "HTTP/1.1 200 OK\r\nVary: Accept\r\nContent-Length: 0\r\nb: 1\r\nVary: Origin\r\n\
                    Access-Control-Allow-Origin: http://a\r\n\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

// O16
#[test]
fn ambiguous_framing_is_refused() {
    for fields in [
        "Content-Length: 13\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 13",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: \x0bchunked",
        "Transfer-Encoding:",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\t: chunked",
        " Transfer-Encoding: chunked",
        "X: y\r\n Transfer-Encoding: chunked",
        "Transfer-Encoding:\r\n chunked",
        "Content-Length: 46\r\nContent-Length: 0",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Content-Length:",
        "Content-Length: 99999999999999999999",
        "Content-Length : 5",
        "Host: b",
    ] {
        refused(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
    }
    assert_eq!(refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), HeadError::TransferEncoding);
    assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), HeadError::Host);
    assert_eq!(refused("GET / HTTP/1.1\r\nHost:\r\n\r\n"), HeadError::Host);
}

// O18
#[test]
fn malformed_heads_are_refused() {
    for message in [
        "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n 2\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\rX-B: 2\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX-A: \0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX-\0A: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\tHTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\r\nHost: a\r\n\r\n",
        "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET foo HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / http/1.1\r\nHost: a\r\n\r\n",
    ] {
        refused(message);
    }
    assert_eq!(refused("PRI * HTTP/2.0\r\n\r\n"), HeadError::Version);
    assert_eq!(refused("CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n"), HeadError::Connect);
    assert_eq!(refused("GET / HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n"), HeadError::Expectation);
}

#[test]
fn hop_by_hop_fields_are_removed_and_the_rest_is_kept_in_order() {
    assert_eq!(
        forwarded(
            "GET /x?a=%20b HTTP/1.1\r\nhost: A.Example:8080\r\nConnection: keep-alive, X-Drop, Host, Content-Length\r\n\
             X-One: 1\r\nx-drop: 2\r\nTE: trailers\r\nKeep-Alive: 5\r\nX-Two:2  \r\nProxy-Connection: x\r\n\
             Upgrade: websocket\r\nContent-Length: 0\r\n\r\n"
        ),
        "GET /x?a=%20b HTTP/1.1\r\nhost: A.Example:8080\r\nX-One: 1\r\nX-Two:2  \r\nContent-Length: 0\r\n\
         X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: A.Example:8080\r\n\r\n"
    );
}

// O16: servers that make variables of names read `_` and `-` alike.
#[test]
fn names_that_could_be_taken_for_framing_go_no_further() {
    let message = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent_Length: 0\r\nTransfer_Encoding: chunked\r\n\
        transfer-ENCODING_: x\r\n\r\n";
    let sent = forwarded(message);
    assert!(
        sent.starts_with("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\ntransfer-ENCODING_: x\r\n"),
        "{sent}"
    );
    assert!(!sent.contains("Content_Length") && !sent.contains("Transfer_Encoding"), "{sent}");
}

#[test]
fn what_the_client_says_of_its_origin_is_not_believed() {
    assert_eq!(
        forwarded(
            "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\nX-Real-Ip: 1.2.3.4\r\n\
             X_Forwarded_For: 1.2.3.4\r\nX-Forwarded-Prefix: /admin\r\n\r\n"
        ),
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: http\r\n\
         X-Forwarded-Host: a\r\n\r\n"
    );
}

#[test]
fn what_the_client_says_of_its_origin_is_not_for_routes_to_match() {
    let message = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\nX-Request-Id: b\r\nA: c\r\n\r\n";
    let head = parse(message.as_bytes()).unwrap();
    let view = head.view(message.as_bytes());
    for (name, value) in [("x-forwarded-proto", "https"), ("x-request-id", "b")] {
        assert_eq!((view.header(name), view.claimed(name)), (None, Some(value.as_bytes())));
    }
    assert_eq!((view.header("a"), view.claimed("a")), (Some(&b"c"[..]), None));
}

#[test]
fn trace_context_that_is_withheld_is_not_sent() {
    let message = "GET / HTTP/1.1\r\nHost: a\r\nTraceParent: x\r\nB: c\r\ntracestate: y\r\ntracestate: z\r\nD: e\r\n\r\n";
    let mut head = parse(message.as_bytes()).unwrap();
    assert!(head.has_trace);
    let bytes = message.as_bytes();
    assert_eq!(head.values(bytes, "tracestate").collect::<Vec<_>>(), [b"y", b"z"]);
    head.withhold(bytes, "tracestate");
    let sent = |head: &RequestHead| {
        let mut out = Vec::new();
        encode::request(head, bytes, FORWARDED, (&KEPT, &[]), &mut out);
        String::from_utf8(out).unwrap()
    };
    assert!(sent(&head).starts_with("GET / HTTP/1.1\r\nHost: a\r\nTraceParent: x\r\nB: c\r\nD: e\r\nX-F"));
    head.withhold(bytes, "traceparent");
    assert!(sent(&head).starts_with("GET / HTTP/1.1\r\nHost: a\r\nB: c\r\nD: e\r\nX-F"));
}

// O22
#[test]
fn absolute_form_decides_the_host_and_is_forwarded_in_origin_form() {
    let message = "GET http://my.test.io:80/my-path?q HTTP/1.1\r\nHost: other\r\nA: b\r\n\r\n";
    assert_eq!(parse(message.as_bytes()).unwrap().host(), "my.test.io");
    assert_eq!(
        forwarded(message),
        "GET /my-path?q HTTP/1.1\r\nHost: my.test.io:80\r\nA: b\r\nX-Forwarded-For: 192.0.2.1\r\n\
         X-Forwarded-Proto: http\r\nX-Forwarded-Host: my.test.io:80\r\n\r\n"
    );
    assert!(forwarded("GET http://h?x=1 HTTP/1.1\r\nHost: h\r\n\r\n").starts_with("GET /?x=1 HTTP/1.1\r\n"));
    assert!(forwarded("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n").starts_with("GET / HTTP/1.1\r\n"));
    assert_eq!(refused("GET http://u@h/ HTTP/1.1\r\nHost: h\r\n\r\n"), HeadError::Host);
    assert_eq!(refused("GET http:///x HTTP/1.1\r\nHost: h\r\n\r\n"), HeadError::Host);
    assert_eq!(refused("GET http://h/ HTTP/1.1\r\nHost: a b\r\n\r\n"), HeadError::Host);
}

#[test]
fn options_asterisk_asks_for_the_server() {
    let head = parse(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(head.asked, Asked::Server);
}

// O21
#[test]
fn http_1_0_needs_no_host_and_closes_unless_told() {
    let head = parse(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    assert!(!head.keep_alive && head.is_http_1_0);
    assert_eq!(head.host(), "");
    assert!(parse(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").unwrap().keep_alive);
    assert!(forwarded("GET / HTTP/1.0\r\n\r\n").starts_with("GET / HTTP/1.1\r\nHost: 198.51.100.1:8080\r\n"));
}

// O24
#[test]
fn matched_path_is_the_forwarded_path() {
    let message = "GET /alpha/%2e%2e/%62eta?x=/../ HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = parse(message.as_bytes()).unwrap();
    assert_eq!(head.view(message.as_bytes()).path(), "/beta");
    assert!(forwarded(message).starts_with("GET /beta?x=/../ HTTP/1.1\r\n"));
}

// O33
#[test]
fn upgrade_is_passed_on_when_asked_for_in_full() {
    let start = "GET / HTTP/1.1\r\nHost: a\r\n";
    let ask = |fields: &str| {
        forwarded(&format!("{start}{fields}\r\n\r\n")).contains("Connection: upgrade\r\nUpgrade:")
    };
    assert!(ask("Connection: keep-alive, Upgrade\r\nUpgrade: websocket"));
    assert!(!ask("Upgrade: websocket"));
    assert!(!ask("Connection: upgrade"));
    assert!(!ask("Connection: upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"));
    assert!(!ask("Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 5"));
}

#[test]
fn first_of_equal_header_names_is_seen_in_any_case() {
    let message = b"GET / HTTP/1.1\r\nHost: a\r\nX-Env: one\r\nx-env: two\r\n\r\n";
    let head = parse(message).unwrap();
    assert_eq!(head.view(message).header("x-env"), Some(&b"one"[..]));
    assert_eq!(head.view(message).header("x-other"), None);
}

// O20
#[test]
fn answers_without_body_end_with_their_head() {
    let framing = |message, method| answer(message, method).unwrap().framing;
    let other = MethodKind::Other;
    assert_eq!(framing("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n", MethodKind::Head), Framing::None);
    assert_eq!(framing("HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\n", other), Framing::None);
    assert_eq!(framing("HTTP/1.1 204 X\r\nTransfer-Encoding: chunked\r\n\r\n", other), Framing::None);
    assert_eq!(framing("HTTP/1.1 100 X\r\nContent-Length: 168\r\n\r\n", other), Framing::None);
    assert_eq!(framing("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", other), Framing::None);
    assert_eq!(framing("HTTP/1.1 200 OK\r\n\r\n", other), Framing::UntilClose);
    assert_eq!(
        returned(
            "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n",
            other,
            Persistence::Implied
        ),
        "HTTP/1.1 204 No\r\nA: b\r\n\r\n"
    );
    assert_eq!(
        returned("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n", MethodKind::Head, Persistence::Close),
        "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nConnection: close\r\n\r\n"
    );
}

#[test]
fn answers_with_ambiguous_framing_are_refused() {
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding : chunked",
        "A: b\r\n c",
        "A: b\n",
    ] {
        assert!(
            answer(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n"), MethodKind::Other).is_err(),
            "{fields}"
        );
    }
    for message in [
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 099 X\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
    ] {
        assert!(answer(message, MethodKind::Other).is_err(), "{message}");
    }
}

#[test]
fn repeated_equal_length_of_an_answer_is_forwarded_once() {
    assert_eq!(
        returned(
            "HTTP/1.1 200 \r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            MethodKind::Other,
            Persistence::Implied
        ),
        "HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\n"
    );
}

#[test]
fn answer_of_http_1_0_is_sent_on_as_http_1_1() {
    assert_eq!(
        returned(
            "HTTP/1.0 404 Not Found\r\nConnection: keep-alive\r\nContent-Length: 1\r\nKeep-Alive: 5\r\n\r\n",
            MethodKind::Other,
            Persistence::KeepAlive
        ),
        "HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\n"
    );
}

// O25
#[test]
fn a_hundred_and_fifty_fields_pass() {
    let fields: String = (0..150).map(|n| format!("X-{n}: {n}\r\n")).collect();
    assert!(forwarded(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).contains("X-149: 149\r\n"));
}

#[test]
fn recycled_head_remembers_nothing() {
    let first = b"POST http://b/%61?x HTTP/1.1\r\nHost: b\r\nConnection: upgrade\r\nUpgrade: x\r\nA: b\r\nExpect: 100-continue\r\n\r\n";
    let second = b"GET / HTTP/1.0\r\n\r\n";
    let mut head = parse(first).unwrap();
    head.parse(second).unwrap();
    let fresh = parse(second).unwrap();
    let mut outs = [Vec::new(), Vec::new()];
    for (head, out) in [&head, &fresh].into_iter().zip(&mut outs) {
        encode::request(head, second, FORWARDED, (&KEPT, &[]), out);
    }
    assert_eq!(outs[0], outs[1]);
    assert_eq!((head.host(), head.expects_continue, head.upgrade), ("", false, None));
}

fn token() -> impl Strategy<Value = String> {
    "[A-Za-z][A-Za-z0-9-]{0,12}".prop_filter("ordinary field", |name| {
        super::field::Meaning::of(name.as_bytes()) == super::field::Meaning::EndToEnd
    })
}

proptest! {
    #[test]
    fn parsing_what_was_encoded_gives_the_same(
        method in "(GET|POST|HEAD|PURGE)",
        path in "/[a-z0-9/%20]{0,12}",
        query in prop::option::of("[a-z=&%]{0,8}"),
        fields in prop::collection::vec((token(), "[!-~]([ -~]{0,10}[!-~])?"), 0..12),
        length in prop::option::of(0_u64..1_000_000),
    ) {
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let mut message = format!("{method} {path}{query} HTTP/1.1\r\nHost: a.example\r\n");
        for (name, value) in &fields {
            message.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(length) = length {
            message.push_str(&format!("Content-Length: {length}\r\n"));
        }
        message.push_str("\r\n");
        let Ok(first) = parse(message.as_bytes()) else { return Ok(()) };
        let once = forwarded(&message);
        let second = parse(once.as_bytes()).unwrap();
        prop_assert_eq!(&forwarded(&once), &once);
        prop_assert_eq!(second.framing, first.framing);
        prop_assert_eq!(second.host(), first.host());
        let (first, second) = (first.view(message.as_bytes()), second.view(once.as_bytes()));
        prop_assert_eq!(second.path(), first.path());
        prop_assert_eq!(second.query(), first.query());
        for (name, _) in &fields {
            let name = name.to_ascii_lowercase();
            prop_assert_eq!(second.header(&name), first.header(&name));
        }
    }

    #[test]
    fn no_bytes_make_the_parsers_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), start in 0_usize..4) {
        let starts: [&[u8]; 4] = [b"", b"GET / HTTP/1.1\r\nHost: a\r\n", b"HTTP/1.1 200 OK\r\n", b"POST http://a/"];
        let message = [starts[start], &bytes, b"\r\n\r\n"].concat();
        if let Ok(Some(place)) = Scanner::request().scan(&message)
            && RequestHead::default().parse(&message[place.clone()]).is_ok()
        {
            let mut head = RequestHead::default();
            head.parse(&message[place.clone()]).unwrap();
            encode::request(&head, &message[place], FORWARDED, (&KEPT, &[]), &mut Vec::new());
        }
        if let Ok(Some(place)) = Scanner::response().scan(&message) {
            ResponseHead::default().parse(&message[place], MethodKind::Other).ok();
        }
    }
}
