//! Answers of the proxy itself, counting, and the ways to end a connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::AsyncWrite;

use super::super::error::{Kind, ProxyError};
use super::super::exchange::Report;
use super::super::limits::{BODY_STALL_TIMEOUT, LINGER_BYTES_MAX, LINGER_TIMEOUT};
use super::super::pump::Pump;
use super::super::respond;
use super::super::tunnel::Moved;
use super::super::worker::Parts;
use super::{Connection, Next};
use crate::metrics::RouteCells;
use crate::proxy::h1::encode::Persistence;
use crate::proxy::h1::request::MethodKind;
use crate::proxy::h1::{Body, Framing};

/// What happened to a request before the proxy answers it itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Before {
    /// Of interim heads in `response_out`, what is sent already.
    n_head_written: usize,
    body: BodyState,
}

/// Where the client's buffer stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BodyState {
    /// Somewhere in the body.
    Begun,
    /// Behind the body: what follows is the next request.
    Read,
    /// Before the body.
    #[default]
    Untouched,
}

impl Before {
    /// Before the next exchange began.
    pub(super) fn of_upload(upload: &Pump) -> Self {
        let body = match upload.n_body_written() {
            0 => BodyState::Untouched,
            _ if upload.is_done() => BodyState::Read,
            _ => BodyState::Begun,
        };
        Self { n_head_written: 0, body }
    }

    /// After a failed exchange.
    pub(super) fn of(report: Report) -> Self {
        let body = if report.request_is_read { BodyState::Read } else { BodyState::Begun };
        Self { n_head_written: report.n_head_written, body }
    }
}

