//! One writer: a `Lease` for each class in each watched namespace.
//!
//! Holding it allows to write status and to allocate there; everybody serves. Losing it, or not being able to renew it in
//! time, stops the writing at once and nothing else (O55). It is given back on the way out.

mod name;
mod step;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use self::step::{Ask, Elector, Record, Timing};
use super::Scope;
use super::backoff::Backoff;
use super::board::{Board, LeaseRecord};
use super::client::{Api, ApiError, ErrorClass};
use crate::status::write::Leading;

/// The least that leaves a write of [`super::client::WRITE_DEADLINE`] time to end after its lease did.
pub const MIN_DURATION: Duration = Duration::from_secs(12);

/// The process is on its way out, and whoever waits for the lease gets it without this too.
const RELEASE_DEADLINE: Duration = Duration::from_secs(2);

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseName {
    pub namespace: Arc<str>,
    /// The Gateway class that it is for.
    pub class: Arc<str>,
    pub name: Arc<str>,
}

/// Namespace and class; for all namespaces the class alone.
type LeaseKey = (Option<Arc<str>>, Arc<str>);

/// What the writers ask before each write.
#[derive(Clone, Debug)]
pub struct Leadership {
    scope: Scope,
    leases: BTreeMap<LeaseKey, watch::Receiver<bool>>,
    /// Changes whenever any of them does.
    changed: watch::Receiver<u64>,
}

impl Leadership {
    /// Whether this agent writes for Gateways of `class` in `namespace`, now.
    pub fn leads(&self, namespace: &str, class: &str) -> bool {
        self.lease(namespace, class).is_some_and(|lease| *lease.borrow())
    }

    /// The lease that decides it, to wait for. `None`: not watched, or not our class.
    pub fn lease(&self, namespace: &str, class: &str) -> Option<&watch::Receiver<bool>> {
        let namespace = match &self.scope {
            Scope::All => None,
            Scope::Namespaces(namespaces) => Some(namespaces.get(namespace)?.clone()),
        };
        self.leases.get(&(namespace, class.into()))
    }

    /// Every Gateway for which this agent writes, now.
    pub fn leading(&self) -> Leading {
        let held = self.leases.iter().filter(|(_, lease)| *lease.borrow()).map(|(name, _)| name);
        match &self.scope {
            Scope::All => Leading::Classes(held.map(|(_, class)| class.clone()).collect()),
            Scope::Namespaces(_) => {
                let lease = |(namespace, class): &(Option<Arc<str>>, Arc<str>)| {
                    Some((namespace.clone()?, class.clone()))
                };
                Leading::Of(held.filter_map(lease).collect())
            }
        }
    }

    /// Whether any lease of `class` is held.
    pub fn leads_class(&self, class: &Arc<str>) -> bool {
        self.leases.iter().any(|((_, of), lease)| of == class && *lease.borrow())
    }

    /// Whether any lease is held.
    pub fn leads_any(&self) -> bool {
        self.leases.values().any(|lease| *lease.borrow())
    }

    /// Resolves when any lease was won or lost since the last call. Cancellation-safe.
    pub async fn changed(&mut self) {
        if self.changed.changed().await.is_err() {
            // The leases have ended, and nothing changes any more.
            std::future::pending().await
        }
    }
}

/// What the leases need to know.
pub(super) struct Setup<'a> {
    pub scope: &'a Scope,
    pub own_namespace: &'a Arc<str>,
    pub classes: &'a [Arc<str>],
    /// Of this process and no other.
    pub identity: &'a str,
    pub duration: Duration,
}

/// The running leases.
pub(super) struct Leases {
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

/// Competes for all leases. Must run inside a `LocalSet`.
pub(super) fn start(api: &Api, board: &Rc<RefCell<Board>>, setup: &Setup<'_>) -> (Leases, Leadership) {
    let (changes, changed) = watch::channel(0);
    let changes = Rc::new(changes);
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let mut leases = BTreeMap::new();
    for name in name::names(setup.scope, setup.own_namespace, setup.classes.iter().map(|class| &**class)) {
        let (held, receiver) = watch::channel(false);
        let namespace = match setup.scope {
            Scope::All => None,
            Scope::Namespaces(_) => Some(name.namespace.clone()),
        };
        leases.insert((namespace, name.class.clone()), receiver);
        board.borrow_mut().set_lease(&name, LeaseRecord::default());
        let timing = Timing { duration: setup.duration.max(MIN_DURATION) };
        let elector = Elector::new(setup.identity.to_owned(), timing, Instant::now());
        let backoff = Backoff::new(super::watch::seed(&super::board::WatchKey {
            kind: "Lease",
            namespace: Some(name.name.clone()),
        }));
        let task = Task {
            // A renewal may take as long as what it renews: it is refused if another took over meanwhile.
            api: api.with_deadline(timing.hold()),
            board: board.clone(),
            name,
            identity: setup.identity.to_owned(),
            timing,
            elector,
            backoff,
            object: None,
            held,
            changes: changes.clone(),
        };
        tasks.spawn_local(task.run(stop.clone()));
    }
    (Leases { tasks, stop }, Leadership { scope: setup.scope.clone(), leases, changed })
}

impl Leases {
    /// Stops writing, gives the leases back, and waits for that within a bound.
    pub(super) async fn release(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

struct Task {
    api: Api,
    board: Rc<RefCell<Board>>,
    name: LeaseName,
    identity: String,
    timing: Timing,
    elector: Elector,
    backoff: Backoff,
    /// As last read or written: what others put into it stays.
    object: Option<Lease>,
    held: watch::Sender<bool>,
    changes: Rc<watch::Sender<u64>>,
}

/// What a request came to.
enum Answer {
    Read(Option<Lease>),
    Written(Instant, Lease),
    Conflict,
    Failed(ApiError),
}

impl Task {
    async fn run(mut self, stop: CancellationToken) {
        loop {
            let (at, ask) = self.elector.next().clone();
            let expiry = self.elector.held_until();
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.release().await,
                () = expired(expiry), if *self.held.borrow() => self.tell(None),
                () = sleep_until(at.into()) => {
                    if !self.ask(ask, &stop).await {
                        return self.release().await;
                    }
                }
            }
        }
    }

    /// Asks, and takes the answer. False: told to stop meanwhile.
    async fn ask(&mut self, ask: Ask, stop: &CancellationToken) -> bool {
        let expiry = self.elector.held_until();
        let answer = {
            let request =
                request(&self.api, &self.name, &self.identity, self.timing, self.object.clone(), ask);
            let mut request = std::pin::pin!(request);
            loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return false,
                    // The lease ends while its renewal is under way.
                    () = expired(expiry), if *self.held.borrow() => {
                        self.held.send_replace(false);
                        self.changes.send_modify(|count| *count += 1);
                    }
                    answer = &mut request => break answer,
                }
            }
        };
        let now = Instant::now();
        let trouble = match answer {
            Answer::Read(lease) => {
                self.elector.read(now, lease.as_ref().map(record).as_ref());
                self.object = lease;
                None
            }
            Answer::Written(sent, lease) => {
                self.backoff.succeeded();
                self.elector.written(sent, &record(&lease));
                self.object = Some(lease);
                None
            }
            Answer::Conflict => {
                self.elector.conflicted(now);
                None
            }
            Answer::Failed(error) => {
                let wait = self.backoff.failed(error.retry_after());
                self.elector.failed(now, wait);
                Some(error.to_string())
            }
        };
        self.tell(trouble);
        true
    }

