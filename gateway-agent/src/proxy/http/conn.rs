//! One client connection: its requests one after the other, each routed by the newest snapshot.

mod reply;
mod route;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use reply::Before;
use tokio::net::TcpStream;

use super::balance::Tried;
use super::buffer::Buffer;
use super::client::{Client, Stream, TlsFacts};
use super::clock::{Due, Timer};
use super::decision::Decision;
use super::error::{Kind, ProxyError};
use super::exchange::{self, End, Exchange, Report};
use super::limits::{HEAD_TIMEOUT, IDLE_TIMEOUT, RETRIES_MAX};
use super::pool::Liveness;
use super::table::Table;
use super::tunnel::Moved;
use super::worker::{HttpWorker, Parts};
use super::{tunnel, upstream};
use crate::metrics::{ListenerCells, RouteCells};
use crate::proxy::h1::encode::Persistence;
use crate::proxy::h1::request::MethodKind;
use crate::proxy::h1::{Framing, HeadError, Scanner};
use crate::snapshot::{EndpointSet, HeaderChanges, HttpVirtualListener, ListenerKey, MessageHeaders};

/// Serves one accepted connection to its end. Runs on the worker's thread, inside its `LocalSet`; dropping the
/// future closes both sides at once.
pub async fn serve(
    client: Client,
    peer: SocketAddr,
    local: SocketAddr,
    key: ListenerKey,
    worker: Rc<HttpWorker>,
) {
    let timer = worker.clock.timer();
    worker.start_ticking();
    let Client { stream, tls } = client;
    if stream.socket().set_nodelay(true).is_err() {
        // The client is gone already.
        return;
    }
    let (server_name, cells) = match tls {
        Some(TlsFacts { server_name, cells }) => (Some(server_name), Some(cells)),
        None => (None, None),
    };
    if let Some(cells) = &cells {
        cells.connections_active.add(1);
    }
    let mut connection = Connection {
        client: stream,
        server_name,
        buffer: Buffer::default(),
        has_ended: false,
        client_text: peer.ip().to_canonical().to_string(),
        local_text: local.to_string(),
        key,
        timer,
        worker: &worker,
        cells,
    };
    connection.run().await;
    connection.buffer.release(&worker.buffers);
    if let Some(cells) = &connection.cells {
        cells.connections_active.sub(1);
    }
}

/// What follows a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Close,
    /// Close, but let the client read what it was sent while it is still sending.
    Linger,
    Request,
    /// Close so that the client cannot take what it got for all.
    Reset,
}

struct Connection<'a> {
    client: Stream,
    /// Of the TLS handshake, empty where the client named none; absent in cleartext.
    server_name: Option<String>,
    buffer: Buffer,
    has_ended: bool,
    client_text: String,
    local_text: String,
    key: ListenerKey,
    timer: Timer,
    worker: &'a Rc<HttpWorker>,
    /// Of the listener of the server name, else of that which the first request came to.
    cells: Option<Arc<ListenerCells>>,
}

