//! The Kubernetes API: what the agent reads of it, and the right to write to it.
//!
//! ```text
//!  access ─> supervise ─> watch ─> intake ─> feed ─┬─> changes ─> control loop
//!  (probe)                (list,    (prune,        ├─> board   ─> /snapshot, /metrics, scope ConfigMap
//!                          follow)   type)         └─> stored  ─> --state-dir
//!  lease ─> Leadership ─> writers
//! ```
//!
//! Everything here runs on the control thread. In namespaced mode no request goes to cluster scope but discovery and
//! access reviews, which every authenticated user may make; all else is probed first. Nothing that fails here stops what
//! is served.
//!
//! **Not here:** what objects mean (`translate`), and what is written about them (`status`, `provision`).

mod access;
mod acknowledge;
mod backoff;
mod board;
mod client;
mod decode;
mod events;
mod feed;
mod intake;
mod kinds;
mod lease;
mod provision;
mod scope;
mod status;
mod stored;
mod supervise;
mod sync;
mod watch;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch as latest};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

pub use self::acknowledge::acknowledge;
pub use self::board::{Board, LeaseRecord, Restart, StoredRecord, WatchKey, WatchRecord, WatchState};
pub use self::client::{Api, ApiError, ConnectError, Credentials, ErrorClass, InCluster, Patch};
pub use self::client::{READ_DEADLINE, WRITE_DEADLINE};
pub use self::lease::{Leadership, LeaseName, MIN_DURATION};
pub use self::provision::{Counts, Problems};
pub use self::scope::{ReplicaReport, ScopeFacts, ScopeWriter};
pub use self::stored::StoredError;
pub use self::sync::SyncGate;

use self::feed::{Feed, QUEUE};
use self::provision::Provisioner;
use self::supervise::{Discovery, Shared, Supervisor, classes_key, follow_classes, follow_labels, key};
use crate::api::{Kind, Object, ObjectId};
use crate::metrics::{EventNumbers, StatusNumbers};
use crate::provision::Wanted;
use crate::snapshot::{ObjectName, Revision};
use crate::status::StatusList;
use crate::status::write::Parents;

/// Which namespaces are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    Namespaces(BTreeSet<Arc<str>>),
}

/// Something that the API told.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The object as it is now.
    Applied(ObjectId, Object),
    Deleted(ObjectId),
    /// Every object of the kind in the namespace, or in all, has been told since the last of these: what is not among
    /// `names` is gone.
    Listed {
        kind: Kind,
        namespace: Option<Arc<str>>,
        names: BTreeSet<ObjectName>,
    },
    /// The kind cannot be had there, for the time being. What is known of it stays.
    Unavailable {
        kind: Kind,
        namespace: Option<Arc<str>>,
        why: String,
    },
    /// The object's present version cannot be read; the last one that could stays.
    Malformed {
        id: ObjectId,
        field: String,
        message: String,
    },
    /// The classes among ours that belong to another controller, all of them.
    ForeignClasses(BTreeSet<Arc<str>>),
    /// GatewayClasses cannot be read; the names given are taken to be ours.
    ClassesUnavailable,
}

/// What the writers are to bring about.
#[derive(Clone, Debug, Default)]
pub struct Desired {
    /// Of every object that has a status of ours, joined with what the data paths acknowledged.
    pub statuses: StatusList,
    /// Whose the parents are that these speak of.
    pub parents: Arc<Parents>,
    /// What is to be written for Gateways beside their status: the difference to what the store has seen.
    pub provisions: Arc<Vec<Wanted>>,
    /// The snapshot that it speaks of; 0 before the first, when nothing may be written.
    pub revision: Revision,
}

/// What [`start`] needs to know.
#[derive(Clone, Debug)]
pub struct Setup {
    pub scope: Scope,
    pub class_names: Vec<Arc<str>>,
    pub controller_name: Arc<str>,
    /// Where the agent itself runs.
    pub own_namespace: Arc<str>,
    /// Whether its replicas' addresses are of use, which EndpointSlices there tell.
    pub needs_replicas: bool,
    /// Of this process and no other.
    pub identity: String,
    pub lease_duration: Duration,
    /// How long a watch may be silent before its connection is given up.
    pub watch_idle: Duration,
    pub state_dir: Option<PathBuf>,
}

