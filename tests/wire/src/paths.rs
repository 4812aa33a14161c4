//! What the data path does for each request, connection or packet, as work that can be repeated and counted.
//!
//! `cargo xtask instructions` runs it under valgrind and holds the counts against those on record.

mod tables;

use std::hint::black_box;

use gateway_common::address::Address;
use gateway_common::{hash, maglev};
use http::request::Parts;
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use crate::proxy::h1::chunked::Decoder;
use crate::proxy::h1::encode::{self, Answer, Forwarded, Persistence};
use crate::proxy::h1::request::MethodKind;
use crate::proxy::h1::{Framing, RequestHead, ResponseHead, Scanner};
use crate::proxy::message::encode::{request_to_h1, request_to_h2, response_to_h1};
use crate::proxy::message::{Request, Response};
use crate::proxy::tls::hello::{Parser, Progress};
use crate::reading::{FORWARDED, encode_request};
use crate::snapshot::{ForwardedStyle, Rewrite};

/// Does the work once; the argument counts the times.
pub type Work = Box<dyn FnMut(usize)>;

/// One of the hot paths.
#[derive(Clone, Copy, Debug)]
pub struct HotPath {
    pub name: &'static str,
    pub prepare: fn() -> Work,
}

/// Times that each is done. Enough that what only the first does weighs nothing.
pub const TIMES: usize = 1000;

pub const HOT_PATHS: &[HotPath] = &[
    HotPath { name: "request", prepare: request },
    HotPath { name: "response", prepare: response },
    HotPath { name: "chunked_16", prepare: chunked },
    HotPath { name: "h2_request_to_h1", prepare: request_of_h2 },
    HotPath { name: "h2_response_to_h1", prepare: response_of_h2 },
    HotPath { name: "h1_response_to_h2", prepare: response_for_h2 },
    HotPath { name: "h2_request_to_h2", prepare: request_for_h2 },
    HotPath { name: "client_hello", prepare: client_hello },
    HotPath { name: "lookup_10", prepare: || tables::lookup(1, 10) },
    HotPath { name: "lookup_100000_hosts", prepare: || tables::lookup(100_000, 1) },
    HotPath { name: "lookup_100000_paths", prepare: || tables::lookup(1, 100_000) },
    HotPath { name: "l4_backend", prepare: l4_backend },
];

impl HotPath {
    pub fn named(name: &str) -> Option<&'static Self> {
        HOT_PATHS.iter().find(|path| path.name == name)
    }
}

/// As a browser asks.
const REQUEST: &[u8] = b"GET /service-3/items/42?page=2&sort=name HTTP/1.1\r\nHost: host-0.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\nCookie: session=0123456789abcdef; theme=dark\r\n\
    Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nPriority: u=0, i\r\n\r\n";

/// Without parameters of a Gateway.
const SAID: Forwarded<'static> = Forwarded { style: ForwardedStyle::XForwarded, ..FORWARDED };

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Mon, 30 Nov 2026 12:00:00 GMT\r\n\
    Content-Type: application/json; charset=utf-8\r\nContent-Length: 5120\r\nConnection: keep-alive\r\n\
    Cache-Control: no-cache, private\r\nETag: \"0123456789abcdef\"\r\nVary: Accept-Encoding\r\n\r\n";

/// A post-quantum one: 1.4 KB.
const CLIENT_HELLO: &[u8] = include_bytes!("../../../fuzz/corpus/client_hello/o01-post-quantum");

/// From the bytes of a request to those that the server behind gets.
fn request() -> Work {
    let table = tables::table(1, 10);
    let mut head = RequestHead::default();
    let mut out = Vec::with_capacity(4096);
    Box::new(move |_| {
        let place = Scanner::request().scan(black_box(REQUEST)).expect("well-formed").expect("whole");
        let bytes = &REQUEST[place];
        head.parse(bytes).expect("well-formed");
        let listener = table.listeners.lookup(head.host()).expect("a listener");
        black_box(listener.find(head.host(), &head.view(bytes)).expect("a route"));
        out.clear();
        encode_request(&head, bytes, SAID, &mut out);
        black_box(&out);
    })
}

fn response() -> Work {
    let mut head = ResponseHead::default();
    let mut out = Vec::with_capacity(4096);
    Box::new(move |_| {
        let place = Scanner::response().scan(black_box(RESPONSE)).expect("well-formed").expect("whole");
        let bytes = &RESPONSE[place];
        head.parse(bytes, MethodKind::Other).expect("well-formed");
        out.clear();
        encode::response(&head, bytes, Persistence::Implied, Answer::default(), &mut out);
        black_box(&out);
    })
}

