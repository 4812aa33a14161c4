//! The userspace data path: listeners, HTTP, TLS passthrough, TCP and UDP relays.
//!
//! One listener manager on the caller's runtime ([`listener`]) and N worker threads ([`worker`]). It serves snapshots and
//! says what it serves; it knows no Kubernetes object.

mod accept;
mod active;
mod announce;
mod arrival;
mod connect;
mod copy;
mod flow;
pub mod h1;
pub mod http;
mod limits;
mod listener;
pub mod message;
mod pool;
pub mod proxy_protocol;
mod random;
mod silence;
mod slots;
mod socket;
mod splice;
mod state;
pub mod steering;
mod stream;
mod tcp;
#[cfg(test)]
mod tests;
pub mod tls;
mod udp;
mod worker;

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use limits::Budget;
pub use limits::Timeouts;
use steering::Steering;

use crate::access_log::AccessLog;
use crate::drain::Drain;
use crate::metrics::Metrics;
use crate::provision::IpRange;
use crate::snapshot::Publisher;
use crate::status::Applied;

/// What the proxy is started with.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    pub workers: NonZeroUsize,
    pub drain: Drain,
    pub metrics: Arc<Metrics>,
    /// Absent: listeners are bound.
    pub steering: Option<Arc<dyn Steering>>,
    /// For the choice of backends; not a secret.
    pub seed: u64,
    pub timeouts: Timeouts,
    /// Addresses that no interface has and that arrive all the same.
    pub pool: Arc<[IpRange]>,
    pub access_log: AccessLog,
}

#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("cannot start a worker thread")]
    Spawn(#[source] io::Error),
    #[error("worker thread {0} ended by a panic")]
    Panicked(usize),
}

/// The running proxy.
#[derive(Debug)]
pub struct Proxy {
    applied: watch::Receiver<Arc<Applied>>,
    manager: JoinHandle<()>,
    workers: Vec<(oneshot::Receiver<()>, thread::JoinHandle<()>)>,
}

impl Proxy {
    /// Starts the worker threads, and the listener manager on the current runtime. It serves from now on, until
    /// `config.drain` stops it.
    pub fn start(config: ProxyConfig, publisher: &Publisher) -> Result<Self, ProxyError> {
        let budget = Budget::new(descriptor_limit(), config.workers.get());
        Self::start_within(budget, config, publisher)
    }

    fn start_within(budget: Budget, config: ProxyConfig, publisher: &Publisher) -> Result<Self, ProxyError> {
        let n = config.workers.get();
        let tls = Arc::new(tls::Configs::default());
        let ejections = http::Ejections::default();
        let mut commands = Vec::with_capacity(n);
        let mut workers = Vec::with_capacity(n);
        for index in 0..n {
            let seed = worker::Seed {
                index,
                reader: publisher.reader(),
                metrics: config.metrics.clone(),
                drain: config.drain.clone(),
                budget,
                timeouts: config.timeouts,
                // Workers that drew the same numbers would choose the same endpoints at the same time.
                random: config.seed ^ (index as u64).rotate_left(32),
                tls: tls.clone(),
                ejections: ejections.clone(),
                access_log: config.access_log.clone(),
            };
            let handle = worker::spawn(seed).map_err(ProxyError::Spawn)?;
            commands.push(handle.commands);
            workers.push((handle.finished, handle.thread));
        }
        let (sender, applied) = watch::channel(Arc::default());
        let manager = tokio::spawn(listener::run(listener::Listeners {
            reader: publisher.reader(),
            drain: config.drain,
            steering: config.steering,
            pool: config.pool,
            workers: commands,
            applied: sender,
        }));
        Ok(Self { applied, manager, workers })
    }

    /// What is served, for each revision.
    pub fn applied(&self) -> watch::Receiver<Arc<Applied>> {
        self.applied.clone()
    }

    /// Waits until all connections have ended, or were cut by `Drain::abort`. To be awaited after `Drain::stop`, or
    /// within `Drain::run`.
    pub async fn join(self) -> Result<(), ProxyError> {
        // The manager does not panic; were it to, the workers would go on and end by the drain all the same.
        drop(self.manager.await);
        let mut result = Ok(());
        for (index, (finished, thread)) in self.workers.into_iter().enumerate() {
            // Nothing is ever sent: the sender is dropped as the last act of the thread, also by a panic.
            drop(finished.await);
            if thread.join().is_err() {
                result = Err(ProxyError::Panicked(index));
            }
        }
        result
    }
}

/// The process's bound of open files, raised as far as it may be: each relayed connection takes two.
fn descriptor_limit() -> usize {
    // The least that POSIX allows; the kernel always answers.
    const FALLBACK: libc::rlim_t = 1024;
    let mut limit = libc::rlimit { rlim_cur: FALLBACK, rlim_max: FALLBACK };
    // SAFETY: the pointer is to a structure of ours that lives through the call, which fills it.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        // SAFETY: the pointer is to a structure of ours that lives through the call, which only reads it.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            limit = raised;
        }
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}
