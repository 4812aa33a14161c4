//! A server behind that speaks HTTP/1, as the other end of any client.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite};

use super::buffer::{Buffer, Buffers};
use super::crossing::{Head, Server};
use super::error::Kind;
use super::h1_body::{Reader, Writer};
use super::relay::{Frame, Sink, Source};
use crate::proxy::h1::request::MethodKind;
use crate::proxy::h1::{Framing, HeadError, ResponseHead, Scanner};
use crate::proxy::message::Response;

pub(super) struct H1Server<'a, S> {
    stream: &'a mut S,
    buffer: &'a mut Buffer,
    buffers: &'a Buffers,
    response: &'a mut ResponseHead,
    method: MethodKind,
    request: Writer<'a>,
    scanner: Scanner,
    answer: Reader,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> H1Server<'a, S> {
    /// `head`: of the request, written already; `framing` is what it says of the body.
    pub(super) fn new(
        stream: &'a mut S,
        (buffer, buffers): (&'a mut Buffer, &'a Buffers),
        (method, framing, head): (MethodKind, Framing, &'a mut Vec<u8>),
        response: &'a mut ResponseHead,
    ) -> Self {
        buffer.clear();
        let (request, answer) = (Writer::new(head, framing), Reader::new(Framing::None));
        Self { stream, buffer, buffers, response, method, request, scanner: Scanner::response(), answer }
    }

    /// Whether the connection can take another request. `is_sent`: the present one went out in full.
    pub(super) fn is_reusable(&self, is_sent: bool) -> bool {
        is_sent && self.response.keep_alive && self.answer.is_done() && self.buffer.is_empty()
    }

    /// Takes a whole head from the buffer.
    fn take_head(&mut self) -> Result<Option<Head>, HeadError> {
        let data = self.buffer.data();
        let Some(place) = self.scanner.scan(data)? else { return Ok(None) };
        let head = data.get(place.clone()).unwrap_or_default();
        self.response.parse(head, self.method)?;
        let response = Response::of_h1(self.response, head)?;
        self.buffer.consume(place.end);
        self.scanner = Scanner::response();
        if self.response.is_interim() {
            return Ok(Some(Head::Interim(response)));
        }
        self.answer = Reader::new(self.response.framing);
        Ok(Some(Head::Final { response, has_ended: self.answer.is_done() }))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Server for H1Server<'_, S> {
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, Kind>> {
        loop {
            if let Some(head) = self.take_head().map_err(Kind::Head)? {
                let is_upgrade = matches!(&head, Head::Final { response, .. } if response.status == 101);
                return Poll::Ready(if is_upgrade { Err(Kind::UnexpectedUpgrade) } else { Ok(head) });
            }
            if self.buffer.is_full() {
                return Poll::Ready(Err(Kind::Head(HeadError::HeadTooLarge)));
            }
            match ready!(self.buffer.poll_fill(cx, self.stream, self.buffers)) {
                Ok(0) | Err(_) => return Poll::Ready(Err(Kind::Closed)),
                Ok(_) => {}
            }
        }
    }

    fn is_untouched(&self, _: Kind) -> bool {
        self.request.n_written() == 0 && self.buffer.is_empty()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Source for H1Server<'_, S> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, Kind>> {
        self.answer.poll_frame(cx, (self.stream, self.buffer), self.buffers)
    }

    fn has_ended(&self) -> bool {
        self.answer.has_ended()
    }

    fn passed(&mut self, _: usize) {}
}

impl<S: AsyncRead + AsyncWrite + Unpin> Sink for H1Server<'_, S> {
    fn poll_data(&mut self, cx: &mut Context<'_>, data: &mut Bytes, is_last: bool) -> Poll<Result<(), Kind>> {
        self.request.poll_data(cx, (data, is_last), self.stream)
    }

    fn poll_end(&mut self, cx: &mut Context<'_>, trailers: Option<&HeaderMap>) -> Poll<Result<(), Kind>> {
        self.request.poll_end(cx, trailers, self.stream)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Kind>> {
        self.request.poll_flush(cx, self.stream)
    }
}
