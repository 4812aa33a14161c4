//! TLS passthrough: routes by the server name, relays everything unchanged.
//!
//! What cannot be routed ends by RST and never with a TLS record: the agent is no party to the handshake.

use std::net::SocketAddr;
use std::rc::Rc;

use tokio::net::TcpStream;

use super::super::copy::{End, Meter, Side, relay, reset};
use super::super::pool::Chunk;
use super::super::state::ListenerState;
use super::super::worker::Worker;
use super::backend::{choose, connect_one_of};
use crate::metrics::ListenerCells;
use crate::snapshot::TlsRule;

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
    let connected = connect_one_of(worker, endpoints, &route, async |socket| Ok(socket)).await;
    let Some((upstream, target)) = connected else {
        return reset(&client);
    };
    let meter = Meter { listener: cells, route: &route };
    let end = relay(client, upstream, Some(raw), &worker.pools, meter, worker.timeouts.half_closed).await;
    if let End::Broken(Side::Upstream, error) = &end {
        route.upstream_failures.add(1);
        tracing::debug!(src.addr = %peer, upstream.addr = %target, %error, "upstream ended the connection");
    }
}