/// Changes that came together.
#[derive(Debug)]
pub struct Batch {
    /// When they came out of the connection to the API server.
    pub arrived: Instant,
    pub changes: Vec<Change>,
}

/// The running tasks.
pub struct Cluster {
    tasks: JoinSet<()>,
    leases: lease::Leases,
    recording: Option<stored::Recording>,
}

/// The ends that others hold.
pub struct Handles {
    /// Batches, in the order in which the API told them of each kind and namespace.
    pub changes: mpsc::Receiver<Batch>,
    pub board: Rc<RefCell<Board>>,
    pub leadership: Leadership,
    /// Closed until everything was seen once.
    pub gate: SyncGate,
    /// What `--state-dir` held from the last time.
    pub restored: Vec<Object>,
    /// Whether any listener selects namespaces by label, so that the labels are worth following.
    pub selectors: latest::Sender<bool>,
    /// What the writers are to bring about.
    pub desired: latest::Sender<Arc<Desired>>,
    /// What keeps Services and EndpointSlices from being as they should be.
    pub problems: latest::Receiver<Arc<Problems>>,
    /// What the writers count.
    pub numbers: WriterNumbers,
}

/// Numbers of the writers, which they keep.
#[derive(Clone, Debug, Default)]
pub struct WriterNumbers {
    pub status: Rc<RefCell<StatusNumbers>>,
    pub events: Rc<RefCell<EventNumbers>>,
    pub provision: Rc<RefCell<Counts>>,
}

/// Starts to watch and to compete for the leases. Must run inside a `LocalSet`.
pub fn start(api: &Api, setup: &Setup) -> Result<(Cluster, Handles), StoredError> {
    let board = Rc::new(RefCell::new(Board::default()));
    let mut restored = Vec::new();
    let (recorder, recording) = match &setup.state_dir {
        None => (None, None),
        Some(dir) => {
            let (mut stored, trouble) = stored::open(dir, &setup.scope)?;
            if let Some(trouble) = trouble {
                tracing::warn!(error = %stored::chain(&trouble), "not all that --state-dir holds is used");
            }
            restored = std::mem::take(&mut stored.objects);
            let (recorder, recording) = stored::record(stored, board.clone());
            (Some(recorder), Some(recording))
        }
    };
    let (sender, changes) = mpsc::channel(QUEUE);
    let (selectors, selected) = latest::channel(false);
    let mut tasks = JoinSet::new();
    let lease_setup = lease::Setup {
        scope: &setup.scope,
        own_namespace: &setup.own_namespace,
        classes: &setup.class_names,
        identity: &setup.identity,
        duration: setup.lease_duration,
    };
    let (leases, leadership) = lease::start(api, &board, &lease_setup);
    let Writers { desired, problems, numbers, observer } = start_writers(api, setup, &leadership, &mut tasks);
    let feed = Feed::new(sender, board.clone(), recorder, setup.watch_idle).observed_by(observer);
    let shared = Shared { api: api.clone(), feed, discovery: Rc::new(Discovery::default()) };
    let expected = start_watches(setup, &shared, &selected, &mut tasks);
    let names = setup.class_names.iter().cloned().collect();
    tasks.spawn_local(follow_classes(shared, names, setup.controller_name.clone()));
    tasks.spawn_local(follow_health(api.clone()));
    let gate = SyncGate::new(expected);
    Ok((
        Cluster { tasks, leases, recording },
        Handles { changes, board, leadership, gate, restored, selectors, desired, problems, numbers },
    ))
}