/// Sixteen chunks of 1 KiB.
fn chunked() -> Work {
    let chunk = [b"400\r\n".as_slice(), &[b'x'; 1024], b"\r\n"].concat();
    let body = [chunk.repeat(16).as_slice(), b"0\r\n\r\n"].concat();
    Box::new(move |_| {
        let mut decoder = Decoder::default();
        let mut rest = black_box(body.as_slice());
        while !decoder.is_done() {
            let segment = decoder.next(rest).expect("well-formed");
            rest = &rest[segment.framing + segment.data..];
        }
    })
}

fn request_of_h2() -> Work {
    let mut parts = requests_of_h2();
    let mut out = Vec::with_capacity(4096);
    Box::new(move |_| {
        let request = Request::of_h2(parts(), true).expect("well-formed");
        out.clear();
        request_to_h1(&request, SAID, (&Rewrite::default(), &[]), &mut out);
        black_box(&out);
    })
}

fn request_for_h2() -> Work {
    let mut parts = requests_of_h2();
    Box::new(move |_| {
        let request = Request::of_h2(parts(), true).expect("well-formed");
        let head = request_to_h2(&request, SAID, (&Rewrite::default(), &[]), Scheme::HTTP);
        black_box(head.expect("well-formed"));
    })
}

/// The codec hands each over as its own; made before the counting begins.
fn requests_of_h2() -> impl FnMut() -> Parts {
    let mut request = http::Request::new(());
    *request.uri_mut() = Uri::from_static("https://host-0.example.com/service-3/items/42?page=2&sort=name");
    *request.headers_mut() = fields(REQUEST);
    request.headers_mut().remove("host");
    request.headers_mut().remove("connection");
    let mut parts: Vec<_> = (0..2 * TIMES).map(|_| request.clone().into_parts().0).collect();
    move || parts.pop().unwrap_or_else(|| request.clone().into_parts().0)
}

/// From the bytes of an answer to what the codec of HTTP/2 takes.
fn response_for_h2() -> Work {
    let mut head = ResponseHead::default();
    Box::new(move |_| {
        let place = Scanner::response().scan(black_box(RESPONSE)).expect("well-formed").expect("whole");
        let bytes = &RESPONSE[place];
        head.parse(bytes, MethodKind::Other).expect("well-formed");
        black_box(Response::of_h1(&head, bytes).expect("well-formed"));
    })
}

fn response_of_h2() -> Work {
    let mut response = http::Response::new(());
    *response.headers_mut() = fields(RESPONSE);
    response.headers_mut().remove("connection");
    let mut parts: Vec<_> = (0..2 * TIMES).map(|_| response.clone().into_parts().0).collect();
    let mut out = Vec::with_capacity(4096);
    Box::new(move |_| {
        let parts = parts.pop().unwrap_or_else(|| response.clone().into_parts().0);
        let response = Response::of_h2(parts).expect("well-formed");
        out.clear();
        response_to_h1(&response, Framing::Length(5120), Persistence::Implied, &mut out);
        black_box(&out);
    })
}

fn fields(head: &[u8]) -> HeaderMap {
    let text = str::from_utf8(head).expect("ASCII");
    let lines = text.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines
        .map(|(name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            (name, HeaderValue::from_str(value).expect("a value"))
        })
        .collect()
}

fn client_hello() -> Work {
    Box::new(|_| {
        let progress = Parser::default().feed(black_box(CLIENT_HELLO));
        assert!(matches!(progress, Progress::Hello(_)));
        black_box(progress);
    })
}

/// Which of twenty endpoints a new flow goes to.
fn l4_backend() -> Work {
    let target = |port| maglev::Target { identity: hash::endpoint(&address(10), port), weight: 1 };
    let targets: Vec<_> = (8000..8020).map(target).collect();
    let n_slots = maglev::size_for(&targets);
    let table = maglev::build(&targets, n_slots);
    let (client, vip) = (address(7), address(1));
    Box::new(move |n| {
        let port = u16::try_from(n % 60_000).expect("below 60,000");
        let flow = hash::flow(black_box(&client), port, &vip, 443, 6);
        let slot = maglev::slot(flow, n_slots).expect("not empty");
        black_box(table.get(slot as usize));
    })
}

fn address(last: u8) -> Address {
    Address::from_ip([192, 0, 2, last].into())
}
