//! What a worker knows of each endpoint: connections that wait for their next request, by identity, how many requests are
//! under way, and whether it fails.
//!
//! Opens and closes nothing itself but by dropping. Chooses no endpoint.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::net::SocketAddr;

use rustc_hash::FxBuildHasher;

use super::ejections::Says;
use super::error::{Kind, ProxyError, Source};
use super::limits::{EJECTION_FAILURES, EJECTION_TICKS, POOL_IDLE_MAX, POOL_IDLE_PER_ENDPOINT_MAX};
use crate::proxy::stream::Upstream;

#[derive(Debug, Default)]
pub(super) struct Pool {
    endpoints: HashMap<SocketAddr, Endpoint, FxBuildHasher>,
    n_idle: usize,
    /// Any endpoint may be left out: where none is, nobody looks.
    has_failing: bool,
}

#[derive(Debug, Default)]
struct Endpoint {
    /// Requests under way.
    n_active: u32,
    /// The one used last is used next, so that a lull lets the others expire.
    idle: Vec<Idle>,
    /// Requests in a row that failed by its doing.
    n_failed: u32,
    /// The tick of the last one.
    failed_at: u64,
    /// Where there were too many of them, the tick until which it is left out.
    out_until: u64,
}

/// What a request has told of its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Failed,
    Served,
    /// Nothing: the client gave up, or the route was less patient than a server may expect.
    Unknown,
}

impl Health {
    /// By how a request ended, `None`: well. `was_kept`: its connection had waited, and that it ends says nothing.
    pub(super) fn of(failure: Option<ProxyError>, was_kept: bool) -> Self {
        match failure {
            None => Self::Served,
            Some(ProxyError { kind: Kind::Closed | Kind::Refused, .. }) if was_kept => Self::Unknown,
            // How long a route waits is not how long a server may take.
            Some(error) if error.source == Source::Upstream && !error.is_limit() => Self::Failed,
            Some(_) => Self::Unknown,
        }
    }
}

#[derive(Debug)]
struct Idle {
    stream: Upstream,
    /// Of [`crate::proxy::tls::Identity`]; 0: cleartext.
    identity: u64,
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

    /// What the end of a request says that others do not know yet: the endpoint is left out from now on, or it was
    /// and serves again.
    pub(super) fn end(&mut self, endpoint: &SocketAddr, health: Health, tick: u64) -> Option<Says> {
        let endpoint = self.endpoints.get_mut(endpoint)?;
        endpoint.n_active = endpoint.n_active.saturating_sub(1);
        match health {
            Health::Unknown => {}
            Health::Served => {
                let was_out = endpoint.n_failed >= EJECTION_FAILURES;
                endpoint.n_failed = 0;
                return was_out.then_some(Says::Serves);
            }
            Health::Failed => {
                endpoint.n_failed = endpoint.n_failed.saturating_add(1);
                endpoint.failed_at = tick;
                // What is already left out got requests when there was no other: that is not news.
                if endpoint.n_failed >= EJECTION_FAILURES && endpoint.out_until <= tick {
                    endpoint.out_until = tick + EJECTION_TICKS;
                    self.has_failing = true;
                    return Some(Says::Fails);
                }
            }
        }
        None
    }

    /// Another worker has found that the endpoint fails, and leaves it out until `until`.
    pub(super) fn leave_out(&mut self, endpoint: SocketAddr, tick: u64, until: u64) {
        let endpoint = self.endpoints.entry(endpoint).or_default();
        endpoint.n_failed = endpoint.n_failed.max(EJECTION_FAILURES);
        endpoint.failed_at = tick;
        endpoint.out_until = endpoint.out_until.max(until);
        self.has_failing = true;
    }

    /// Another worker has found that the endpoint serves again.
    pub(super) fn take_back(&mut self, endpoint: &SocketAddr) {
        if let Some(endpoint) = self.endpoints.get_mut(endpoint) {
            (endpoint.n_failed, endpoint.out_until) = (0, 0);
        }
    }

    /// Whether the endpoint has failed so often that another one is to be preferred. After its time one request at a
    /// time finds out whether it serves again, so that it does not come back under the load that it may have failed of.
    pub(super) fn is_out(&self, endpoint: &SocketAddr, tick: u64) -> bool {
        self.has_failing
            && self.endpoints.get(endpoint).is_some_and(|endpoint| {
                endpoint.n_failed >= EJECTION_FAILURES && (tick < endpoint.out_until || endpoint.n_active > 0)
            })
    }

    /// A connection that the server has neither closed nor written to since its last answer.
    pub(super) fn take(
        &mut self,
        endpoint: &SocketAddr,
        identity: u64,
        liveness: Liveness,
    ) -> Option<Upstream> {
        let idle = &mut self.endpoints.get_mut(endpoint)?.idle;
        // Nearly always the last one: endpoints are seldom spoken to in several ways.
        while let Some(position) = idle.iter().rposition(|idle| idle.identity == identity) {
            let Idle { mut stream, .. } = idle.remove(position);
            self.n_idle -= 1;
            if is_alive(&mut stream, liveness) {
                return Some(stream);
            }
        }
        None
    }

