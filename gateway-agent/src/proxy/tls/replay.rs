//! A client's socket that gives again what was read of it to find the server name.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::super::pool::Chunk;

#[derive(Debug)]
pub(in crate::proxy) struct Replay {
    first: Option<Chunk>,
    socket: TcpStream,
}

impl Replay {
    pub(super) const fn new(first: Chunk, socket: TcpStream) -> Self {
        Self { first: Some(first), socket }
    }

    pub(in crate::proxy) const fn socket(&self) -> &TcpStream {
        &self.socket
    }
}

impl AsyncRead for Replay {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(first) = &mut self.first {
            let length = first.bytes().len().min(buffer.remaining());
            buffer.put_slice(first.bytes().get(..length).unwrap_or_default());
            if first.advance(length) {
                // Its memory goes with it.
                self.first = None;
            }
            if length > 0 {
                return Poll::Ready(Ok(()));
            }
        }
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Replay {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
