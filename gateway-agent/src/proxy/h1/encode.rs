//! Heads as they are sent on. Kept fields are copied in runs, as they came; a head is some hundred bytes, and one
//! copy into a recycled buffer costs less than a scatter list of its parts. Bodies are never copied here.

use super::field::{Field, Span};
use super::request::RequestHead;
use super::response::ResponseHead;

/// What this proxy says of the client, one per connection.
#[derive(Clone, Copy, Debug)]
pub struct Forwarded<'a> {
    /// The client's address.
    pub client: &'a str,
    /// `http` or `https`: what the client spoke.
    pub proto: &'static str,
    /// The authority for requests that name none (HTTP/1.0): the address that was connected to.
    pub local: &'a str,
}

/// What the client is told of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    Close,
    /// HTTP/1.1's default: nothing to say.
    Implied,
    /// HTTP/1.0 must be told.
    KeepAlive,
}

/// Appends the head for the server behind, always HTTP/1.1 in origin form.
pub fn request(request: &RequestHead, head: &[u8], forwarded: Forwarded<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(request.method.bytes(head));
    out.push(b' ');
    out.extend_from_slice(request.path(head).as_bytes());
    if let Some(query) = request.query {
        out.push(b'?');
        out.extend_from_slice(query.bytes(head));
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let authority = request.authority(head);
    if authority.is_none() || request.authority.is_some() {
        field(out, "Host", authority.unwrap_or(forwarded.local).as_bytes());
    }
    fields(&request.fields, request.fields_end, head, out);
    field(out, "X-Forwarded-For", forwarded.client.as_bytes());
    field(out, "X-Forwarded-Proto", forwarded.proto.as_bytes());
    if let Some(authority) = authority {
        field(out, "X-Forwarded-Host", authority.as_bytes());
    }
    upgrade(request.upgrade, head, out);
    out.extend_from_slice(b"\r\n");
}

/// Appends the head for the client.
pub fn response(response: &ResponseHead, head: &[u8], persistence: Persistence, out: &mut Vec<u8>) {
    status_line(response.status, response.reason.bytes(head), out);
    fields(&response.fields, response.fields_end, head, out);
    match persistence {
        Persistence::Close => out.extend_from_slice(b"Connection: close\r\n"),
        Persistence::Implied => {}
        Persistence::KeepAlive => out.extend_from_slice(b"Connection: keep-alive\r\n"),
    }
    upgrade(response.upgrade, head, out);
    out.extend_from_slice(b"\r\n");
}

/// `HTTP/1.1 200 OK` and its line end.
pub fn status_line(status: u16, reason: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    for divisor in [100, 10, 1] {
        // A digit is below 10.
        out.push(b'0' + u8::try_from(status / divisor % 10).unwrap_or(0));
    }
    out.push(b' ');
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
}

fn upgrade(value: Option<Span>, head: &[u8], out: &mut Vec<u8>) {
    if let Some(value) = value {
        out.extend_from_slice(b"Connection: upgrade\r\n");
        field(out, "Upgrade", value.bytes(head));
    }
}

fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Copies the lines of kept fields, neighbours together.
fn fields(fields: &[Field], end: usize, head: &[u8], out: &mut Vec<u8>) {
    let mut run: Option<usize> = None;
    for field in fields {
        let start = field.name.start();
        match (field.keep, run) {
            (true, None) => run = Some(start),
            (false, Some(run_start)) => {
                out.extend_from_slice(head.get(run_start..start).unwrap_or_default());
                run = None;
            }
            _ => {}
        }
    }
    if let Some(run_start) = run {
        out.extend_from_slice(head.get(run_start..end).unwrap_or_default());
    }
}
