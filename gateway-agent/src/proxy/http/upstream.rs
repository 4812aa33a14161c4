//! Gets a connection to one of a service's endpoints: a kept one, else a new one, else of another endpoint.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use http::uri::Scheme;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::balance::{self, Tried};
use super::clock::{Due, Timer};
use super::ejections::Says;
use super::error::{Kind, ProxyError};
use super::limits::{CONNECT_TIMEOUT, EJECTION_DRAWS, HANDSHAKE_TIMEOUT};
use super::pool::{Health, Liveness};
use super::worker::HttpWorker;
use crate::certificate::Certificate;
use crate::metrics::RouteCells;
use crate::proxy::stream;
use crate::proxy::tls::{Application, Identity, Unspeakable};
use crate::snapshot::{BackendProtocol, BackendSecurity, EndpointSet};

/// A connection with one request's claim on it.
pub(super) struct Upstream<'a> {
    pub(super) stream: stream::Upstream,
    /// Its index in the set.
    pub(super) index: usize,
    /// It has waited: that the server closes it now says nothing of the server.
    pub(super) was_kept: bool,
    identity: u64,
    claim: Claim<'a>,
}

/// Counts a request at its endpoint.
pub(super) struct Claim<'a> {
    worker: &'a HttpWorker,
    endpoint: SocketAddr,
    health: Health,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Self { worker, endpoint, health } = self;
        let news = worker.pool.borrow_mut().end(endpoint, *health, worker.clock.tick());
        let Some(says) = news else { return };
        match says {
            Says::Fails => {
                worker.cells.endpoint_ejections.add(1);
                tracing::info!(upstream.addr = %endpoint, "endpoint left out for failing");
            }
            Says::Serves => tracing::info!(upstream.addr = %endpoint, "endpoint serves again"),
        }
        worker.voice.say(*endpoint, says, Instant::now());
    }
}

impl Claim<'_> {
    /// How the endpoint did.
    pub(super) fn tell(&mut self, health: Health) {
        self.health = health;
    }
}

impl Upstream<'_> {
    /// How the endpoint did.
    pub(super) fn tell(&mut self, health: Health) {
        self.claim.health = health;
    }

    /// Keeps the connection for the next request.
    pub(super) fn keep(self) {
        let Self { stream, identity, claim, index: _, was_kept: _ } = self;
        let worker = claim.worker;
        if !worker.clock.is_stopping() {
            worker.pool.borrow_mut().put(claim.endpoint, identity, stream, worker.pool_expiry());
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

/// `certificate`: what the endpoints are shown where they are spoken to by TLS. Endpoints that fail are added to `tried`.
pub(super) async fn connect<'a>(
    worker: &'a HttpWorker,
    (set, certificate): (&EndpointSet, Option<&Arc<Certificate>>),
    tried: &mut Tried,
    how: How,
    timer: &Timer,
    cells: &RouteCells,
) -> Result<Upstream<'a>, ProxyError> {
    let secure = identity(worker, set, certificate)?;
    let identity = secure.as_ref().map_or(0, |identity| identity.number());
    let mut failure = ProxyError::internal(Kind::NoEndpoint);
    for _ in 0..how.n_connects_max {
        let Some((index, endpoint, mut claim)) = claim(worker, set, tried) else { break };
        let kept =
            how.liveness.and_then(|liveness| worker.pool.borrow_mut().take(&endpoint, identity, liveness));
        if let Some(stream) = kept {
            return Ok(Upstream { stream, index, was_kept: true, identity, claim });
        }
        failure = match open(endpoint, secure.as_deref(), timer).await {
            Ok(stream) => return Ok(Upstream { stream, index, was_kept: false, identity, claim }),
            Err(error @ ProxyError { kind: Kind::Aborted | Kind::RequestTimeout, .. }) => return Err(error),
            Err(error @ ProxyError { kind: Kind::BackendTimeout, .. }) => {
                cells.upstream_failures.add(1);
                return Err(error);
            }
            Err(error) => error,
        };
        // A handshake fails by what one policy asks for, and other routes may ask the endpoint for something else.
        if failure.kind != Kind::Handshake {
            claim.health = Health::Failed;
        }
        cells.upstream_failures.add(1);
        tried.push(index);
    }
    Err(failure)
}

