//! The cluster mode: from the command line to running watches, and what they tell in numbers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::Instant;

use super::worker;
use crate::api::Object;
use crate::args::{ClusterArgs, ServeArgs};
use crate::cluster::{
    self, Api, Batch, Board, Cluster, Credentials, Desired, Leadership, Problems, ReplicaReport, ScopeFacts,
    ScopeWriter, Setup, SyncGate, WatchState, WriterNumbers,
};
use crate::control::Control;
use crate::metrics::{ClusterNumbers, PUBLISH_DELAYS_S};
use crate::provision::AddressProvider;
use crate::translate::Watched;

/// Changes that are translated together: more than that wait their turn, so that a signal is heard in between.
const MAX_BATCH: usize = 4096;

/// Watches that the scope ConfigMap names one by one.
const MAX_UNWATCHED: usize = 16;

/// What the cluster mode adds to a running agent.
pub(super) struct Running {
    cluster: Cluster,
    api: Api,
    board: Rc<RefCell<Board>>,
    leadership: Leadership,
    changes: mpsc::Receiver<Batch>,
    selectors: watch::Sender<bool>,
    desired: watch::Sender<Arc<Desired>>,
    problems: watch::Receiver<Arc<Problems>>,
    has_state_dir: bool,
    numbers: WriterNumbers,
    publish_delays: Histogram,
    /// Where, for which classes, and as which replica the scope is told.
    setup: Setup,
    replica: String,
    scope: Option<(Rc<ScopeWriter>, JoinHandle<()>)>,
    /// Until it was handed to the control loop.
    before: Option<(Watched, SyncGate, Vec<Object>)>,
}

/// What the API and its writers tell.
pub(super) enum Told {
    Changes(Batch),
    Problems(Arc<Problems>),
}

/// Starts the watches, the competition for the leases and the writers.
pub(super) async fn start(
    args: &ServeArgs,
    credentials: &Credentials,
    provider: &AddressProvider,
) -> anyhow::Result<Running> {
    let api = Api::new(credentials).await.context("cannot use the Kubernetes API")?;
    let setup = setup(args, &api, provider);
    tracing::info!(scope = %scope(&setup.scope), identity = %setup.identity, "watching the Kubernetes API");
    let (cluster, handles) = cluster::start(&api, &setup).context("--state-dir")?;
    Ok(Running {
        cluster,
        api,
        board: handles.board,
        leadership: handles.leadership,
        changes: handles.changes,
        selectors: handles.selectors,
        desired: handles.desired,
        problems: handles.problems,
        has_state_dir: setup.state_dir.is_some(),
        numbers: handles.numbers,
        publish_delays: Histogram::new(PUBLISH_DELAYS_S),
        before: Some((watched(&setup.scope), handles.gate, handles.restored)),
        scope: None,
        replica: replica(args),
        setup,
    })
}

fn setup(args: &ServeArgs, api: &Api, provider: &AddressProvider) -> Setup {
    let ClusterArgs { pod_namespace, state_dir, lease_duration, watch_idle_timeout, .. } = &args.cluster;
    let own_namespace = pod_namespace.as_deref().map_or_else(|| api.namespace().clone(), Arc::from);
    let host = replica(args);
    Setup {
        scope: args.cluster.scope(&own_namespace),
        class_names: args.gateway_class_names.iter().map(|name| Arc::from(&**name)).collect(),
        controller_name: Arc::from(&*args.controller_name),
        own_namespace,
        // A process outside of the cluster has no replicas there.
        needs_replicas: !matches!(provider, AddressProvider::Pool(_)) && pod_namespace.is_some(),
        // A restarted container has the pod's name too, and must not take its predecessor's lease for its own.
        identity: format!("{host}_{:016x}", worker::seed()),
        lease_duration: Duration::from_secs(*lease_duration),
        watch_idle: Duration::from_secs(*watch_idle_timeout),
        state_dir: state_dir.clone(),
    }
}

