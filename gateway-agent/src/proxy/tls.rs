//! Connections that begin with a ClientHello: the name in it chooses the listener, which passes the connection on
//! unopened or ends TLS here. And connections to backends by TLS.
//!
//! Without a name only a catch-all takes the connection.

mod backend;
mod clients;
mod config;
mod greet;
pub mod hello;
#[cfg(test)]
pub(crate) mod maker;
mod opaque;
mod passthrough;
mod relay;
mod replay;
mod terminate;
mod upstream;

use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;

use tokio::net::TcpStream;

pub(super) use config::{Application, Configs, Termination};
use greet::{Unrouted, read_hello};
pub(super) use replay::Replay;
pub(super) use upstream::{Identities, Identity, Unspeakable};

use super::active::Active;
use super::announce::Principal;
use super::copy::reset;
use super::http;
use super::proxy_protocol::Ends;
use super::state::ListenerState;
use super::worker::Worker;
use crate::snapshot::{TlsMode, TlsTable};

/// Fatal alert `unrecognized_name` (RFC 6066 section 3, RFC 8446 section 6) in a record of its own.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// Serves one connection to its end.
pub(super) async fn serve(
    worker: &Rc<Worker>,
    client: TcpStream,
    (peer, local): (SocketAddr, SocketAddr),
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
    // No pattern matches the empty name, so it finds the catch-all alone.
    let name = hello.server_name.unwrap_or_default();
    let Some(listener) = table.listeners.lookup(&name) else {
        common.connections.add(1);
        common.unrouted.add(1);
        tracing::debug!(src.addr = %peer, sni = name, "no listener for the server name");
        return refuse(&client, table);
    };
    let cells = state.cells(Some(&listener.name));
    cells.connections.add(1);
    let ends = Ends { client: peer, local };
    match &listener.mode {
        TlsMode::Passthrough(hosts) => {
            let _active = Active::new(&cells);
            let rule = hosts.lookup(&name).map(|rule| &**rule);
            let arrival = passthrough::Arrival { client, ends, raw, server_name: &name };
            passthrough::serve(worker, arrival, rule, state, &cells).await;
        }
        TlsMode::Https { terms, .. } => {
            let termination = state.termination(&worker.tls, &listener.name, terms, Application::Http);
            let arrival = terminate::Arrival { client, peer, raw, server_name: name };
            // Its state is large, and those of all protocols lie in one future.
            let shaken = Box::pin(terminate::shake(worker, arrival, termination, &cells)).await;
            let Some((client, name)) = shaken else { return };
            let client = http::Client::tls(client, name, cells);
            Box::pin(http::serve(client, peer, local, state.listener.key, worker.http.clone())).await;
        }
        TlsMode::Terminate { terms, hosts, client_certificate } => {
            let Some(rule) = hosts.lookup(&name) else {
                cells.unrouted.add(1);
                tracing::debug!(src.addr = %peer, sni = name, "no route for the server name");
                return tell(&client);
            };
            let termination = state.termination(&worker.tls, &listener.name, terms, Application::Opaque);
            let arrival = terminate::Arrival { client, peer, raw, server_name: name };
            let shaken = Box::pin(terminate::shake(worker, arrival, termination, &cells)).await;
            let Some((client, server_name)) = shaken else { return };
            let client = (client, Principal { ends, server_name: &server_name });
            Box::pin(opaque::serve(worker, client, rule, client_certificate.as_ref(), state, &cells)).await;
        }
    }
}

/// Ends a connection that no listener is for. Where one of them passes TLS through, the agent is no party to the
/// handshake and says nothing; else the client is told why.
fn refuse(client: &TcpStream, table: &TlsTable) {
    let is_passthrough = |mode: &TlsMode| matches!(mode, TlsMode::Passthrough(_));
    if table.listeners.values().any(|listener| is_passthrough(&listener.mode)) {
        return reset(client);
    }
    tell(client);
}

/// Tells a client that its server name is unknown, and ends the connection.
fn tell(client: &TcpStream) {
    let is_said = client.try_write(&UNRECOGNIZED_NAME).is_ok()
        && socket2::SockRef::from(client).shutdown(Shutdown::Write).is_ok();
    if !is_said {
        reset(client);
    }
}
