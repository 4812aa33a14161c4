//! A client that speaks HTTP/1, as the other end of a server that does not.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};

use super::buffer::Buffers;
use super::clock::{Clock, Timer};
use super::crossing::Client;
use super::error::Kind;
use super::exchange;
use super::h1_body::{Reader, Writer};
use super::limits::HALF_CLOSED_TIMEOUT;
use super::relay::{Frame, Sink, Source};
use crate::proxy::h1::encode::Persistence;
use crate::proxy::h1::request::MethodKind;
use crate::proxy::h1::{Framing, RequestHead};
use crate::proxy::message::{Response, encode};

pub(super) struct H1Client<'a> {
    client: exchange::Client<'a>,
    buffers: &'a Buffers,
    clock: &'a Clock,
    request: &'a RequestHead,
    body: Reader,
    answer: Writer<'a>,
    framing: Framing,
    persistence: Persistence,
    /// Runs while the client has closed its sending side.
    half_closed: Timer,
}

impl<'a> H1Client<'a> {
    /// `out`: where heads for the client are put together.
    pub(super) fn new(
        client: exchange::Client<'a>,
        request: &'a RequestHead,
        out: &'a mut Vec<u8>,
        (buffers, clock): (&'a Buffers, &'a std::rc::Rc<Clock>),
    ) -> Self {
        out.clear();
        let half_closed = clock.timer();
        half_closed.arm(HALF_CLOSED_TIMEOUT);
        Self {
            client,
            buffers,
            clock,
            request,
            body: Reader::new(request.framing),
            answer: Writer::new(out, Framing::None),
            framing: Framing::None,
            persistence: Persistence::Close,
            half_closed,
        }
    }

    /// What the client was told of the connection.
    pub(super) fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// The client cannot tell a closed connection from the answer's end.
    pub(super) fn ends_by_close(&self) -> bool {
        self.framing == Framing::UntilClose
    }

    /// Of what is put together for it, what is written.
    pub(super) fn n_head_written(&self) -> usize {
        self.answer.n_head_written()
    }

    fn choose_persistence(&self, is_read: bool) -> Persistence {
        let may_persist = self.request.keep_alive
            && is_read
            && !self.clock.is_stopping()
            && self.framing != Framing::UntilClose;
        match (may_persist, self.request.is_http_1_0) {
            (false, _) => Persistence::Close,
            (true, false) => Persistence::Implied,
            (true, true) => Persistence::KeepAlive,
        }
    }
}

impl Source for H1Client<'_> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, Kind>> {
        let exchange::Client { stream, buffer, .. } = &mut self.client;
        self.body.poll_frame(cx, (stream, buffer), self.buffers)
    }

    fn has_ended(&self) -> bool {
        self.body.has_ended()
    }

    fn passed(&mut self, _: usize) {}
}

impl Sink for H1Client<'_> {
    fn poll_data(&mut self, cx: &mut Context<'_>, data: &mut Bytes, is_last: bool) -> Poll<Result<(), Kind>> {
        if *self.client.has_ended {
            // It reads, so it is there.
            self.half_closed.arm(HALF_CLOSED_TIMEOUT);
        }
        self.answer.poll_data(cx, (data, is_last), self.client.stream)
    }

    fn poll_end(&mut self, cx: &mut Context<'_>, trailers: Option<&HeaderMap>) -> Poll<Result<(), Kind>> {
        self.answer.poll_end(cx, trailers, self.client.stream)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Kind>> {
        self.answer.poll_flush(cx, self.client.stream)
    }
}

impl Client for H1Client<'_> {
    fn interim(&mut self, head: Response) -> Result<(), Kind> {
        // RFC 9110 section 15.2: never to HTTP/1.0.
        if !self.request.is_http_1_0 {
            encode::response_to_h1(&head, Framing::None, Persistence::Implied, self.answer.head());
        }
        Ok(())
    }

    fn answer(&mut self, mut head: Response, has_ended: bool, is_read: bool) -> Result<(), Kind> {
        let is_bodyless =
            self.request.method_kind == MethodKind::Head || matches!(head.status.as_u16(), 204 | 304);
        self.framing = encode::framing_for_h1(&head, has_ended || is_bodyless, self.request.is_http_1_0);
        self.persistence = self.choose_persistence(is_read);
        self.answer.set_framing(self.framing);
        let is_silent = has_ended && !is_bodyless && !head.fields.contains_key(CONTENT_LENGTH);
        if is_silent {
            // Without it HTTP/1 would wait for the connection's end.
            head.fields.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        encode::response_to_h1(&head, self.framing, self.persistence, self.answer.head());
        Ok(())
    }

    /// Notices a client that goes away while its answer is awaited. What it sends ahead is kept for the next request.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.body.is_done() {
            return Poll::Pending;
        }
        while !*self.client.has_ended && !self.client.buffer.is_full() {
            let exchange::Client { stream, buffer, has_ended } = &mut self.client;
            match ready!(buffer.poll_fill(cx, *stream, self.buffers)) {
                Ok(0) => {
                    **has_ended = true;
                    self.half_closed.arm(HALF_CLOSED_TIMEOUT);
                }
                Ok(_) => {}
                Err(_) => return Poll::Ready(()),
            }
        }
        if *self.client.has_ended { self.half_closed.poll(cx).map(|_| ()) } else { Poll::Pending }
    }
}
