//! The relay: bytes between two TCP connections, both ways, until both have ended.
//!
//! - Every byte read is written before the FIN that followed it; the other direction stays open (half-close). After
//!   one direction has ended, silence for `Timeouts::half_closed` ends the connection. Fully open connections may be
//!   silent for ever; keepalive finds peers that are gone.
//! - A direction reads only when all it had is written: a slow reader slows its sender down.
//! - A reset or an error on one side is passed on as a reset to the other. Dropping the future before its end resets
//!   both: a truncated stream must not look complete.
//!
//! Does not connect, route or retry.

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd as _;

use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;

use super::limits::{ROUNDS_PER_POLL, SPLICE_AFTER_BYTES};
use super::pool::{Buffers, Chunk};
use super::silence::Silence;
use super::splice::{Pipe, Pipes};
use crate::metrics::{ListenerCells, RouteCells};

/// What a worker lends to its relays.
#[derive(Debug)]
pub(super) struct Pools {
    pub buffers: Buffers,
    pub pipes: Pipes,
}

/// Where the bytes are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meter<'a> {
    pub listener: &'a ListenerCells,
    pub route: &'a RouteCells,
}

/// How a relay ended.
#[derive(Debug)]
pub(super) enum End {
    /// Both directions delivered all, FIN included.
    Finished,
    /// One side failed; the other was reset.
    Broken(Side, io::Error),
    /// One direction had ended and the other was silent for too long.
    Idle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Upstream,
}

/// Relays until the end. `first` was read from the client already and goes to the upstream before anything else.
pub(super) async fn relay(
    client: TcpStream,
    upstream: TcpStream,
    first: Option<Chunk>,
    pools: &Pools,
    meter: Meter<'_>,
    half_closed: Duration,
) -> End {
    let mut pair = Pair { client, upstream, client_ended: false, upstream_ended: false };
    let mut relay = Relay {
        to_upstream: Direction::new(&pair.client, &pair.upstream, pools, Side::Upstream, meter, first),
        to_client: Direction::new(&pair.upstream, &pair.client, pools, Side::Client, meter, None),
        half_closed,
        silence: None,
    };
    let end = {
        let moving = poll_fn(|cx| relay.poll(cx));
        // A direction that waits for its sink does not look at its source, so a reset there must be noticed apart.
        tokio::select! {
            biased;
            end = moving => end,
            error = failure(&pair.client) => End::Broken(Side::Client, error),
            error = failure(&pair.upstream) => End::Broken(Side::Upstream, error),
        }
    };
    // A side whose stream was ended by FIN keeps what the kernel still has to send it.
    let (upstream_ended, client_ended) = (relay.to_upstream.is_done(), relay.to_client.is_done());
    (pair.upstream_ended, pair.client_ended) = (upstream_ended, client_ended);
    end
}

/// Both sockets. When dropped, each is reset unless its stream was ended by FIN.
struct Pair {
    client: TcpStream,
    upstream: TcpStream,
    client_ended: bool,
    upstream_ended: bool,
}

impl Drop for Pair {
    fn drop(&mut self) {
        if !self.client_ended {
            reset(&self.client);
        }
        if !self.upstream_ended {
            reset(&self.upstream);
        }
    }
}

/// Makes the coming close of `stream` send RST instead of FIN.
pub(super) fn reset(stream: &TcpStream) {
    if let Err(error) = stream.set_zero_linger() {
        tracing::trace!(%error, "connection closes without reset");
    }
}

/// Resolves when the socket has failed.
async fn failure(stream: &TcpStream) -> io::Error {
    match stream.ready(Interest::ERROR).await {
        // Only read here, where the relay ends: reading it clears it, and a read would see a clean end.
        Ok(_) => match stream.take_error() {
            Ok(Some(error)) | Err(error) => error,
            Ok(None) => io::ErrorKind::ConnectionAborted.into(),
        },
        Err(error) => error,
    }
}

struct Relay<'a> {
    to_upstream: Direction<'a>,
    to_client: Direction<'a>,
    half_closed: Duration,
    /// Set once one direction has ended.
    silence: Option<Silence>,
}

impl Relay<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let (up, down) = (self.to_upstream.poll(cx), self.to_client.poll(cx));
        for direction in [&up, &down] {
            if let Poll::Ready(Err((side, kind))) = direction {
                return Poll::Ready(End::Broken(*side, (*kind).into()));
            }
        }
        match (up.is_ready(), down.is_ready()) {
            (true, true) => Poll::Ready(End::Finished),
            (false, false) => Poll::Pending,
            _ => {
                let moved = self.to_upstream.moved + self.to_client.moved;
                let silence = self.silence.get_or_insert_with(|| Silence::new(moved));
                silence.poll(cx, Some(self.half_closed), moved).map(|()| End::Idle)
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Flowing,
    /// The source ended; what is pending must go out before FIN.
    Ending,
    Done,
}

struct Direction<'a> {
    source: &'a TcpStream,
    sink: &'a TcpStream,
    pools: &'a Pools,
    /// Which side the bytes go to.
    towards: Side,
    meter: Meter<'a>,
    pending: Option<Chunk>,
    pipe: Option<Pipe>,
    moved: u64,
    bulk: Bulk,
    /// The last read took all there was.
    is_drained: bool,
    stage: Stage,
}

/// Whether a direction is worth a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bulk {
    No,
    Yes,
    /// The sockets cannot splice.
    Never,
}

/// Below this a splice costs more than a copy.
const SMALL_SPLICE_BYTES: usize = 4 * 1024;