/// The endpoint that the request is to go to, and a claim on it.
pub(super) fn claim<'a>(
    worker: &'a HttpWorker,
    set: &EndpointSet,
    tried: &Tried,
) -> Option<(usize, SocketAddr, Claim<'a>)> {
    let (index, endpoint) = choose(worker, set, tried)?;
    worker.pool.borrow_mut().begin(endpoint);
    Some((index, endpoint, Claim { worker, endpoint, health: Health::Unknown }))
}

fn choose(worker: &HttpWorker, set: &EndpointSet, tried: &Tried) -> Option<(usize, SocketAddr)> {
    let mut random = worker.random.get();
    let pool = worker.pool.borrow();
    let tick = worker.clock.tick();
    let is_out = |index: usize| set.addresses.get(index).is_some_and(|endpoint| pool.is_out(endpoint, tick));
    let load = |index: usize| match set.addresses.get(index) {
        Some(endpoint) if !pool.is_out(endpoint, tick) => pool.load(endpoint),
        _ => u32::MAX,
    };
    let mut draw = || balance::endpoint(set.addresses.len(), tried, &mut random, load);
    let mut index = draw()?;
    for _ in 1..EJECTION_DRAWS {
        if !is_out(index) {
            break;
        }
        index = draw()?;
    }
    worker.random.set(random);
    set.addresses.get(index).map(|endpoint| (index, *endpoint))
}

/// As whom the endpoints are spoken to; `None`: in clear.
pub(super) fn identity(
    worker: &HttpWorker,
    set: &EndpointSet,
    certificate: Option<&Arc<Certificate>>,
) -> Result<Option<Rc<Identity>>, ProxyError> {
    let application = match set.protocol {
        BackendProtocol::Http1 => Application::Http,
        BackendProtocol::Http2 => Application::Http2,
    };
    let identity = worker.identities().towards(set, certificate, application);
    identity.map_err(|Unspeakable| ProxyError::internal(Kind::InvalidBackend))
}

/// Of the connections that the endpoints are spoken to by.
pub(super) const fn scheme(set: &EndpointSet) -> Scheme {
    match set.security {
        BackendSecurity::Tls(_) => Scheme::HTTPS,
        BackendSecurity::Cleartext | BackendSecurity::Refused => Scheme::HTTP,
    }
}

/// A new connection, within the deadline.
pub(super) async fn open(
    endpoint: SocketAddr,
    secure: Option<&Identity>,
    timer: &Timer,
) -> Result<stream::Upstream, ProxyError> {
    timer.arm(CONNECT_TIMEOUT);
    let Ok(socket) = in_time(TcpStream::connect(endpoint), timer).await? else {
        return Err(ProxyError::upstream(Kind::Connect));
    };
    // Heads and bodies are written in one piece each; nothing is gained by waiting for more.
    if socket.set_nodelay(true).is_err() {
        return Err(ProxyError::upstream(Kind::Connect));
    }
    let Some(identity) = secure else { return Ok(stream::Upstream::Cleartext(socket)) };
    timer.arm(HANDSHAKE_TIMEOUT);
    // Its state is large, and most connections have none.
    match in_time(Box::pin(identity.shake(socket)), timer).await? {
        Ok(stream) => Ok(stream),
        Err(error) => {
            tracing::debug!(upstream.addr = %endpoint, %error, "handshake with a backend failed");
            Err(ProxyError::upstream(Kind::Handshake))
        }
    }
}

/// What comes of `step`, unless the deadline comes first.
async fn in_time<T>(step: impl Future<Output = T>, timer: &Timer) -> Result<T, ProxyError> {
    let mut step = pin!(step);
    poll_fn(|cx| match step.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending => timer.poll(cx).map(|due| match due {
            Due::Abort => Err(ProxyError::internal(Kind::Aborted)),
            Due::Deadline => Err(ProxyError::upstream(Kind::ConnectTimeout)),
            Due::Limit(limit) => Err(ProxyError::limit(limit)),
        }),
    })
    .await
}
