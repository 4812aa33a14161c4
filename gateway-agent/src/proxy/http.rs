//! The HTTP proxy: client connections, exchanges with servers behind, and what one worker keeps for them.
//!
//! One [`HttpWorker`] per thread, nothing in it is shared but what [`ejections`] tells; [`serve`] is one task per client connection, which holds
//! both sides of an exchange and polls them itself. A request in steady state costs four system calls and no heap
//! allocation: heads are parsed in the buffer that received them, buffers and parsed heads are recycled, deadlines
//! are numbers that one ticker per worker looks at.
//!
//! Message syntax is [`super::h1`]'s; which route serves a request is [`crate::snapshot`]'s; TLS is [`super::tls`]'s,
//! and here only another kind of stream, whose records cost a few allocations.
//!
//! HTTP/2 is told by ALPN or by its preface and goes another way ([`h2`]), as does what crosses versions ([`crossing`]):
//! messages as values ([`super::message`]), bodies as pieces of bytes.
//!
//! Each request leaves one [`record::Record`], also where it is not served.
//!
//! Filters change header fields that were parsed and before they are sent, and never those that frame a message. Those
//! of the response hold for answers of backends and for redirects; errors of the proxy itself carry what CORS says, so
//! that a browser shows them, and nothing else.

mod balance;
mod buffer;
mod client;
mod clock;
mod conn;
mod crossing;
mod deadline;
mod decision;
mod ejections;
mod error;
mod exchange;
mod forward;
mod h1_body;
mod h1_client;
mod h1_server;
mod h2;
mod identity;
mod json;
mod kept;
mod limits;
mod mirror;
mod pool;
mod pump;
mod record;
mod redirect;
mod relay;
mod respond;
mod retry;
mod table;
mod tunnel;
mod upstream;
mod worker;

#[cfg(test)]
mod tests;

pub use client::Client;
pub use conn::serve;
pub use ejections::Ejections;
pub use worker::HttpWorker;
