//! One request and its answer where client and server speak different versions, or both HTTP/2: both directions at
//! once, in one task.
//!
//! Does not choose the server, does not repeat a request, and gives no answer of its own. HTTP/1 to HTTP/1 is
//! [`super::exchange`]'s.

use std::task::{Context, Poll, ready};

use http::header::{HeaderMap, HeaderName};

use super::clock::{Due, Timer};
use super::error::{Kind, ProxyError};
use super::kept::Kept;
use super::limits::{BODY_STALL_TIMEOUT, RESPONSE_HEAD_TIMEOUT};
use super::relay::{Relay, RelayError, Sink, Source};
use super::tunnel::Moved;
use crate::proxy::h1::limits::INTERIM_RESPONSES_MAX;
use crate::proxy::message::{Response, fields, grpc};
use crate::snapshot::{Cors, Filters};

/// Who has asked.
pub(super) trait Client: Source + Sink {
    /// Sends an interim head.
    fn interim(&mut self, head: Response) -> Result<(), Kind>;

    /// Sends the final head. `has_ended`: no body follows. `is_read`: the request was read to its end.
    fn answer(&mut self, head: Response, has_ended: bool, is_read: bool) -> Result<(), Kind>;

    /// Ready when nobody waits for the answer any more.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Who is asked. The request's head was given to it.
pub(super) trait Server: Source + Sink {
    /// The next head.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, Kind>>;

    /// Whether the server surely has not begun to act on the request. `failure`: how it ended.
    fn is_untouched(&self, failure: Kind) -> bool;
}

#[derive(Debug)]
pub(super) enum Head {
    Final { response: Response, has_ended: bool },
    Interim(Response),
}

/// What holds for one request, whoever serves it.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) filters: &'a Filters,
    /// Fields of the final answer that the proxy says itself.
    pub(super) own: &'a HeaderMap,
    pub(super) expects_continue: bool,
    /// Twice is as good as once.
    pub(super) is_idempotent: bool,
    /// Of the head as it came.
    pub(super) n_head: usize,
    /// Whether an answer with this status is thrown away for another try, which it must not be asked in vain.
    pub(super) rejects: &'a dyn Fn(u16) -> bool,
}

/// How an exchange ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Answered,
    /// The answer was thrown away.
    Rejected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upload {
    Active,
    Done,
    /// The server takes no more; it may still answer (it often has: 413).
    Refused,
}

pub(super) struct Crossing<'a, C, S> {
    client: &'a mut C,
    server: &'a mut S,
    /// The request's body; outlives a try that has taken none of it.
    up: &'a mut Relay,
    down: Relay,
    upload: Upload,
    terms: Terms<'a>,
    timer: &'a Timer,
    status: Option<u16>,
    n_interim: u32,
    n_head_sent: u64,
    /// That the answer's head says.
    grpc_status: Option<u32>,
}

/// What is left to know when an exchange is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// The answer's status, once it is on its way.
    pub(super) status: Option<u16>,
    /// Of a call of gRPC, where one has come.
    pub(super) grpc_status: Option<u32>,
    pub(super) moved: Moved,
    /// Nothing came from the server, and nothing of the request may have been acted upon, or twice is as good as once.
    pub(super) may_repeat: bool,
    /// All that was sent of the request can be sent again, and the client has got nothing.
    pub(super) can_repeat: bool,
    pub(super) request_is_read: bool,
}

impl<'a, C: Client, S: Server> Crossing<'a, C, S> {
    pub(super) fn new(
        (client, server): (&'a mut C, &'a mut S),
        up: &'a mut Relay,
        terms: Terms<'a>,
        timer: &'a Timer,
    ) -> Self {
        let crossing = Self {
            client,
            server,
            up,
            down: Relay::default(),
            upload: Upload::Active,
            terms,
            timer,
            status: None,
            n_interim: 0,
            n_head_sent: 0,
            grpc_status: None,
        };
        crossing.arm();
        crossing
    }

