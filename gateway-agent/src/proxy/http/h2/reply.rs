//! Answers of the proxy itself to a stream, in the way its client expects them, and counting.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use h2::Reason;
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};

use super::super::crossing::{Client as _, Report};
use super::super::error::{Kind, ProxyError, Source};
use super::super::limits::BODY_STALL_TIMEOUT;
use super::super::relay::Sink as _;
use super::super::respond;
use super::super::tunnel::Moved;
use super::stream::{Ended, Stream, X_REQUEST_ID};
use crate::metrics::RouteCells;
use crate::proxy::message::Response;
use crate::proxy::message::grpc::{self, Code};

impl Stream {
    /// Refuses what could not be read as a request. Other streams are not concerned.
    pub(super) async fn refuse(&mut self, error: ProxyError) -> Ended {
        let shared = self.shared.clone();
        tracing::debug!(%error, src.addr = %shared.about.client_text, "request refused");
        let table = shared.about.worker.tables.borrow_mut().table(shared.about.key);
        if let Some(table) = &table {
            shared.count_connection(table, None);
        }
        if let Some(cells) = &*shared.cells.borrow() {
            cells.unrouted.add(1);
        }
        self.record.failed(error);
        match error.status() {
            Some(status) => self.answer(status, HeaderMap::new(), None).await,
            None => {
                self.client.reset(Reason::PROTOCOL_ERROR);
                Ended::Served
            }
        }
    }

    /// Answers by itself. `fields`: further ones.
    pub(super) async fn answer(
        &mut self,
        status: u16,
        fields: HeaderMap,
        cells: Option<&RouteCells>,
    ) -> Ended {
        let (head, body) = if self.is_grpc && status >= 400 {
            let code = Code::of_status(status);
            self.record.grpc_answered(Some(code.number()));
            let mut head = grpc::trailers_only(code, respond::reason(status));
            if let Some(id) = self.own.get(X_REQUEST_ID) {
                head.fields.insert(X_REQUEST_ID, id.clone());
            }
            (head, Bytes::new())
        } else {
            let mut fields = fields;
            fields.extend(self.own.iter().map(|(name, value)| (name.clone(), value.clone())));
            plain(status, fields, self.is_head)
        };
        let moved = Moved { n_received: self.n_head as u64, n_sent: (head.size() + body.len()) as u64 };
        // As the client sees it, unlike what is counted.
        let status_sent = head.status.as_u16();
        let is_sent = self.send_own(head, body).await;
        if !is_sent {
            self.record.failed(ProxyError::downstream(Kind::Closed));
        }
        self.record.answered(status_sent, moved);
        self.count(status, cells, moved);
        if is_sent { Ended::Served } else { Ended::Cancelled }
    }

    /// The exchange failed: an answer where the client has not begun to get one, else an end it cannot mistake.
    pub(super) async fn broken(&mut self, error: ProxyError, report: Report, cells: &RouteCells) -> Ended {
        self.record.failed(error);
        let is_gone =
            error.source == Source::Downstream && matches!(error.kind, Kind::Closed | Kind::Refused);
        let Some(status) = report.status else {
            return match error.status() {
                Some(status) => self.answer(status, HeaderMap::new(), Some(cells)).await,
                None => {
                    self.record.answered(0, report.moved);
                    self.count(0, Some(cells), report.moved);
                    self.client.reset(Reason::INTERNAL_ERROR);
                    if is_gone { Ended::Cancelled } else { Ended::Served }
                }
            };
        };
        self.record.answered(status, report.moved);
        self.count(status, Some(cells), report.moved);
        // A call of gRPC ends by its status, or it would look as if the network had failed.
        let code = Code::of_status(error.status().unwrap_or(502));
        let is_said =
            self.is_grpc && !is_gone && self.client.end_with(grpc::trailers(code, "upstream failed"));
        if is_said {
            self.record.grpc_answered(Some(code.number()));
        } else {
            self.client.reset(Reason::INTERNAL_ERROR);
        }
        if is_gone { Ended::Cancelled } else { Ended::Served }
    }

    /// One request ends with `status`; 0: without an answer. What the listener has moved is counted by the connection.
    pub(super) fn count(&self, status: u16, cells: Option<&RouteCells>, moved: Moved) {
        if let Some(cells) = cells {
            cells.ended(status, self.record.elapsed());
            cells.received_bytes.add(moved.n_received);
            cells.sent_bytes.add(moved.n_sent);
        }
    }

    /// False when the client does not take it, or does not want it.
    async fn send_own(&mut self, head: Response, mut body: Bytes) -> bool {
        let has_ended = body.is_empty();
        if self.client.answer(head, has_ended, false).is_err() {
            return false;
        }
        if has_ended {
            return true;
        }
        self.timer.arm(BODY_STALL_TIMEOUT);
        poll_fn(|cx| match self.client.poll_data(cx, &mut body, true) {
            Poll::Ready(sent) => Poll::Ready(sent.is_ok()),
            Poll::Pending if self.client.poll_gone(cx).is_ready() => Poll::Ready(false),
            Poll::Pending => self.timer.poll(cx).map(|_| false),
        })
        .await
    }
}

/// An answer with a line of text as its body, as in HTTP/1.
fn plain(status: u16, mut fields: HeaderMap, is_head: bool) -> (Response, Bytes) {
    let reason = respond::reason(status);
    // OPTIONS of the server and preflights have nothing to say beyond their status.
    let body = if matches!(status, 200 | 204) { String::new() } else { format!("{reason}\n") };
    if !body.is_empty() {
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    }
    if status != 204 {
        fields.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = if is_head { Bytes::new() } else { Bytes::from(body) };
    (Response { status, fields }, body)
}
