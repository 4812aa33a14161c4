//! The relay behind TLS termination: bytes between two streams of which at least one is TLS, both ways, until both have
//! ended. The rules are those of `copy`, which knows sockets only: half-close is passed on, a slow reader slows its sender
//! down, and what broke on one side, or ended without TLS's own end, is reset on the other.
//!
//! Does not connect, route or retry.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::copy::{End, Meter, Side, reset};
use super::super::limits::{ROUNDS_PER_POLL, STALL};
use super::super::pool::{Buffers, Chunk};
use super::super::silence::Silence;
use super::super::stream::{Session, Stream};

/// Relays until the end. Dropping the future before resets both sides.
pub(super) async fn relay<C: Session, U: Session>(
    client: Stream<C>,
    upstream: Stream<U>,
    buffers: &Buffers,
    meter: Meter<'_>,
    half_closed: Duration,
) -> End {
    let mut pair = Pair { client, upstream, client_ended: false, upstream_ended: false };
    let mut up = Direction::new(Side::Upstream);
    let mut down = Direction::new(Side::Client);
    let mut silence = Silence::new(0);
    let end = poll_fn(|cx| {
        let Pair { client, upstream, .. } = &mut pair;
        let upward = up.poll(cx, client, upstream, buffers, meter);
        let downward = down.poll(cx, upstream, client, buffers, meter);
        for direction in [&upward, &downward] {
            if let Poll::Ready(Err((side, kind))) = direction {
                return Poll::Ready(End::Broken(*side, (*kind).into()));
            }
        }
        let wait = match (upward.is_ready(), downward.is_ready()) {
            (true, true) => return Poll::Ready(End::Finished),
            (false, false) => (up.holds() || down.holds()).then_some(STALL),
            _ => Some(half_closed),
        };
        silence.poll(cx, wait, up.moved + down.moved).map(|()| End::Idle)
    })
    .await;
    (pair.upstream_ended, pair.client_ended) = (up.is_done(), down.is_done());
    end
}

/// Both sides. When dropped, each is reset unless its stream was ended.
struct Pair<C: Session, U: Session> {
    client: Stream<C>,
    upstream: Stream<U>,
    client_ended: bool,
    upstream_ended: bool,
}

impl<C: Session, U: Session> Drop for Pair<C, U> {
    fn drop(&mut self) {
        if !self.client_ended {
            reset(self.client.socket());
        }
        if !self.upstream_ended {
            reset(self.upstream.socket());
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Flowing,
    /// The source ended; what is pending must go out before the end.
    Ending,
    Done,
}

#[derive(Debug)]
struct Direction {
    towards: Side,
    pending: Option<Chunk>,
    /// What was written may still be on this side of the socket.
    is_flushing: bool,
    moved: u64,
    stage: Stage,
}

impl Direction {
    const fn new(towards: Side) -> Self {
        Self { towards, pending: None, is_flushing: false, moved: 0, stage: Stage::Flowing }
    }

    fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Bytes wait for the sink.
    fn holds(&self) -> bool {
        self.pending.is_some() || self.is_flushing
    }

    fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut R,
        sink: &mut W,
        buffers: &Buffers,
        meter: Meter<'_>,
    ) -> Poll<Result<(), (Side, io::ErrorKind)>> {
        let towards = self.towards;
        let sink_failed = |error: io::Error| (towards, error.kind());
        for _ in 0..ROUNDS_PER_POLL {
            if self.stage == Stage::Done {
                return Poll::Ready(Ok(()));
            }
            ready!(self.flush(cx, sink, buffers, meter)).map_err(sink_failed)?;
            if self.stage == Stage::Ending {
                ready!(Pin::new(&mut *sink).poll_shutdown(cx)).or_else(is_gone).map_err(sink_failed)?;
                self.stage = Stage::Done;
                continue;
            }
            ready!(self.fill(cx, source, buffers)).map_err(|error| (towards.other(), error.kind()))?;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn flush<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut W,
        buffers: &Buffers,
        meter: Meter<'_>,
    ) -> Poll<io::Result<()>> {
        while let Some(chunk) = &mut self.pending {
            let written = ready!(Pin::new(&mut *sink).poll_write(cx, chunk.bytes()))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.is_flushing = true;
            self.moved += written as u64;
            meter.count(self.towards, written as u64);
            if chunk.advance(written)
                && let Some(chunk) = self.pending.take()
            {
                buffers.put(chunk.into_buffer());
            }
        }
        if self.is_flushing {
            ready!(Pin::new(sink).poll_flush(cx))?;
            self.is_flushing = false;
        }
        Poll::Ready(Ok(()))
    }

    fn fill<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut R,
        buffers: &Buffers,
    ) -> Poll<io::Result<()>> {
        let mut buffer = buffers.take();
        let mut target = ReadBuf::new(&mut buffer);
        let filled = Pin::new(source).poll_read(cx, &mut target).map_ok(|()| target.filled().len());
        match filled {
            Poll::Ready(Ok(length)) if length > 0 => {
                self.pending = Some(Chunk::new(buffer, length));
                Poll::Ready(Ok(()))
            }
            other => {
                buffers.put(buffer);
                other.map_ok(|_zero| self.stage = Stage::Ending)
            }
        }
    }
}

/// The sink is gone both ways; nothing is lost, for all was written before.
fn is_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotConnected { Ok(()) } else { Err(error) }
}
