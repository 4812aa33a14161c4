//! HTTP syntax that configuration and requests must be read by alike.
//!
//! **Invariant:** pure, and knows neither configuration nor connections. The syntax of whole messages is
//! [`crate::proxy::h1`]'s.

pub mod duration;
pub mod field;
pub mod path;
pub mod trace;

/// The value of a digit of a percent-encoded byte (RFC 3986 section 2.1), in either case.
pub const fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
