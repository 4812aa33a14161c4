//! One client connection: its requests one after the other, each routed by the newest snapshot.

mod cross;
mod forward;
mod reply;
mod route;

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use reply::Before;

use super::buffer::Buffer;
use super::client::{Client, Stream, TlsFacts};
use super::clock::{Due, Timer};
use super::decision::Decision;
use super::error::{Kind, ProxyError};
use super::h2;
use super::limits::{HEAD_TIMEOUT, IDLE_TIMEOUT};
use super::record::Ends;
use super::table::Table;
use super::worker::{HttpWorker, Parts};
use crate::metrics::ListenerCells;
use crate::proxy::h1::{HeadError, Scanner};
use crate::snapshot::{BackendProtocol, HttpVirtualListener, ListenerKey, Scheme};

/// Serves one accepted connection, with TCP_NODELAY, to its end. Runs on the worker's thread, inside its `LocalSet`; dropping the
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
    let is_h2 = stream.has_chosen_h2();
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
        client_address: peer.ip().to_canonical(),
        client_text: peer.ip().to_canonical().to_string(),
        local_text: local.to_string(),
        key,
        timer,
        worker: &worker,
        cells,
    };
    let next = if is_h2 { Next::Http2 } else { connection.serve_requests().await };
    let cells = connection.cells.clone();
    if next == Next::Http2 {
        // Its state is large, and most connections have none of it.
        Box::pin(h2::serve(connection.into_h2())).await;
    } else {
        connection.end(next).await;
        connection.buffer.release(&worker.buffers);
    }
    if let Some(cells) = &cells {
        cells.connections_active.sub(1);
    }
}

/// What follows a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Close,
    /// The client speaks HTTP/2.
    Http2,
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
    client_address: IpAddr,
    client_text: String,
    local_text: String,
    key: ListenerKey,
    timer: Timer,
    worker: &'a Rc<HttpWorker>,
    /// Of the listener of the server name, else of that which the first request came to.
    cells: Option<Arc<ListenerCells>>,
}

impl Connection<'_> {
    async fn end(&mut self, next: Next) {
        match next {
            Next::Close | Next::Http2 | Next::Request => self.close().await,
            Next::Linger => self.linger().await,
            Next::Reset => self.reset(),
        }
    }

    fn into_h2(self) -> h2::Arrival {
        let about = h2::About {
            worker: self.worker.clone(),
            key: self.key,
            server_name: self.server_name,
            client_address: self.client_address,
            client_text: self.client_text,
            local_text: self.local_text,
        };
        h2::Arrival { stream: self.client, first: self.buffer, about, cells: self.cells, timer: self.timer }
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
            parts.record.finish();
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
        let place = match self.read_head(parts).await {
            Ok(Some(place)) => place,
            Ok(None) => return Next::Close,
            Err(error) => return self.refuse(error, parts).await,
        };
        let head = self.buffer.data().get(place.clone()).unwrap_or_default();
        if head == h2::PREFACE_HEAD && self.may_become_h2(&place) {
            parts.record.cancel();
            return Next::Http2;
        }
        if let Err(error) = parts.request.parse(head) {
            return self.refuse(ProxyError::downstream(Kind::Head(error)), parts).await;
        }
        let Parts { request, record, .. } = &mut *parts;
        let version = if request.is_http_1_0 { "1.0" } else { "1.1" };
        record.asked(version, request.method(head), request.host(), request.path(head));
        // One look at the snapshot per request: a change holds from the next one on.
        let Some(table) = self.worker.tables.borrow_mut().table(self.key) else {
            return self.refuse(ProxyError::internal(Kind::NoRoute), parts).await;
        };
        let routed = self.route(&table, parts, place.clone());
        let decision = self.decide(routed, parts, place.clone());
        let message = match &decision {
            Decision::Forward(target) if target.endpoints.protocol != BackendProtocol::Http1 => {
                Some(self.message(parts, place.clone()))
            }
            _ => None,
        };
        self.buffer.consume(place.end);
        if let Some(cells) = &self.cells {
            cells.received_bytes.add(place.len() as u64);
        }
        let cells = routed.rule.map(|rule| self.worker.tables.borrow().route_cells(&table, rule));
        match decision {
            Decision::Forward(target) if let Some(message) = message => match message {
                Ok(request) => {
                    // Its state is large, and most connections have none of it.
                    Box::pin(self.cross(&target, &request, parts, &cells.unwrap_or_default())).await
                }
                Err(error) => self.refuse(error, parts).await,
            },
            Decision::Forward(target) => self.forward(&target, parts, &cells.unwrap_or_default()).await,
            Decision::Redirect(redirect, _) => {
                self.answer(redirect.status, parts, cells.as_deref(), Before::default()).await
            }
            Decision::Answer(status) => self.answer(status, parts, cells.as_deref(), Before::default()).await,
            Decision::Fail(error, _) => {
                parts.record.failed(error);
                if let Some(cells) = &cells {
                    cells.refused.add(1);
                }
                self.answer(error.status().unwrap_or(500), parts, cells.as_deref(), Before::default()).await
            }
        }
    }

    /// What the client speaks.
    fn scheme(&self) -> Scheme {
        if self.server_name.is_some() { Scheme::Https } else { Scheme::Http }
    }

    fn ends(&self) -> Ends<'_> {
        Ends { client: &self.client_text, local: &self.local_text, scheme: self.scheme().as_str() }
    }

    /// By prior knowledge in clear, where nothing came before; by TLS the handshake decides.
    fn may_become_h2(&self, place: &Range<usize>) -> bool {
        place.start == 0 && self.server_name.is_none() && self.cells.is_none()
    }

    /// The place of a whole head in the buffer; `None`: the client closed or was idle.
    async fn read_head(&mut self, parts: &mut Parts) -> Result<Option<Range<usize>>, ProxyError> {
        let mut scanner = Scanner::request();
        let mut is_armed = false;
        loop {
            if !self.buffer.is_empty() && !parts.record.has_begun() {
                parts.record.begin(self.worker, self.ends());
            }
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
}
