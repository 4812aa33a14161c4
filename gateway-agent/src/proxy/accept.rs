//! Accepts the connections of one listening socket.
//!
//! Does not serve them: each becomes a task of its own, so a slow one holds up no other.

use std::io;
use std::rc::Rc;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::flow::canonical;
use super::limits::{ACCEPT_BACKOFF, CLOSE_LINGER};
use super::slots::{ConnectionSlot, ListenerSlot};
use super::socket::refuse_new;
use super::state::ListenerState;
use super::worker::Worker;
use crate::snapshot::ListenerKey;

/// Serves `socket` until `close`, then accepts what the kernel has queued and closes it.
pub(super) fn spawn(
    worker: &Rc<Worker>,
    key: ListenerKey,
    socket: std::net::TcpListener,
    close: CancellationToken,
) -> io::Result<()> {
    let socket = TcpListener::from_std(socket)?;
    let slot = ListenerSlot::new(worker, key);
    let last = worker.listener(key);
    let acceptor = Acceptor { worker: worker.clone(), key, socket, last, is_failing: false };
    tokio::task::spawn_local(async move {
        acceptor.run(close).await;
        drop(slot);
    });
    Ok(())
}

struct Acceptor {
    worker: Rc<Worker>,
    key: ListenerKey,
    socket: TcpListener,
    /// How the listener was configured last: connections that were queued when it went are served by that.
    last: Option<Rc<ListenerState>>,
    /// The last accept failed: the next failure is no news.
    is_failing: bool,
}

impl Acceptor {
    async fn run(mut self, close: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = close.cancelled() => break,
                () = self.accept_one() => {}
            }
        }
        self.finish().await;
    }

    /// Waits for room, then for a connection. Cancellation-safe: a connection is taken only to be spawned at once.
    async fn accept_one(&mut self) {
        if self.worker.slots.is_full() {
            self.worker.cells.accept_pauses.add(1);
            tracing::debug!(listener = %self.key, "accepting pauses at the worker's bound of connections");
            self.worker.slots.room().await;
        }
        let accepted = self.socket.accept().await;
        self.take(accepted).await;
    }

    async fn take(&mut self, accepted: io::Result<(TcpStream, std::net::SocketAddr)>) {
        match accepted {
            Ok((stream, peer)) => {
                self.is_failing = false;
                self.start(stream, peer);
            }
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                self.worker.cells.accept_failures.add(1);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(listener = %self.key, %error, "cannot accept, pausing");
                }
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }

    fn start(&mut self, stream: TcpStream, peer: std::net::SocketAddr) {
        if let Some(state) = self.worker.listener(self.key) {
            self.last = Some(state);
        }
        // A peer that has gone already leaves no local address.
        let (Some(state), Ok(local)) = (self.last.clone(), stream.local_addr()) else {
            super::copy::reset(&stream);
            return;
        };
        let worker = self.worker.clone();
        let slot = ConnectionSlot::new(&worker);
        tokio::task::spawn_local(async move {
            worker.serve_connection(stream, canonical(peer), canonical(local), state).await;
            drop(slot);
        });
    }

    /// A close resets what the kernel has queued and handshakes under way, so both are taken first.
    async fn finish(mut self) {
        if let Err(error) = refuse_new(&self.socket) {
            tracing::debug!(listener = %self.key, %error, "new connections may be reset as the listener closes");
        }
        let linger = tokio::time::sleep(CLOSE_LINGER);
        tokio::pin!(linger);
        loop {
            tokio::select! {
                biased;
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, peer)) => self.start(stream, peer),
                    Err(error) if is_of_connection(&error) => {}
                    // Out of descriptors: what is queued cannot be had.
                    Err(_) => return,
                },
                () = &mut linger => return,
            }
        }
    }
}

/// Errors that speak of the connection that was to be accepted and not of the listener; accept(2).
fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EINTR
                | libc::EPROTO
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH
                | libc::EPERM
        )
    )
}
