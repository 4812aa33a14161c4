//! A server's stream of HTTP/2, as the other end of any client.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::HeaderMap;

use super::super::crossing::{Head, Server};
use super::super::error::Kind;
use super::super::relay::{Frame, Sink, Source};
use super::{body, kind_of};
use crate::proxy::message::Response;

pub(in super::super) struct H2Server {
    answer: ResponseFuture,
    body: Option<RecvStream>,
    /// Absent where the request has ended with its head.
    request: Option<SendStream<Bytes>>,
}

impl H2Server {
    /// Opens a stream. An error: the request has not begun.
    pub(in super::super) fn open(
        server: &mut SendRequest<Bytes>,
        head: http::Request<()>,
        has_ended: bool,
    ) -> Result<Self, h2::Error> {
        let (answer, request) = server.send_request(head, has_ended)?;
        Ok(Self { answer, body: None, request: (!has_ended).then_some(request) })
    }
}

impl Server for H2Server {
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, Kind>> {
        if let Poll::Ready(Some(interim)) = self.answer.poll_informational(cx) {
            let (parts, ()) = interim.map_err(|error| kind_of(&error))?.into_parts();
            return Poll::Ready(Response::of_h2(parts).map(Head::Interim).map_err(Kind::Head));
        }
        let answer = ready!(Pin::new(&mut self.answer).poll(cx)).map_err(|error| kind_of(&error))?;
        let (parts, body) = answer.into_parts();
        let has_ended = body.is_end_stream();
        self.body = Some(body);
        let response = Response::of_h2(parts).map_err(Kind::Head)?;
        Poll::Ready(Ok(Head::Final { response, has_ended }))
    }

    fn is_untouched(&self, failure: Kind) -> bool {
        failure == Kind::Refused
    }
}

impl Source for H2Server {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, Kind>> {
        match &mut self.body {
            Some(body) => body::poll_frame(body, cx),
            None => Poll::Ready(Err(Kind::Closed)),
        }
    }

    fn has_ended(&self) -> bool {
        self.body.as_ref().is_some_and(RecvStream::is_end_stream)
    }

    fn passed(&mut self, length: usize) {
        if let Some(body) = &mut self.body {
            body::passed(body, length);
        }
    }
}

impl Sink for H2Server {
    fn poll_data(&mut self, cx: &mut Context<'_>, data: &mut Bytes, is_last: bool) -> Poll<Result<(), Kind>> {
        match &mut self.request {
            Some(request) => body::poll_data(request, cx, data, is_last),
            None => Poll::Ready(Err(Kind::Closed)),
        }
    }

    fn poll_end(&mut self, _: &mut Context<'_>, trailers: Option<&HeaderMap>) -> Poll<Result<(), Kind>> {
        Poll::Ready(match &mut self.request {
            Some(request) => body::end(request, trailers),
            None => Ok(()),
        })
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Kind>> {
        // The connection's task sees to it.
        Poll::Ready(Ok(()))
    }
}
