//! TLS passthrough: routes by the server name, relays everything unchanged.
//!
//! What cannot be routed ends by RST and never with a TLS record: the agent is no party to the handshake.

use std::rc::Rc;

use tokio::net::TcpStream;

use super::super::announce::{Principal, announce};
use super::super::copy::{End, Meter, Side, relay, reset};
use super::super::pool::Chunk;
use super::super::proxy_protocol::Ends;
use super::super::state::ListenerState;
use super::super::worker::Worker;
use super::backend::{choose, connect_one_of};
use crate::metrics::ListenerCells;
use crate::snapshot::TlsRule;

/// A connection whose ClientHello was read.
pub(super) struct Arrival<'a> {
    pub(super) client: TcpStream,
    pub(super) ends: Ends,
    pub(super) raw: Chunk,
    /// Empty: none.
    pub(super) server_name: &'a str,
}

/// Relays one connection to its end.
pub(super) async fn serve(
    worker: &Rc<Worker>,
    arrival: Arrival<'_>,
    rule: Option<&TlsRule>,
    state: &ListenerState,
    cells: &ListenerCells,
) {
    let Arrival { client, ends, mut raw, server_name } = arrival;
    let peer = ends.client;
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
    let principal = Principal { ends, server_name };
    let prepare = async |socket| {
        let n_sent = announce(&socket, endpoints.proxy_version, principal, raw.bytes())?;
        Ok((socket, n_sent))
    };
    let Some(((upstream, n_sent), target)) = connect_one_of(worker, endpoints, &route, prepare).await else {
        return reset(&client);
    };
    let meter = Meter { listener: cells, route: &route };
    meter.count(Side::Upstream, n_sent as u64);
    let first = (!raw.advance(n_sent)).then_some(raw);
    let end = relay(client, upstream, first, &worker.pools, meter, worker.timeouts.half_closed).await;
    if let End::Broken(Side::Upstream, error) = &end {
        route.upstream_failures.add(1);
        tracing::debug!(src.addr = %peer, upstream.addr = %target, %error, "upstream ended the connection");
    }
}
