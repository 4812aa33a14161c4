//! The writer of status: brings every object of ours to the status that the control loop wants for it.
//!
//! The decisions are made in [`crate::status::schedule`] (what is next) and [`crate::status::write`] (what to write); here
//! are the requests. An object that says already what is wanted is neither read nor written. What is written carries the
//! resourceVersion that was read, so that nothing of others is ever overwritten unseen; a conflict reads again.
//!
//! Everything runs on the control thread, beside the control loop and never awaited by it: serving does not wait for
//! status. **Not here:** who leads ([`super::lease`]), and what is to be said (`translate`, `status`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::Desired;
use super::client::{Api, ApiError, ErrorClass};
use super::decode::Raw;
use super::events::Events;
use super::kinds::{GATEWAY_GROUP, resource};
use super::lease::Leadership;
use crate::api::{Kind, ObjectId};
use crate::metrics::StatusNumbers;
use crate::snapshot::ObjectName;
use crate::status::Parent;
use crate::status::schedule::{Done, Job, Schedule, Seen, Target};
use crate::status::write::{Context, Digest, Outcome, plan};

/// Kinds that have a status which the agent writes.
const KINDS: [Kind; 8] = [
    Kind::BackendTlsPolicy,
    Kind::Gateway,
    Kind::GrpcRoute,
    Kind::HttpRoute,
    Kind::ListenerSet,
    Kind::TcpRoute,
    Kind::TlsRoute,
    Kind::UdpRoute,
];

/// What the watches and the writer share.
struct Shared {
    api: Api,
    leadership: Leadership,
    desired: watch::Receiver<Arc<Desired>>,
    events: Events,
    controller_name: Arc<str>,
    schedule: RefCell<Schedule>,
    /// The version at which each kind is watched, which is also the one to write it at.
    versions: RefCell<BTreeMap<&'static str, &'static str>>,
    /// Kinds and namespaces whose status may not be written, so that it is said once.
    forbidden: RefCell<BTreeSet<(&'static str, Arc<str>)>>,
    wake: Notify,
    started: Instant,
}

/// Tells the writer what the watches deliver.
#[derive(Clone)]
pub(super) struct Observer(Rc<Shared>);

pub(super) struct Writer {
    shared: Rc<Shared>,
    leadership: Leadership,
    desired: watch::Receiver<Arc<Desired>>,
    numbers: Rc<RefCell<StatusNumbers>>,
}

/// What the writer needs.
pub(super) struct Setup {
    pub api: Api,
    pub leadership: Leadership,
    pub desired: watch::Receiver<Arc<Desired>>,
    pub events: Events,
    pub controller_name: Arc<str>,
    pub numbers: Rc<RefCell<StatusNumbers>>,
    /// So that replicas do not try again in step.
    pub seed: u64,
}

pub(super) fn new(setup: Setup) -> (Observer, Writer) {
    let Setup { api, leadership, desired, events, controller_name, numbers, seed } = setup;
    let shared = Rc::new(Shared {
        api,
        leadership: leadership.clone(),
        desired: desired.clone(),
        events,
        controller_name,
        schedule: RefCell::new(Schedule::new(seed)),
        versions: RefCell::default(),
        forbidden: RefCell::default(),
        wake: Notify::new(),
        started: Instant::now(),
    });
    (Observer(shared.clone()), Writer { shared, leadership, desired, numbers })
}

impl Shared {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Observer {
    /// An object as the API server holds it.
    pub(super) fn applied(&self, raw: &Raw, version: &'static str) {
        if !KINDS.contains(&raw.id.kind) {
            return;
        }
        let target = target(&raw.id);
        self.0.versions.borrow_mut().insert(target.kind, version);
        let seen = seen(&target, &raw.value, &self.0.controller_name);
        self.0.schedule.borrow_mut().observed(self.0.now(), &target, seen, || copy(&raw.value));
        self.0.wake.notify_one();
    }

    pub(super) fn deleted(&self, id: &ObjectId) {
        self.0.schedule.borrow_mut().forget(&target(id));
    }