    /// Ready when the answer is with the client.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<End, ProxyError>> {
        let before = self.n_moved();
        if let Poll::Ready(end) = self.poll_sides(cx) {
            return Poll::Ready(end);
        }
        if self.client.poll_gone(cx).is_ready() {
            return Poll::Ready(Err(ProxyError::downstream(Kind::Closed)));
        }
        if self.n_moved() != before {
            self.arm();
        }
        self.timer.poll(cx).map(|due| Err(self.overdue(due)))
    }

    /// What was kept of the request's body, once all of it is with the server.
    pub(super) fn sent_body(&self) -> Option<&Kept> {
        self.up.kept().filter(|_| self.upload == Upload::Done)
    }

    pub(super) fn report(&self, end: Result<End, ProxyError>) -> Report {
        let is_unanswered = self.status.is_none() && self.n_interim == 0;
        let failure = end.err().map_or(Kind::Closed, |error| error.kind);
        let can_repeat = is_unanswered && self.up.can_rewind();
        let n_head = self.terms.n_head as u64;
        Report {
            status: self.status,
            grpc_status: self.down.trailers().and_then(grpc::status).or(self.grpc_status),
            moved: Moved {
                n_received: n_head + self.up.n_written(),
                n_sent: self.n_head_sent + self.down.n_written(),
            },
            may_repeat: can_repeat && (self.terms.is_idempotent || self.server.is_untouched(failure)),
            can_repeat,
            request_is_read: self.upload == Upload::Done,
        }
    }

    fn n_moved(&self) -> u64 {
        self.up.n_moved() + self.down.n_moved() + self.n_head_sent
    }

    /// The deadline for the next progress.
    fn arm(&self) {
        let is_asked = self.upload != Upload::Active && self.status.is_none();
        self.timer.arm(if is_asked { RESPONSE_HEAD_TIMEOUT } else { BODY_STALL_TIMEOUT });
    }

    fn overdue(&self, due: Due) -> ProxyError {
        match due {
            Due::Abort => ProxyError::internal(Kind::Aborted),
            Due::Limit(limit) => ProxyError::limit(limit),
            Due::Deadline if self.status.is_none() => {
                if self.upload == Upload::Active && self.up.awaits_source() {
                    ProxyError::downstream(Kind::BodyStalled)
                } else {
                    ProxyError::upstream(Kind::HeadTimeout)
                }
            }
            Due::Deadline if self.down.awaits_source() => ProxyError::upstream(Kind::BodyStalled),
            Due::Deadline => ProxyError::downstream(Kind::BodyStalled),
        }
    }

    fn poll_sides(&mut self, cx: &mut Context<'_>) -> Poll<Result<End, ProxyError>> {
        // The request first: it is what the answer waits for.
        self.poll_upload(cx)?;
        if self.status.is_none() {
            let (response, has_ended) = match self.poll_response(cx) {
                Poll::Ready(head) => head?,
                Poll::Pending => {
                    // Interim heads go out now.
                    return match self.client.poll_flush(cx) {
                        Poll::Ready(Err(kind)) => Poll::Ready(Err(ProxyError::downstream(kind))),
                        Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
                    };
                }
            };
            let is_repeatable = self.n_interim == 0 && self.up.can_rewind();
            if is_repeatable && (self.terms.rejects)(response.status.as_u16()) {
                return Poll::Ready(Ok(End::Rejected));
            }
            self.answer(response, has_ended)?;
            if has_ended {
                self.down = Relay::ended();
            }
        }
        let moved = ready!(self.down.poll(cx, self.server, self.client));
        Poll::Ready(moved.map(|()| End::Answered).map_err(|error| match error {
            RelayError::Source(kind) => ProxyError::upstream(kind),
            RelayError::Sink(kind) => ProxyError::downstream(kind),
        }))
    }

    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), ProxyError> {
        if self.upload != Upload::Active {
            return Ok(());
        }
        match self.up.poll(cx, self.client, self.server) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(())) => self.upload = Upload::Done,
            Poll::Ready(Err(RelayError::Sink(_))) => self.upload = Upload::Refused,
            Poll::Ready(Err(RelayError::Source(kind))) => return Err(ProxyError::downstream(kind)),
        }
        self.arm();
        Ok(())
    }

    /// Ready with the final head. Interim ones go to the client at once.
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Response, bool), ProxyError>> {
        loop {
            let head = match ready!(self.server.poll_head(cx)).map_err(ProxyError::upstream)? {
                Head::Final { response, has_ended } => return Poll::Ready(Ok((response, has_ended))),
                Head::Interim(head) => head,
            };
            self.n_interim += 1;
            if self.n_interim > INTERIM_RESPONSES_MAX {
                return Poll::Ready(Err(ProxyError::upstream(Kind::TooManyInterim)));
            }
            // RFC 9110 section 15.2.1: 100 is for who has asked for it.
            if head.status.as_u16() != 100 || self.terms.expects_continue {
                self.client.interim(head).map_err(ProxyError::downstream)?;
            }
        }
    }

    fn answer(&mut self, mut response: Response, has_ended: bool) -> Result<(), ProxyError> {
        fields::apply(&self.terms.filters.headers.response, &mut response.fields);
        let Terms { filters, own, .. } = self.terms;
        if filters.cors.is_some() || !own.is_empty() {
            // Of the request's id, only where it is told.
            let is_own = |name: &HeaderName| {
                let name = name.as_str();
                filters.cors.is_some() && Cors::owns(name.as_bytes())
                    || name == "x-request-id" && own.contains_key(name)
            };
            fields::replace(&mut response.fields, is_own, own);
        }
        self.status = Some(response.status.as_u16());
        self.n_head_sent = response.size() as u64;
        self.grpc_status = grpc::status(&response.fields);
        let is_read = self.upload == Upload::Done;
        self.client.answer(response, has_ended, is_read).map_err(ProxyError::downstream)?;
        self.arm();
        Ok(())
    }
}
