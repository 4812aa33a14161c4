//! A client's stream of HTTP/2, as the other end of any server.

use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Version};

use super::super::crossing::Client;
use super::super::error::Kind;
use super::super::relay::{Frame, Sink, Source};
use super::{body, kind_of};
use crate::proxy::message::Response;

#[derive(Debug)]
pub(super) struct H2Client {
    body: RecvStream,
    respond: SendResponse<Bytes>,
    /// Since the final head was sent.
    answer: Option<SendStream<Bytes>>,
}

impl H2Client {
    pub(super) fn new(body: RecvStream, respond: SendResponse<Bytes>) -> Self {
        Self { body, respond, answer: None }
    }

    /// Ends the stream so that the client cannot take what it got for all.
    pub(super) fn reset(&mut self, reason: Reason) {
        self.respond.send_reset(reason);
    }

    /// Ends an answer that has begun by these trailers.
    pub(super) fn end_with(&mut self, trailers: HeaderMap) -> bool {
        self.answer.as_mut().is_some_and(|answer| answer.send_trailers(trailers).is_ok())
    }
}

impl Source for H2Client {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, Kind>> {
        body::poll_frame(&mut self.body, cx)
    }

    fn has_ended(&self) -> bool {
        self.body.is_end_stream()
    }

    fn passed(&mut self, length: usize) {
        body::passed(&mut self.body, length);
    }
}

impl Sink for H2Client {
    fn poll_data(&mut self, cx: &mut Context<'_>, data: &mut Bytes, is_last: bool) -> Poll<Result<(), Kind>> {
        let Some(answer) = &mut self.answer else { return Poll::Ready(Err(Kind::Closed)) };
        body::poll_data(answer, cx, data, is_last)
    }

    fn poll_end(&mut self, _: &mut Context<'_>, trailers: Option<&HeaderMap>) -> Poll<Result<(), Kind>> {
        let Some(answer) = &mut self.answer else { return Poll::Ready(Err(Kind::Closed)) };
        Poll::Ready(body::end(answer, trailers))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Kind>> {
        // The connection's task sees to it.
        Poll::Ready(Ok(()))
    }
}

impl Client for H2Client {
    fn interim(&mut self, head: Response) -> Result<(), Kind> {
        self.respond.send_informational(of(head)).map_err(|error| kind_of(&error))
    }

    fn answer(&mut self, head: Response, has_ended: bool, _: bool) -> Result<(), Kind> {
        let answer = self.respond.send_response(of(head), has_ended).map_err(|error| kind_of(&error))?;
        self.answer = Some(answer);
        Ok(())
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.answer {
            Some(answer) => answer.poll_reset(cx).map(|_| ()),
            None => self.respond.poll_reset(cx).map(|_| ()),
        }
    }
}

fn of(head: Response) -> http::Response<()> {
    let Response { status, fields } = head;
    let mut response = http::Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = Version::HTTP_2;
    *response.headers_mut() = fields;
    response
}
