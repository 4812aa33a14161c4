//! The userspace data path: listeners, HTTP, TLS passthrough, TCP and UDP relays.

pub mod h1;
pub mod http;
pub mod steering;
