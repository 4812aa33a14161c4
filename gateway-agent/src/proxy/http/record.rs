//! What the access log says of one request, gathered while it is served: exactly one line for each, also of requests
//! that the proxy answers itself, of those that cannot be read, and of those that end when their connection does.
//!
//! The line is put together in a buffer that is recycled; nothing is logged of headers, queries and bodies, which hold
//! secrets. Does not write: see [`crate::access_log`].

use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::error::{Kind, ProxyError};
use super::identity::Identity;
use super::json;
use super::tunnel::Moved;
use super::worker::HttpWorker;
use crate::access_log::Queue;
use crate::snapshot::{HttpRule, ListenerName};

/// One worker's end of the access log.
#[derive(Debug)]
pub(super) struct Log {
    queue: Arc<Queue>,
    /// The second that `text` is of.
    second: Cell<u64>,
    text: RefCell<Vec<u8>>,
}

/// How a request went on its way to the servers behind. Shared by those who carry it.
#[derive(Debug, Default)]
pub(super) struct Trail {
    /// That was tried last.
    upstream: Cell<Option<SocketAddr>>,
    n_retries: Cell<u32>,
}

/// Who asks, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends<'a> {
    pub(super) client: &'a str,
    pub(super) local: &'a str,
    pub(super) scheme: &'static str,
}

/// One request. Logs it when it is dropped before [`Self::finish`], too.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// `None`: no request is under way, or nothing is logged.
    worker: Option<Rc<HttpWorker>>,
    /// What is known so far, without its first and last characters.
    line: Vec<u8>,
    started: Option<Instant>,
    /// As it was sent; 0: none was.
    status: u16,
    grpc_status: Option<u32>,
    moved: Moved,
    error: Option<ProxyError>,
    pub(super) trail: Trail,
}

impl Log {
    pub(super) fn new(queue: Arc<Queue>) -> Self {
        Self { queue, second: Cell::new(0), text: RefCell::default() }
    }

    /// False where there is no room.
    fn put(&self, line: &[u8]) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut text = self.text.borrow_mut();
        if self.second.replace(now.as_secs()) != now.as_secs() || text.is_empty() {
            let seconds = i64::try_from(now.as_secs()).unwrap_or_default();
            let time = jiff::Timestamp::from_second(seconds).unwrap_or_default();
            text.clear();
            write!(text, "{time}").ok();
            // The zone's letter follows the fraction.
            text.pop();
        }
        let millis = now.subsec_millis();
        let digit = |divisor: u32| b'0' + u8::try_from(millis / divisor % 10).unwrap_or(0);
        let fraction = [b'.', digit(100), digit(10), digit(1), b'Z', b'"'];
        self.queue.push(&[b"{\"time\":\"", &text, &fraction, line, b"}\n"])
    }
}

impl Trail {
    pub(super) fn went_to(&self, endpoint: Option<&SocketAddr>) {
        if endpoint.is_some() {
            self.upstream.set(endpoint.copied());
        }
    }

    pub(super) fn retried(&self) {
        self.n_retries.set(self.n_retries.get() + 1);
    }
}

impl Record {
    /// A request begins, by the first byte of its head.
    pub(super) fn begin(&mut self, worker: &Rc<HttpWorker>, ends: Ends<'_>) {
        self.started = Some(Instant::now());
        (self.status, self.grpc_status, self.moved, self.error) = (0, None, Moved::default(), None);
        self.trail.upstream.set(None);
        self.trail.n_retries.set(0);
        self.line.clear();
        if worker.log.is_none() {
            return;
        }
        self.worker = Some(worker.clone());
        let Ends { client, local, scheme } = ends;
        json::text(&mut self.line, "src.addr", client.as_bytes());
        json::text(&mut self.line, "dst.addr", local.as_bytes());
        json::text(&mut self.line, "http.scheme", scheme.as_bytes());
    }

    pub(super) const fn has_begun(&self) -> bool {
        self.started.is_some()
    }

    /// It was no request: nothing is logged.
    pub(super) fn cancel(&mut self) {
        (self.worker, self.started) = (None, None);
    }

