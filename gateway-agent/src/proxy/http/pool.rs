//! Connections to servers behind that wait for their next request, per worker and endpoint.
//!
//! Opens and closes nothing itself but by dropping.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::task::{Context, Waker};

use rustc_hash::FxBuildHasher;
use tokio::net::TcpStream;

use super::limits::{POOL_IDLE_MAX, POOL_IDLE_PER_ENDPOINT_MAX};

#[derive(Debug, Default)]
pub(super) struct Pool {
    endpoints: HashMap<SocketAddr, Endpoint, FxBuildHasher>,
    n_idle: usize,
}

#[derive(Debug, Default)]
struct Endpoint {
    /// Requests under way.
    n_active: u32,
    /// The one used last is used next, so that a lull lets the others expire.
    idle: Vec<Idle>,
}

#[derive(Debug)]
struct Idle {
    stream: TcpStream,
    expires_at: u64,
}

/// How sure one must be that a kept connection is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    /// By what the runtime knows; the request can be repeated.
    Known,
    /// By asking the kernel; the request cannot be repeated.
    Probed,
}

impl Pool {
    pub(super) fn load(&self, endpoint: &SocketAddr) -> u32 {
        self.endpoints.get(endpoint).map_or(0, |endpoint| endpoint.n_active)
    }

    pub(super) fn begin(&mut self, endpoint: SocketAddr) {
        self.endpoints.entry(endpoint).or_default().n_active += 1;
    }

    pub(super) fn end(&mut self, endpoint: &SocketAddr) {
        if let Some(endpoint) = self.endpoints.get_mut(endpoint) {
            endpoint.n_active = endpoint.n_active.saturating_sub(1);
        }
    }

    /// A connection that the server has neither closed nor written to since its last answer.
    pub(super) fn take(&mut self, endpoint: &SocketAddr, liveness: Liveness) -> Option<TcpStream> {
        let idle = &mut self.endpoints.get_mut(endpoint)?.idle;
        while let Some(Idle { stream, .. }) = idle.pop() {
            self.n_idle -= 1;
            if is_alive(&stream, liveness) {
                return Some(stream);
            }
        }
        None
    }

    /// Keeps `stream`, or closes it where the pool is full.
    pub(super) fn put(&mut self, endpoint: SocketAddr, stream: TcpStream, expires_at: u64) {
        if self.n_idle >= POOL_IDLE_MAX {
            return;
        }
        let idle = &mut self.endpoints.entry(endpoint).or_default().idle;
        if idle.len() < POOL_IDLE_PER_ENDPOINT_MAX {
            idle.push(Idle { stream, expires_at });
            self.n_idle += 1;
        }
    }

    /// Closes what has expired or was closed by its server, and forgets endpoints without use.
    pub(super) fn sweep(&mut self, tick: u64) {
        let mut n_idle = 0;
        self.endpoints.retain(|_, endpoint| {
            endpoint.idle.retain(|idle| idle.expires_at > tick && is_alive(&idle.stream, Liveness::Known));
            n_idle += endpoint.idle.len();
            endpoint.n_active > 0 || !endpoint.idle.is_empty()
        });
        self.n_idle = n_idle;
    }

    /// Closes all that waits.
    pub(super) fn clear(&mut self) {
        self.sweep(u64::MAX);
    }

    pub(super) fn has_idle(&self) -> bool {
        self.n_idle > 0
    }
}

/// Nothing may come from a server that was asked nothing: readable means closed, broken or out of step.
fn is_alive(stream: &TcpStream, liveness: Liveness) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    if stream.poll_read_ready(&mut cx).is_ready() {
        return false;
    }
    match liveness {
        Liveness::Known => true,
        Liveness::Probed => {
            let peeked = socket2::SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]);
            peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        }
    }
}
