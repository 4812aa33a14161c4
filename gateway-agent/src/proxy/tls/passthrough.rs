//! TLS passthrough: reads the ClientHello, routes by its server name, relays everything unchanged.
//!
//! What cannot be routed ends by RST and never with a TLS record: the agent is no party to the handshake. Without a
//! name only a catch-all takes the connection.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::net::TcpStream;

use super::super::active::Active;
use super::super::connect::connect;
use super::super::copy::{End, Meter, Side, relay, reset};
use super::super::limits::{CONNECT_ATTEMPTS, HELLO_RAW_BYTES};
use super::super::pool::Chunk;
use super::super::state::ListenerState;
use super::super::worker::Worker;
use super::hello::{Hello, Invalid, Parser, Progress};
use crate::metrics::RouteCells;
use crate::snapshot::{Backend, EndpointSet, TlsMode, TlsRule, TlsTable, TlsVirtualListener};

/// Why a connection ended before it was routed.
#[derive(Debug, thiserror::Error)]
enum Unrouted {
    #[error("no complete ClientHello within the deadline")]
    Deadline,
    #[error("the client ended within its ClientHello")]
    Truncated,
    #[error("more than 64 KiB without a complete ClientHello")]
    TooManyRecords,
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
}

/// First allocation for a hello: most fit. Nothing is allocated for a client that is silent.
const FIRST_READ_BYTES: usize = 2 * 1024;

/// Relays one connection to its end.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    client: TcpStream,
    peer: SocketAddr,
    state: &ListenerState,
    table: &TlsTable,
) {
    let common = state.cells(None);
    let greeted = {
        let _active = Active::new(&common);
        match tokio::time::timeout(worker.timeouts.hello, read_hello(&client)).await {
            Ok(result) => result,
            Err(_elapsed) => Err(Unrouted::Deadline),
        }
    };
    let (hello, raw) = match greeted {
        Ok(Some(greeted)) => greeted,
        // Connected and left without a byte: a health check.
        Ok(None) => return common.connections.add(1),
        Err(error) => {
            common.connections.add(1);
            common.unrouted.add(1);
            tracing::debug!(src.addr = %peer, %error, "connection cannot be routed");
            return reset(&client);
        }
    };
    let (listener, rule) = lookup(table, &hello);
    let cells = state.cells(listener.map(|listener| &listener.name));
    cells.connections.add(1);
    let _active = Active::new(&cells);
    let Some(rule) = rule else {
        cells.unrouted.add(1);
        tracing::debug!(src.addr = %peer, sni = hello.server_name.as_deref(), "no route for the server name");
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
    let meter = Meter { listener: &cells, route: &route };
    let end = relay(client, upstream, Some(raw), &worker.pools, meter, worker.timeouts.half_closed).await;
    if let End::Broken(Side::Upstream, error) = &end {
        route.upstream_failures.add(1);
        tracing::debug!(src.addr = %peer, upstream.addr = %target, %error, "upstream ended the connection");
    }
}

/// Reads until the hello is whole. `None`: the client left without a byte. Cancellation loses what was read.
async fn read_hello(client: &TcpStream) -> Result<Option<(Hello, Chunk)>, Unrouted> {
    let mut parser = Parser::default();
    let mut raw = Vec::new();
    let mut len = 0;
    loop {
        client.readable().await?;
        if len == raw.len() {
            if len >= HELLO_RAW_BYTES {
                return Err(Unrouted::TooManyRecords);
            }
            raw.resize((2 * len).clamp(FIRST_READ_BYTES, HELLO_RAW_BYTES), 0);
        }
        let n = match client.try_read(raw.get_mut(len..).unwrap_or_default()) {
            Ok(0) if len == 0 => return Ok(None),
            Ok(0) => return Err(Unrouted::Truncated),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        };
        let fresh = raw.get(len..len + n).unwrap_or_default();
        len += n;
        match parser.feed(fresh) {
            Progress::NeedMore => {}
            Progress::Hello(hello) => return Ok(Some((hello, Chunk::new(raw, len)))),
            Progress::Invalid(invalid) => return Err(invalid.into()),
        }
    }
}

/// The most specific listener for the name, and the most specific of its routes.
fn lookup<'a>(
    table: &'a TlsTable,
    hello: &Hello,
) -> (Option<&'a Arc<TlsVirtualListener>>, Option<&'a Arc<TlsRule>>) {
    // No name matches the empty one, so it finds the catch-all alone.
    let host = hello.server_name.as_deref().unwrap_or_default();
    let listener = table.listeners.lookup(host);
    let rule = listener.and_then(|listener| match &listener.mode {
        TlsMode::Passthrough(hosts) => hosts.lookup(host),
        TlsMode::Https { .. } => None,
    });
    (listener, rule)
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
