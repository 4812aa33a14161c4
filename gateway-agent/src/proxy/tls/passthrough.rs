//! TLS passthrough: routes by the server name, relays everything unchanged.
//!
//! What cannot be routed ends by RST and never with a TLS record: the agent is no party to the handshake.

use std::net::SocketAddr;
use std::rc::Rc;

use tokio::net::TcpStream;

use super::super::connect::connect;
use super::super::copy::{End, Meter, Side, relay, reset};
use super::super::limits::CONNECT_ATTEMPTS;
use super::super::pool::Chunk;
use super::super::state::ListenerState;
use super::super::worker::Worker;
use crate::metrics::{ListenerCells, RouteCells};
use crate::snapshot::{Backend, EndpointSet, TlsRule};

/// Relays one connection to its end. `raw` was read of it already.
pub(super) async fn serve(
    worker: &Rc<Worker>,
    (client, peer, raw): (TcpStream, SocketAddr, Chunk),
    rule: Option<&TlsRule>,
    state: &ListenerState,
    cells: &ListenerCells,
) {
    let Some(rule) = rule else {
        cells.unrouted.add(1);
        tracing::debug!(src.addr = %peer, "no route for the server name");
        return reset(&client);
    };
    let route = state.route(&rule.route);
    let Some(endpoints) = choose(worker, rule) else {
        route.refused.add(1);
        return reset(&client);
    };
    route.requests[0].add(1);
    let Some((upstream, target)) = connect_one_of(worker, endpoints, &route).await else {
        return reset(&client);
    };
    let meter = Meter { listener: cells, route: &route };
    let end = relay(client, upstream, Some(raw), &worker.pools, meter, worker.timeouts.half_closed).await;
    if let End::Broken(Side::Upstream, error) = &end {
        route.upstream_failures.add(1);
        tracing::debug!(src.addr = %peer, upstream.addr = %target, %error, "upstream ended the connection");
    }
}

/// The endpoints of the backend that owns the next share. `None`: it cannot serve.
fn choose<'a>(worker: &Worker, rule: &'a TlsRule) -> Option<&'a EndpointSet> {
    match &rule.split.pick(worker.random.next())?.backend {
        Backend::Endpoints(set) if !set.addresses.is_empty() => Some(set),
        Backend::Endpoints(_) | Backend::Invalid => None,
    }
}

/// An endpoint that accepts, beginning with one by chance.
async fn connect_one_of(
    worker: &Worker,
    set: &EndpointSet,
    route: &RouteCells,
) -> Option<(TcpStream, SocketAddr)> {
    let n = set.addresses.len();
    let start = worker.random.next() as usize % n.max(1);
    for target in set.addresses.iter().cycle().skip(start).take(n.min(CONNECT_ATTEMPTS)).copied() {
        match connect(target, worker.timeouts.connect).await {
            Ok(upstream) => return Some((upstream, target)),
            Err(error) => {
                route.upstream_failures.add(1);
                tracing::debug!(upstream.addr = %target, %error, "cannot connect");
            }
        }
    }
    None
}