/// The pod's name, or what comes nearest.
fn replica(args: &ServeArgs) -> String {
    args.cluster.pod_name.clone().or_else(host_name).unwrap_or_else(|| "gateway-agent".to_owned())
}

fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

fn scope(scope: &cluster::Scope) -> String {
    match scope {
        cluster::Scope::All => "all namespaces".to_owned(),
        cluster::Scope::Namespaces(namespaces) => {
            namespaces.iter().map(|name| &**name).collect::<Vec<_>>().join(",")
        }
    }
}

fn watched(scope: &cluster::Scope) -> Watched {
    match scope {
        cluster::Scope::All => Watched::All,
        cluster::Scope::Namespaces(namespaces) => Watched::Namespaces(namespaces.clone()),
    }
}

impl Running {
    /// Hands `control` what an earlier run left, to serve until everything was seen.
    pub(super) fn restore(&mut self, control: &mut Control) {
        let Some((watched, gate, restored)) = self.before.take() else { return };
        if !restored.is_empty() {
            let objects = restored.len();
            tracing::info!(objects, "serving what --state-dir holds until the API has told everything");
        }
        control.await_sync(watched, gate, &restored);
    }

    /// All changes that wait, so that they are translated together, or what keeps writes from being made; `None` when
    /// nothing comes any more. Cancellation-safe.
    pub(super) async fn next(&mut self) -> Option<Told> {
        let mut batch = tokio::select! {
            batch = self.changes.recv() => batch?,
            Ok(()) = self.problems.changed() => {
                return Some(Told::Problems(self.problems.borrow_and_update().clone()));
            }
        };
        while batch.changes.len() < MAX_BATCH
            && let Ok(more) = self.changes.try_recv()
        {
            batch.changes.extend(more.changes);
        }
        Some(Told::Changes(batch))
    }

    /// A snapshot that holds what arrived at `arrived` was published.
    pub(super) fn published(&self, arrived: Instant) {
        self.publish_delays.observe(arrived.elapsed().as_secs_f64());
    }

    /// Tells the watches and the writers what `control` reported last.
    pub(super) fn publish(&self, control: &Control) {
        let is_used = control.uses_selectors();
        self.selectors.send_if_modified(|used| std::mem::replace(used, is_used) != is_used);
        let desired = control.desired();
        self.desired.send_if_modified(|last| {
            let is_new = last.revision != desired.revision
                || !last.statuses.is_same(&desired.statuses)
                || !Arc::ptr_eq(&last.parents, &desired.parents)
                || !Arc::ptr_eq(&last.provisions, &desired.provisions);
            if is_new {
                *last = Arc::new(desired);
            }
            is_new
        });
    }

    /// What the admin server tells of it.
    pub(super) fn view(&self) -> ClusterView {
        ClusterView {
            api: self.api.clone(),
            board: self.board.clone(),
            has_state_dir: self.has_state_dir,
            numbers: self.numbers.clone(),
            publish_delays: self.publish_delays.clone(),
        }
    }

    /// Begins to tell in the scope ConfigMaps what `report` says of this replica.
    pub(super) fn tell_scope(&mut self, facts: ScopeFacts, report: Rc<dyn Fn() -> ReplicaReport>) {
        let writer = Rc::new(ScopeWriter {
            api: self.api.clone(),
            leadership: self.leadership.clone(),
            namespace: self.setup.own_namespace.clone(),
            classes: self.setup.class_names.clone(),
            replica: self.replica.clone(),
            facts,
            report,
        });
        let task = spawn_local({
            let writer = writer.clone();
            async move { writer.run().await }
        });
        self.scope = Some((writer, task));
    }

    pub(super) const fn watched_scope(&self) -> &cluster::Scope {
        &self.setup.scope
    }

    /// Stops writing at once and gives the leases back.
    pub(super) async fn stop(self) {
        let Self { cluster, scope, .. } = self;
        if let Some((writer, task)) = scope {
            task.abort();
            tokio::join!(writer.leave(), cluster.stop());
        } else {
            cluster.stop().await;
        }
    }
}

