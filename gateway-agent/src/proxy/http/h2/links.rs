//! Connections of HTTP/2 to servers behind, per worker and endpoint, each shared by many requests.
//!
//! One task per connection opens it, drives it and ends it: when nobody has used it for long, when the server says so
//! (GOAWAY), when it breaks. A request takes a claim on a connection, and waits for it to be open.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::{self, SendRequest};
use rustc_hash::FxBuildHasher;
use tokio::sync::Notify;

use super::super::clock::{Due, Timer};
use super::super::error::{Kind, ProxyError};
use super::super::limits::{CONNECT_TIMEOUT, HANDSHAKE_TIMEOUT, LINGER_TIMEOUT, POOL_IDLE_TIMEOUT};
use super::super::upstream;
use super::super::worker::HttpWorker;
use super::limits::{
    CONNECTION_WINDOW_BYTES, HEADER_LIST_BYTES_MAX, LINK_STREAMS_MAX, LINKS_PER_ENDPOINT_MAX,
    LOCAL_RESETS_MAX, SEND_BUFFER_BYTES_MAX, STREAM_WINDOW_BYTES,
};
use crate::proxy::stream::Upstream;
use crate::proxy::tls::Identity;

/// All of one worker.
#[derive(Debug, Default)]
pub(in super::super) struct Links(RefCell<HashMap<Key, Vec<Rc<Link>>, FxBuildHasher>>);

/// The endpoint and as whom it is spoken to; 0: in clear.
type Key = (SocketAddr, u64);

#[derive(Debug)]
struct Link {
    key: Key,
    state: RefCell<State>,
    n_claims: Cell<usize>,
    /// Whoever waits for it to be open, or not to be.
    settled: Notify,
    driver: RefCell<Option<Waker>>,
}

#[derive(Debug)]
enum State {
    Opening,
    Open(SendRequest<Bytes>),
    /// Takes no more requests; those that it has may end.
    Over(Kind),
}

/// One request's place on a connection.
#[derive(Debug)]
pub(in super::super) struct Claim(Rc<Link>);

impl Claim {
    fn new(link: &Rc<Link>) -> Self {
        link.n_claims.set(link.n_claims.get() + 1);
        Self(link.clone())
    }

    /// Nothing came of a request for too long: others are not to wait for this connection too.
    pub(in super::super) fn distrust(&self) {
        self.0.end(Kind::Closed);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.n_claims.set(self.0.n_claims.get().saturating_sub(1));
        self.0.wake_driver();
    }
}

impl Link {
    fn new(key: Key) -> Self {
        Self {
            key,
            state: RefCell::new(State::Opening),
            n_claims: Cell::new(0),
            settled: Notify::new(),
            driver: RefCell::default(),
        }
    }

    /// How many streams the server allows, as far as it has said so.
    fn streams_max(&self) -> Option<usize> {
        match &*self.state.borrow() {
            State::Opening | State::Over(_) => None,
            State::Open(server) => Some(server.current_max_send_streams()),
        }
    }

    fn is_over(&self) -> bool {
        matches!(*self.state.borrow(), State::Over(_))
    }

    fn end(&self, kind: Kind) {
        if !self.is_over() {
            // Without a handle the codec lets the connection end when its streams have.
            *self.state.borrow_mut() = State::Over(kind);
        }
        self.settled.notify_waiters();
        self.wake_driver();
    }

    fn wake_driver(&self) {
        if let Some(waker) = self.driver.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Waits until it is open.
    async fn opened(&self, timer: &Timer) -> Result<SendRequest<Bytes>, ProxyError> {
        // The driver has the deadline; this one is beyond it.
        timer.arm(2 * (CONNECT_TIMEOUT + HANDSHAKE_TIMEOUT));
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            match &*self.state.borrow() {
                State::Opening => {}
                State::Open(server) => return Ok(server.clone()),
                State::Over(kind) => return Err(ProxyError::upstream(*kind)),
            }
            let due = poll_fn(|cx| match settled.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => timer.poll(cx).map(Some),
            });
            match due.await {
                None => {}
                Some(Due::Abort) => return Err(ProxyError::internal(Kind::Aborted)),
                Some(Due::Limit(limit)) => return Err(ProxyError::limit(limit)),
                Some(Due::Deadline) => return Err(ProxyError::upstream(Kind::ConnectTimeout)),
            }
        }
    }
}

impl Links {
    /// A claim on the connection with the least to do that has room, on a new one where there is none.
    fn claim(
        &self,
        worker: &Rc<HttpWorker>,
        endpoint: SocketAddr,
        identity: Option<&Rc<Identity>>,
    ) -> Result<Claim, ProxyError> {
        let key = (endpoint, identity.map_or(0, |identity| identity.number()));
        let mut all = self.0.borrow_mut();
        let links = all.entry(key).or_default();
        links.retain(|link| !link.is_over());
        // What it has said on one connection holds for a new one too; more would wait behind what is under way.
        let said = links.iter().filter_map(|link| link.streams_max());
        let max = said.fold(LINK_STREAMS_MAX, usize::min);
        let free = links.iter().filter(|link| link.n_claims.get() < max);
        if let Some(link) = free.min_by_key(|link| link.n_claims.get()) {
            return Ok(Claim::new(link));
        }
        if links.len() >= LINKS_PER_ENDPOINT_MAX {
            return Err(ProxyError::upstream(Kind::Refused));
        }
        let link = Rc::new(Link::new(key));
        links.push(link.clone());
        // Ends with the connection, which the worker's clock ends.
        tokio::task::spawn_local(drive(worker.clone(), link.clone(), identity.cloned()));
        Ok(Claim::new(&link))
    }