type Broken = (Side, io::ErrorKind);

impl<'a> Direction<'a> {
    fn new(
        source: &'a TcpStream,
        sink: &'a TcpStream,
        pools: &'a Pools,
        towards: Side,
        meter: Meter<'a>,
        first: Option<Chunk>,
    ) -> Self {
        let pending = first.filter(|chunk| !chunk.bytes().is_empty());
        Self {
            source,
            sink,
            pools,
            towards,
            meter,
            pending,
            pipe: None,
            moved: 0,
            bulk: Bulk::No,
            is_drained: false,
            stage: Stage::Flowing,
        }
    }

    fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        for _ in 0..ROUNDS_PER_POLL {
            if self.stage == Stage::Done {
                return Poll::Ready(Ok(()));
            }
            let towards = self.towards;
            let sink_failed = |error: io::Error| (towards, error.kind());
            ready!(flush(&mut self.pending, &mut self.pipe, self.sink, self.pools, cx, |n| {
                self.moved += n as u64;
                self.meter.count(towards, n as u64);
            }))
            .map_err(sink_failed)?;
            if self.stage == Stage::Ending {
                self.shutdown().map_err(sink_failed)?;
                continue;
            }
            ready!(self.fill(cx)).map_err(|error| (self.towards.other(), error.kind()))?;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn shutdown(&mut self) -> io::Result<()> {
        self.stage = Stage::Done;
        match socket2::SockRef::from(self.sink).shutdown(std::net::Shutdown::Write) {
            // The sink is gone both ways; nothing is lost, for all was written before.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }

    /// Reads once, into a pipe or a buffer; waits where the source has nothing.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.is_drained) {
            // Another read would find nothing: what comes later makes the kernel report the socket again. Told so, the
            // runtime waits for that, and a round trip costs one read per direction and not two.
            let nothing =
                self.source.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
            debug_assert!(nothing.is_err());
            ready!(self.source.poll_read_ready(cx))?;
        }
        loop {
            let result = match self.take_pipe() {
                Some(pipe) => self.fill_pipe(pipe),
                None => self.fill_buffer(),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.source.poll_read_ready(cx))?;
                }
                result => return Poll::Ready(result),
            }
        }
    }

    fn take_pipe(&self) -> Option<Pipe> {
        if self.bulk == Bulk::Yes { self.pools.pipes.take() } else { None }
    }

    fn fill_pipe(&mut self, mut pipe: Pipe) -> io::Result<()> {
        let source = self.source;
        match source.try_io(Interest::READABLE, || pipe.fill(source.as_fd())) {
            Ok(0) => {
                self.pools.pipes.put(pipe);
                self.stage = Stage::Ending;
                Ok(())
            }
            Ok(n) => {
                if n < SMALL_SPLICE_BYTES {
                    self.bulk = Bulk::No;
                }
                self.pipe = Some(pipe);
                Ok(())
            }
            Err(error) => {
                self.pools.pipes.put(pipe);
                if error.kind() == io::ErrorKind::InvalidInput {
                    self.bulk = Bulk::Never;
                    return Ok(());
                }
                Err(error)
            }
        }
    }

    fn fill_buffer(&mut self) -> io::Result<()> {
        let mut buffer = self.pools.buffers.take();
        match self.source.try_read(&mut buffer) {
            Ok(n) if n > 0 => {
                // Only reads that fill the buffer show that the source has more than is fetched: a connection that
                // chats stays with copies however much it has moved in all.
                if n == buffer.len() && self.moved >= SPLICE_AFTER_BYTES && self.bulk == Bulk::No {
                    self.bulk = Bulk::Yes;
                }
                self.is_drained = n < buffer.len();
                self.pending = Some(Chunk::new(buffer, n));
                Ok(())
            }
            other => {
                self.pools.buffers.put(buffer);
                other.map(|_zero| self.stage = Stage::Ending)
            }
        }
    }
}

/// Writes all that waits.
fn flush(
    pending: &mut Option<Chunk>,
    pipe: &mut Option<Pipe>,
    sink: &TcpStream,
    pools: &Pools,
    cx: &mut Context<'_>,
    mut count: impl FnMut(usize),
) -> Poll<io::Result<()>> {
    loop {
        let written = if let Some(chunk) = pending {
            sink.try_write(chunk.bytes())
        } else if let Some(pipe) = pipe {
            sink.try_io(Interest::WRITABLE, || pipe.drain(sink.as_fd()))
        } else {
            return Poll::Ready(Ok(()));
        };
        match written {
            Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Ok(n) => count(n),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ready!(sink.poll_write_ready(cx))?;
                continue;
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
        if let Some(mut chunk) = pending.take() {
            let n = written.unwrap_or_default();
            if chunk.advance(n) {
                pools.buffers.put(chunk.into_buffer());
            } else {
                *pending = Some(chunk);
            }
        } else if pipe.as_ref().is_some_and(|pipe| pipe.held() == 0)
            && let Some(pipe) = pipe.take()
        {
            pools.pipes.put(pipe);
        }
    }
}

impl Meter<'_> {
    pub(super) fn count(self, towards: Side, n: u64) {
        match towards {
            Side::Upstream => {
                self.listener.received_bytes.add(n);
                self.route.received_bytes.add(n);
            }
            Side::Client => {
                self.listener.sent_bytes.add(n);
                self.route.sent_bytes.add(n);
            }
        }
    }
}

impl Side {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Client => Self::Upstream,
            Self::Upstream => Self::Client,
        }
    }
}
