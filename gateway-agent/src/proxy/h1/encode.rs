//! Heads as they are sent on. Kept fields are copied in runs, as they came; a head is some hundred bytes, and one
//! copy into a recycled buffer costs less than a scatter list of its parts. Bodies are never copied here.

use super::field::{Field, Span};
use super::request::RequestHead;
use super::response::ResponseHead;
use super::said;
use crate::snapshot::{Cors, ForwardedStyle, HeaderChange, Rewrite};

/// What this proxy says of the client and of its request.
#[derive(Clone, Copy, Debug)]
pub struct Forwarded<'a> {
    /// The client's address.
    pub client: &'a str,
    /// `http` or `https`: what the client spoke.
    pub proto: &'static str,
    /// Where it came to, as the Gateway has it; 0: not known.
    pub port: u16,
    /// The authority for requests that name none (HTTP/1.0): the address that was connected to.
    pub local: &'a str,
    /// Empty: none is said.
    pub request_id: &'a str,
    pub style: ForwardedStyle,
    /// The client's own word counts too.
    pub is_trusted: bool,
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

/// What is done to the head of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer<'a> {
    pub changes: &'a [HeaderChange],
    /// Header lines of the proxy's own.
    pub lines: &'a [u8],
    /// Fields that CORS owns are the proxy's to say: what the server behind or a change says of them is dropped.
    pub owns_cors: bool,
    /// The same of the request's id.
    pub owns_id: bool,
}

/// Appends the head for the server behind, always HTTP/1.1 in origin form. `changes` see what this proxy says of the
/// client as a part of the request, and nothing else that it writes itself.
pub fn request(
    request: &RequestHead,
    head: &[u8],
    forwarded: Forwarded<'_>,
    (rewrite, changes): (&Rewrite, &[HeaderChange]),
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(request.method.bytes(head));
    out.push(b' ');
    for piece in rewrite.path(request.path(head)) {
        out.extend_from_slice(piece.as_bytes());
    }
    if let Some(query) = request.query {
        out.push(b'?');
        out.extend_from_slice(query.bytes(head));
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let authority = request.authority(head);
    if let Some(hostname) = &rewrite.hostname {
        field(out, "Host", hostname.as_bytes());
    } else if authority.is_none() || request.authority.is_some() {
        field(out, "Host", authority.unwrap_or(forwarded.local).as_bytes());
    }
    let is_replaced = |name: &[u8]| rewrite.hostname.is_some() && name.eq_ignore_ascii_case(b"host");
    fields((&request.fields, request.fields_end), head, changes, is_replaced, out);
    let claims = super::field::claims(if forwarded.is_trusted { &request.fields } else { &[] }, head);
    let is_said = |name: &str| change_of(name.as_bytes(), changes).is_none_or(|change| change.keeps);
    said::append(forwarded, authority, claims, is_said, out);
    // Behind those, so that values are added to them.
    added(&request.fields, head, changes, out);
    upgrade(request.upgrade, head, out);
    out.extend_from_slice(b"\r\n");
}

/// Appends the head for the client.
pub fn response(
    response: &ResponseHead,
    head: &[u8],
    persistence: Persistence,
    answer: Answer<'_>,
    out: &mut Vec<u8>,
) {
    let Answer { changes, lines, owns_cors, owns_id } = answer;
    let is_replaced =
        |name: &[u8]| owns_cors && Cors::owns(name) || owns_id && name.eq_ignore_ascii_case(b"x-request-id");
    status_line(response.status, response.reason.bytes(head), out);
    fields((&response.fields, response.fields_end), head, changes, is_replaced, out);
    let changes = changes.iter().filter(|change| !is_replaced(change.name.as_bytes()));
    added(&response.fields, head, changes, out);
    out.extend_from_slice(lines);
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

/// One line.
pub fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Copies the lines of kept fields, neighbours together.
fn fields(
    (fields, end): (&[Field], usize),
    head: &[u8],
    changes: &[HeaderChange],
    is_replaced: impl Fn(&[u8]) -> bool,
    out: &mut Vec<u8>,
) {
    let mut run: Option<usize> = None;
    for (at, field) in fields.iter().enumerate() {
        let start = field.name.start();
        let is_copied = field.keep
            && (changes.is_empty() || stays(at, fields, head, changes))
            && !is_replaced(field.name.bytes(head));
        match (is_copied, run) {
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

/// Whether the field at `at` is copied as it is: neither removed nor written anew with more values.
fn stays(at: usize, fields: &[Field], head: &[u8], changes: &[HeaderChange]) -> bool {
    let Some(field) = fields.get(at) else { return false };
    let Some(change) = change_of(field.name.bytes(head), changes) else { return true };
    change.keeps && joined_to(change, fields, head) != Some(at)
}

/// Appends what `changes` add. Values follow that of the last field of the name, separated by commas, as the API's
/// examples have it; but not for `Set-Cookie`, whose values may hold commas (RFC 9110 section 5.3).
fn added<'c>(
    fields: &[Field],
    head: &[u8],
    changes: impl IntoIterator<Item = &'c HeaderChange>,
    out: &mut Vec<u8>,
) {
    for change in changes.into_iter().filter(|change| !change.values.is_empty()) {
        if !is_list(change) {
            change.values.iter().for_each(|value| field(out, &change.name, value.as_bytes()));
            continue;
        }
        let old = joined_to(change, fields, head).and_then(|at| fields.get(at));
        let old = old.map(|field| field.value.bytes(head)).filter(|value| !value.is_empty());
        out.extend_from_slice(change.name.as_bytes());
        out.extend_from_slice(b": ");
        let values = old.into_iter().chain(change.values.iter().map(|value| value.as_bytes()));
        for (n, value) in values.enumerate() {
            if n > 0 {
                out.push(b',');
            }
            out.extend_from_slice(value);
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The field that values are appended to.
fn joined_to(change: &HeaderChange, fields: &[Field], head: &[u8]) -> Option<usize> {
    if !change.keeps || change.values.is_empty() || !is_list(change) {
        return None;
    }
    fields
        .iter()
        .rposition(|field| field.keep && field.name.bytes(head).eq_ignore_ascii_case(change.name.as_bytes()))
}

fn is_list(change: &HeaderChange) -> bool {
    &*change.name != "set-cookie"
}

/// What is done to fields called `name`, in any case.
fn change_of<'c>(name: &[u8], changes: &'c [HeaderChange]) -> Option<&'c HeaderChange> {
    changes.iter().find(|change| change.name.as_bytes().eq_ignore_ascii_case(name))
}
