//! Moves one body from a source to a sink of any version, a piece at a time.
//!
//! Asks for the next piece only when the one before is with the sink, and tells the source what was passed on, so that
//! the slower side holds up the faster one: at most one piece is in here.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;

use super::error::Kind;
use super::kept::Kept;

/// A part of a message behind its head.
#[derive(Debug)]
pub(super) enum Frame {
    Data(Bytes),
    /// The end.
    End,
    /// The end as well.
    Trailers(HeaderMap),
}

/// Where a body comes from.
pub(super) trait Source {
    /// The next piece; not asked for again after the end.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, Kind>>;

    /// Whether nothing but the end follows, as far as is known.
    fn has_ended(&self) -> bool;

    /// So many bytes of what was given are passed on.
    fn passed(&mut self, length: usize);
}

/// Where a body goes to. Errors are final.
pub(super) trait Sink {
    /// Takes from the front of `data`; ready when it has all of it. `is_last`: the end follows it.
    fn poll_data(&mut self, cx: &mut Context<'_>, data: &mut Bytes, is_last: bool) -> Poll<Result<(), Kind>>;

    /// The end.
    fn poll_end(&mut self, cx: &mut Context<'_>, trailers: Option<&HeaderMap>) -> Poll<Result<(), Kind>>;

    /// Ready when nothing waits here that could be on its way.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Kind>>;
}

/// Which side made the body end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RelayError {
    Sink(Kind),
    Source(Kind),
}

#[derive(Debug, Default)]
pub(super) struct Relay {
    state: State,
    trailers: Option<HeaderMap>,
    /// All that the sink has taken, where it may be wanted again.
    kept: Option<Kept>,
    n_read: u64,
    n_written: u64,
    awaits_source: bool,
    /// Nothing more comes from the source.
    has_ended: bool,
    /// Of the data under way, what was given to another sink before.
    n_again: usize,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Data {
        data: Bytes,
        is_last: bool,
    },
    Ending,
    Flushing,
    Done,
}

impl Relay {
    /// Of a message that has ended with its head.
    pub(super) fn ended() -> Self {
        Self { state: State::Flushing, ..Self::default() }
    }

    /// That the body ended with.
    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    pub(super) fn keep(&mut self, kept: Kept) {
        self.kept = Some(kept);
    }

    pub(super) fn keeps(&self) -> bool {
        self.kept.is_some()
    }

    pub(super) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// Whether another sink can be given all that the one before has got.
    pub(super) fn can_rewind(&self) -> bool {
        self.n_written == 0 || self.kept.as_ref().is_some_and(|kept| kept.bytes().is_some())
    }

    /// For another sink: nothing that was read is lost.
    pub(super) fn rewind(&mut self) {
        debug_assert!(self.can_rewind(), "data is gone");
        if let State::Data { is_last: true, .. } = self.state {
            // What is under way is part of what is given again, and the end is said apart.
            self.has_ended = true;
        }
        if matches!(self.state, State::Ending | State::Flushing | State::Done) {
            self.has_ended = true;
        }
        let under_way = match std::mem::take(&mut self.state) {
            // Without what was to be given again.
            State::Data { data, .. } => data.slice(self.n_again.min(data.len())..),
            State::Idle | State::Ending | State::Flushing | State::Done => Bytes::new(),
        };
        let kept = self.kept.as_ref().and_then(Kept::bytes).unwrap_or_default();
        let mut again = Vec::with_capacity(kept.len() + under_way.len());
        again.extend_from_slice(kept);
        again.extend_from_slice(&under_way);
        self.n_again = kept.len();
        self.state = match (again.is_empty(), self.has_ended) {
            (true, false) => State::Idle,
            (true, true) => State::Ending,
            (false, has_ended) => {
                State::Data { data: again.into(), is_last: has_ended && self.trailers.is_none() }
            }
        };
    }

    /// Grows with progress.
    pub(super) fn n_moved(&self) -> u64 {
        self.n_read + self.n_written
    }

    /// Bytes that the sink has taken.
    pub(super) fn n_written(&self) -> u64 {
        self.n_written
    }

    /// Waits for the sender rather than for the receiver.
    pub(super) fn awaits_source(&self) -> bool {
        self.awaits_source
    }

    /// Moves what can be moved; ready when the whole body is with the sink.
    pub(super) fn poll<S: Source, K: Sink>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut S,
        sink: &mut K,
    ) -> Poll<Result<(), RelayError>> {
        loop {
            self.awaits_source = false;
            self.state = match &mut self.state {
                State::Idle => match self.poll_source(cx, source) {
                    Poll::Ready(state) => state?,
                    Poll::Pending => {
                        // What is written so far must not wait for more.
                        if let Poll::Ready(Err(kind)) = sink.poll_flush(cx) {
                            return Poll::Ready(Err(RelayError::Sink(kind)));
                        }
                        return Poll::Pending;
                    }
                },
                State::Data { data, is_last } => {
                    let before = data.clone();
                    let taken = sink.poll_data(cx, data, *is_last);
                    let length = before.len() - data.len();
                    let n_again = length.min(self.n_again);
                    self.n_again -= n_again;
                    let fresh = before.get(n_again..length).unwrap_or_default();
                    if let Some(kept) = &mut self.kept {
                        kept.push(fresh);
                    }
                    self.n_written += fresh.len() as u64;
                    source.passed(fresh.len());
                    ready!(taken).map_err(RelayError::Sink)?;
                    match (*is_last, self.has_ended) {
                        (true, _) => State::Flushing,
                        (false, true) => State::Ending,
                        (false, false) => State::Idle,
                    }
                }
                State::Ending => {
                    ready!(sink.poll_end(cx, self.trailers.as_ref())).map_err(RelayError::Sink)?;
                    State::Flushing
                }
                State::Flushing => {
                    ready!(sink.poll_flush(cx)).map_err(RelayError::Sink)?;
                    State::Done
                }
                State::Done => return Poll::Ready(Ok(())),
            };
        }
    }

    fn poll_source<S: Source>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut S,
    ) -> Poll<Result<State, RelayError>> {
        self.awaits_source = true;
        let frame = ready!(source.poll_frame(cx)).map_err(RelayError::Source)?;
        self.awaits_source = false;
        Poll::Ready(Ok(match frame {
            // Says nothing but that the sender is there. As the end it is the end.
            Frame::Data(data) if data.is_empty() => {
                if source.has_ended() {
                    State::Ending
                } else {
                    State::Idle
                }
            }
            Frame::Data(data) => {
                self.n_read += data.len() as u64;
                State::Data { data, is_last: source.has_ended() }
            }
            Frame::Trailers(trailers) => {
                self.trailers = Some(trailers);
                State::Ending
            }
            Frame::End => State::Ending,
        }))
    }
}
