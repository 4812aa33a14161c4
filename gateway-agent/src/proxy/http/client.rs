//! The client's side of a connection, and what its handshake has decided.

use std::sync::Arc;

use tokio::net::TcpStream;

use crate::metrics::ListenerCells;
use crate::proxy::stream::TlsClient;

pub(super) type Stream = crate::proxy::stream::Stream<TlsClient>;

/// A client that was accepted.
#[derive(Debug)]
pub struct Client {
    pub(super) stream: Stream,
    pub(super) tls: Option<TlsFacts>,
}

/// What the handshake has decided.
#[derive(Debug)]
pub(super) struct TlsFacts {
    /// Empty: the client named none.
    pub(super) server_name: String,
    /// Of the listener of that name.
    pub(super) cells: Arc<ListenerCells>,
}

impl Client {
    pub const fn cleartext(stream: TcpStream) -> Self {
        Self { stream: Stream::Cleartext(stream), tls: None }
    }

    pub(in crate::proxy) fn tls(stream: TlsClient, server_name: String, cells: Arc<ListenerCells>) -> Self {
        Self { stream: Stream::Tls(Box::new(stream)), tls: Some(TlsFacts { server_name, cells }) }
    }
}
