//! A copy to a mirror that speaks HTTP/2, and its answer.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::super::balance::Tried;
use super::super::crossing::{Head, Server as _};
use super::super::error::Kind;
use super::super::h2::{self, H2Server};
use super::super::kept::Kept;
use super::super::limits::{MIRROR_ANSWER_BYTES_MAX, PIECE_BYTES_MAX};
use super::super::pool::Health;
use super::super::relay::{Frame, Sink as _, Source as _};
use super::super::upstream;
use super::super::worker::HttpWorker;
use super::Mirrored;
use crate::proxy::h1::limits::INTERIM_RESPONSES_MAX;

/// `None`: the mirror could not be reached, or did not answer as it should.
pub(super) async fn send(
    worker: &Rc<HttpWorker>,
    Mirrored { endpoints, certificate, .. }: Mirrored,
    head: http::Request<()>,
    body: Option<Kept>,
) -> Option<()> {
    let timer = worker.clock.timer();
    let identity = upstream::identity(worker, &endpoints, certificate.as_ref()).ok()?;
    let (_, endpoint, mut claim) = upstream::claim(worker, &endpoints, &Tried::new())?;
    let (_link, mut handle) = match h2::connect(worker, endpoint, identity.as_ref(), &timer).await {
        Ok(connected) => connected,
        Err(error) => {
            if error.kind != Kind::Handshake {
                claim.tell(Health::Failed);
            }
            return None;
        }
    };
    timer.disarm();
    let server = H2Server::open(&mut handle, head, body.is_none()).ok()?;
    // The connection must be able to end while this request is under way.
    drop(handle);
    let mut exchange = Exchange::new(server, body);
    poll_fn(|cx| exchange.poll(cx)).await.ok()
}

/// The copy under way: its body goes out while its answer comes in, for a server may wait for either.
struct Exchange {
    server: H2Server,
    /// `None`: it is sent.
    upload: Option<Upload>,
    has_head: bool,
    n_interim: u32,
    n_left: usize,
}

struct Upload {
    body: Kept,
    n_taken: usize,
    piece: Bytes,
}

impl Exchange {
    fn new(server: H2Server, body: Option<Kept>) -> Self {
        let upload = body.map(|body| Upload { body, n_taken: 0, piece: Bytes::new() });
        Self { server, upload, has_head: false, n_interim: 0, n_left: MIRROR_ANSWER_BYTES_MAX }
    }

    /// Ready when the answer has ended, or is too long to be read on.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Kind>> {
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(sent) = upload.poll(cx, &mut self.server)
        {
            sent?;
            self.upload = None;
        }
        while !self.has_head {
            match ready!(self.server.poll_head(cx))? {
                Head::Final { has_ended: true, .. } => return Poll::Ready(Ok(())),
                Head::Final { .. } => self.has_head = true,
                Head::Interim(_) => self.n_interim += 1,
            }
            if self.n_interim > INTERIM_RESPONSES_MAX {
                return Poll::Ready(Err(Kind::TooManyInterim));
            }
        }
        loop {
            match ready!(self.server.poll_frame(cx))? {
                Frame::Data(data) if data.len() < self.n_left => {
                    self.n_left -= data.len();
                    self.server.passed(data.len());
                }
                // What is left is refused with the stream.
                Frame::Data(_) | Frame::End | Frame::Trailers(_) => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl Upload {
    /// Ready when all of it is with the server.
    fn poll(&mut self, cx: &mut Context<'_>, server: &mut H2Server) -> Poll<Result<(), Kind>> {
        let body = self.body.bytes().unwrap_or_default();
        if body.is_empty() {
            return server.poll_end(cx, None);
        }
        loop {
            let rest = body.get(self.n_taken..).unwrap_or_default();
            if self.piece.is_empty() {
                // One copy more of a piece at a time, not of the whole.
                let piece = rest.get(..rest.len().min(PIECE_BYTES_MAX)).unwrap_or_default();
                self.piece = Bytes::copy_from_slice(piece);
                self.n_taken += piece.len();
            }
            let is_last = self.n_taken == body.len();
            ready!(server.poll_data(cx, &mut self.piece, is_last))?;
            if is_last {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
