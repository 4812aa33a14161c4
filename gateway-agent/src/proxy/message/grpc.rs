//! What gRPC adds to HTTP/2: errors as trailers, and deadlines. After the protocol's own description,
//! `grpc/doc/PROTOCOL-HTTP2.md` and `http-grpc-status-mapping.md`.

use std::time::Duration;

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::Response;

pub const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The codes that the proxy itself answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    DeadlineExceeded,
    Internal,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
    Unknown,
}

impl Code {
    /// What an error of HTTP means to gRPC.
    pub const fn of_status(status: u16) -> Self {
        match status {
            // An invalid backend is UNAVAILABLE by `GRPCRouteRule.backendRefs`.
            500 | 502 | 503 => Self::Unavailable,
            404 | 501 | 505 => Self::Unimplemented,
            408 | 504 => Self::DeadlineExceeded,
            431 => Self::ResourceExhausted,
            400..500 => Self::Internal,
            _ => Self::Unknown,
        }
    }

    pub const fn number(self) -> u32 {
        match self {
            Self::Unknown => 2,
            Self::DeadlineExceeded => 4,
            Self::ResourceExhausted => 8,
            Self::Unimplemented => 12,
            Self::Internal => 13,
            Self::Unavailable => 14,
        }
    }
}

/// What a call has ended with, by the fields of its head or its trailers.
pub fn status(fields: &HeaderMap) -> Option<u32> {
    fields.get(GRPC_STATUS)?.to_str().ok()?.parse().ok()
}

/// Whether a content type is gRPC's: `application/grpc`, with a coding of messages (`+proto`) or without. gRPC-Web is
/// another protocol.
pub fn is_grpc(content_type: Option<&[u8]>) -> bool {
    let Some(value) = content_type else { return false };
    let (name, rest) = value.split_at(value.len().min(16));
    name.eq_ignore_ascii_case(b"application/grpc") && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
}

/// The trailers of a call that failed.
pub fn trailers(code: Code, message: &'static str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert(GRPC_STATUS, HeaderValue::from(code.number()));
    // Texts of our own need no escapes.
    fields.insert(GRPC_MESSAGE, HeaderValue::from_static(message));
    fields
}

/// An answer that is nothing but its trailers ("Trailers-Only").
pub fn trailers_only(code: Code, message: &'static str) -> Response {
    let mut fields = trailers(code, message);
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Response { status: StatusCode::OK, fields }
}

/// `grpc-timeout`: at most 8 digits and a unit. `None`: not one, which says nothing.
pub fn timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    match unit {
        b'H' => Some(Duration::from_secs(number * 3600)),
        b'M' => Some(Duration::from_secs(number * 60)),
        b'S' => Some(Duration::from_secs(number)),
        b'm' => Some(Duration::from_millis(number)),
        b'u' => Some(Duration::from_micros(number)),
        b'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Code, is_grpc, timeout};

    #[test]
    fn content_types_of_grpc_are_told_from_others() {
        for (value, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("Application/GRPC+json", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/grpcx", false),
            ("application/json", false),
            ("", false),
        ] {
            assert_eq!(is_grpc(Some(value.as_bytes())), expected, "{value}");
        }
        assert!(!is_grpc(None));
    }

    #[test]
    fn timeouts_have_a_unit_and_at_most_eight_digits() {
        for (value, expected) in [
            ("1S", Some(Duration::from_secs(1))),
            ("250m", Some(Duration::from_millis(250))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("7u", Some(Duration::from_micros(7))),
            ("7n", Some(Duration::from_nanos(7))),
            ("2M", Some(Duration::from_secs(120))),
            ("100000000S", None),
            ("S", None),
            ("1", None),
            ("1s", None),
            ("-1S", None),
            ("", None),
        ] {
            assert_eq!(timeout(value.as_bytes()), expected, "{value}");
        }
    }

    // O29
    #[test]
    fn errors_of_the_proxy_have_the_codes_that_the_api_and_clients_expect() {
        for (status, code) in [
            (404, Code::Unimplemented),
            (500, Code::Unavailable),
            (502, Code::Unavailable),
            (503, Code::Unavailable),
            (504, Code::DeadlineExceeded),
            (431, Code::ResourceExhausted),
            (400, Code::Internal),
        ] {
            assert_eq!(Code::of_status(status), code, "{status}");
        }
    }
}
