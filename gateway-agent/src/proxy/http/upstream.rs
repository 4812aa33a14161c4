//! Gets a connection to one of a service's endpoints: a kept one, else a new one, else of another endpoint.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;

use tokio::net::TcpStream;

use super::balance::{self, Tried};
use super::clock::{Due, Timer};
use super::error::{Kind, ProxyError};
use super::limits::CONNECT_TIMEOUT;
use super::pool::Liveness;
use super::worker::HttpWorker;
use crate::metrics::RouteCells;
use crate::snapshot::EndpointSet;

/// A connection with one request's claim on it.
pub(super) struct Upstream<'a> {
    pub(super) stream: TcpStream,
    /// Its index in the set.
    pub(super) index: usize,
    claim: Claim<'a>,
}

/// Counts a request at its endpoint.
struct Claim<'a> {
    worker: &'a HttpWorker,
    endpoint: SocketAddr,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.worker.pool.borrow_mut().end(&self.endpoint);
    }
}

impl Upstream<'_> {
    /// Keeps the connection for the next request.
    pub(super) fn keep(self) {
        let Self { stream, claim, index: _ } = self;
        let worker = claim.worker;
        if !worker.clock.is_stopping() {
            worker.pool.borrow_mut().put(claim.endpoint, stream, worker.pool_expiry());
        }
    }
}

/// How a connection may be got.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    /// `None`: not a kept one.
    pub(super) liveness: Option<Liveness>,
    /// Endpoints that are asked at most.
    pub(super) n_connects_max: usize,
}

/// Endpoints that fail are added to `tried`.
pub(super) async fn connect<'a>(
    worker: &'a HttpWorker,
    set: &EndpointSet,
    tried: &mut Tried,
    how: How,
    timer: &Timer,
    cells: &RouteCells,
) -> Result<Upstream<'a>, ProxyError> {
    let mut failure = ProxyError::internal(Kind::NoEndpoint);
    for _ in 0..how.n_connects_max {
        let Some((index, endpoint)) = choose(worker, set, tried) else { break };
        worker.pool.borrow_mut().begin(endpoint);
        let claim = Claim { worker, endpoint };
        let kept = how.liveness.and_then(|liveness| worker.pool.borrow_mut().take(&endpoint, liveness));
        if let Some(stream) = kept {
            return Ok(Upstream { stream, index, claim });
        }
        failure = match open(endpoint, timer).await {
            Ok(stream) => return Ok(Upstream { stream, index, claim }),
            Err(error @ ProxyError { kind: Kind::Aborted | Kind::RequestTimeout, .. }) => return Err(error),
            Err(error @ ProxyError { kind: Kind::BackendTimeout, .. }) => {
                cells.upstream_failures.add(1);
                return Err(error);
            }
            Err(error) => error,
        };
        cells.upstream_failures.add(1);
        tried.push(index);
    }
    Err(failure)
}

fn choose(worker: &HttpWorker, set: &EndpointSet, tried: &Tried) -> Option<(usize, SocketAddr)> {
    let mut random = worker.random.get();
    let pool = worker.pool.borrow();
    let load = |index: usize| set.addresses.get(index).map_or(0, |endpoint| pool.load(endpoint));
    let index = balance::endpoint(set.addresses.len(), tried, &mut random, load);
    worker.random.set(random);
    let index = index?;
    set.addresses.get(index).map(|endpoint| (index, *endpoint))
}

async fn open(endpoint: SocketAddr, timer: &Timer) -> Result<TcpStream, ProxyError> {
    timer.arm(CONNECT_TIMEOUT);
    let mut connecting = pin!(TcpStream::connect(endpoint));
    let connected = poll_fn(|cx| match connecting.as_mut().poll(cx) {
        Poll::Ready(Ok(stream)) => Poll::Ready(Ok(stream)),
        Poll::Ready(Err(_)) => Poll::Ready(Err(ProxyError::upstream(Kind::Connect))),
        Poll::Pending => timer.poll(cx).map(|due| match due {
            Due::Abort => Err(ProxyError::internal(Kind::Aborted)),
            Due::Deadline => Err(ProxyError::upstream(Kind::ConnectTimeout)),
            Due::Limit(limit) => Err(ProxyError::limit(limit)),
        }),
    });
    let stream = connected.await?;
    // Heads and bodies are written in one piece each; nothing is gained by waiting for more.
    match stream.set_nodelay(true) {
        Ok(()) => Ok(stream),
        Err(_) => Err(ProxyError::upstream(Kind::Connect)),
    }
}