    /// An object whose present version cannot be read: whoever speaks for the agent there tells its users.
    pub(super) fn malformed(&self, id: &ObjectId, field: &str, message: &str) {
        let is_told = {
            let parents = self.0.desired.borrow().parents.clone();
            parents.speaks_for(&id.name.namespace, &self.0.leadership.leading())
        };
        if is_told {
            self.0.events.malformed(id, field, message);
        }
    }

    /// The list is complete: what is not among `names` is gone.
    pub(super) fn listed(&self, kind: Kind, namespace: Option<&str>, names: &BTreeSet<ObjectName>) {
        self.0.schedule.borrow_mut().retain(resource(kind).kind, namespace, |name| names.contains(name));
    }
}

fn id(target: &Target) -> ObjectId {
    let kind = KINDS.into_iter().find(|kind| resource(*kind).kind == target.kind);
    // Only objects of these kinds have a status of ours.
    ObjectId { kind: kind.unwrap_or(Kind::Gateway), name: target.name.clone() }
}

fn target(id: &ObjectId) -> Target {
    Target { kind: resource(id.kind).kind, name: id.name.clone() }
}

fn seen(target: &Target, object: &Value, controller_name: &str) -> Seen {
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
    Seen {
        resource_version: version.into(),
        digest: Digest::new(target.kind, &target.name, object, controller_name),
    }
}

/// What a write needs of an object, as JSON.
fn copy(object: &Value) -> Box<[u8]> {
    let field = |pointer| object.pointer(pointer);
    let kept = json!({
        "metadata": {
            "generation": field("/metadata/generation"),
            "resourceVersion": field("/metadata/resourceVersion"),
            "uid": field("/metadata/uid"),
        },
        "spec": {"parentRefs": field("/spec/parentRefs")},
        "status": field("/status"),
    });
    // A `Value` has string keys only and no other way to fail.
    serde_json::to_vec(&kept).unwrap_or_default().into()
}

impl Writer {
    /// Runs until dropped. Must run inside a `LocalSet`.
    pub(super) async fn run(mut self) {
        let mut tasks: JoinSet<(Job, Done)> = JoinSet::new();
        self.desired.mark_changed();
        self.take_leadership();
        loop {
            self.start_jobs(&mut tasks);
            self.tell();
            let due = self.shared.schedule.borrow().due().map(|due| self.shared.started + due);
            tokio::select! {
                Ok(()) = self.desired.changed() => self.take_desired(),
                () = self.leadership.changed() => self.take_leadership(),
                () = self.shared.wake.notified() => {}
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => match ended {
                    Ok((job, done)) => self.shared.schedule.borrow_mut().done(self.shared.now(), &job, done),
                    Err(error) => tracing::error!(%error, "a status write ended badly"),
                },
                () = until(due) => {}
            }
        }
    }

    fn take_desired(&mut self) {
        let desired = self.desired.borrow_and_update().clone();
        let mut schedule = self.shared.schedule.borrow_mut();
        schedule.desired(self.shared.now(), desired.statuses.clone(), desired.parents.clone());
        drop(schedule);
        self.shared.events.conditions(&desired.statuses, &desired.parents, &self.leadership.leading());
    }

    fn take_leadership(&self) {
        let leading = self.leadership.leading();
        self.shared.schedule.borrow_mut().leading(self.shared.now(), leading);
    }
}

/// Requests.
impl Writer {
    fn start_jobs(&self, tasks: &mut JoinSet<(Job, Done)>) {
        loop {
            let job = self.shared.schedule.borrow_mut().next(self.shared.now());
            let Some(job) = job else { return };
            let shared = self.shared.clone();
            tasks.spawn_local(async move {
                let done = shared.run(&job).await;
                (job, done)
            });
        }
    }

    /// Numbers for `/metrics`, and fights for the user.
    fn tell(&self) {
        let mut schedule = self.shared.schedule.borrow_mut();
        let mut numbers = self.numbers.borrow_mut();
        numbers.counts = schedule.counts();
        numbers.depth = schedule.depth();
        for delay in schedule.take_delays() {
            numbers.delays.observe(delay.as_secs_f64());
        }
        for target in schedule.take_fights() {
            tracing::warn!(kind = target.kind, name = %target.name,
                "another writer keeps changing our status, restoring it ever more slowly");
            self.shared.events.fight(&id(&target));
        }
    }
}

/// One job.
impl Shared {
    async fn run(&self, job: &Job) -> Done {
        match self.bring(job).await {
            Ok(done) => done,
            Err(error) => self.failed(job, &error),
        }
    }

