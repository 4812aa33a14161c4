//! HTTP messages apart from the version that carries them: what passes from HTTP/2 to HTTP/1, from there to HTTP/2, and
//! between two connections of HTTP/2.
//!
//! **Invariant:** no I/O, no clock, no tokio. A message in here holds nothing that belongs to one connection, names one
//! host, and has one length or none: what could be read in two ways was refused when it was made. HTTP/1 to HTTP/1 does
//! not come by here, see [`super::h1::encode`].
//!
//! Decisions that the RFCs leave open:
//! - `:authority` and `Host` have to be the same where both are there; the servers behind get one of them.
//! - A request of HTTP/2 that has ended with its head has no framing for HTTP/1, unless it said `content-length: 0`.
//! - A body without `content-length` is chunked for HTTP/1; trailers pass then, and are dropped where a length is sent.
//! - Trailers that would frame, route or authenticate are dropped.

pub mod encode;
pub mod fields;
pub mod grpc;
pub mod request;
pub mod response;

#[cfg(test)]
mod tests;

pub use request::Request;
pub use response::Response;
