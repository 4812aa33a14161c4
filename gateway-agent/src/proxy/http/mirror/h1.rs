//! A copy to a mirror that speaks HTTP/1, and its answer.

use std::rc::Rc;

use tokio::io::AsyncWriteExt as _;

use super::super::balance::Tried;
use super::super::buffer::Buffer;
use super::super::kept::Kept;
use super::super::limits::MIRROR_ANSWER_BYTES_MAX;
use super::super::pool::Liveness;
use super::super::upstream::{self, How};
use super::super::worker::HttpWorker;
use super::Mirrored;
use crate::metrics::RouteCells;
use crate::proxy::h1::request::MethodKind;
use crate::proxy::h1::{Body, ResponseHead, Scanner};
use crate::proxy::stream::Upstream;

/// `None`: the mirror could not be reached, or did not answer as it should.
pub(super) async fn send(
    worker: &Rc<HttpWorker>,
    Mirrored { endpoints, certificate, method }: Mirrored,
    head: Vec<u8>,
    body: Option<Kept>,
) -> Option<()> {
    let timer = worker.clock.timer();
    let how = How { liveness: Some(Liveness::Probed), n_connects_max: 1 };
    // Failures of a mirror are not those of the route's backends.
    let cells = RouteCells::default();
    let asked = (&*endpoints, certificate.as_ref());
    let connected = upstream::connect(worker, asked, &mut Tried::new(), how, &timer, &cells).await;
    let mut upstream = connected.ok()?;
    timer.disarm();
    upstream.stream.write_all(&head).await.ok()?;
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