impl Connection<'_> {
    async fn run(&mut self) {
        match self.serve_requests().await {
            Next::Close | Next::Request => self.close().await,
            Next::Linger => self.linger().await,
            Next::Reset => self.reset(),
        }
    }

    /// Returns how the connection is to end.
    async fn serve_requests(&mut self) -> Next {
        self.timer.arm(HEAD_TIMEOUT);
        loop {
            if self.buffer.is_empty() {
                self.buffer.release(&self.worker.buffers);
                if !self.wait_for_request().await {
                    return Next::Close;
                }
            }
            let mut parts = self.worker.take_parts();
            let next = self.serve_request(&mut parts).await;
            self.worker.put_parts(parts);
            match next {
                Next::Request if !self.has_ended || !self.buffer.is_empty() => self.timer.arm(IDLE_TIMEOUT),
                end => return end,
            }
        }
    }

    /// False: closed, idle for too long, or the worker is stopping.
    async fn wait_for_request(&self) -> bool {
        poll_fn(|cx| {
            if self.client.poll_read_ready(cx).is_ready() {
                return Poll::Ready(true);
            }
            match self.timer.poll(cx) {
                Poll::Ready(_) => Poll::Ready(false),
                Poll::Pending if self.worker.clock.is_stopping() => Poll::Ready(false),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    async fn serve_request(&mut self, parts: &mut Parts) -> Next {
        let place = match self.read_head().await {
            Ok(Some(place)) => place,
            Ok(None) => return Next::Close,
            Err(error) => return self.refuse(error, parts).await,
        };
        let head = self.buffer.data().get(place.clone()).unwrap_or_default();
        if let Err(error) = parts.request.parse(head) {
            return self.refuse(ProxyError::downstream(Kind::Head(error)), parts).await;
        }
        // One look at the snapshot per request: a change holds from the next one on.
        let Some(table) = self.worker.tables.borrow_mut().table(self.key) else {
            return self.refuse(ProxyError::internal(Kind::NoRoute), parts).await;
        };
        let routed = self.route(&table, parts, place.clone());
        let decision = self.decide(routed, parts);
        self.prepare(&decision, routed, parts, place.clone());
        self.buffer.consume(place.end);
        if let Some(cells) = &self.cells {
            cells.received_bytes.add(place.len() as u64);
        }
        let cells = routed.rule.map(|rule| self.worker.tables.borrow().route_cells(&table, rule));
        match decision {
            Decision::Forward(set, headers) => {
                self.forward((set, headers), parts, &cells.unwrap_or_default()).await
            }
            Decision::Redirect(redirect) => {
                self.answer(redirect.status, parts, cells.as_deref(), Before::default()).await
            }
            Decision::Answer(status) => self.answer(status, parts, cells.as_deref(), Before::default()).await,
            Decision::Fail(error) => {
                if let Some(cells) = &cells {
                    cells.refused.add(1);
                }
                self.answer(error.status().unwrap_or(500), parts, cells.as_deref(), Before::default()).await
            }
        }
    }

    /// The place of a whole head in the buffer; `None`: the client closed or was idle.
    async fn read_head(&mut self) -> Result<Option<Range<usize>>, ProxyError> {
        let mut scanner = Scanner::request();
        let mut is_armed = false;
        loop {
            let found = scanner.scan(self.buffer.data());
            if let Some(place) = found.map_err(|error| ProxyError::downstream(Kind::Head(error)))? {
                return Ok(Some(place));
            }
            if !self.buffer.is_empty() && !is_armed {
                is_armed = true;
                self.timer.arm(HEAD_TIMEOUT);
            }
            if self.buffer.is_full() {
                return Err(ProxyError::downstream(Kind::Head(HeadError::HeadTooLarge)));
            }
            if self.has_ended {
                return Ok(None);
            }
            let is_idle = self.buffer.is_empty();
            let filled = poll_fn(|cx| {
                match self.buffer.poll_fill(cx, &mut self.client, &self.worker.buffers) {
                    Poll::Ready(filled) => return Poll::Ready(Ok(filled.unwrap_or(0))),
                    Poll::Pending if is_idle && self.worker.clock.is_stopping() => return Poll::Ready(Ok(0)),
                    Poll::Pending => {}
                }
                self.timer.poll(cx).map(Err)
            });
            match filled.await {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(Due::Deadline) if !is_idle => return Err(ProxyError::downstream(Kind::HeadTimeout)),
                Err(_) => return Ok(None),
            }
        }
    }

    fn count_connection(&mut self, table: &Table, listener: Option<&Arc<HttpVirtualListener>>) {
        self.cells = self.worker.tables.borrow().listener_cells(table, listener);
        if let Some(cells) = &self.cells {
            cells.connections.add(1);
            cells.connections_active.add(1);
        }
    }

    /// Sends the request to one endpoint after the other until one answers.
    async fn forward(
        &mut self,
        (set, headers): (&EndpointSet, &MessageHeaders),
        parts: &mut Parts,
        cells: &RouteCells,
    ) -> Next {
        let worker = self.worker.clone();
        let mut tried = Tried::new();
        let mut n_retries = 0;
        let request = &parts.request;
        let is_repeatable = request.method_kind != MethodKind::Other && request.framing == Framing::None;
        let mut liveness = Some(if is_repeatable { Liveness::Known } else { Liveness::Probed });
        loop {
            let connected = upstream::connect(&worker, set, &mut tried, liveness, &self.timer, cells).await;
            let mut upstream = match connected {
                Ok(upstream) => upstream,
                Err(error) => return self.fail(error, parts, cells, Before::default()).await,
            };
            let (end, report) = self.exchange(&mut upstream.stream, parts, &headers.response).await;
            match end {
                Ok(End::Answered) => {
                    if report.upstream_is_reusable {
                        upstream.keep();
                    }
                    return self.finish(report, parts, cells);
                }
                Ok(End::Upgraded) => {
                    self.tunnel(&mut upstream.stream, parts, cells, report).await;
                    return Next::Close;
                }
                Err(error) => {
                    tracing::debug!(%error, upstream.addr = ?set.addresses.get(upstream.index), "exchange failed");
                    if error.source == super::error::Source::Upstream {
                        cells.upstream_failures.add(1);
                    }
                    let is_unanswered = error == ProxyError::upstream(Kind::Closed);
                    if is_unanswered && report.may_repeat && n_retries < RETRIES_MAX {
                        n_retries += 1;
                        // Another endpoint where there is one; a new connection in any case.
                        if set.addresses.len() > tried.len() + 1 {
                            tried.push(upstream.index);
                        }
                        liveness = None;
                        continue;
                    }
                    drop(upstream);
                    return self.broken(error, report, parts, cells).await;
                }
            }
        }
    }

    async fn exchange(
        &mut self,
        upstream: &mut TcpStream,
        parts: &mut Parts,
        changes: &HeaderChanges,
    ) -> (Result<End, ProxyError>, Report) {
        let client = exchange::Client {
            stream: &mut self.client,
            buffer: &mut self.buffer,
            has_ended: &mut self.has_ended,
        };
        let worker = &**self.worker;
        let shared = (&worker.buffers, &self.timer, &*worker.clock);
        let mut exchange = Exchange::new(client, upstream, parts, changes, shared);
        let end = poll_fn(|cx| exchange.poll(cx)).await;
        (end, exchange.report(end))
    }

    fn finish(&self, report: Report, parts: &Parts, cells: &RouteCells) -> Next {
        self.count(report.status.unwrap_or(0), parts, Some(cells), report.moved);
        match report.persistence {
            Persistence::Implied | Persistence::KeepAlive => Next::Request,
            Persistence::Close if report.request_is_read && self.buffer.is_empty() => Next::Close,
            Persistence::Close => Next::Linger,
        }
    }

    /// The exchange failed: an answer where the client has not begun to get one, else an end it cannot mistake.
    async fn broken(
        &mut self,
        error: ProxyError,
        report: Report,
        parts: &mut Parts,
        cells: &RouteCells,
    ) -> Next {
        if report.status.is_none() {
            return self.fail(error, parts, cells, Before::of(report)).await;
        }
        self.count(report.status.unwrap_or(0), parts, Some(cells), report.moved);
        if report.ends_by_close { Next::Reset } else { Next::Close }
    }

    async fn fail(
        &mut self,
        error: ProxyError,
        parts: &mut Parts,
        cells: &RouteCells,
        before: Before,
    ) -> Next {
        let Some(status) = error.status() else {
            self.count(0, parts, Some(cells), Moved::default());
            return Next::Close;
        };
        self.answer(status, parts, Some(cells), before).await
    }

    async fn tunnel(
        &mut self,
        upstream: &mut TcpStream,
        parts: &mut Parts,
        cells: &RouteCells,
        report: Report,
    ) {
        self.count(101, parts, Some(cells), Moved::default());
        let moved = tunnel::run(
            (&mut self.client, &mut self.buffer),
            (upstream, &mut parts.upstream_buffer),
            &parts.response_out,
            report.n_head_written,
            &self.timer,
            &self.worker.buffers,
        )
        .await;
        self.count_bytes(Some(cells), moved);
    }
}
