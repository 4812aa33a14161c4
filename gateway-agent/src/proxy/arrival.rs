//! The beginning of a connection that comes by a load balancer: its header, which names the client.
//!
//! Takes the header and not a byte more from the socket, so that whoever serves the connection finds it as if the client
//! itself had made it. Who is not to be believed is refused, header or none: from there anyone could be named.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

use super::copy::reset;
use super::proxy_protocol::{Ends, Header, Invalid, Parser};
use super::state::ListenerState;
use super::worker::Worker;
use crate::metrics::HeaderFailure;
use crate::snapshot::ProxySources;

#[derive(Debug, thiserror::Error)]
enum Unannounced {
    #[error("the sender is none of those who may send it")]
    Untrusted,
    #[error("not within the deadline")]
    Deadline,
    #[error("the sender ended within it")]
    Truncated,
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
}

impl Unannounced {
    const fn failure(&self) -> HeaderFailure {
        match self {
            Self::Untrusted => HeaderFailure::Untrusted,
            Self::Deadline => HeaderFailure::Timeout,
            Self::Truncated | Self::Io(_) => HeaderFailure::Closed,
            Self::Invalid(_) => HeaderFailure::Invalid,
        }
    }
}

/// Bytes looked at in one go: more than usual headers have.
const LOOK_BYTES: usize = 256;

/// The ends that the header names, or those of the connection where it names none. `None`: the connection is over; a
/// refusal is counted, one without a byte is a health check and is not.
pub(super) async fn arrive(
    worker: &Worker,
    client: &TcpStream,
    ends: Ends,
    sources: &ProxySources,
    state: &ListenerState,
) -> Option<Ends> {
    let header = if sources.contains(ends.client.ip()) {
        let reading = tokio::time::timeout(worker.timeouts.proxy_header, read(client)).await;
        reading.unwrap_or(Err(Unannounced::Deadline))
    } else {
        Err(Unannounced::Untrusted)
    };
    match header {
        Ok(Some(Header::Own)) => Some(ends),
        Ok(Some(Header::Proxied(announced))) => Some(announced),
        Ok(None) => None,
        Err(error) => {
            let cells = state.cells(None);
            cells.connections.add(1);
            cells.header_failure(error.failure()).add(1);
            log(ends.client, &error);
            reset(client);
            None
        }
    }
}

fn log(peer: SocketAddr, error: &Unannounced) {
    tracing::debug!(src.addr = %peer, %error, "no PROXY protocol header to go by, connection refused");
}

/// `None`: the sender left without a byte.
async fn read(client: &TcpStream) -> Result<Option<Header>, Unannounced> {
    let mut parser = Parser::default();
    let mut seen = [0; LOOK_BYTES];
    loop {
        let n_seen = client.peek(&mut seen).await?;
        if n_seen == 0 {
            return if parser.is_empty() { Ok(None) } else { Err(Unannounced::Truncated) };
        }
        let (n_taken, header) = parser.feed(seen.get(..n_seen).unwrap_or_default())?;
        take(client, seen.get_mut(..n_taken).unwrap_or_default()).await?;
        if header.is_some() {
            return Ok(header);
        }
    }
}

/// Takes what was looked at, which is there.
async fn take(client: &TcpStream, seen: &mut [u8]) -> Result<(), Unannounced> {
    let mut n_taken = 0;
    while let Some(rest) = seen.get_mut(n_taken..).filter(|rest| !rest.is_empty()) {
        match client.try_read(rest) {
            Ok(0) => return Err(Unannounced::Truncated),
            Ok(n) => n_taken += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => client.readable().await?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
