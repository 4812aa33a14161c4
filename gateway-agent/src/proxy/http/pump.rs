//! Moves one message from one socket to another: a head that was prepared, then the body as it comes.
//!
//! Reads only when all that was read before is written, so one buffer bounds what is under way.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};

use super::buffer::{Buffer, Buffers};
use super::kept::Kept;
use crate::proxy::h1::{Body, BodyError, Framing};

/// How the body is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// Byte for byte.
    Kept,
    /// Chunks are unwrapped.
    Removed,
}

/// Which side made the message end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PumpError {
    Body(BodyError),
    Read,
    Write,
}

#[derive(Debug)]
pub(super) struct Pump {
    body: Body,
    coding: Coding,
    /// Of the prepared head, what is written.
    n_head_written: usize,
    /// At the start of the buffer, what may be written.
    n_ready: usize,
    /// Read and written, of head and body.
    n_read: u64,
    n_written: u64,
    awaits_source: bool,
    /// What was written may still be on this side of the socket: TLS keeps what the socket does not take.
    is_flushing: bool,
    /// A copy of what is sent of the body.
    kept: Option<Kept>,
    /// Of the body, what was written to earlier receivers.
    n_body_before: u64,
}

impl Pump {
    pub(super) fn new(framing: Framing, coding: Coding) -> Self {
        Self {
            body: Body::new(framing),
            coding,
            n_head_written: 0,
            n_ready: 0,
            n_read: 0,
            n_written: 0,
            awaits_source: false,
            is_flushing: false,
            kept: None,
            n_body_before: 0,
        }
    }

    /// Keeps a copy of what is sent of the body, within bounds.
    pub(super) fn keep(&mut self, kept: Kept) {
        self.kept = Some(kept);
    }

    pub(super) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// The whole body was taken from its source and written.
    pub(super) fn is_done(&self) -> bool {
        self.body.is_done() && self.n_ready == 0
    }

    /// Whether all that was sent of the body can be sent again.
    pub(super) fn is_repeatable(&self) -> bool {
        self.n_body_written() == 0 || self.kept.as_ref().is_some_and(|kept| kept.bytes().is_some())
    }

    /// Goes on to another receiver, with a head that holds what was kept of the body.
    pub(super) fn restart(&mut self) {
        self.n_body_before = self.n_body_written();
        self.n_head_written = 0;
        self.n_written = 0;
        self.is_flushing = false;
    }

    /// The body's framing, known only after what was written so far (interim heads).
    pub(super) fn set_body(&mut self, framing: Framing, coding: Coding) {
        (self.body, self.coding) = (Body::new(framing), coding);
    }

    /// Grows with progress.
    pub(super) fn n_moved(&self) -> u64 {
        self.n_read + self.n_written
    }

    pub(super) fn n_written(&self) -> u64 {
        self.n_written
    }

    /// Of the body, also to earlier receivers.
    pub(super) fn n_body_written(&self) -> u64 {
        self.n_body_before + self.n_written.saturating_sub(self.n_head_written as u64)
    }

    pub(super) fn n_head_written(&self) -> usize {
        self.n_head_written
    }

    /// Waits for the sender rather than for the receiver.
    pub(super) fn awaits_source(&self) -> bool {
        self.awaits_source
    }

    /// Moves what can be moved; ready when `head` and the whole body are written.
    pub(super) fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        head: &[u8],
        (source, buffer): (&mut R, &mut Buffer),
        sink: &mut W,
        buffers: &Buffers,
    ) -> Poll<Result<(), PumpError>> {
        loop {
            self.awaits_source = false;
            if self.n_ready == 0 {
                self.frame(buffer).map_err(PumpError::Body)?;
            }
            if self.n_head_written < head.len() || self.n_ready > 0 {
                ready!(self.poll_write(cx, head, buffer, sink)).map_err(|_| PumpError::Write)?;
                continue;
            }
            if self.is_flushing {
                ready!(Pin::new(&mut *sink).poll_flush(cx)).map_err(|_| PumpError::Write)?;
                self.is_flushing = false;
            }
            if self.body.is_done() {
                return Poll::Ready(Ok(()));
            }
            self.awaits_source = true;
            match ready!(buffer.poll_fill(cx, source, buffers)) {
                Ok(0) => self.body.end().map_err(PumpError::Body)?,
                Ok(length) => self.n_read += length as u64,
                Err(_) => return Poll::Ready(Err(PumpError::Read)),
            }
        }
    }

    /// Writes of `head` what can be written now.
    pub(super) fn poll_head<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        head: &[u8],
        sink: &mut W,
    ) -> Poll<io::Result<()>> {
        while self.n_head_written < head.len() {
            ready!(self.poll_write(cx, head, &mut Buffer::default(), sink))?;
        }
        if self.is_flushing {
            ready!(Pin::new(sink).poll_flush(cx))?;
            self.is_flushing = false;
        }
        Poll::Ready(Ok(()))
    }

    fn frame(&mut self, buffer: &mut Buffer) -> Result<(), BodyError> {
        match self.coding {
            Coding::Kept => self.n_ready = self.body.take(buffer.data())?,
            Coding::Removed => loop {
                let segment = self.body.next(buffer.data())?;
                buffer.consume(segment.framing);
                self.n_ready = segment.data;
                if segment.data > 0 || segment.framing == 0 {
                    break;
                }
            },
        }
        Ok(())
    }

    fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        head: &[u8],
        buffer: &mut Buffer,
        sink: &mut W,
    ) -> Poll<io::Result<()>> {
        let head = head.get(self.n_head_written..).unwrap_or_default();
        let body = buffer.data().get(..self.n_ready).unwrap_or_default();
        let sink = Pin::new(sink);
        let length = match (head.is_empty(), body.is_empty()) {
            (false, false) => {
                ready!(sink.poll_write_vectored(cx, &[IoSlice::new(head), IoSlice::new(body)]))?
            }
            (false, true) => ready!(sink.poll_write(cx, head))?,
            _ => ready!(sink.poll_write(cx, body))?,
        };
        if length == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.is_flushing = true;
        let of_head = length.min(head.len());
        self.n_head_written += of_head;
        self.n_ready -= length - of_head;
        self.n_written += length as u64;
        if let Some(kept) = &mut self.kept {
            kept.push(buffer.data().get(..length - of_head).unwrap_or_default());
        }
        buffer.consume(length - of_head);
        Poll::Ready(Ok(()))
    }
}