#[derive(Debug)]
pub(super) struct ClusterView {
    api: Api,
    board: Rc<RefCell<Board>>,
    has_state_dir: bool,
    numbers: WriterNumbers,
    publish_delays: Histogram,
}

impl ClusterView {
    pub(super) fn json(&self, control: &Control) -> serde_json::Value {
        let mut view = self.board.borrow().view();
        if let Some(fields) = view.as_object_mut() {
            fields.insert("reachable".into(), self.api.health().borrow().is_reachable.into());
            let unseen: Vec<String> = control.unseen().map(ToString::to_string).collect();
            fields.insert("waitingFor".into(), unseen.into());
        }
        view
    }

    /// Watches that do not follow their kind, and why.
    pub(super) fn unwatched(&self) -> Vec<String> {
        let board = self.board.borrow();
        let mut unwatched: Vec<String> = Vec::new();
        for (key, record) in board.watches() {
            match &record.state {
                WatchState::Starting | WatchState::Watching => {}
                WatchState::Failing(why) | WatchState::Missing(why) | WatchState::Forbidden(why) => {
                    unwatched.push(format!("{key}: {why}"));
                }
            }
        }
        let more = unwatched.len().saturating_sub(MAX_UNWATCHED);
        unwatched.truncate(MAX_UNWATCHED);
        if more > 0 {
            unwatched.push(format!("and {more} more"));
        }
        unwatched
    }

    pub(super) fn numbers(&self, control: &Control) -> ClusterNumbers {
        let board = self.board.borrow();
        let stored = board.stored();
        let mut numbers = ClusterNumbers {
            is_synced: control.is_synced(),
            is_reachable: self.api.health().borrow().is_reachable,
            malformed: board.malformed().count() as u64,
            malformed_total: board.malformed_total(),
            leases: board
                .leases()
                .iter()
                .map(|(name, lease)| (name.namespace.to_string(), name.class.to_string(), lease.is_held))
                .collect(),
            stored: self.has_state_dir.then_some([
                stored.objects,
                stored.bytes,
                stored.written_at,
                stored.failures,
            ]),
            status: self.numbers.status.borrow().clone(),
            events_written: *self.numbers.events.borrow(),
            provisioned: self.numbers.provision.borrow().clone(),
            publish_delays: Some(self.publish_delays.clone()),
            ..ClusterNumbers::default()
        };
        let mut states: BTreeMap<_, u64> = BTreeMap::new();
        let mut restarts: BTreeMap<_, u64> = BTreeMap::new();
        let mut errors: BTreeMap<_, u64> = BTreeMap::new();
        let mut events: BTreeMap<_, u64> = BTreeMap::new();
        let mut heard: BTreeMap<_, u64> = BTreeMap::new();
        for (key, record) in board.watches() {
            for state in WatchState::ALL {
                *states.entry((key.kind, state)).or_default() += u64::from(record.state.as_str() == state);
            }
            for (why, count) in &record.restarts {
                *restarts.entry((key.kind, why.as_str())).or_default() += count;
            }
            for (class, count) in &record.errors {
                *errors.entry((key.kind, class.as_str())).or_default() += count;
            }
            *events.entry(key.kind).or_default() += record.events;
            if record.heard_at > 0 {
                let oldest = heard.entry(key.kind).or_insert(record.heard_at);
                *oldest = record.heard_at.min(*oldest);
            }
        }
        let flat = |map: BTreeMap<(&'static str, &'static str), u64>| {
            map.into_iter().map(|((kind, label), count)| (kind, label, count)).collect()
        };
        numbers.watches = flat(states);
        numbers.restarts = flat(restarts);
        numbers.errors = flat(errors);
        numbers.events = events.into_iter().collect();
        numbers.heard = heard.into_iter().collect();
        numbers
    }
}
