//! One client connection of HTTP/2: its streams at once, as parts of its own task.
//!
//! A task for each stream would cost more than what most of them do, and what they have to say is sent by this one.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use h2::Reason;
use h2::server;

use super::super::buffer::Buffer;
use super::super::client::Stream;
use super::super::clock::{Due, Timer};
use super::super::limits::{HEAD_TIMEOUT, IDLE_TIMEOUT, LINGER_TIMEOUT};
use super::super::table::Table;
use super::super::worker::HttpWorker;
use super::budget::Budget;
use super::limits::{
    CANCELLED_MAX, CONNECTION_WINDOW_BYTES, ERROR_RESETS_MAX, HEADER_LIST_BYTES_MAX, LOCAL_RESETS_MAX,
    PENDING_RESETS_MAX, SEND_BUFFER_BYTES_MAX, STREAM_WINDOW_BYTES, STREAMS_MAX,
};
use super::stream::{self, Ended};
use super::transport::{Traffic, Transport};
use crate::metrics::ListenerCells;
use crate::snapshot::{HttpVirtualListener, ListenerKey};

/// A client that speaks HTTP/2, and what is known of it.
pub(in super::super) struct Arrival {
    pub(in super::super) stream: Stream,
    /// Read already, the preface at its beginning.
    pub(in super::super) first: Buffer,
    pub(in super::super) about: About,
    /// Of the listener of the server name; counted already.
    pub(in super::super) cells: Option<Arc<ListenerCells>>,
    pub(in super::super) timer: Timer,
}

/// What a request is told by of its connection.
pub(in super::super) struct About {
    pub(in super::super) worker: Rc<HttpWorker>,
    pub(in super::super) key: ListenerKey,
    /// Of the TLS handshake, empty where the client named none; absent in cleartext.
    pub(in super::super) server_name: Option<String>,
    pub(in super::super) client_address: IpAddr,
    pub(in super::super) client_text: String,
    pub(in super::super) local_text: String,
}

/// What the streams of a connection share.
pub(super) struct Shared {
    pub(super) about: About,
    /// Of the listener of the server name, else of that which the first request came to.
    pub(super) cells: RefCell<Option<Arc<ListenerCells>>>,
    traffic: Rc<Traffic>,
    is_counted_here: Cell<bool>,
}

impl Shared {
    /// The first request tells whose connection it is.
    pub(super) fn count_connection(&self, table: &Table, listener: Option<&Arc<HttpVirtualListener>>) {
        if self.cells.borrow().is_some() {
            return;
        }
        let cells = self.about.worker.tables.borrow().listener_cells(table, listener);
        if let Some(cells) = &cells {
            cells.connections.add(1);
            cells.connections_active.add(1);
            self.is_counted_here.set(true);
        }
        *self.cells.borrow_mut() = cells;
    }

