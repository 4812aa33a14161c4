//! The TCP relay: the flow's backend by consistent hashing, then bytes both ways.
//!
//! Serves what the kernel path leaves alone: loopback clients, the other address family, connections it does not own.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use smallvec::SmallVec;
use tokio::net::TcpStream;

use super::active::Active;
use super::announce::{Principal, announce};
use super::connect::connect;
use super::copy::{End, Meter, Side, relay, reset};
use super::flow::{FlowKey, alternative, table};
use super::limits::CONNECT_ATTEMPTS;
use super::proxy_protocol::Ends;
use super::state::ListenerState;
use super::worker::Worker;
use crate::metrics::RouteCells;
use crate::snapshot::{L4Service, Maglev, Transport};

/// Relays one connection to its end.
pub(super) async fn serve(
    worker: &Rc<Worker>,
    client: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    state: &ListenerState,
    service: &L4Service,
) {
    let cells = state.cells(None);
    cells.connections.add(1);
    let _active = Active::new(&cells);
    let Some(route) = &service.route else {
        cells.unrouted.add(1);
        return reset(&client);
    };
    let route = state.route(route);
    let hash = FlowKey::new(peer, local).hash(Transport::Tcp);
    let table = table(service, peer.ip());
    let Some(target) = table.pick(hash) else {
        // The share of a backend that cannot serve: told at once, never left waiting (O08).
        route.refused.add(1);
        return reset(&client);
    };
    route.requests[0].add(1);
    let connect = async |target| {
        let upstream = connect(target, worker.timeouts.connect).await?;
        let principal = Principal { ends: Ends { client: peer, local }, server_name: "" };
        announce(&upstream, service.proxy_version(target), principal, &[])?;
        Ok(upstream)
    };
    let Some((upstream, target)) = connect_one_of(connect, table, hash, target, &route).await else {
        return reset(&client);
    };
    let meter = Meter { listener: &cells, route: &route };
    let end = relay(client, upstream, None, &worker.pools, meter, worker.timeouts.half_closed).await;
    if let End::Broken(Side::Upstream, error) = &end {
        route.upstream_failures.add(1);
        tracing::debug!(src.addr = %peer, upstream.addr = %target, %error, "upstream ended the connection");
    }
}

/// The first of the flow's target and other ones that accepts. A flow whose target refuses would be refused for ever
/// while others can serve: endpoints lag behind the pods. The kernel path cannot do this.
async fn connect_one_of(
    connect: impl AsyncFn(SocketAddr) -> io::Result<TcpStream>,
    table: &Maglev,
    hash: u32,
    first: SocketAddr,
    route: &RouteCells,
) -> Option<(TcpStream, SocketAddr)> {
    let mut tried: SmallVec<[SocketAddr; CONNECT_ATTEMPTS]> = SmallVec::new();
    let mut next = Some(first);
    while let Some(target) = next {
        match connect(target).await {
            Ok(upstream) => return Some((upstream, target)),
            Err(error) => {
                route.upstream_failures.add(1);
                tracing::debug!(upstream.addr = %target, %error, "cannot connect");
            }
        }
        tried.push(target);
        next = if tried.len() < CONNECT_ATTEMPTS { alternative(table, hash, &tried) } else { None };
    }
    None
}
