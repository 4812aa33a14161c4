//! The client's side of a connection, cleartext or TLS. Everything above reads and writes it alike.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::metrics::ListenerCells;
use crate::proxy::tls::Replay;

/// A connection after its handshake.
pub type TlsClient = tokio_rustls::server::TlsStream<Replay>;

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

#[derive(Debug)]
pub(super) enum Stream {
    Cleartext(TcpStream),
    Tls(Box<TlsClient>),
}

impl Stream {
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Self::Cleartext(socket) => socket,
            Self::Tls(stream) => stream.get_ref().0.socket(),
        }
    }

    /// Ready when a read is worth its while; takes nothing.
    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Tls(stream) = self
            && !stream.get_ref().1.wants_read()
        {
            // Decrypted bytes wait, or the client has said that it is done.
            return Poll::Ready(());
        }
        self.socket().poll_read_ready(cx).map(|_| ())
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Cleartext(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Cleartext(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Cleartext(socket) => Pin::new(socket).poll_write_vectored(cx, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Cleartext(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    /// Sends FIN; by TLS its own end first, so that the client can tell it from a cut.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Cleartext(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
