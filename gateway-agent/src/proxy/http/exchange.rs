//! One request to one server and its answer: both directions at once, in one task.
//!
//! Does not choose the server, does not repeat a request, and gives no answer of its own.

use std::task::{Context, Poll, ready};

use super::buffer::{Buffer, Buffers};
use super::client::Stream;
use super::clock::{Clock, Due, Timer};
use super::error::{Kind, ProxyError};
use super::kept::Kept;
use super::limits::{BODY_STALL_TIMEOUT, HALF_CLOSED_TIMEOUT, RESPONSE_HEAD_TIMEOUT};
use super::pump::{Coding, Pump, PumpError};
use super::tunnel::Moved;
use super::worker::Parts;
use crate::proxy::h1::encode::{self, Answer, Persistence};
use crate::proxy::h1::limits::INTERIM_RESPONSES_MAX;
use crate::proxy::h1::request::MethodKind;
use crate::proxy::h1::{Body, BodyError, Framing, HeadError, RequestHead, ResponseHead, Scanner};
use crate::proxy::stream::Upstream;
use crate::snapshot::Filters;

/// How an exchange ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The answer is written in full.
    Answered,
    /// The answer is not passed on, and nothing of it was.
    Rejected,
    /// A 101 is to be written, then both directions are free.
    Upgraded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upload {
    Active,
    Done,
    /// The server takes no more; it may still answer (it often has: 413).
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Head,
    Body,
}

/// The client's side of a connection.
pub(super) struct Client<'a> {
    pub(super) stream: &'a mut Stream,
    pub(super) buffer: &'a mut Buffer,
    /// Nothing will come any more; it may still read.
    pub(super) has_ended: &'a mut bool,
}

/// What is done to an answer.
pub(super) struct Terms<'a> {
    pub(super) filters: &'a Filters,
    /// Whether an answer with this status is thrown away for another try, which it must not be asked in vain.
    pub(super) rejects: &'a dyn Fn(u16) -> bool,
}

pub(super) struct Exchange<'a> {
    client: Client<'a>,
    upstream: &'a mut Upstream,
    upstream_buffer: &'a mut Buffer,
    buffers: &'a Buffers,
    timer: &'a Timer,
    request: &'a RequestHead,
    response: &'a mut ResponseHead,
    request_out: &'a [u8],
    response_out: &'a mut Vec<u8>,
    /// Of the final answer.
    answer: Answer<'a>,
    rejects: &'a dyn Fn(u16) -> bool,
    is_rejected: bool,
    clock: &'a Clock,
    upload: Upload,
    up: &'a mut Pump,
    phase: Phase,
    down: Pump,
    scanner: Scanner,
    n_interim: u32,
    persistence: Persistence,
}