    /// Reads unless there is a copy, decides, writes.
    async fn bring(&self, job: &Job) -> Result<Done, ApiError> {
        let path = self.path(&job.target);
        let current: Value = match job.copy.as_deref().map(serde_json::from_slice) {
            Some(Ok(current)) => current,
            None | Some(Err(_)) => self.api.get(&path).await?,
        };
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        // Between this look at the leases and the request there is no wait.
        if self.leadership.leading() != *job.leading() {
            return Ok(Done::NotLeading);
        }
        let standing = |parent: &Parent| job.standing(parent);
        let context = Context { controller_name: &self.controller_name, now: &now, standing: &standing };
        let plan = plan(&current, &job.desired, &context);
        if plan.unplaced > 0 {
            self.events.no_room(&id(&job.target), plan.unplaced);
        }
        let seen = |object: &Value| seen(&job.target, object, &self.controller_name);
        let status = match plan.outcome {
            Outcome::Write(status) => status,
            Outcome::Same => return Ok(Done::Same(seen(&current))),
            Outcome::Outdated => return Ok(Done::Outdated(seen(&current))),
            Outcome::StaleRead => return Ok(Done::StaleRead),
        };
        let written: Value =
            self.api.update(&format!("{path}/status"), &self.body(job, &current, status)).await?;
        self.forgive(job);
        Ok(Done::Written(seen(&written)))
    }

    /// The object as the status subresource reads it: everything else of it is ignored there.
    fn body(&self, job: &Job, current: &Value, status: Value) -> Value {
        let metadata = |field| current.pointer(&format!("/metadata/{field}"));
        json!({
            "apiVersion": format!("{GATEWAY_GROUP}/{}", self.version(job.target.kind)),
            "kind": job.target.kind,
            "metadata": {
                "namespace": job.target.name.namespace,
                "name": job.target.name.name,
                "resourceVersion": metadata("resourceVersion"),
                "uid": metadata("uid"),
            },
            "status": status,
        })
    }
}

impl Shared {
    fn version(&self, kind: &'static str) -> &'static str {
        self.versions.borrow().get(kind).copied().unwrap_or("v1")
    }

    fn path(&self, target: &Target) -> String {
        let Target { kind, name } = target;
        let known = KINDS.iter().map(|kind| resource(*kind)).find(|resource| resource.kind == *kind);
        let collection = known
            .map_or_else(String::new, |resource| resource.path(self.version(kind), Some(&name.namespace)));
        format!("{collection}/{}", name.name)
    }

    fn failed(&self, job: &Job, error: &ApiError) -> Done {
        let Target { kind, name } = &job.target;
        match error.class() {
            ErrorClass::Conflict => Done::Conflict,
            ErrorClass::Missing => Done::NotFound,
            ErrorClass::Denied if matches!(error, ApiError::Refused { code: 403, .. }) => {
                if self.forbidden.borrow_mut().insert((kind, name.namespace.clone())) {
                    tracing::warn!(kind, namespace = %name.namespace, %error, "may not write status, trying again at times");
                }
                Done::Forbidden
            }
            // The token is renewed by the client; 503 and 504 come from proxies before the API server as well.
            ErrorClass::Denied | ErrorClass::Throttled | ErrorClass::Unreachable | ErrorClass::Deadline => {
                tracing::debug!(kind, %name, %error, "cannot write status");
                Done::Unreachable(error.retry_after())
            }
            ErrorClass::Server if matches!(error, ApiError::Refused { code: 502..=504, .. }) => {
                Done::Unreachable(error.retry_after())
            }
            ErrorClass::Server | ErrorClass::Expired | ErrorClass::Answer => {
                tracing::warn!(kind, %name, %error, "cannot write status");
                Done::Failed
            }
        }
    }

    fn forgive(&self, job: &Job) {
        let Target { kind, name } = &job.target;
        if self.forbidden.borrow_mut().remove(&(*kind, name.namespace.clone())) {
            tracing::info!(kind, namespace = %name.namespace, "may write status again");
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
