//! HTTP/1.1 message syntax: heads, body framing, normal forms (RFC 9110, RFC 9112).
//!
//! **Invariant:** no I/O, no clock, no tokio; every function takes bytes and gives values, so that each can be
//! fuzzed and cut at any byte. What two readers could read in two ways is refused, never repaired: a proxy that
//! understands a message otherwise than the server behind it lets one client speak in the name of another.
//!
//! Decisions that the RFCs leave open:
//! - `Host` is forwarded as it came. `X-Forwarded-For`, `-Proto`, `-Host` and `-Port` are set from what this proxy saw,
//!   and every `X-Forwarded-*`, `Forwarded`, `X-Real-IP` and `X-Request-Id` of the client is removed, for anyone could have
//!   written them; unless the Gateway's parameters say that this client is trusted ([`said`]).
//! - No `Via` is added: nginx and others switch compression off when they see it, and there is no chain here whose
//!   loops it could uncover.
//! - Paths are brought to one normal form, which is both matched and forwarded ([`crate::syntax::path`]).
//! - Trailers pass; those that would change framing, routing or the connection are refused.

pub mod chunked;
pub mod encode;
pub mod error;
pub mod field;
pub mod framing;
pub mod host;
pub mod limits;
pub mod request;
pub mod response;
pub mod said;
pub mod scan;
pub mod target;

#[cfg(test)]
mod tests;

pub use error::{BodyError, HeadError};
pub use framing::{Body, Framing};
pub use request::{RequestHead, View};
pub use response::ResponseHead;
pub use scan::Scanner;