/// Starts to watch what the scope holds; what has to be seen before anything may be written.
fn start_watches(
    setup: &Setup,
    shared: &Shared,
    selected: &latest::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) -> Vec<WatchKey> {
    let mut expected = vec![classes_key()];
    match &setup.scope {
        Scope::All => {
            expected.extend(kinds::WATCHED_IN_ALL.iter().map(|kind| key(*kind, None)));
            tasks.spawn_local(Supervisor::new(shared.clone(), None, &kinds::WATCHED_IN_ALL).run());
        }
        Scope::Namespaces(namespaces) => {
            for namespace in namespaces {
                expected.extend(kinds::WATCHED.iter().map(|kind| key(*kind, Some(namespace))));
                expected.push(key(Kind::Namespace, Some(namespace)));
                let supervisor = Supervisor::new(shared.clone(), Some(namespace.clone()), &kinds::WATCHED);
                tasks.spawn_local(supervisor.run());
                tasks.spawn_local(follow_labels(shared.clone(), namespace.clone(), selected.clone()));
            }
            let own = &setup.own_namespace;
            if setup.needs_replicas && !namespaces.contains(own) {
                expected.push(key(Kind::EndpointSlice, Some(own)));
                let supervisor = Supervisor::new(shared.clone(), Some(own.clone()), &[Kind::EndpointSlice]);
                tasks.spawn_local(supervisor.run());
            }
        }
    }
    expected
}

/// The ends of the writers.
struct Writers {
    desired: latest::Sender<Arc<Desired>>,
    problems: latest::Receiver<Arc<Problems>>,
    numbers: WriterNumbers,
    observer: status::Observer,
}

/// Starts the writers of status, of Events and of what Gateways need.
fn start_writers(api: &Api, setup: &Setup, leadership: &Leadership, tasks: &mut JoinSet<()>) -> Writers {
    let (sender, desired) = latest::channel(Arc::default());
    let numbers = WriterNumbers::default();
    let (provisioner, problems) =
        Provisioner::new(api.clone(), leadership.clone(), desired.clone(), numbers.provision.clone());
    tasks.spawn_local(provisioner.run());
    let (events, event_sender) =
        events::channel(api, &setup.controller_name, &setup.identity, numbers.events.clone());
    let (observer, writer) = status::new(status::Setup {
        api: api.clone(),
        leadership: leadership.clone(),
        desired,
        events,
        controller_name: setup.controller_name.clone(),
        numbers: numbers.status.clone(),
        seed: watch::seed(&WatchKey { kind: "status", namespace: Some(setup.identity.as_str().into()) }),
    });
    tasks.spawn_local(writer.run());
    tasks.spawn_local(event_sender.run());
    Writers { desired: sender, problems, numbers, observer }
}

impl Cluster {
    /// Stops to write at once, gives the leases back, and ends the watches. Bounded.
    pub async fn stop(mut self) {
        self.leases.release().await;
        self.tasks.shutdown().await;
        if let Some(recording) = self.recording {
            recording.finish().await;
        }
    }
}

impl Scope {
    /// Whether objects of the namespace are read; of a namespace itself, by its own name.
    fn holds(&self, id: &ObjectId) -> bool {
        let Self::Namespaces(namespaces) = self else { return true };
        let namespace = if id.kind == Kind::Namespace { &id.name.name } else { &id.name.namespace };
        namespaces.contains(namespace)
    }
}

impl Change {
    /// The watch that it ends the waiting for.
    pub fn passes(&self) -> Option<WatchKey> {
        match self {
            Self::Listed { kind, namespace, .. } | Self::Unavailable { kind, namespace, .. } => {
                Some(key(*kind, namespace.as_ref()))
            }
            Self::ForeignClasses(_) | Self::ClassesUnavailable => Some(classes_key()),
            Self::Applied(..) | Self::Deleted(_) | Self::Malformed { .. } => None,
        }
    }
}

/// Says once when the API server is away, and once when it is back.
async fn follow_health(api: Api) {
    /// A single lost connection is no outage, nor is a slow answer.
    const PATIENCE: Duration = Duration::from_secs(5);
    let mut health = api.health();
    let mut is_away = false;
    loop {
        sleep(if is_away { Duration::ZERO } else { PATIENCE }).await;
        let is_reachable = health.borrow_and_update().is_reachable;
        if is_reachable && is_away {
            tracing::info!("the API server answers again");
            is_away = false;
        } else if !is_reachable && !is_away {
            tracing::warn!("the API server does not answer, what is known keeps serving");
            is_away = true;
        }
        if health.changed().await.is_err() {
            return;
        }
    }
}
