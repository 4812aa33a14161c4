//! The connection under HTTP/2: gives again what was read to find out the version, and counts what passes.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::buffer::{Buffer, Buffers};

/// Bytes received and sent since they were last looked at.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    received: Cell<u64>,
    sent: Cell<u64>,
    total_sent: Cell<u64>,
}

impl Traffic {
    /// Received and sent.
    pub(super) fn take(&self) -> (u64, u64) {
        (self.received.take(), self.sent.take())
    }

    /// In the connection's life.
    pub(super) fn total_sent(&self) -> u64 {
        self.total_sent.get()
    }
}

#[derive(Debug)]
pub(super) struct Transport<S> {
    stream: S,
    first: Buffer,
    traffic: Rc<Traffic>,
}

impl<S> Transport<S> {
    /// `first`: read already.
    pub(super) fn new(stream: S, first: Buffer, traffic: Rc<Traffic>) -> Self {
        Self { stream, first, traffic }
    }

    fn received(&self, length: usize) {
        self.traffic.received.set(self.traffic.received.get() + length as u64);
    }

    fn sent(&self, length: usize) -> usize {
        self.traffic.sent.set(self.traffic.sent.get() + length as u64);
        self.traffic.total_sent.set(self.traffic.total_sent.get() + length as u64);
        length
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Transport<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let data = self.first.data();
            let length = data.len().min(buffer.remaining());
            buffer.put_slice(data.get(..length).unwrap_or_default());
            self.first.consume(length);
            if self.first.is_empty() {
                // To the allocator: once per connection is too seldom to be kept for.
                self.first.release(&Buffers::default());
            }
            self.received(length);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.received(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Transport<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let length = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        Poll::Ready(Ok(self.sent(length)))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, parts))?;
        Poll::Ready(Ok(self.sent(length)))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