    fn forget(&self, link: &Rc<Link>) {
        let mut all = self.0.borrow_mut();
        if let Some(links) = all.get_mut(&link.key) {
            links.retain(|known| !Rc::ptr_eq(known, link));
            if links.is_empty() {
                all.remove(&link.key);
            }
        }
    }

    #[cfg(test)]
    pub(in super::super) fn count(&self) -> usize {
        self.0.borrow().values().map(Vec::len).sum()
    }
}

/// A connection to `endpoint` that takes a request.
pub(in super::super) async fn connect(
    worker: &Rc<HttpWorker>,
    endpoint: SocketAddr,
    identity: Option<&Rc<Identity>>,
    timer: &Timer,
) -> Result<(Claim, SendRequest<Bytes>), ProxyError> {
    // A connection that ended since it was last used is found out here, and the next try opens another.
    let mut failure = ProxyError::upstream(Kind::Refused);
    for _ in 0..LINKS_PER_ENDPOINT_MAX {
        let claim = worker.links.claim(worker, endpoint, identity)?;
        let mut server = match claim.0.opened(timer).await {
            Ok(server) => server,
            Err(ProxyError { kind: Kind::Refused, .. }) => continue,
            Err(error) => return Err(error),
        };
        match poll_fn(|cx| Poll::Ready(server.poll_ready(cx))).await {
            Poll::Ready(Err(error)) => {
                failure = ProxyError::upstream(super::kind_of(&error));
                claim.0.end(failure.kind);
            }
            Poll::Ready(Ok(())) | Poll::Pending => return Ok((claim, server)),
        }
    }
    Err(failure)
}

type Codec = client::Connection<Upstream, Bytes>;

async fn drive(worker: Rc<HttpWorker>, link: Rc<Link>, identity: Option<Rc<Identity>>) {
    let timer = worker.clock.timer();
    match open(link.key.0, identity.as_deref(), &timer).await {
        Err(error) => link.end(error.kind),
        Ok((server, codec)) => {
            *link.state.borrow_mut() = State::Open(server);
            link.settled.notify_waiters();
            timer.arm(POOL_IDLE_TIMEOUT);
            run(&worker, &link, codec, &timer).await;
            // Who has waited for it in vain was not heard.
            link.end(Kind::Refused);
        }
    }
    worker.links.forget(&link);
}

/// Returns when the connection is over.
async fn run(worker: &HttpWorker, link: &Link, mut codec: Codec, timer: &Timer) {
    poll_fn(|cx| {
        if let Poll::Ready(ended) = Pin::new(&mut codec).poll(cx) {
            tracing::trace!(upstream.addr = %link.key.0, ?ended, "connection ended");
            return Poll::Ready(());
        }
        poll_use(worker, link, timer, cx)
    })
    .await;
}

/// Ready when the connection is of no more use.
fn poll_use(worker: &HttpWorker, link: &Link, timer: &Timer, cx: &mut Context<'_>) -> Poll<()> {
    *link.driver.borrow_mut() = Some(cx.waker().clone());
    let is_used = link.n_claims.get() > 0;
    if is_used {
        timer.arm(POOL_IDLE_TIMEOUT);
    } else if worker.clock.is_stopping() && !link.is_over() {
        link.end(Kind::Refused);
        timer.arm(LINGER_TIMEOUT);
        // The codec has to be looked at again.
        cx.waker().wake_by_ref();
    }
    match timer.poll(cx) {
        Poll::Pending => Poll::Pending,
        Poll::Ready(Due::Deadline) if !is_used && !link.is_over() => {
            // Says GOAWAY, and closes.
            link.end(Kind::Refused);
            timer.arm(LINGER_TIMEOUT);
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        Poll::Ready(_) => Poll::Ready(()),
    }
}

async fn open(
    endpoint: SocketAddr,
    identity: Option<&Identity>,
    timer: &Timer,
) -> Result<(SendRequest<Bytes>, Codec), ProxyError> {
    let stream = upstream::open(endpoint, identity, timer).await?;
    let mut builder = client::Builder::new();
    builder
        .enable_push(false)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buffer_size(SEND_BUFFER_BYTES_MAX)
        .max_concurrent_reset_streams(LOCAL_RESETS_MAX)
        .initial_max_send_streams(LINK_STREAMS_MAX);
    // It writes the preface and does not wait for the server's.
    let mut handshake = std::pin::pin!(builder.handshake(stream));
    timer.arm(CONNECT_TIMEOUT);
    poll_fn(|cx| match handshake.as_mut().poll(cx) {
        Poll::Ready(shaken) => Poll::Ready(shaken.map_err(|_failed| ProxyError::upstream(Kind::Connect))),
        Poll::Pending => timer.poll(cx).map(|due| match due {
            Due::Abort => Err(ProxyError::internal(Kind::Aborted)),
            // No route limits a connection that is for all.
            Due::Deadline | Due::Limit(_) => Err(ProxyError::upstream(Kind::ConnectTimeout)),
        }),
    })
    .await
}