/// What is left to know when an exchange is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// The answer's status, once its head was read.
    pub(super) status: Option<u16>,
    /// Of the heads prepared for the client, what is written.
    pub(super) n_head_written: usize,
    pub(super) moved: Moved,
    /// Nothing came from the server, and nothing of the request may have been acted upon, or twice is as good as once.
    pub(super) may_repeat: bool,
    /// All that was sent of the request can be sent again.
    pub(super) can_repeat: bool,
    pub(super) request_is_read: bool,
    pub(super) upstream_is_reusable: bool,
    /// The client cannot tell a closed connection from the answer's end.
    pub(super) ends_by_close: bool,
    pub(super) persistence: Persistence,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(
        client: Client<'a>,
        upstream: &'a mut Upstream,
        (parts, up): (&'a mut Parts, &'a mut Pump),
        terms: Terms<'a>,
        (buffers, timer, clock): (&'a Buffers, &'a Timer, &'a Clock),
    ) -> Self {
        let Parts {
            request, response, request_out, response_out, own_lines, upstream_buffer, identity, ..
        } = parts;
        response_out.clear();
        upstream_buffer.clear();
        let Terms { filters, rejects } = terms;
        let exchange = Self {
            up,
            client,
            upstream,
            upstream_buffer,
            buffers,
            timer,
            request,
            response,
            request_out,
            response_out,
            answer: Answer {
                changes: &filters.headers.response,
                lines: own_lines,
                owns_cors: filters.cors.is_some(),
                owns_id: identity.is_told,
            },
            rejects,
            is_rejected: false,
            clock,
            upload: Upload::Active,
            phase: Phase::Head,
            down: Pump::new(Framing::None, Coding::Kept),
            scanner: Scanner::response(),
            n_interim: 0,
            persistence: Persistence::Close,
        };
        exchange.arm();
        exchange
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<End, ProxyError>> {
        let before = self.n_moved();
        if let Poll::Ready(end) = self.poll_sides(cx) {
            return Poll::Ready(end);
        }
        if self.n_moved() != before {
            self.arm();
        }
        self.timer.poll(cx).map(|due| Err(self.overdue(due)))
    }

    pub(super) fn report(&self, end: Result<End, ProxyError>) -> Report {
        let is_untouched =
            self.phase == Phase::Head && self.n_interim == 0 && self.upstream_buffer.is_empty();
        let is_safe_twice = self.request.method_kind != MethodKind::Other && self.up.is_repeatable();
        let is_answered = match end {
            Ok(End::Answered) => self.upstream_buffer.is_empty(),
            Ok(End::Rejected) => self.rest_is_here(),
            Ok(End::Upgraded) | Err(_) => false,
        };
        Report {
            status: (self.phase == Phase::Body).then_some(self.response.status),
            n_head_written: self.down.n_head_written(),
            moved: Moved { n_received: self.up.n_body_written(), n_sent: self.down.n_written() },
            may_repeat: is_untouched && (is_safe_twice || self.up.n_written() == 0),
            can_repeat: self.can_repeat(),
            request_is_read: self.upload == Upload::Done,
            upstream_is_reusable: is_answered && self.upload == Upload::Done && self.response.keep_alive,
            ends_by_close: self.phase == Phase::Body && self.sent_framing() == Framing::UntilClose,
            persistence: self.persistence,
        }
    }

    /// Once all of the request was sent: what was kept of its body.
    pub(super) fn sent_body(&self) -> Option<&Kept> {
        self.up.kept().filter(|_| self.upload == Upload::Done)
    }

    /// Nothing of an answer is on its way to the client, and all that was sent of the request can be sent again.
    fn can_repeat(&self) -> bool {
        self.phase == Phase::Head
            && self.down.n_head_written() == self.response_out.len()
            && self.up.is_repeatable()
    }

    /// All of the answer has come, and nothing else.
    fn rest_is_here(&self) -> bool {
        let mut body = Body::new(self.response.framing);
        let rest = self.upstream_buffer.data();
        body.take(rest).is_ok_and(|length| length == rest.len()) && body.is_done()
    }

    fn n_moved(&self) -> u64 {
        self.up.n_moved() + self.down.n_moved() + self.upstream_buffer.data().len() as u64
    }

    /// The deadline for the next progress.
    fn arm(&self) {
        self.timer.arm(match (*self.client.has_ended, self.upload, self.phase) {
            (true, _, _) => HALF_CLOSED_TIMEOUT,
            (_, Upload::Done | Upload::Refused, Phase::Head) => RESPONSE_HEAD_TIMEOUT,
            _ => BODY_STALL_TIMEOUT,
        });
    }

    fn overdue(&self, due: Due) -> ProxyError {
        match (due, self.phase) {
            (Due::Abort, _) => ProxyError::internal(Kind::Aborted),
            (Due::Limit(limit), _) => ProxyError::limit(limit),
            (Due::Deadline, _) if *self.client.has_ended => ProxyError::downstream(Kind::Closed),
            (Due::Deadline, Phase::Head) if self.upload == Upload::Active && self.up.awaits_source() => {
                ProxyError::downstream(Kind::BodyStalled)
            }
            (Due::Deadline, Phase::Head) => ProxyError::upstream(Kind::HeadTimeout),
            (Due::Deadline, Phase::Body) if self.down.awaits_source() => {
                ProxyError::upstream(Kind::BodyStalled)
            }
            (Due::Deadline, Phase::Body) => ProxyError::downstream(Kind::BodyStalled),
        }
    }

    fn poll_sides(&mut self, cx: &mut Context<'_>) -> Poll<Result<End, ProxyError>> {
        // The request first: it is what the answer waits for.
        self.poll_upload(cx)?;
        if let Poll::Ready(end) = self.poll_download(cx)? {
            return Poll::Ready(Ok(end));
        }
        if self.upload != Upload::Active {
            self.watch_client(cx)?;
        }
        Poll::Pending
    }

    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), ProxyError> {
        if self.upload != Upload::Active {
            return Ok(());
        }
        let source = (&mut *self.client.stream, &mut *self.client.buffer);
        match self.up.poll(cx, self.request_out, source, self.upstream, self.buffers) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => {
                self.upload = Upload::Done;
                self.arm();
            }
            Poll::Ready(Err(PumpError::Write)) => {
                self.upload = Upload::Refused;
                self.arm();
            }
            Poll::Ready(Err(PumpError::Read)) => return Err(ProxyError::downstream(Kind::Closed)),
            Poll::Ready(Err(PumpError::Body(error))) => {
                return Err(ProxyError::downstream(Kind::Body(error)));
            }
        }
        Ok(())
    }

    /// Notices a client that goes away while its answer is awaited. What it sends ahead is kept for the next request.
    fn watch_client(&mut self, cx: &mut Context<'_>) -> Result<(), ProxyError> {
        while !*self.client.has_ended && !self.client.buffer.is_full() {
            match self.client.buffer.poll_fill(cx, self.client.stream, self.buffers) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => {
                    *self.client.has_ended = true;
                    self.arm();
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return Err(ProxyError::downstream(Kind::Closed)),
            }
        }
        Ok(())
    }

    fn poll_download(&mut self, cx: &mut Context<'_>) -> Poll<Result<End, ProxyError>> {
        if self.phase == Phase::Head {
            ready!(self.poll_response_head(cx))?;
            if self.is_rejected {
                return Poll::Ready(Ok(End::Rejected));
            }
            self.phase = Phase::Body;
            if self.response.status == 101 {
                return Poll::Ready(Ok(End::Upgraded));
            }
        }
        let source = (&mut *self.upstream, &mut *self.upstream_buffer);
        let moved = ready!(self.down.poll(cx, self.response_out, source, self.client.stream, self.buffers));
        Poll::Ready(match moved {
            Ok(()) => Ok(End::Answered),
            Err(PumpError::Write) => Err(ProxyError::downstream(Kind::Closed)),
            Err(PumpError::Read) => Err(ProxyError::upstream(Kind::Body(BodyError::Truncated))),
            Err(PumpError::Body(error)) => Err(ProxyError::upstream(Kind::Body(error))),
        })
    }

    /// Ready when the final head is read and its counterpart for the client prepared.
    fn poll_response_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        loop {
            while self.take_head()? {
                if !self.response.is_interim() {
                    return Poll::Ready(Ok(()));
                }
            }
            // Interim heads go out now; a client that does not take them is dealt with by the final one.
            if let Poll::Ready(Err(_)) = self.down.poll_head(cx, self.response_out, self.client.stream) {
                return Poll::Ready(Err(ProxyError::downstream(Kind::Closed)));
            }
            if self.upstream_buffer.is_full() {
                return Poll::Ready(Err(ProxyError::upstream(Kind::Head(HeadError::HeadTooLarge))));
            }
            match ready!(self.upstream_buffer.poll_fill(cx, self.upstream, self.buffers)) {
                Ok(0) | Err(_) => return Poll::Ready(Err(ProxyError::upstream(Kind::Closed))),
                Ok(_) => {}
            }
        }
    }

    /// Takes a whole head from the buffer; false when there is none yet.
    fn take_head(&mut self) -> Result<bool, ProxyError> {
        let bad = |error| ProxyError::upstream(Kind::Head(error));
        let data = self.upstream_buffer.data();
        let Some(place) = self.scanner.scan(data).map_err(bad)? else { return Ok(false) };
        let head = data.get(place.clone()).unwrap_or_default();
        self.response.parse(head, self.request.method_kind).map_err(bad)?;
        if self.response.is_interim() {
            self.n_interim += 1;
            if self.n_interim > INTERIM_RESPONSES_MAX {
                return Err(ProxyError::upstream(Kind::TooManyInterim));
            }
            // RFC 9110 section 15.2: never to HTTP/1.0; 100 only to who asked for it.
            if !self.request.is_http_1_0 && (self.response.status != 100 || self.request.expects_continue) {
                encode::response(
                    self.response,
                    head,
                    Persistence::Implied,
                    Answer::default(),
                    self.response_out,
                );
            }
        } else {
            self.check_upgrade()?;
            if self.can_repeat() && (self.rejects)(self.response.status) {
                self.is_rejected = true;
                self.upstream_buffer.consume(place.end);
                return Ok(true);
            }
            if self.removes_coding() {
                self.response.drop_coding(head);
            }
            self.persistence = self.choose_persistence();
            encode::response(self.response, head, self.persistence, self.answer, self.response_out);
            let coding = if self.removes_coding() { Coding::Removed } else { Coding::Kept };
            self.down.set_body(self.response.framing, coding);
        }
        self.upstream_buffer.consume(place.end);
        self.scanner = Scanner::response();
        Ok(true)
    }

    fn check_upgrade(&self) -> Result<(), ProxyError> {
        let is_asked = self.request.upgrade.is_some() && self.response.upgrade.is_some();
        if self.response.status == 101 && !is_asked {
            return Err(ProxyError::upstream(Kind::UnexpectedUpgrade));
        }
        Ok(())
    }

    /// HTTP/1.0 knows no chunks.
    fn removes_coding(&self) -> bool {
        self.request.is_http_1_0 && self.response.framing == Framing::Chunked
    }

    /// How the body ends for the client.
    fn sent_framing(&self) -> Framing {
        if self.removes_coding() { Framing::UntilClose } else { self.response.framing }
    }

    fn choose_persistence(&self) -> Persistence {
        if self.response.status == 101 {
            return Persistence::Implied;
        }
        let may_persist = self.request.keep_alive
            && !self.clock.is_stopping()
            && self.upload == Upload::Done
            && self.sent_framing() != Framing::UntilClose;
        match (may_persist, self.request.is_http_1_0) {
            (false, _) => Persistence::Close,
            (true, false) => Persistence::Implied,
            (true, true) => Persistence::KeepAlive,
        }
    }
}
