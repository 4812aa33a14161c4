//! A connection, cleartext or TLS, of a client or to a backend. Everything above reads and writes it alike.
//!
//! Shakes no hands: see `tls`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::tls::Replay;

/// A client's connection after its handshake.
pub(in crate::proxy) type TlsClient = tokio_rustls::server::TlsStream<Replay>;

/// A connection to a backend after its handshake.
pub(in crate::proxy) type TlsUpstream = tokio_rustls::client::TlsStream<TcpStream>;

/// To a backend.
pub(in crate::proxy) type Upstream = Stream<TlsUpstream>;

/// TLS over a socket.
pub(in crate::proxy) trait Session: AsyncRead + AsyncWrite + Unpin {
    fn socket(&self) -> &TcpStream;
    /// False: decrypted bytes wait, or the peer has said that it is done.
    fn wants_read(&self) -> bool;
}

impl Session for TlsClient {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0.socket()
    }

    fn wants_read(&self) -> bool {
        self.get_ref().1.wants_read()
    }
}

impl Session for TlsUpstream {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }

    fn wants_read(&self) -> bool {
        self.get_ref().1.wants_read()
    }
}

#[derive(Debug)]
pub(in crate::proxy) enum Stream<T> {
    Cleartext(TcpStream),
    Tls(Box<T>),
}

impl Stream<TlsClient> {
    /// Whether the handshake has chosen HTTP/2 (ALPN).
    pub(in crate::proxy) fn has_chosen_h2(&self) -> bool {
        match self {
            Self::Cleartext(_) => false,
            Self::Tls(session) => session.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }
}

impl<T: Session> Stream<T> {
    pub(in crate::proxy) fn socket(&self) -> &TcpStream {
        match self {
            Self::Cleartext(socket) => socket,
            Self::Tls(session) => session.socket(),
        }
    }

    /// Ready when a read is worth its while; takes nothing.
    pub(in crate::proxy) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Tls(session) = self
            && !session.wants_read()
        {
            return Poll::Ready(());
        }
        self.socket().poll_read_ready(cx).map(|_| ())
    }

    /// Whether the peer, from whom nothing is to come, has neither closed nor sent anything. What TLS says beside the
    /// bytes that it carries, like tickets, is taken and does not count.
    pub(in crate::proxy) fn is_quiet(&mut self) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        if self.poll_read_ready(&mut cx).is_pending() {
            return true;
        }
        match self {
            Self::Cleartext(_) => false,
            Self::Tls(session) => {
                let mut byte = [0];
                Pin::new(session).poll_read(&mut cx, &mut ReadBuf::new(&mut byte)).is_pending()
            }
        }
    }
}

impl<T: Session> AsyncRead for Stream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Cleartext(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Tls(session) => Pin::new(session).poll_read(cx, buffer),
        }
    }
}

impl<T: Session> AsyncWrite for Stream<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Cleartext(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(session) => Pin::new(session).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Cleartext(socket) => Pin::new(socket).poll_write_vectored(cx, parts),
            Self::Tls(session) => Pin::new(session).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Cleartext(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(session) => Pin::new(session).poll_flush(cx),
        }
    }

    /// Sends FIN; by TLS its own end first, so that the peer can tell it from a cut.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Cleartext(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(session) => Pin::new(session).poll_shutdown(cx),
        }
    }
}
