//! Kubernetes Events for what a user has to act on: an object that cannot be read, parameters that are not valid, a port
//! that is taken, a status that others fill or fight over.
//!
//! Conditions say the same and more; Events bring it to those who look at `kubectl describe` and `kubectl get events`. So
//! nothing is retried and nothing waits for it: what does not fit is dropped and counted.

mod pace;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::pace::{Pace, Verdict};
use super::client::{Api, ApiError};
use super::kinds::{Resource, resource};
use crate::api::{Kind, ObjectId};
use crate::metrics::EventNumbers;
use crate::status::names::{kind, reason};
use crate::status::write::{Leading, Parents, Standing};
use crate::status::{ConditionStatus, ObjectStatus, Scope, StatusList};

/// Events that wait to be sent. More at once are a disaster that the first of them describe.
const QUEUE: usize = 128;

/// `note` may have 1,024 bytes, `reportingInstance` 128.
const MAX_NOTE: usize = 1024;
const MAX_INSTANCE: usize = 128;

/// After a refusal: somebody has to grant the right first.
const FORBIDDEN: Duration = Duration::from_secs(300);

/// Reasons of conditions that an Event is made of: what only the user can put right.
const REASONS: [&str; 2] = [reason::INVALID_PARAMETERS, reason::PORT_UNAVAILABLE];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Told {
    id: ObjectId,
    reason: &'static str,
    note: String,
}

/// The end that tells; it never waits.
#[derive(Clone)]
pub(super) struct Events {
    queue: mpsc::Sender<Told>,
    pace: Rc<RefCell<Pace>>,
    numbers: Rc<RefCell<EventNumbers>>,
    started: Instant,
}

/// The end that sends.
pub(super) struct Sender {
    api: Api,
    queue: mpsc::Receiver<Told>,
    numbers: Rc<RefCell<EventNumbers>>,
    controller: String,
    instance: String,
    /// Namespaces in which Events may not be written, and until when none is tried.
    forbidden: BTreeMap<Arc<str>, Instant>,
}

pub(super) fn channel(
    api: &Api,
    controller_name: &str,
    identity: &str,
    numbers: Rc<RefCell<EventNumbers>>,
) -> (Events, Sender) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let events =
        Events { queue: sender, pace: Rc::default(), numbers: numbers.clone(), started: Instant::now() };
    let sender = Sender {
        api: api.clone(),
        queue: receiver,
        numbers,
        controller: qualified(controller_name),
        instance: prefix(identity, MAX_INSTANCE).to_owned(),
        forbidden: BTreeMap::new(),
    };
    (events, sender)
}

impl Events {
    pub(super) fn malformed(&self, id: &ObjectId, field: &str, message: &str) {
        let note = if field.is_empty() { message.to_owned() } else { format!("{field}: {message}") };
        let note = format!("cannot read the object, its last good version stays in force: {note}");
        self.tell(Told { id: id.clone(), reason: "Malformed", note });
    }

    pub(super) fn fight(&self, id: &ObjectId) {
        let note = "another writer keeps changing the status that this agent writes; both carry the same controllerName, \
                    or the other one does not keep to its own entries";
        self.tell(Told { id: id.clone(), reason: "StatusFight", note: note.to_owned() });
    }

    pub(super) fn no_room(&self, id: &ObjectId, n_unplaced: usize) {
        let note = format!(
            "the status is full of entries or conditions of others: {n_unplaced} of this agent's found no room"
        );
        self.tell(Told { id: id.clone(), reason: "StatusFull", note });
    }

    /// What the conditions of Gateways and ListenerSets of ours say, where this replica writes.
    pub(super) fn conditions(&self, statuses: &StatusList, parents: &Parents, leading: &Leading) {
        for kind in [Kind::Gateway, Kind::ListenerSet] {
            for status in statuses.of_kind(kind.as_str()) {
                if parents.standing_of(status, leading) == Standing::Ours {
                    self.object(kind, status);
                }
            }
        }
    }

