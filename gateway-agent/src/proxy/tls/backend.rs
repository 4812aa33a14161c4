//! Backends of TLSRoutes: the one that owns the next share, and an endpoint of it that accepts.

use std::net::SocketAddr;

use tokio::net::TcpStream;

use super::super::connect::connect;
use super::super::limits::CONNECT_ATTEMPTS;
use super::super::worker::Worker;
use crate::metrics::RouteCells;
use crate::snapshot::{Backend, EndpointSet, TlsRule};

/// The endpoints of the backend that owns the next share. `None`: it cannot serve.
pub(super) fn choose<'a>(worker: &Worker, rule: &'a TlsRule) -> Option<&'a EndpointSet> {
    match &rule.split.pick(worker.random.next())?.backend {
        Backend::Endpoints(set) if !set.addresses.is_empty() => Some(set),
        Backend::Endpoints(_) | Backend::Invalid => None,
    }
}

/// What `prepare` makes of the connection to an endpoint that accepts, beginning with one by chance. Another one is
/// tried where it fails.
pub(super) async fn connect_one_of<T>(
    worker: &Worker,
    set: &EndpointSet,
    route: &RouteCells,
    prepare: impl AsyncFn(TcpStream) -> std::io::Result<T>,
) -> Option<(T, SocketAddr)> {
    let n = set.addresses.len();
    let start = worker.random.next() as usize % n.max(1);
    for target in set.addresses.iter().cycle().skip(start).take(n.min(CONNECT_ATTEMPTS)).copied() {
        let connected = match connect(target, worker.timeouts.connect).await {
            Ok(socket) => prepare(socket).await,
            Err(error) => Err(error),
        };
        match connected {
            Ok(upstream) => return Some((upstream, target)),
            Err(error) => {
                route.upstream_failures.add(1);
                tracing::debug!(upstream.addr = %target, %error, "cannot connect");
            }
        }
    }
    None
}
