//! TLSRoutes behind termination: what TLS carries goes to a backend as it is, by TCP or, where a policy says so, by TLS of
//! the agent's own.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use super::super::active::Active;
use super::super::announce::{Principal, announce};
use super::super::copy::{End, Meter, Side, reset};
use super::super::state::ListenerState;
use super::super::stream::{Stream, TlsClient, Upstream};
use super::super::worker::Worker;
use super::backend::{choose, connect_one_of};
use super::config::Application;
use super::relay::relay;
use crate::certificate::Certificate;
use crate::metrics::ListenerCells;
use crate::snapshot::TlsRule;

/// Relays one connection to its end, after its handshake. `certificate`: what backends are shown.
pub(super) async fn serve(
    worker: &Rc<Worker>,
    (client, principal): (TlsClient, Principal<'_>),
    rule: &TlsRule,
    certificate: Option<&Arc<Certificate>>,
    state: &ListenerState,
    cells: &ListenerCells,
) {
    let _active = Active::new(cells);
    let client = Stream::Tls(Box::new(client));
    let route = state.route(&rule.route);
    let chosen = choose(worker, rule).and_then(|set| {
        let identity = worker.http.identities().towards(set, certificate, Application::Opaque).ok()?;
        Some((set, identity))
    });
    let Some((set, identity)) = chosen else {
        route.refused.add(1);
        return reset(client.socket());
    };
    route.requests[0].add(1);
    let prepare = async |socket| {
        announce(&socket, set.proxy_version, principal, &[])?;
        let Some(identity) = &identity else { return Ok(Upstream::Cleartext(socket)) };
        match tokio::time::timeout(worker.timeouts.handshake, identity.shake(socket)).await {
            Ok(shaken) => shaken,
            Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
        }
    };
    let Some((upstream, target)) = connect_one_of(worker, set, &route, prepare).await else {
        return reset(client.socket());
    };
    let meter = Meter { listener: cells, route: &route };
    let half_closed = worker.timeouts.half_closed;
    let end = relay(client, upstream, &worker.pools.buffers, meter, half_closed).await;
    if let End::Broken(Side::Upstream, error) = &end {
        route.upstream_failures.add(1);
        tracing::debug!(src.addr = %principal.ends.client, upstream.addr = %target, %error, "upstream ended the connection");
    }
}
