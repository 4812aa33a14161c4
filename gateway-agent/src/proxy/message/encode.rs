//! Messages as HTTP/1 and HTTP/2 send them on.

use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Uri, Version};

use super::{Request, Response, fields};
use crate::proxy::h1::encode::{Forwarded, Persistence, field, status_line};
use crate::proxy::h1::{Framing, HeadError, said};
use crate::snapshot::{HeaderChange, Rewrite};

/// Appends the head of a request for HTTP/1.1. `changes` see what this proxy says of the client as a part of it.
pub fn request_to_h1(
    request: &Request,
    forwarded: Forwarded<'_>,
    (rewrite, changes): (&Rewrite, &[HeaderChange]),
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(request.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(request.target(rewrite).as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    field(out, "host", authority(request, forwarded, rewrite).as_bytes());
    if changes.is_empty() {
        // As most are: no map has to be made that filters could change.
        lines(&request.fields, out);
        say(request, forwarded, out);
    } else {
        lines(&request_fields(request, forwarded, changes), out);
    }
    if request.framing == Framing::Chunked {
        field(out, TRANSFER_ENCODING.as_str(), b"chunked");
    }
    out.extend_from_slice(b"\r\n");
}

/// The head of a request for HTTP/2. `scheme`: of the connection that it goes by.
pub fn request_to_h2(
    request: &Request,
    forwarded: Forwarded<'_>,
    (rewrite, changes): (&Rewrite, &[HeaderChange]),
    scheme: Scheme,
) -> Result<http::Request<()>, HeadError> {
    let authority = authority(request, forwarded, rewrite);
    let authority = Authority::try_from(authority).map_err(|_invalid| HeadError::Host)?;
    let target = PathAndQuery::try_from(request.target(rewrite)).map_err(|_invalid| HeadError::Target)?;
    let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(target).build();
    let mut head = http::Request::new(());
    *head.method_mut() = request.method.clone();
    *head.uri_mut() = uri.map_err(|_invalid| HeadError::Target)?;
    *head.version_mut() = Version::HTTP_2;
    *head.headers_mut() = request_fields(request, forwarded, changes);
    if request.accepts_trailers {
        head.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    }
    Ok(head)
}

fn authority<'a>(request: &'a Request, forwarded: Forwarded<'a>, rewrite: &'a Rewrite) -> &'a str {
    if let Some(hostname) = &rewrite.hostname {
        return hostname;
    }
    if request.authority.is_empty() { forwarded.local } else { &request.authority }
}

fn request_fields(request: &Request, forwarded: Forwarded<'_>, changes: &[HeaderChange]) -> HeaderMap {
    let mut all = HeaderMap::with_capacity(request.fields.len() + N_SAID_USUALLY);
    for (name, value) in &request.fields {
        all.append(name.clone(), value.clone());
    }
    let mut said = Said { fields: all, value: Vec::new() };
    say(request, forwarded, &mut said);
    let mut all = said.fields;
    fields::apply(changes, &mut all);
    all.remove(HOST);
    all
}

/// What this proxy says of the client. The request's own fields have none of it: what a client says there are its claims.
/// What filters replace is replaced after it.
fn say(request: &Request, forwarded: Forwarded<'_>, out: &mut impl said::Lines) {
    let authority = Some(request.authority.as_str()).filter(|authority| !authority.is_empty());
    let claims = request.claims.iter().filter(|_| forwarded.is_trusted);
    // No allocation where there are none.
    let claims: Vec<(&[u8], &[u8])> =
        claims.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())).collect();
    said::append(forwarded, authority, claims.iter().copied(), |_| true, out);
}

/// Four `X-Forwarded-*`, an id, and `TE`.
const N_SAID_USUALLY: usize = 6;

/// What this proxy says of the client, as fields.
struct Said {
    fields: HeaderMap,
    value: Vec<u8>,
}

impl said::Lines for Said {
    fn line(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.value.clear();
        write(&mut self.value);
        let value = HeaderValue::from_bytes(self.value.trim_ascii());
        if let (Some(name), Ok(value)) = (header_name(name), value) {
            self.fields.append(name, value);
        }
    }
}

/// Those that every request gets cost no allocation.
fn header_name(name: &str) -> Option<HeaderName> {
    static USUAL: [(&str, HeaderName); 5] = [
        ("X-Forwarded-For", HeaderName::from_static("x-forwarded-for")),
        ("X-Forwarded-Proto", HeaderName::from_static("x-forwarded-proto")),
        ("X-Forwarded-Host", HeaderName::from_static("x-forwarded-host")),
        ("X-Forwarded-Port", HeaderName::from_static("x-forwarded-port")),
        ("X-Request-Id", HeaderName::from_static("x-request-id")),
    ];
    let usual = USUAL.iter().find(|(usual, _)| *usual == name).map(|(_, known)| known.clone());
    usual.or_else(|| HeaderName::from_bytes(name.as_bytes()).ok())
}

/// Appends the head of an answer for HTTP/1. `framing`: how the body is sent, see [`framing_for_h1`].
pub fn response_to_h1(response: &Response, framing: Framing, persistence: Persistence, out: &mut Vec<u8>) {
    let reason = response.status.canonical_reason().unwrap_or_default();
    status_line(response.status.as_u16(), reason.as_bytes(), out);
    lines(&response.fields, out);
    if framing == Framing::Chunked {
        field(out, TRANSFER_ENCODING.as_str(), b"chunked");
    }
    match persistence {
        Persistence::Close => field(out, "connection", b"close"),
        Persistence::Implied => {}
        Persistence::KeepAlive => field(out, "connection", b"keep-alive"),
    }
    out.extend_from_slice(b"\r\n");
}

/// How HTTP/1 is told where the body of an answer ends. `has_ended`: there is none.
pub fn framing_for_h1(response: &Response, has_ended: bool, is_http_1_0: bool) -> Framing {
    let length = response.fields.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    match (has_ended, length) {
        (true, _) => Framing::None,
        (false, Some(length)) => Framing::Length(length),
        (false, None) if is_http_1_0 => Framing::UntilClose,
        (false, None) => Framing::Chunked,
    }
}

/// Appends the trailer section of a chunked body, with the empty line at its end.
pub fn trailers_to_h1(trailers: Option<&HeaderMap>, out: &mut Vec<u8>) {
    if let Some(trailers) = trailers {
        lines(trailers, out);
    }
    out.extend_from_slice(b"\r\n");
}

fn lines(fields: &HeaderMap, out: &mut Vec<u8>) {
    for (name, value) in fields {
        field(out, name.as_str(), value.as_bytes());
    }
}