    /// Says how the lease stands now.
    fn tell(&self, trouble: Option<String>) {
        let is_held = self.elector.is_leader(Instant::now());
        let holder = self.object.as_ref().map(record).map(|record| record.holder).unwrap_or_default();
        let LeaseName { namespace, name, class } = &self.name;
        let record = LeaseRecord { is_held, holder: holder.clone(), trouble: trouble.clone() };
        let is_news = self.board.borrow_mut().set_lease(&self.name, record);
        if let (Some(trouble), true) = (trouble, is_news) {
            tracing::warn!(%namespace, lease = %name, error = %trouble, "cannot use the lease, status is not written");
        }
        let was_held = self.held.send_replace(is_held);
        if was_held != is_held {
            tracing::info!(%namespace, lease = %name, %class, holder, leads = is_held, "lead changed");
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Gives the lease back, so that another need not wait for it to run out.
    async fn release(self) {
        let was_leader = self.elector.is_leader(Instant::now());
        self.held.send_replace(false);
        self.changes.send_modify(|count| *count += 1);
        let Some(mut lease) = self.object.filter(|_| was_leader) else { return };
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
        }
        let api = self.api.with_deadline(RELEASE_DEADLINE);
        if api.update::<Lease>(&path(&self.name, true), &lease).await.is_err() {
            tracing::debug!(lease = %self.name.name, "the lease could not be given back, it runs out by itself");
        }
    }
}

async fn expired(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}

async fn request(
    api: &Api,
    name: &LeaseName,
    identity: &str,
    timing: Timing,
    object: Option<Lease>,
    ask: Ask,
) -> Answer {
    let sent = Instant::now();
    let result = match ask {
        Ask::Read => {
            return match api.get::<Lease>(&path(name, true)).await {
                Ok(lease) => Answer::Read(Some(lease)),
                Err(error) if error.class() == ErrorClass::Missing => Answer::Read(None),
                Err(error) => Answer::Failed(error),
            };
        }
        Ask::Create => api.create::<Lease>(&path(name, false), &claim(name, identity, timing, None, 0)).await,
        Ask::Update { version, transitions } => {
            let mut lease = claim(name, identity, timing, object, transitions);
            lease.metadata.resource_version = Some(version);
            api.update::<Lease>(&path(name, true), &lease).await
        }
    };
    match result {
        Ok(lease) => Answer::Written(sent, lease),
        // Gone in between is no other case than changed in between.
        Err(error) if matches!(error.class(), ErrorClass::Conflict | ErrorClass::Missing) => Answer::Conflict,
        Err(error) => Answer::Failed(error),
    }
}

/// The lease with us as its holder.
fn claim(name: &LeaseName, identity: &str, timing: Timing, before: Option<Lease>, transitions: i32) -> Lease {
    let now = MicroTime(Timestamp::now());
    let (metadata, spec) = match before {
        Some(lease) => (lease.metadata, lease.spec.unwrap_or_default()),
        None => (
            ObjectMeta {
                namespace: Some(name.namespace.to_string()),
                name: Some(name.name.to_string()),
                ..ObjectMeta::default()
            },
            LeaseSpec::default(),
        ),
    };
    let is_ours = spec.holder_identity.as_deref() == Some(identity);
    let acquired = if is_ours { spec.acquire_time } else { None };
    Lease {
        metadata: ObjectMeta { managed_fields: None, ..metadata },
        spec: Some(LeaseSpec {
            holder_identity: Some(identity.to_owned()),
            lease_duration_seconds: Some(i32::try_from(timing.duration.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: Some(acquired.unwrap_or_else(|| now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..spec
        }),
    }
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    Record {
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        holder: spec.holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(
            spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default(),
        ),
        transitions: spec.lease_transitions.unwrap_or_default(),
    }
}

/// Of the lease itself, or of the collection to create it in.
fn path(name: &LeaseName, is_object: bool) -> String {
    let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", name.namespace);
    if is_object { format!("{collection}/{}", name.name) } else { collection }
}
