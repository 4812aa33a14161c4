//! Copies of requests to mirrors, whose answers nobody reads.
//!
//! A mirror can neither delay nor fail the request that it gets a copy of: copies are sent by tasks of their own, a
//! bounded number per worker, each in bounded time; what goes beyond is dropped and counted. A body is sent once all of
//! it has passed to the server that answers, if it was short enough to be kept.

use std::rc::Rc;
use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;

use super::balance::Tried;
use super::buffer::Buffer;
use super::kept::Kept;
use super::limits::{MIRROR_ANSWER_BYTES_MAX, MIRROR_TIMEOUT, MIRRORS_MAX};
use super::pool::Liveness;
use super::upstream::{self, How};
use super::worker::HttpWorker;
use crate::certificate::Certificate;
use crate::metrics::RouteCells;
use crate::proxy::h1::request::MethodKind;
use crate::proxy::h1::{Body, ResponseHead, Scanner};
use crate::proxy::stream::Upstream;
use crate::snapshot::EndpointSet;

/// A request that is to be mirrored.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) endpoints: Arc<EndpointSet>,
    /// What they are shown where they are spoken to by TLS.
    pub(super) certificate: Option<Arc<Certificate>>,
    /// The head as it is sent.
    pub(super) bytes: Vec<u8>,
    pub(super) method: MethodKind,
}

/// One place among those that a worker has.
struct Place(Rc<HttpWorker>);

impl Place {
    fn take(worker: &Rc<HttpWorker>) -> Option<Self> {
        let n_taken = worker.n_mirrors.get();
        (n_taken < MIRRORS_MAX).then(|| {
            worker.n_mirrors.set(n_taken + 1);
            Self(worker.clone())
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.n_mirrors.set(self.0.n_mirrors.get().saturating_sub(1));
    }
}

/// Sends all of `copies`. `body`: what was kept of the request's, all of which was sent.
pub(super) fn send_all(
    worker: &Rc<HttpWorker>,
    copies: &mut Vec<Copy>,
    body: Option<&Kept>,
    cells: &Arc<RouteCells>,
) {
    for copy in copies.drain(..) {
        let place = Place::take(worker);
        let body = match body {
            None => Some(None),
            Some(body) => body.copy().map(Some),
        };
        let (Some(place), Some(body), false) = (place, body, worker.clock.is_stopping()) else {
            cells.mirrors_dropped.add(1);
            continue;
        };
        let cells = cells.clone();
        // Owned by the worker's set of tasks; ends within its time whatever the mirror does.
        tokio::task::spawn_local(async move {
            let sent = tokio::time::timeout(MIRROR_TIMEOUT, send(&place.0, copy, body)).await;
            let counter = if sent == Ok(Some(())) { &cells.mirrored } else { &cells.mirrors_dropped };
            counter.add(1);
        });
    }
}

/// `None`: the mirror could not be reached, or did not answer as it should.
async fn send(worker: &Rc<HttpWorker>, copy: Copy, body: Option<Kept>) -> Option<()> {
    let Copy { endpoints, certificate, bytes, method } = copy;
    let timer = worker.clock.timer();
    let how = How { liveness: Some(Liveness::Probed), n_connects_max: 1 };
    // Failures of a mirror are not those of the route's backends.
    let cells = RouteCells::default();
    let asked = (&*endpoints, certificate.as_ref());
    let connected = upstream::connect(worker, asked, &mut Tried::new(), how, &timer, &cells).await;
    let mut upstream = connected.ok()?;
    timer.disarm();
    upstream.stream.write_all(&bytes).await.ok()?;
    if let Some(body) = body.as_ref().and_then(Kept::bytes) {
        upstream.stream.write_all(body).await.ok()?;
    }
    upstream.stream.flush().await.ok()?;
    drop(body);
    let mut buffer = Buffer::default();
    let is_reusable = read_answer(worker, &mut upstream.stream, &mut buffer, method).await;
    buffer.release(&worker.buffers);
    if is_reusable? {
        upstream.keep();
    }
    Some(())
}

/// Reads an answer to its end and forgets it. True: the connection can be used again.
async fn read_answer(
    worker: &HttpWorker,
    stream: &mut Upstream,
    buffer: &mut Buffer,
    method: MethodKind,
) -> Option<bool> {
    let mut scanner = Scanner::response();
    let mut response = ResponseHead::default();
    loop {
        if let Some(place) = scanner.scan(buffer.data()).ok()? {
            response.parse(buffer.data().get(place.clone())?, method).ok()?;
            buffer.consume(place.end);
            if !response.is_interim() {
                break;
            }
            scanner = Scanner::response();
        } else if fill(worker, stream, buffer).await? == 0 {
            return None;
        }
    }
    let mut body = Body::new(response.framing);
    let mut n_left = MIRROR_ANSWER_BYTES_MAX;
    loop {
        let length = body.take(buffer.data()).ok()?;
        buffer.consume(length);
        if body.is_done() {
            return Some(response.keep_alive && buffer.is_empty());
        }
        match fill(worker, stream, buffer).await? {
            0 => return Some(false),
            length => n_left = n_left.saturating_sub(length),
        }
        if n_left == 0 {
            return Some(false);
        }
    }
}

/// `None`: broken, or more of a head than fits.
async fn fill(worker: &HttpWorker, stream: &mut Upstream, buffer: &mut Buffer) -> Option<usize> {
    if buffer.is_full() {
        return None;
    }
    std::future::poll_fn(|cx| buffer.poll_fill(cx, stream, &worker.buffers)).await.ok()
}