    pub(super) fn is_logged(&self) -> bool {
        self.worker.is_some()
    }

    /// What is known so far.
    pub(super) const fn line(&self) -> &Vec<u8> {
        &self.line
    }

    pub(super) fn elapsed(&self) -> std::time::Duration {
        self.started.map(|started| started.elapsed()).unwrap_or_default()
    }

    /// What was read of the head. `path`: without the query.
    pub(super) fn asked(&mut self, protocol: &str, method: &[u8], host: &str, path: &str) {
        if !self.is_logged() {
            return;
        }
        json::text(&mut self.line, "http.version", protocol.as_bytes());
        json::text(&mut self.line, "http.method", method);
        if !host.is_empty() {
            json::text(&mut self.line, "http.host", host.as_bytes());
        }
        json::text(&mut self.line, "http.path", path.as_bytes());
    }

    /// Where it belongs to.
    pub(super) fn routed(&mut self, listener: Option<&ListenerName>, rule: Option<&HttpRule>) {
        if !self.is_logged() {
            return;
        }
        if let Some(listener) = listener {
            json::display(&mut self.line, "listener", listener);
        }
        if let Some(HttpRule { route, name, .. }) = rule {
            json::text(&mut self.line, "route.kind", route.kind.as_str().as_bytes());
            json::text(&mut self.line, "route.namespace", route.object.namespace.as_bytes());
            json::text(&mut self.line, "route.name", route.object.name.as_bytes());
            json::text(&mut self.line, "route.rule", name.as_bytes());
        }
    }

    /// By what it is known.
    pub(super) fn known(&mut self, identity: &Identity) {
        if !self.is_logged() {
            return;
        }
        json::text(&mut self.line, "request_id", identity.request_id().as_bytes());
        if let Some(trace_id) = identity.trace_id() {
            json::text(&mut self.line, "trace_id", trace_id);
        }
    }

    /// Why the proxy answers by itself, or why the answer is not whole. The first reason is the one.
    pub(super) fn failed(&mut self, error: ProxyError) {
        self.error.get_or_insert(error);
    }

    /// `moved`: adds to what was said before.
    pub(super) fn answered(&mut self, status: u16, moved: Moved) {
        if status != 0 {
            self.status = status;
        }
        self.moved.n_received += moved.n_received;
        self.moved.n_sent += moved.n_sent;
    }

    pub(super) fn grpc_answered(&mut self, status: Option<u32>) {
        self.grpc_status = status.or(self.grpc_status);
    }

    /// Logs it.
    pub(super) fn finish(&mut self) {
        let elapsed = self.elapsed();
        self.started = None;
        let Some(worker) = self.worker.take() else { return };
        let Some(log) = &worker.log else { return };
        if self.status == 0 && self.error.is_none() {
            // Whoever would have told is gone.
            self.error = Some(match worker.clock.is_aborting() {
                true => ProxyError::internal(Kind::Aborted),
                false => ProxyError::downstream(Kind::Closed),
            });
        }
        let Self { line, status, grpc_status, moved, error, trail, .. } = self;
        if *status != 0 {
            json::number(line, "http.status", u64::from(*status));
        }
        if let Some(status) = grpc_status {
            json::number(line, "grpc.status", u64::from(*status));
        }
        json::number(line, "bytes_recv", moved.n_received);
        json::number(line, "bytes_sent", moved.n_sent);
        json::thousandths(line, "duration_ms", u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
        if let Some(upstream) = trail.upstream.get() {
            json::display(line, "upstream.addr", upstream);
        }
        if trail.n_retries.get() > 0 {
            json::number(line, "retries", u64::from(trail.n_retries.get()));
        }
        if let Some(error) = error {
            json::text(line, "error", error.kind.as_str().as_bytes());
            json::text(line, "error.source", error.source.as_str().as_bytes());
            if let Kind::Head(_) | Kind::Body(_) = error.kind {
                json::display(line, "error.detail", error.kind);
            }
        }
        if !log.put(line) {
            worker.cells.access_log_dropped.add(1);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.finish();
    }
}