    fn count_traffic(&self) {
        if let Some(cells) = &*self.cells.borrow() {
            let (received, sent) = self.traffic.take();
            cells.received_bytes.add(received);
            cells.sent_bytes.add(sent);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.count_traffic();
        if let (true, Some(cells)) = (self.is_counted_here.get(), &*self.cells.borrow()) {
            cells.connections_active.sub(1);
        }
    }
}

type Codec = server::Connection<Transport<Stream>, Bytes>;

/// Serves the connection to its end. Dropping the future ends its streams with it.
pub(in super::super) async fn serve(arrival: Arrival) {
    let Arrival { stream, first, about, cells, timer } = arrival;
    let traffic = Rc::new(Traffic::default());
    let transport = Transport::new(stream, first, traffic.clone());
    timer.arm(HEAD_TIMEOUT);
    let Some(codec) = handshake(transport, &timer).await else { return };
    let shared = Shared { about, cells: RefCell::new(cells), traffic, is_counted_here: Cell::new(false) };
    let connection = Connection {
        codec,
        streams: FuturesUnordered::new(),
        budget: Budget::new(CANCELLED_MAX),
        shared: Rc::new(shared),
        timer,
        phase: Phase::Open,
        n_sent: 0,
    };
    connection.run().await;
}

/// One request, to its end.
type Serving = Pin<Box<dyn Future<Output = Ended>>>;

/// `None`: no preface within the deadline, or another one.
async fn handshake(transport: Transport<Stream>, timer: &Timer) -> Option<Codec> {
    let mut builder = server::Builder::new();
    builder
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buffer_size(SEND_BUFFER_BYTES_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(Some(ERROR_RESETS_MAX))
        .max_concurrent_reset_streams(LOCAL_RESETS_MAX);
    let mut handshake = std::pin::pin!(builder.handshake(transport));
    poll_fn(|cx| match handshake.as_mut().poll(cx) {
        Poll::Ready(shaken) => Poll::Ready(shaken.ok()),
        Poll::Pending => timer.poll(cx).map(|_| None),
    })
    .await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// The client was told to send no more requests.
    Leaving,
    /// The same, and those that it has are ended.
    Calmed,
}

struct Connection {
    codec: Codec,
    streams: FuturesUnordered<Serving>,
    budget: Budget,
    shared: Rc<Shared>,
    timer: Timer,
    phase: Phase,
    /// What was sent when the timer was last due.
    n_sent: u64,
}

impl Connection {
    async fn run(mut self) {
        self.timer.arm(IDLE_TIMEOUT);
        poll_fn(|cx| self.poll(cx)).await;
        self.shared.count_traffic();
    }

    /// Ready when the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.phase == Phase::Open && self.shared.about.worker.clock.is_stopping() {
            self.leave();
        }
        // All that has come before any of it is served: a body that came with its head is sent on with it.
        let is_over = self.accept(cx);
        self.shared.count_traffic();
        if is_over {
            return Poll::Ready(());
        }
        if !self.serve(cx) && self.phase != Phase::Calmed {
            tracing::debug!(src.addr = %self.shared.about.client_text, "too many requests were cancelled");
            self.phase = Phase::Calmed;
            self.shared.about.worker.cells.http2_floods.add(1);
            self.codec.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            // It has to be sent.
            cx.waker().wake_by_ref();
        }
        match self.timer.poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Due::Abort) => Poll::Ready(()),
            Poll::Ready(Due::Deadline | Due::Limit(_)) => self.overdue(cx),
        }
    }

    /// Reads, takes new requests in, and sends. True when the connection is over.
    fn accept(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            match self.codec.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.streams.push(Box::pin(stream::serve(request, respond, self.shared.clone())));
                }
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(src.addr = %self.shared.about.client_text, %error, "connection failed");
                    // The codec's own bounds.
                    let is_flood = error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM);
                    if is_flood && self.phase != Phase::Calmed {
                        self.shared.about.worker.cells.http2_floods.add(1);
                    }
                    return true;
                }
                Poll::Ready(None) => return true,
                Poll::Pending => return false,
            }
        }
    }

    /// Goes on with the streams that can, whose frames wake this task. False: the client has cancelled too many.
    fn serve(&mut self, cx: &mut Context<'_>) -> bool {
        let mut is_within = true;
        while let Poll::Ready(Some(ended)) = self.streams.poll_next_unpin(cx) {
            if self.streams.is_empty() {
                self.timer.arm(if self.phase == Phase::Open { IDLE_TIMEOUT } else { LINGER_TIMEOUT });
            }
            match ended {
                Ended::Served => self.budget.served(),
                Ended::Cancelled => is_within &= self.budget.cancelled(),
            }
        }
        is_within
    }

    /// No request is under way, for long: what is left of answers is on the client, which may be slow.
    fn overdue(&mut self, cx: &Context<'_>) -> Poll<()> {
        match self.phase {
            // Streams have deadlines of their own.
            _ if !self.streams.is_empty() => self.timer.arm(IDLE_TIMEOUT),
            _ if self.codec.has_streams() && self.n_sent < self.shared.traffic.total_sent() => {
                self.n_sent = self.shared.traffic.total_sent();
                self.timer.arm(LINGER_TIMEOUT);
            }
            Phase::Open => self.leave(),
            Phase::Leaving | Phase::Calmed => return Poll::Ready(()),
        }
        // The new deadline has to be waited for, and what was said to be sent.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// GOAWAY: first without a limit, then, a round trip later, with the last stream that is served (RFC 9113 section
    /// 6.8). The codec ends the connection when no stream is left.
    fn leave(&mut self) {
        self.phase = Phase::Leaving;
        self.codec.graceful_shutdown();
        if self.streams.is_empty() {
            self.timer.arm(LINGER_TIMEOUT);
        }
    }
}
