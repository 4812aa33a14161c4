//! Which watches run: those that discovery and access reviews allow, asked again for the rest.
//!
//! A kind that is missing or forbidden is reported once and asked for again at a slow pace (O53, O54); the others work
//! meanwhile. **Not here:** the watches themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::Change;
use super::access::{self, Availability, Served};
use super::backoff::Backoff;
use super::board::{WatchKey, WatchState};
use super::client::{Api, ApiError};
use super::feed::Feed;
use super::intake::{Classes, Intake, Objects};
use super::kinds::{CLASSES, resource};
use super::watch::{Ended, Watch, seed};
use crate::api::Kind;

/// What was asked for in vain is asked for again after 5 to 10 seconds at first, then more rarely.
const FIRST_PROBE: Duration = Duration::from_secs(10);
const LAST_PROBE: Duration = Duration::from_secs(60);

/// Never sooner, whatever happens: a right that comes and goes must not become a storm.
const LEAST_PROBE: Duration = Duration::from_secs(5);

/// Namespaces ask for the same discovery.
const DISCOVERY_AGE: Duration = Duration::from_secs(4);

/// A server that starts may not serve all definitions yet; objects of a kind are given up only after so many looks.
const MISSING_PROBES: u32 = 3;

/// A watch that lived so long was worth it: the next trouble is a new one.
const LONG_LIFE: Duration = Duration::from_secs(60);

/// Rights to what is useful but not needed change rarely.
const RARE_PROBE: Duration = Duration::from_secs(300);

/// How often a namespace's labels are read while a listener selects by labels, and while none does.
const LABELS_PACE: Duration = Duration::from_secs(10);

/// What all supervisors share.
#[derive(Clone)]
pub(super) struct Shared {
    pub api: Api,
    pub feed: Feed,
    pub discovery: Rc<Discovery>,
}

/// The last answer of discovery.
#[derive(Default)]
pub(super) struct Discovery(Mutex<Option<(Instant, Served)>>);

impl Discovery {
    async fn served(&self, api: &Api) -> Result<Served, ApiError> {
        let mut last = self.0.lock().await;
        if let Some((at, served)) = &*last
            && at.elapsed() < DISCOVERY_AGE
        {
            return Ok(served.clone());
        }
        let served = access::discover(api).await?;
        *last = Some((Instant::now(), served.clone()));
        Ok(served)
    }
}

/// The key of a kind's watch in a namespace, or in all.
pub(super) fn key(kind: Kind, namespace: Option<&Arc<str>>) -> WatchKey {
    WatchKey { kind: resource(kind).kind, namespace: namespace.cloned() }
}

pub(super) const fn classes_key() -> WatchKey {
    WatchKey { kind: CLASSES.kind, namespace: None }
}

/// Keeps the watches of `kinds` in one namespace, or in all, running.
pub(super) struct Supervisor {
    shared: Shared,
    namespace: Option<Arc<str>>,
    kinds: &'static [Kind],
    running: JoinSet<(Kind, Instant, Ended)>,
    active: BTreeSet<Kind>,
    /// Looks in a row that did not find the kind.
    missing: BTreeMap<Kind, u32>,
    patience: Backoff,
}

impl Supervisor {
    pub(super) fn new(shared: Shared, namespace: Option<Arc<str>>, kinds: &'static [Kind]) -> Self {
        let seed = seed(&WatchKey { kind: "", namespace: namespace.clone() });
        for kind in kinds {
            shared.feed.board().expect_watch(key(*kind, namespace.as_ref()));
        }
        Self {
            shared,
            namespace,
            kinds,
            running: JoinSet::new(),
            active: BTreeSet::new(),
            missing: BTreeMap::new(),
            patience: Backoff::between(FIRST_PROBE, LAST_PROBE, seed),
        }
    }

    /// Runs until dropped, or until nobody listens. Must run inside a `LocalSet`.
    pub(super) async fn run(mut self) {
        loop {
            let probed = Instant::now();
            if !self.start_missing().await {
                return;
            }
            let probe = (self.active.len() < self.kinds.len()).then(|| probed + self.patience.failed(None));
            if !self.wait(probe, probed).await {
                return;
            }
        }
    }

