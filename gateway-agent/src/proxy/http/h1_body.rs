//! Messages of HTTP/1 as pieces: read from a connection and framed for one. Either end of an exchange uses both.

use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite};

use super::buffer::{Buffer, Buffers};
use super::error::Kind;
use super::limits::PIECE_BYTES_MAX;
use super::relay::Frame;
use crate::proxy::h1::chunked::Decoder;
use crate::proxy::h1::{Body, BodyError, Framing};
use crate::proxy::message::{encode, fields};

/// Reads one body.
#[derive(Debug)]
pub(super) struct Reader {
    body: Body,
}

impl Reader {
    pub(super) fn new(framing: Framing) -> Self {
        let body = match framing {
            Framing::Chunked => Body::Chunked(Decoder::keeping_trailers()),
            framing => Body::new(framing),
        };
        Self { body }
    }

    pub(super) fn is_done(&self) -> bool {
        self.body.is_done()
    }

    /// Whether nothing but the end follows, and no trailers.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.body, Body::Done)
    }

    /// The next piece. What lies behind the body stays in `buffer`.
    pub(super) fn poll_frame<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        (stream, buffer): (&mut R, &mut Buffer),
        buffers: &Buffers,
    ) -> Poll<Result<Frame, Kind>> {
        loop {
            if self.body.is_done() {
                return Poll::Ready(Ok(match &self.body {
                    Body::Chunked(decoder) if !decoder.section().is_empty() => {
                        Frame::Trailers(fields::trailers(decoder.section()))
                    }
                    _ => Frame::End,
                }));
            }
            let input = buffer.data();
            let input = input.get(..input.len().min(PIECE_BYTES_MAX)).unwrap_or_default();
            let segment = self.body.next(input).map_err(Kind::Body)?;
            let end = segment.framing + segment.data;
            if segment.data > 0 {
                let data = input.get(segment.framing..end).map(Bytes::copy_from_slice).unwrap_or_default();
                buffer.consume(end);
                return Poll::Ready(Ok(Frame::Data(data)));
            }
            if segment.framing > 0 {
                buffer.consume(end);
                continue;
            }
            match ready!(buffer.poll_fill(cx, stream, buffers)) {
                Ok(0) => self.body.end().map_err(Kind::Body)?,
                Ok(_) => {}
                Err(_) => return Poll::Ready(Err(Kind::Body(BodyError::Truncated))),
            }
        }
    }
}

/// One message on its way out: what frames it goes by here, data by reference.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    framing: Framing,
    /// Of `Framing::Length`, what is still to come.
    n_left: u64,
    /// Heads, a chunk's size, trailers: before the data.
    before: &'a mut Vec<u8>,
    n_before_written: usize,
    /// Behind the data.
    after: &'static [u8],
    is_in_piece: bool,
    n_written: u64,
    /// The stream may hold what it has taken.
    is_flushing: bool,
}

impl<'a> Writer<'a> {
    /// `head`: written first, and room for what frames the body, whose framing is what the head says.
    pub(super) fn new(head: &'a mut Vec<u8>, framing: Framing) -> Self {
        let mut writer = Self {
            framing,
            n_left: 0,
            before: head,
            n_before_written: 0,
            after: b"",
            is_in_piece: false,
            n_written: 0,
            is_flushing: false,
        };
        writer.set_framing(framing);
        writer
    }

    pub(super) fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
        self.n_left = if let Framing::Length(length) = framing { length } else { 0 };
    }

    /// Where a further head is put.
    pub(super) fn head(&mut self) -> &mut Vec<u8> {
        self.before
    }

    /// Of what is there for the head at present, what is written.
    pub(super) fn n_head_written(&self) -> usize {
        self.n_before_written
    }

    pub(super) fn n_written(&self) -> u64 {
        self.n_written
    }

    pub(super) fn poll_data<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        (data, is_last): (&mut Bytes, bool),
        stream: &mut W,
    ) -> Poll<Result<(), Kind>> {
        self.begin(data.len(), is_last)?;
        ready!(self.poll_write(cx, data, stream))?;
        self.is_in_piece = false;
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_end<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        trailers: Option<&HeaderMap>,
        stream: &mut W,
    ) -> Poll<Result<(), Kind>> {
        self.end(trailers)?;
        self.poll_write(cx, &mut Bytes::new(), stream)
    }

    pub(super) fn poll_flush<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut W,
    ) -> Poll<Result<(), Kind>> {
        ready!(self.poll_write(cx, &mut Bytes::new(), stream))?;
        if self.is_flushing {
            ready!(Pin::new(stream).poll_flush(cx)).map_err(|_| Kind::Closed)?;
            self.is_flushing = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Frames a piece of data, once.
    fn begin(&mut self, length: usize, is_last: bool) -> Result<(), Kind> {
        if self.is_in_piece || length == 0 {
            return Ok(());
        }
        self.is_in_piece = true;
        match self.framing {
            Framing::Chunked => {
                self.before.extend_from_slice(format!("{length:X}\r\n").as_bytes());
                self.after = if is_last { b"\r\n0\r\n\r\n" } else { b"\r\n" };
            }
            Framing::UntilClose => {}
            Framing::Length(_) | Framing::None => {
                // The other side has counted too; here it would be the beginning of another message.
                self.n_left =
                    self.n_left.checked_sub(length as u64).ok_or(Kind::Body(BodyError::Truncated))?;
                if is_last && self.n_left > 0 {
                    return Err(Kind::Body(BodyError::Truncated));
                }
            }
        }
        Ok(())
    }

    /// Frames the end, once.
    fn end(&mut self, trailers: Option<&HeaderMap>) -> Result<(), Kind> {
        if self.is_in_piece {
            return Ok(());
        }
        self.is_in_piece = true;
        match self.framing {
            Framing::Chunked => {
                self.before.extend_from_slice(b"0\r\n");
                encode::trailers_to_h1(trailers, self.before);
                Ok(())
            }
            // No place for trailers.
            Framing::UntilClose => Ok(()),
            Framing::Length(_) | Framing::None if self.n_left == 0 => Ok(()),
            Framing::Length(_) | Framing::None => Err(Kind::Body(BodyError::Truncated)),
        }
    }

    fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
        stream: &mut W,
    ) -> Poll<Result<(), Kind>> {
        loop {
            let before = self.before.get(self.n_before_written..).unwrap_or_default();
            if before.len() + data.len() + self.after.len() == 0 {
                return Poll::Ready(Ok(()));
            }
            let parts = [IoSlice::new(before), IoSlice::new(data), IoSlice::new(self.after)];
            let written = match ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &parts)) {
                Ok(length) if length > 0 => length,
                Ok(_) | Err(_) => return Poll::Ready(Err(Kind::Closed)),
            };
            self.is_flushing = true;
            self.n_written += written as u64;
            let of_before = written.min(before.len());
            self.n_before_written += of_before;
            if self.n_before_written == self.before.len() {
                self.before.clear();
                self.n_before_written = 0;
            }
            let of_data = (written - of_before).min(data.len());
            data.advance(of_data);
            self.after = self.after.get(written - of_before - of_data..).unwrap_or_default();
        }
    }
}
