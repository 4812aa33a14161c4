//! TLS termination: the handshake. What comes after it is for others.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use rustls::Error as TlsError;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::super::active::Active;
use super::super::copy::reset;
use super::super::limits::HANDSHAKES;
use super::super::pool::Chunk;
use super::super::stream::TlsClient;
use super::super::worker::Worker;
use super::clients::is_verified;
use super::{Replay, Termination};
use crate::metrics::{HandshakeFailure, ListenerCells};

/// A connection whose ClientHello was read.
pub(super) struct Arrival {
    pub(super) client: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) raw: Chunk,
    /// Empty: none.
    pub(super) server_name: String,
}

/// The client after its handshake, and the server name. `None`: it was refused, told and counted. `termination`: absent
/// where the listener has no certificate.
pub(super) async fn shake(
    worker: &Rc<Worker>,
    arrival: Arrival,
    termination: Option<Arc<Termination>>,
    cells: &ListenerCells,
) -> Option<(TlsClient, String)> {
    let Arrival { client, peer, raw, server_name } = arrival;
    let judge = termination.as_ref().and_then(|termination| termination.judge.clone());
    let shaken = {
        let _active = Active::new(cells);
        handshake(worker, client, raw, termination).await
    };
    match shaken {
        Ok(stream) => {
            cells.handshakes.add(1);
            if judge.is_some_and(|judge| !is_verified(&*judge, stream.get_ref().1)) {
                cells.unverified_clients.add(1);
                tracing::debug!(src.addr = %peer, sni = server_name, "client let in without a valid certificate");
            }
            Some((stream, server_name))
        }
        Err((failure, error)) => {
            cells.handshake_failure(failure).add(1);
            let (reason, sni) = (failure.as_str(), server_name);
            tracing::debug!(src.addr = %peer, sni, reason, ?error, "handshake failed");
            None
        }
    }
}

/// What the client is owed is sent before this returns.
async fn handshake(
    worker: &Worker,
    client: TcpStream,
    raw: Chunk,
    termination: Option<Arc<Termination>>,
) -> Result<TlsClient, (HandshakeFailure, Option<io::Error>)> {
    let refuse = |failure| {
        reset(&client);
        Err((failure, None))
    };
    let Some(termination) = termination else { return refuse(HandshakeFailure::NoCertificate) };
    let Some(_permit) = Permit::take(&worker.handshakes) else { return refuse(HandshakeFailure::Overload) };
    if let Err(error) = client.set_nodelay(true) {
        return Err((HandshakeFailure::Closed, Some(error)));
    }
    let accepting =
        TlsAcceptor::from(termination.config.clone()).accept(Replay::new(raw, client)).into_fallible();
    match tokio::time::timeout(worker.timeouts.handshake, accepting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err((error, mut socket))) => {
            // Behind the alert, which is written already. Where it fails the client is gone.
            socket.shutdown().await.ok();
            Err((classify(&error), Some(error)))
        }
        Err(_elapsed) => Err((HandshakeFailure::Timeout, None)),
    }
}

fn classify(error: &io::Error) -> HandshakeFailure {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    match tls {
        Some(TlsError::AlertReceived(_)) => HandshakeFailure::Alert,
        Some(TlsError::NoCertificatesPresented | TlsError::InvalidCertificate(_)) => {
            HandshakeFailure::ClientCertificate
        }
        Some(TlsError::NoApplicationProtocol | TlsError::PeerIncompatible(_)) => {
            HandshakeFailure::Incompatible
        }
        Some(_) => HandshakeFailure::Invalid,
        None => HandshakeFailure::Closed,
    }
}

/// One of the handshakes that a worker holds at a time.
struct Permit<'a>(&'a Cell<usize>);

impl<'a> Permit<'a> {
    fn take(handshakes: &'a Cell<usize>) -> Option<Self> {
        (handshakes.get() < HANDSHAKES).then(|| {
            handshakes.set(handshakes.get() + 1);
            Self(handshakes)
        })
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}