impl Connection<'_> {
    /// Refuses what could not be read as a request, so that nothing after it can be either.
    pub(super) async fn refuse(&mut self, error: ProxyError, parts: &mut Parts) -> Next {
        tracing::debug!(%error, src.addr = %self.client_text, "request refused");
        let table = self.worker.tables.borrow_mut().table(self.key);
        if let (Some(table), None) = (&table, &self.cells) {
            self.count_connection(table, None);
        }
        if let Some(cells) = &self.cells {
            cells.unrouted.add(1);
        }
        parts.record.failed(error);
        let n_received = self.buffer.data().len() as u64;
        let Some(status) = error.status() else { return Next::Close };
        parts.response_out.clear();
        respond::append(status, MethodKind::Other, Persistence::Close, &[], &mut parts.response_out);
        self.write_out(parts, 0).await;
        parts.record.answered(status, Moved { n_received, n_sent: parts.response_out.len() as u64 });
        Next::Linger
    }

    /// Answers a request whose head was read.
    pub(super) async fn answer(
        &mut self,
        status: u16,
        parts: &mut Parts,
        cells: Option<&RouteCells>,
        before: Before,
    ) -> Next {
        let Before { n_head_written, body } = before;
        let has_read_body = self.skip_body(body, parts.request.framing);
        let may_persist = parts.request.keep_alive
            && has_read_body
            && n_head_written == 0
            && !self.worker.clock.is_stopping();
        let persistence = match (may_persist, parts.request.is_http_1_0) {
            (false, _) => Persistence::Close,
            (true, false) => Persistence::Implied,
            (true, true) => Persistence::KeepAlive,
        };
        if n_head_written == 0 {
            parts.response_out.clear();
        }
        let Parts { request, own_lines, response_out, .. } = &mut *parts;
        respond::append(status, request.method_kind, persistence, own_lines, response_out);
        let is_written = self.write_out(parts, n_head_written).await;
        if !is_written {
            parts.record.failed(ProxyError::downstream(Kind::Closed));
        }
        let n_sent = parts.response_out.len() as u64;
        self.count(status, parts, cells, Moved { n_received: 0, n_sent });
        match persistence {
            _ if !is_written => Next::Close,
            Persistence::Close if has_read_body && self.buffer.is_empty() => Next::Close,
            Persistence::Close => Next::Linger,
            Persistence::Implied | Persistence::KeepAlive => Next::Request,
        }
    }

    /// Skips a body that has come already. False where some is still to come: the connection is not kept for it.
    fn skip_body(&mut self, state: BodyState, framing: Framing) -> bool {
        match state {
            BodyState::Read => true,
            BodyState::Begun => false,
            BodyState::Untouched => {
                let mut body = Body::new(framing);
                let skipped = body.take(self.buffer.data());
                self.buffer.consume(skipped.unwrap_or(0));
                skipped.is_ok() && body.is_done()
            }
        }
    }

    /// One request ends with `status`; 0: without an answer. `moved`: all that was sent, and of what was received
    /// the body.
    pub(super) fn count(&self, status: u16, parts: &mut Parts, cells: Option<&RouteCells>, moved: Moved) {
        let n_received = parts.n_head as u64 + moved.n_received;
        parts.record.answered(status, Moved { n_received, ..moved });
        if let Some(cells) = cells {
            cells.ended(status, parts.record.elapsed());
            cells.received_bytes.add(parts.n_head as u64);
        }
        self.count_bytes(cells, moved);
    }

    pub(super) fn count_bytes(&self, cells: Option<&RouteCells>, moved: Moved) {
        if let Some(cells) = cells {
            cells.received_bytes.add(moved.n_received);
            cells.sent_bytes.add(moved.n_sent);
        }
        if let Some(cells) = &self.cells {
            cells.received_bytes.add(moved.n_received);
            cells.sent_bytes.add(moved.n_sent);
        }
    }

    /// Writes what is prepared for the client; false when it cannot be written in time.
    async fn write_out(&mut self, parts: &Parts, n_written: usize) -> bool {
        let mut rest = parts.response_out.get(n_written..).unwrap_or_default();
        self.timer.arm(BODY_STALL_TIMEOUT);
        poll_fn(|cx| {
            while !rest.is_empty() {
                match Pin::new(&mut self.client).poll_write(cx, rest) {
                    Poll::Ready(Ok(length)) if length > 0 => rest = rest.get(length..).unwrap_or_default(),
                    Poll::Ready(_) => return Poll::Ready(false),
                    Poll::Pending => return self.timer.poll(cx).map(|_| false),
                }
            }
            match Pin::new(&mut self.client).poll_flush(cx) {
                Poll::Ready(flushed) => Poll::Ready(flushed.is_ok()),
                Poll::Pending => self.timer.poll(cx).map(|_| false),
            }
        })
        .await
    }

    /// Ends the connection. By TLS the client is told: an end without that looks like a cut.
    pub(super) async fn close(&mut self) {
        if self.server_name.is_some() {
            self.timer.arm(LINGER_TIMEOUT);
            self.shut_down().await;
        }
    }

    /// Closes the sending side; false when that fails or takes too long.
    async fn shut_down(&mut self) -> bool {
        poll_fn(|cx| match Pin::new(&mut self.client).poll_shutdown(cx) {
            Poll::Ready(result) => Poll::Ready(result.is_ok()),
            Poll::Pending => self.timer.poll(cx).map(|_| false),
        })
        .await
    }

    /// Closes the sending side and throws away what still comes, within bounds.
    pub(super) async fn linger(&mut self) {
        self.timer.arm(LINGER_TIMEOUT);
        let mut n_left = LINGER_BYTES_MAX;
        if !self.shut_down().await {
            return;
        }
        poll_fn(|cx| {
            while n_left > 0 {
                self.buffer.clear();
                match self.buffer.poll_fill(cx, &mut self.client, &self.worker.buffers) {
                    Poll::Ready(Ok(length)) if length > 0 => n_left = n_left.saturating_sub(length as u64),
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending => return self.timer.poll(cx).map(|_| ()),
                }
            }
            Poll::Ready(())
        })
        .await;
    }

    pub(super) fn reset(&self) {
        // Where it fails the socket is broken, which is what was wanted.
        socket2::SockRef::from(self.client.socket()).set_linger(Some(Duration::ZERO)).ok();
    }
}