    fn object(&self, object: Kind, status: &ObjectStatus) {
        for scope in status.scopes.iter() {
            for condition in &scope.conditions {
                let is_told = condition.kind == kind::ACCEPTED && REASONS.contains(&condition.reason);
                if is_told && condition.status == ConditionStatus::False {
                    let id = ObjectId { kind: object, name: status.name.clone() };
                    let note = match &scope.scope {
                        Scope::Listener(name) => format!("listener {name}: {}", condition.message),
                        _ => condition.message.clone(),
                    };
                    self.tell(Told { id, reason: condition.reason, note });
                }
            }
        }
    }

    fn tell(&self, told: Told) {
        let mut hasher = DefaultHasher::new();
        told.hash(&mut hasher);
        let verdict = self.pace.borrow_mut().admit(self.started.elapsed(), hasher.finish());
        let is_dropped = match verdict {
            Verdict::Known => false,
            Verdict::Drop => true,
            Verdict::Send => self.queue.try_send(told).is_err(),
        };
        if is_dropped {
            self.numbers.borrow_mut().dropped += 1;
        }
    }
}

impl Sender {
    /// Runs until every [`Events`] is dropped.
    pub(super) async fn run(mut self) {
        while let Some(told) = self.queue.recv().await {
            let forbidden = self.forbidden.get(&told.id.name.namespace);
            if forbidden.is_some_and(|until| Instant::now() < *until) {
                self.numbers.borrow_mut().dropped += 1;
                continue;
            }
            match self.send(&told).await {
                Ok(()) => {
                    self.numbers.borrow_mut().sent += 1;
                    self.forbidden.remove(&told.id.name.namespace);
                }
                Err(error) => {
                    self.numbers.borrow_mut().dropped += 1;
                    self.failed(&told, &error);
                }
            }
        }
    }

    fn failed(&mut self, told: &Told, error: &ApiError) {
        let namespace = &told.id.name.namespace;
        if matches!(error, ApiError::Refused { code: 403, .. }) {
            let until = Instant::now() + FORBIDDEN;
            if self.forbidden.insert(namespace.clone(), until).is_none() {
                tracing::info!(%namespace, %error, "may not write Events, conditions tell the same");
            }
        } else {
            tracing::warn!(%namespace, %error, "cannot write an Event");
        }
    }

    async fn send(&self, told: &Told) -> Result<(), ApiError> {
        let resource = resource(told.id.kind);
        let version = resource.versions.first().copied().unwrap_or("v1");
        let (namespace, name) = (&told.id.name.namespace, &told.id.name.name);
        // `kubectl describe` finds Events by the object's UID.
        let object: Value =
            self.api.get(&format!("{}/{name}", resource.path(version, Some(namespace)))).await?;
        let event = event(told, &resource, version, &object, &self.controller, &self.instance);
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        self.api.create::<Value>(&path, &event).await.map(drop)
    }
}

fn event(
    told: &Told,
    resource: &Resource,
    version: &str,
    object: &Value,
    controller: &str,
    instance: &str,
) -> Value {
    let (namespace, name) = (&told.id.name.namespace, &told.id.name.name);
    // The API server makes the name, and takes no prefix that ends in a dot.
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "generateName": format!("{name}-")},
        "eventTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        "type": "Warning",
        "reason": told.reason,
        "action": "Reconcile",
        "note": prefix(&told.note, MAX_NOTE),
        "regarding": {
            "apiVersion": resource.api_version(version),
            "kind": resource.kind,
            "namespace": namespace,
            "name": name,
            "uid": object.pointer("/metadata/uid"),
            "resourceVersion": object.pointer("/metadata/resourceVersion"),
        },
        "reportingController": controller,
        "reportingInstance": instance,
    })
}

/// The API wants `domain/name` with one slash, where a controllerName may have several.
fn qualified(controller_name: &str) -> String {
    match controller_name.split_once('/') {
        Some((domain, path)) => {
            format!("{domain}/{}", path.replace(|c: char| !c.is_ascii_alphanumeric(), "-"))
        }
        None => controller_name.to_owned(),
    }
}

/// At most `max` bytes, whole characters.
fn prefix(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
