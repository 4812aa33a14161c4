//! Opens and closes listeners at run time: each snapshot is compared with what is open.
//!
//! Runs on the control runtime. Does not accept; the sockets go to the workers.

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::flow::is_usable;
use super::limits::{RETRY_MAX, RETRY_MIN};
use super::socket::{self, Reach, SocketError, Sockets};
use super::steering::Steering;
use super::worker::Command;
use crate::drain::Drain;
use crate::provision::IpRange;
use crate::snapshot::{Listener, ListenerKey, Protocol, Reader, Snapshot, Transport};
use crate::status::{Applied, Served};

/// What the manager is made of.
#[derive(Debug)]
pub(super) struct Listeners {
    pub reader: Reader,
    pub drain: Drain,
    pub steering: Option<Arc<dyn Steering>>,
    /// Addresses that no interface has and that arrive all the same.
    pub pool: Arc<[IpRange]>,
    pub workers: Vec<mpsc::Sender<Command>>,
    pub applied: watch::Sender<Arc<Applied>>,
}

/// How an open listener gets its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mechanism {
    Bind,
    Steering,
}

impl Mechanism {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Steering => "sk_lookup",
        }
    }
}

/// A worker that is gone answers by dropping its end, so these waits end.
type Acknowledgements = Vec<oneshot::Receiver<()>>;

struct Manager {
    steering: Option<Arc<dyn Steering>>,
    pool: Arc<[IpRange]>,
    workers: Vec<mpsc::Sender<Command>>,
    open: BTreeMap<ListenerKey, Mechanism>,
    /// Listeners without usable endpoints whose port was found free.
    refusing: BTreeMap<ListenerKey, ()>,
    failed: BTreeMap<ListenerKey, SocketError>,
    closing: Vec<(ListenerKey, Acknowledgements)>,
}

/// Follows the snapshots until the drain begins; then closes what steering leads to. The workers close their sockets
/// by themselves.
pub(super) async fn run(listeners: Listeners) {
    let Listeners { mut reader, drain, steering, pool, workers, applied } = listeners;
    let mut manager = Manager {
        steering,
        pool,
        workers,
        open: BTreeMap::new(),
        refusing: BTreeMap::new(),
        failed: BTreeMap::new(),
        closing: Vec::new(),
    };
    let mut snapshot = reader.current().clone();
    let mut backoff = RETRY_MIN;
    loop {
        manager.apply(&snapshot).await;
        publish(&applied, manager.applied(&snapshot));
        let retry = tokio::time::sleep_until(Instant::now() + backoff);
        tokio::select! {
            biased;
            () = drain.stopping() => break,
            changed = reader.changed() => match changed {
                Some(newest) => {
                    snapshot = newest;
                    backoff = RETRY_MIN;
                }
                None => {
                    drain.stopping().await;
                    break;
                }
            },
            () = retry, if !manager.failed.is_empty() => backoff = next_backoff(backoff),
        }
    }
    for (key, mechanism) in &manager.open {
        if let (Mechanism::Steering, Some(steering)) = (mechanism, &manager.steering) {
            steering.close(*key);
        }
    }
}

fn next_backoff(backoff: Duration) -> Duration {
    (2 * backoff).min(RETRY_MAX)
}

fn publish(sender: &watch::Sender<Arc<Applied>>, applied: Applied) {
    sender.send_if_modified(|current| {
        let is_new = **current != applied;
        if is_new {
            *current = Arc::new(applied);
        }
        is_new
    });
}

/// Whether the listener has anyone to send traffic to. A TCP or UDP listener that has none is closed, so that the
/// kernel itself refuses its clients (O08); the others answer by themselves.
fn is_serving(listener: &Listener) -> bool {
    match &listener.protocol {
        Protocol::Tcp(service) | Protocol::Udp(service) => is_usable(service),
        Protocol::Http(_) | Protocol::Tls(_) => true,
    }
}

/// Whether sockets of both would compete for a port.
fn overlaps(a: ListenerKey, b: ListenerKey) -> bool {
    a.transport == b.transport
        && a.port == b.port
        && (a.address.is_none() || b.address.is_none() || a.address == b.address)
}

impl Manager {
    /// Makes what is open that of `snapshot`. Returns when every worker accepts on every listener that could be opened.
    async fn apply(&mut self, snapshot: &Snapshot) {
        let wanted: BTreeMap<ListenerKey, bool> =
            snapshot.listeners.iter().map(|listener| (listener.key, is_serving(listener))).collect();
        self.failed.retain(|key, _| wanted.contains_key(key));
        self.refusing.retain(|key, ()| wanted.get(key) == Some(&false));
        let gone: Vec<ListenerKey> =
            self.open.keys().filter(|key| wanted.get(key) != Some(&true)).copied().collect();
        for key in gone {
            self.close(key).await;
        }
        let mut opening = Acknowledgements::new();
        for (key, is_serving) in wanted {
            if !is_serving {
                self.refuse(key).await;
            } else if !self.open.contains_key(&key) {
                self.settle(key).await;
                match self.open(key, &mut opening).await {
                    Ok(mechanism) => {
                        tracing::info!(listener = %key, mechanism = mechanism.as_str(), "listener opened");
                        self.failed.remove(&key);
                        self.open.insert(key, mechanism);
                    }
                    Err(error) => self.fail(key, error),
                }
            }
        }
        wait(opening).await;
    }

