//! Bodies on streams, in either direction and at either end.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use http::HeaderMap;

use super::super::error::Kind;
use super::super::relay::Frame;
use super::kind_of;
use crate::proxy::message::fields;

/// The next piece of what the peer sends.
pub(super) fn poll_frame(body: &mut RecvStream, cx: &mut Context<'_>) -> Poll<Result<Frame, Kind>> {
    match ready!(body.poll_data(cx)) {
        Some(Ok(data)) => return Poll::Ready(Ok(Frame::Data(data))),
        Some(Err(error)) => return Poll::Ready(Err(kind_of(&error))),
        None => {}
    }
    Poll::Ready(match ready!(body.poll_trailers(cx)) {
        Ok(Some(mut trailers)) => {
            fields::keep_trailers(&mut trailers);
            Ok(Frame::Trailers(trailers))
        }
        Ok(None) => Ok(Frame::End),
        Err(error) => Err(kind_of(&error)),
    })
}

/// The peer may send as much again.
pub(super) fn passed(body: &mut RecvStream, length: usize) {
    // It fails where more is released than came; then the window is whole anyway.
    body.flow_control().release_capacity(length).ok();
}

/// Sends of `data` what the peer has room for.
pub(super) fn poll_data(
    stream: &mut SendStream<Bytes>,
    cx: &mut Context<'_>,
    data: &mut Bytes,
    is_last: bool,
) -> Poll<Result<(), Kind>> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let mut room = stream.capacity();
        while room == 0 {
            room = match ready!(stream.poll_capacity(cx)) {
                Some(Ok(room)) => room,
                Some(Err(error)) => return Poll::Ready(Err(kind_of(&error))),
                None => return Poll::Ready(Err(Kind::Closed)),
            };
        }
        let part = data.split_to(room.min(data.len()));
        let is_end = is_last && data.is_empty();
        stream.send_data(part, is_end).map_err(|error| kind_of(&error))?;
    }
    Poll::Ready(Ok(()))
}

pub(super) fn end(stream: &mut SendStream<Bytes>, trailers: Option<&HeaderMap>) -> Result<(), Kind> {
    let sent = match trailers {
        Some(trailers) => stream.send_trailers(trailers.clone()),
        None => stream.send_data(Bytes::new(), true),
    };
    sent.map_err(|error| kind_of(&error))
}
