//! An upgraded connection: bytes both ways until both sides have closed. Nothing in it is understood.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};

use super::buffer::{Buffer, Buffers};
use super::clock::Timer;
use super::limits::TUNNEL_IDLE_TIMEOUT;
use super::pump::{Coding, Pump};
use crate::proxy::h1::Framing;

/// One side: its stream and what was read from it already.
pub(super) type Side<'a, S> = (&'a mut S, &'a mut Buffer);

/// Bytes received from and sent to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) n_received: u64,
    pub(super) n_sent: u64,
}

#[derive(Debug)]
struct Direction {
    pump: Pump,
    has_ended: bool,
}

impl Direction {
    fn new() -> Self {
        Self { pump: Pump::new(Framing::UntilClose, Coding::Kept), has_ended: false }
    }

    /// Ready with false when the direction is broken.
    fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        head: &[u8],
        source: Side<'_, R>,
        sink: &mut W,
        buffers: &Buffers,
    ) -> Poll<bool> {
        if self.has_ended {
            return Poll::Ready(true);
        }
        let is_whole = ready!(self.pump.poll(cx, head, source, sink, buffers)).is_ok();
        // The end of one direction is passed on; the other lives (half-close).
        self.has_ended = is_whole && ready!(Pin::new(sink).poll_shutdown(cx)).is_ok();
        Poll::Ready(self.has_ended)
    }
}

/// Writes `head` (the 101) to the client, then moves bytes, those already read first. Returns when both directions
/// have ended, one broke, nothing moved for long, or the worker gives up.
pub(super) async fn run<C, U>(
    client: Side<'_, C>,
    upstream: Side<'_, U>,
    head: &[u8],
    n_head_written: usize,
    timer: &Timer,
    buffers: &Buffers,
) -> Moved
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let head = head.get(n_head_written..).unwrap_or_default();
    let (mut up, mut down) = (Direction::new(), Direction::new());
    let (client_stream, client_buffer) = client;
    let (upstream_stream, upstream_buffer) = upstream;
    timer.arm(TUNNEL_IDLE_TIMEOUT);
    poll_fn(|cx| {
        let before = up.pump.n_moved() + down.pump.n_moved();
        let downward = down.poll(cx, head, (upstream_stream, upstream_buffer), client_stream, buffers);
        let upward = up.poll(cx, &[], (client_stream, client_buffer), upstream_stream, buffers);
        match (upward, downward) {
            (Poll::Ready(true), Poll::Ready(true)) | (Poll::Ready(false), _) | (_, Poll::Ready(false)) => {
                return Poll::Ready(());
            }
            _ => {}
        }
        if up.pump.n_moved() + down.pump.n_moved() != before {
            timer.arm(TUNNEL_IDLE_TIMEOUT);
        }
        timer.poll(cx).map(|_| ())
    })
    .await;
    Moved { n_received: up.pump.n_written(), n_sent: down.pump.n_written() }
}