    fn applied(&self, snapshot: &Snapshot) -> Applied {
        let served = |key: &ListenerKey| match (self.failed.get(key), self.open.get(key)) {
            (Some(error), _) => Served::Failed { reason: error.reason(), message: error.to_string() },
            (None, Some(mechanism)) => Served::By(mechanism.as_str()),
            // The port stays closed and the kernel refuses: what is to happen without endpoints.
            (None, None) => Served::By("closed"),
        };
        let listeners =
            snapshot.listeners.iter().map(|listener| (listener.key, served(&listener.key))).collect();
        Applied { revision: snapshot.revision, listeners }
    }

    fn fail(&mut self, key: ListenerKey, error: SocketError) {
        if !self.failed.contains_key(&key) {
            tracing::warn!(listener = %key, %error, "listener cannot be opened, trying again");
        }
        self.failed.insert(key, error);
    }

    /// A listener that is closed on purpose: only whether it could be opened is of interest.
    async fn refuse(&mut self, key: ListenerKey) {
        if self.refusing.contains_key(&key) {
            return;
        }
        self.settle(key).await;
        match self.check(key) {
            Ok(()) => {
                self.failed.remove(&key);
                self.refusing.insert(key, ());
            }
            Err(error) => self.fail(key, error),
        }
    }

    /// Waits for listeners that are about to close and would be in the way.
    async fn settle(&mut self, key: ListenerKey) {
        for (_, acknowledgements) in self.closing.extract_if(.., |(other, _)| overlaps(*other, key)) {
            wait(acknowledgements).await;
        }
    }

    /// Fails where another process uses the port; steering must not take it from that.
    fn check(&self, key: ListenerKey) -> Result<(), SocketError> {
        // Our own sockets on the port make the probe fail; then only the bind itself can tell.
        if self.open.keys().any(|other| overlaps(*other, key)) {
            return Ok(());
        }
        let is_steered = key.transport == Transport::Tcp && self.steering.is_some();
        match socket::probe(key, self.reach(key)) {
            // Neither the right to bind nor an address of one's own is needed there.
            Err(SocketError::Privileged { .. } | SocketError::NoSuchAddress { .. }) if is_steered => Ok(()),
            result => result,
        }
    }

    /// Whether the address is one of the interfaces'.
    fn reach(&self, key: ListenerKey) -> Reach {
        let is_of_pool = |address: IpAddr| self.pool.iter().any(|range: &IpRange| range.contains(address));
        if key.address.is_some_and(is_of_pool) { Reach::Routed } else { Reach::Assigned }
    }

    async fn open(&self, key: ListenerKey, opening: &mut Acknowledgements) -> Result<Mechanism, SocketError> {
        self.check(key)?;
        let (mechanism, sockets) = match self.steer(key) {
            Some(sockets) => (Mechanism::Steering, sockets),
            None => (Mechanism::Bind, socket::bind(key, self.reach(key), self.workers.len())?),
        };
        for (worker, sockets) in self.workers.iter().zip(sockets) {
            let (done, acknowledged) = oneshot::channel();
            // A worker that is gone drops the sockets with the command.
            if worker.send(Command::Open { key, sockets, done }).await.is_ok() {
                opening.push(acknowledged);
            }
        }
        Ok(mechanism)
    }

    /// Sockets that steering leads to. `None`: there is none for this key, bind instead.
    fn steer(&self, key: ListenerKey) -> Option<Vec<Sockets>> {
        let steering = self.steering.as_ref()?;
        if key.transport != Transport::Tcp {
            return None;
        }
        let opened = socket::steered(key, self.workers.len()).map_err(|error| error.to_string());
        let opened = opened.and_then(|pairs| {
            if let Some((v4, v6)) = pairs.first() {
                // Without IPv6 no IPv6 connection arrives, so the stand-in is never asked.
                let v6: &TcpListener = v6.as_ref().unwrap_or(v4);
                steering.open(key, v4.as_fd(), v6.as_fd()).map_err(|error| error.to_string())?;
            }
            Ok(pairs)
        });
        match opened {
            Ok(pairs) => Some(
                pairs
                    .into_iter()
                    .map(|(v4, v6)| Sockets::Tcp([v4].into_iter().chain(v6).collect()))
                    .collect(),
            ),
            Err(error) => {
                tracing::warn!(listener = %key, error, "cannot steer, binding instead");
                None
            }
        }
    }

    /// Ends a listener; what it takes to drain its queues is not waited for.
    async fn close(&mut self, key: ListenerKey) {
        let Some(mechanism) = self.open.remove(&key) else { return };
        tracing::info!(listener = %key, "listener closes");
        if let (Mechanism::Steering, Some(steering)) = (mechanism, &self.steering) {
            steering.close(key);
        }
        let mut acknowledgements = Acknowledgements::new();
        for worker in &self.workers {
            let (done, acknowledged) = oneshot::channel();
            if worker.send(Command::Close { key, done }).await.is_ok() {
                acknowledgements.push(acknowledged);
            }
        }
        // Those that have closed meanwhile are forgotten here.
        self.closing.retain_mut(|(_, pending)| {
            pending.retain_mut(|receiver| {
                matches!(receiver.try_recv(), Err(oneshot::error::TryRecvError::Empty))
            });
            !pending.is_empty()
        });
        self.closing.push((key, acknowledgements));
    }
}

async fn wait(acknowledgements: Acknowledgements) {
    for acknowledged in acknowledgements {
        // An error means that the worker ended; then it accepts nothing and holds no socket.
        drop(acknowledged.await);
    }
}