    /// Keeps `stream`, or closes it where the pool is full.
    pub(super) fn put(&mut self, endpoint: SocketAddr, identity: u64, stream: Upstream, expires_at: u64) {
        if self.n_idle >= POOL_IDLE_MAX {
            return;
        }
        let idle = &mut self.endpoints.entry(endpoint).or_default().idle;
        if idle.len() < POOL_IDLE_PER_ENDPOINT_MAX {
            idle.push(Idle { stream, identity, expires_at });
            self.n_idle += 1;
        }
    }

    /// Closes what has expired or was closed by its server, and forgets endpoints without use.
    pub(super) fn sweep(&mut self, tick: u64) {
        let (mut n_idle, mut has_failing) = (0, false);
        self.endpoints.retain(|_, endpoint| {
            endpoint
                .idle
                .retain_mut(|idle| idle.expires_at > tick && is_alive(&mut idle.stream, Liveness::Known));
            n_idle += endpoint.idle.len();
            // Those in a row come within that time of each other.
            let failed_at = endpoint.failed_at.max(endpoint.out_until);
            let is_failing = endpoint.n_failed > 0 && tick < failed_at.saturating_add(EJECTION_TICKS);
            if !is_failing {
                endpoint.n_failed = 0;
            }
            has_failing |= endpoint.n_failed >= EJECTION_FAILURES;
            endpoint.n_active > 0 || !endpoint.idle.is_empty() || is_failing
        });
        (self.n_idle, self.has_failing) = (n_idle, has_failing);
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
fn is_alive(stream: &mut Upstream, liveness: Liveness) -> bool {
    if !stream.is_quiet() {
        return false;
    }
    match liveness {
        Liveness::Known => true,
        Liveness::Probed => {
            let socket = socket2::SockRef::from(stream.socket());
            let peeked = socket.peek(&mut [MaybeUninit::uninit()]);
            peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::{EJECTION_FAILURES, EJECTION_TICKS, Health, Pool, Says};

    fn request(pool: &mut Pool, endpoint: SocketAddr, health: Health, tick: u64) -> bool {
        pool.begin(endpoint);
        pool.end(&endpoint, health, tick) == Some(Says::Fails)
    }

    #[test]
    fn failures_in_a_row_leave_an_endpoint_out_for_a_time() {
        let (mut pool, endpoint) = (Pool::default(), "192.0.2.1:80".parse().unwrap());
        for _ in 1..EJECTION_FAILURES {
            assert!(!request(&mut pool, endpoint, Health::Failed, 7));
        }
        assert!(!pool.is_out(&endpoint, 7));
        request(&mut pool, endpoint, Health::Served, 7);
        for _ in 1..EJECTION_FAILURES {
            assert!(!request(&mut pool, endpoint, Health::Failed, 7), "a success starts anew");
        }
        assert!(!request(&mut pool, endpoint, Health::Unknown, 7));
        assert!(request(&mut pool, endpoint, Health::Failed, 7));
        assert!(pool.is_out(&endpoint, 7) && pool.is_out(&endpoint, 6 + EJECTION_TICKS));
        assert!(!request(&mut pool, endpoint, Health::Failed, 8), "it is out already");
        assert!(!pool.is_out(&endpoint, 7 + EJECTION_TICKS));
        pool.sweep(7 + EJECTION_TICKS);
        assert!(request(&mut pool, endpoint, Health::Failed, 7 + EJECTION_TICKS), "it is tried, and fails");
        assert!(pool.is_out(&endpoint, 8 + EJECTION_TICKS));
    }

    #[test]
    fn one_request_at_a_time_finds_out_whether_it_serves_again() {
        let (mut pool, endpoint) = (Pool::default(), "192.0.2.1:80".parse().unwrap());
        for _ in 0..EJECTION_FAILURES {
            request(&mut pool, endpoint, Health::Failed, 0);
        }
        let later = EJECTION_TICKS;
        assert!(!pool.is_out(&endpoint, later));
        pool.begin(endpoint);
        assert!(pool.is_out(&endpoint, later));
        assert_eq!(pool.end(&endpoint, Health::Served, later), Some(Says::Serves));
        pool.begin(endpoint);
        assert!(!pool.is_out(&endpoint, later));
    }

    #[test]
    fn what_others_have_found_out_counts_as_ones_own() {
        let (mut pool, endpoint) = (Pool::default(), "192.0.2.1:80".parse().unwrap());
        pool.leave_out(endpoint, 7, 20);
        assert!(pool.is_out(&endpoint, 19) && !pool.is_out(&endpoint, 20));
        pool.begin(endpoint);
        assert!(pool.is_out(&endpoint, 20), "one request at a time, here too");
        assert_eq!(pool.end(&endpoint, Health::Unknown, 20), None);
        pool.leave_out(endpoint, 21, 30);
        pool.take_back(&endpoint);
        assert!(!pool.is_out(&endpoint, 22));
        pool.sweep(22);
        assert!(pool.endpoints.is_empty());
    }

    #[test]
    fn endpoint_that_is_not_used_is_forgotten() {
        let (mut pool, endpoint) = (Pool::default(), "192.0.2.1:80".parse().unwrap());
        request(&mut pool, endpoint, Health::Served, 0);
        pool.sweep(0);
        assert!(pool.endpoints.is_empty());
        request(&mut pool, endpoint, Health::Failed, 0);
        pool.sweep(EJECTION_TICKS - 1);
        assert_eq!(pool.endpoints.len(), 1);
        pool.sweep(EJECTION_TICKS * 3);
        assert!(pool.endpoints.is_empty());
    }
}
