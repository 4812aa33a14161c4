//! HTTP/2: clients by ALPN or by prior knowledge, each connection one task, and one more per stream; servers by prior
//! knowledge, each connection shared by many requests.
//!
//! Frames, HPACK and flow control are the `h2` crate's; its bounds are set in [`limits`]. A stream's request is routed,
//! counted and answered as one of HTTP/1 is, and sent on by [`super::crossing`]. No server push, no extended CONNECT.
//!
//! What a client sends is read only as far as the server behind takes it (flow control), and a server's answer as far
//! as the client does.

mod body;
mod budget;
mod client;
mod connection;
mod limits;
mod links;
mod reply;
mod server;
mod stream;
mod transport;

pub(super) use connection::{About, Arrival, serve};
pub(super) use links::{Links, connect};
pub(super) use server::H2Server;

use super::error::Kind;

/// The first line of the connection preface and the empty one behind it: what a parser of HTTP/1 takes for a head
/// (RFC 9113 section 3.4).
pub(super) const PREFACE_HEAD: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// What an error of a stream or of its connection means to the other side of the exchange.
fn kind_of(error: &h2::Error) -> Kind {
    match error.reason() {
        Some(h2::Reason::REFUSED_STREAM) => Kind::Refused,
        // Streams beyond the last one that the peer looks at end so.
        Some(h2::Reason::NO_ERROR) if error.is_go_away() && error.is_remote() => Kind::Refused,
        _ => Kind::Closed,
    }
}
