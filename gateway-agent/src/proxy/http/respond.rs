//! Answers that the proxy gives itself.

use crate::proxy::h1::encode::{self, Persistence};
use crate::proxy::h1::request::MethodKind;

/// Appends an answer with a line of text as its body. `lines`: further header lines.
pub(super) fn append(
    status: u16,
    method: MethodKind,
    persistence: Persistence,
    lines: &[u8],
    out: &mut Vec<u8>,
) {
    let reason = reason(status);
    encode::status_line(status, reason.as_bytes(), out);
    out.extend_from_slice(lines);
    match persistence {
        Persistence::Close => out.extend_from_slice(b"Connection: close\r\n"),
        Persistence::Implied => {}
        Persistence::KeepAlive => out.extend_from_slice(b"Connection: keep-alive\r\n"),
    }
    // A 204 has no body to be said the length of (RFC 9110 section 8.6).
    if status == 204 {
        out.extend_from_slice(b"\r\n");
        return;
    }
    // OPTIONS of the server has nothing to say beyond its status.
    if status == 200 {
        out.extend_from_slice(b"Content-Length: 0\r\n\r\n");
        return;
    }
    out.extend_from_slice(b"Content-Type: text/plain\r\nContent-Length: ");
    let length = reason.len() + 1;
    // Reasons are shorter than 100 bytes.
    let digits = [length / 10 % 10, length % 10];
    let shown = digits.iter().skip(usize::from(length < 10));
    out.extend(shown.filter_map(|digit| u8::try_from(*digit).ok()).map(|digit| b'0' + digit));
    out.extend_from_slice(b"\r\n\r\n");
    if method != MethodKind::Head {
        out.extend_from_slice(reason.as_bytes());
        out.push(b'\n');
    }
}

/// RFC 9110 section 15 and RFC 6585.
pub(super) const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        408 => "Request Timeout",
        414 => "URI Too Long",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::{MethodKind, Persistence, append};
    use crate::proxy::h1::{Framing, ResponseHead, Scanner};

    #[test]
    fn own_answers_are_well_formed() {
        for status in [204, 301, 400, 403, 404, 408, 414, 417, 421, 431, 500, 501, 502, 503, 504, 505, 599] {
            let mut out = Vec::new();
            append(status, MethodKind::Other, Persistence::Close, b"A: b\r\n", &mut out);
            let place = Scanner::response().scan(&out).unwrap().unwrap();
            let mut head = ResponseHead::default();
            head.parse(&out[place.clone()], MethodKind::Other).unwrap();
            assert_eq!(head.status, status);
            let length = (out.len() - place.end) as u64;
            assert_eq!(head.framing, if status == 204 { Framing::None } else { Framing::Length(length) });
            assert!(!head.keep_alive);
            let mut of_head = Vec::new();
            append(status, MethodKind::Head, Persistence::Close, b"A: b\r\n", &mut of_head);
            assert_eq!(of_head, out[place]);
        }
    }
}