    /// Waits until something should be asked for again. False: nobody listens.
    async fn wait(&mut self, probe: Option<Instant>, probed: Instant) -> bool {
        tokio::select! {
            Some(ended) = self.running.join_next(), if !self.running.is_empty() => {
                // A task that panicked is started anew like one that ended.
                let Ok((kind, since, ended)) = ended else {
                    self.active.clear();
                    self.running.shutdown().await;
                    sleep_until(probed + LEAST_PROBE).await;
                    return true;
                };
                self.active.remove(&kind);
                if since.elapsed() > LONG_LIFE {
                    self.patience.succeeded();
                }
                let (state, why) = match ended {
                    Ended::Closed => return false,
                    Ended::Denied(why) => (WatchState::Forbidden(why.clone()), why),
                    Ended::Missing(why) => (WatchState::Missing(why.clone()), why),
                };
                self.report(kind, state);
                let change = Change::Unavailable { kind, namespace: self.namespace.clone(), why };
                if self.shared.feed.send(vec![change]).await.is_err() {
                    return false;
                }
                sleep_until(probed + LEAST_PROBE).await;
            }
            () = until(probe) => {}
        }
        true
    }

    /// Starts every watch that does not run and may. False: nobody listens.
    async fn start_missing(&mut self) -> bool {
        let wanted: Vec<Kind> =
            self.kinds.iter().copied().filter(|kind| !self.active.contains(kind)).collect();
        let found = self.probe(&wanted).await;
        for (kind, availability) in wanted.into_iter().zip(found) {
            match availability {
                Availability::Here(version) => {
                    self.missing.remove(&kind);
                    self.start(kind, version);
                }
                Availability::Missing(why) => {
                    let looks = self.missing.entry(kind).or_default();
                    *looks += 1;
                    let is_gone = *looks == MISSING_PROBES;
                    self.report(kind, WatchState::Missing(why.clone()));
                    let change = if is_gone {
                        self.shared.feed.empty_list(kind, self.namespace.clone())
                    } else {
                        Change::Unavailable { kind, namespace: self.namespace.clone(), why }
                    };
                    if self.shared.feed.send(vec![change]).await.is_err() {
                        return false;
                    }
                }
                Availability::Forbidden(why) => {
                    self.missing.remove(&kind);
                    self.report(kind, WatchState::Forbidden(why.clone()));
                    let change = Change::Unavailable { kind, namespace: self.namespace.clone(), why };
                    if self.shared.feed.send(vec![change]).await.is_err() {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Asks until there is an answer.
    async fn probe(&self, wanted: &[Kind]) -> Vec<Availability> {
        let resources: Vec<_> = wanted.iter().map(|kind| resource(*kind)).collect();
        let mut backoff = Backoff::new(seed(&WatchKey { kind: "probe", namespace: self.namespace.clone() }));
        loop {
            let answer = async {
                let served = self.shared.discovery.served(&self.shared.api).await?;
                access::review(&self.shared.api, &served, self.namespace.as_deref(), &resources).await
            };
            match answer.await {
                Ok(found) => return found,
                Err(error) => {
                    self.note_failure(wanted, &error);
                    let wait = backoff.failed(error.retry_after());
                    self.shared.api.wait(wait).await;
                }
            }
        }
    }

    /// What was found missing or forbidden is known better than that nothing could be asked.
    fn note_failure(&self, wanted: &[Kind], error: &ApiError) {
        let mut board = self.shared.feed.board();
        for kind in wanted {
            let key = key(*kind, self.namespace.as_ref());
            let state = board.watches().get(&key).map(|record| &record.state);
            if matches!(state, Some(WatchState::Starting | WatchState::Failing(_))) {
                board.set_watch(&key, WatchState::Failing(error.to_string()));
            }
        }
    }

    fn start(&mut self, kind: Kind, version: &'static str) {
        let Shared { api, feed, .. } = &self.shared;
        let resource = resource(kind);
        let objects = Objects::new(kind, version, self.namespace.clone(), feed.clone());
        let watch = Watch::new(
            api.clone(),
            resource.path(version, self.namespace.as_deref()),
            resource.field_selector,
            key(kind, self.namespace.as_ref()),
            Intake::Objects(objects),
            feed.clone(),
        );
        self.active.insert(kind);
        let since = Instant::now();
        self.running.spawn_local(async move { (kind, since, watch.run().await) });
    }

    fn report(&self, kind: Kind, state: WatchState) {
        let key = key(kind, self.namespace.as_ref());
        if self.shared.feed.board().set_watch(&key, state.clone()) {
            tracing::warn!(watch = %key, reason = state.detail(), "cannot watch, the rest works");
        }
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Reads the labels of one namespace, if a Role there allows it. Runs until nobody listens.
pub(super) async fn follow_labels(shared: Shared, namespace: Arc<str>, mut selectors: watch::Receiver<bool>) {
    let key = key(Kind::Namespace, Some(&namespace));
    shared.feed.board().expect_watch(key.clone());
    let mut backoff = Backoff::new(seed(&key));
    let resource = resource(Kind::Namespace);
    let path = format!("{}/{namespace}", resource.path("v1", None));
    let mut intake =
        Intake::Objects(Objects::new(Kind::Namespace, "v1", Some(namespace.clone()), shared.feed.clone()));
    let mut is_allowed = false;
    loop {
        let read = async {
            let may = is_allowed
                || access::may(&shared.api, Some(&namespace), "get", &resource, Some(&namespace)).await?;
            if may { shared.api.get::<serde_json::Value>(&path).await.map(Some) } else { Ok(None) }
        };
        let (changes, state, wait) = match read.await {
            Ok(Some(value)) => {
                backoff.succeeded();
                is_allowed = true;
                intake.begin();
                intake.applied(value);
                intake.listed();
                (intake.take(), WatchState::Watching, None)
            }
            Ok(None) => {
                let why = "no right to get the namespace: selectors see its name only".to_owned();
                let change = Change::Unavailable {
                    kind: Kind::Namespace,
                    namespace: Some(namespace.clone()),
                    why: why.clone(),
                };
                (vec![change], WatchState::Forbidden(why), None)
            }
            Err(error) => {
                is_allowed = false;
                let wait = backoff.failed(error.retry_after());
                (Vec::new(), WatchState::Failing(error.to_string()), Some(wait))
            }
        };
        if shared.feed.board().set_watch(&key, state.clone()) && matches!(state, WatchState::Forbidden(_)) {
            tracing::info!(watch = %key, reason = state.detail(), "cannot read labels");
        }
        if !changes.is_empty() && shared.feed.send(changes).await.is_err() {
            return;
        }
        let pace = match (wait, *selectors.borrow_and_update()) {
            (Some(wait), _) => wait,
            (None, true) => LABELS_PACE,
            (None, false) => RARE_PROBE,
        };
        tokio::select! {
            () = sleep(pace) => {}
            changed = selectors.changed(), if wait.is_none() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

/// Watches GatewayClasses where that is allowed, to leave alone what is another controller's.
pub(super) async fn follow_classes(shared: Shared, names: BTreeSet<Arc<str>>, controller: Arc<str>) {
    let key = classes_key();
    shared.feed.board().expect_watch(key.clone());
    let mut backoff = Backoff::new(seed(&key));
    loop {
        let answer = async {
            let served = shared.discovery.served(&shared.api).await?;
            access::classes(&shared.api, &served).await
        };
        match answer.await {
            Ok(Some(version)) => {
                backoff.succeeded();
                shared.feed.board().set_reads_classes(true);
                let classes = Classes::new(names.clone(), controller.clone(), shared.feed.clone());
                let watch = Watch::new(
                    shared.api.clone(),
                    CLASSES.path(version, None),
                    None,
                    key.clone(),
                    Intake::Classes(classes),
                    shared.feed.clone(),
                );
                let (Ended::Denied(why) | Ended::Missing(why)) = watch.run().await else { return };
                shared.feed.board().set_watch(&key, WatchState::Forbidden(why));
                if shared.feed.send(vec![Change::ClassesUnavailable]).await.is_err() {
                    return;
                }
                sleep(LEAST_PROBE).await;
            }
            Ok(None) => {
                if shared.feed.board().set_reads_classes(false) {
                    tracing::info!(
                        "GatewayClasses cannot be read: the class names given are taken to be the agent's"
                    );
                }
                let why = "no right to list and watch gatewayclasses".to_owned();
                shared.feed.board().set_watch(&key, WatchState::Forbidden(why));
                if shared.feed.send(vec![Change::ClassesUnavailable]).await.is_err() {
                    return;
                }
                sleep(RARE_PROBE).await;
            }
            Err(error) => {
                let wait = backoff.failed(error.retry_after());
                shared.api.wait(wait).await;
            }
        }
    }
}
