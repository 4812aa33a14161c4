//! From JSON to changes: pruned, typed one by one, recorded.
//!
//! **Invariant:** a bad object costs itself only: its last good version stays, it is told, its neighbours go through (O50).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Notify;

use super::Change;
use super::acknowledge::{Pending, SeenClass};
use super::decode::{Raw, prune};
use super::feed::Feed;
use crate::api::Kind;
use crate::snapshot::ObjectName;

/// What one watch makes of its objects.
pub(super) enum Intake {
    Objects(Objects),
    Classes(Classes),
    Acknowledged(Acknowledged),
}

pub(super) struct Objects {
    kind: Kind,
    /// The API version that it is read at.
    version: &'static str,
    namespace: Option<Arc<str>>,
    feed: Feed,
    /// Of the list under way.
    names: Option<BTreeSet<ObjectName>>,
    changes: Vec<Change>,
}

/// GatewayClasses: only whether one of our names is another controller's.
pub(super) struct Classes {
    /// Ours by flag.
    names: BTreeSet<Arc<str>>,
    controller: Arc<str>,
    feed: Feed,
    /// Controllers of those classes of our names that exist.
    controllers: BTreeMap<Arc<str>, String>,
    is_listing: bool,
    told: Option<BTreeSet<Arc<str>>>,
}

/// GatewayClasses of our controller, for the acknowledger.
pub(super) struct Acknowledged {
    controller: Arc<str>,
    /// The API version that they are read at.
    version: &'static str,
    pending: Pending,
    wake: Rc<Notify>,
}

impl Intake {
    /// A list begins.
    pub(super) fn begin(&mut self) {
        match self {
            Self::Objects(objects) => objects.names = Some(BTreeSet::new()),
            Self::Classes(classes) => {
                classes.controllers.clear();
                classes.is_listing = true;
            }
            Self::Acknowledged(_) => {}
        }
    }

    pub(super) fn applied(&mut self, value: Value) {
        match self {
            Self::Objects(objects) => objects.applied(value),
            Self::Classes(classes) => classes.applied(&value),
            Self::Acknowledged(classes) => classes.applied(value),
        }
    }

    pub(super) fn deleted(&mut self, value: Value) {
        match self {
            Self::Objects(objects) => objects.deleted(value),
            Self::Classes(classes) => {
                classes.controllers.remove(text(&value, "/metadata/name"));
            }
            Self::Acknowledged(classes) => {
                classes.pending.borrow_mut().remove(text(&value, "/metadata/name"));
            }
        }
    }

    /// The list is complete.
    pub(super) fn listed(&mut self) {
        match self {
            Self::Objects(objects) => objects.listed(),
            Self::Classes(classes) => classes.is_listing = false,
            Self::Acknowledged(_) => {}
        }
    }

    /// The changes since the last time.
    pub(super) fn take(&mut self) -> Vec<Change> {
        match self {
            Self::Objects(objects) => std::mem::take(&mut objects.changes),
            Self::Classes(classes) => classes.take(),
            Self::Acknowledged(_) => Vec::new(),
        }
    }
}

impl Objects {
    pub(super) const fn new(
        kind: Kind,
        version: &'static str,
        namespace: Option<Arc<str>>,
        feed: Feed,
    ) -> Self {
        Self { kind, version, namespace, feed, names: None, changes: Vec::new() }
    }

    fn applied(&mut self, value: Value) {
        let Some(raw) = self.prune(value) else { return };
        if let Some(names) = &mut self.names {
            names.insert(raw.id.name.clone());
        }
        self.feed.observe(&raw, self.version);
        let id = raw.id.clone();
        let stored = self.feed.is_recording().then(|| raw.to_stored());
        match raw.into_object() {
            Ok(object) => {
                if let Some(stored) = stored {
                    self.feed.record(&id, stored);
                }
                if self.feed.board().clear_malformed(&id) {
                    tracing::info!(kind = id.kind.as_str(), name = %id.name, "the object can be read again");
                }
                self.changes.push(Change::Applied(id, object));
            }
            Err(malformed) => {
                if self.feed.board().set_malformed(&id, malformed.clone()) {
                    let (kind, field) = (id.kind.as_str(), &malformed.field);
                    let error = &malformed.message;
                    tracing::warn!(kind, name = %id.name, field, error, "cannot read the object, its last good version stays");
                }
                self.feed.observe_malformed(&id, &malformed.field, &malformed.message);
                let super::decode::Malformed { field, message } = malformed;
                self.changes.push(Change::Malformed { id, field, message });
            }
        }
    }

    fn deleted(&mut self, value: Value) {
        let Some(raw) = self.prune(value) else { return };
        self.feed.forget(&raw.id);
        self.feed.board().clear_malformed(&raw.id);
        self.changes.push(Change::Deleted(raw.id));
    }

    fn prune(&self, value: Value) -> Option<Raw> {
        let Some(mut raw) = prune(self.kind, self.version, value) else {
            tracing::warn!(kind = self.kind.as_str(), "the API server sent an object without a name");
            return None;
        };
        raw.id.name = self.feed.shared(&raw.id.name);
        Some(raw)
    }

    fn listed(&mut self) {
        let names = self.names.take().unwrap_or_default();
        self.feed.record_list(self.kind, self.namespace.as_ref(), &names);
        self.feed.board().retain_malformed(self.kind, self.namespace.as_deref(), &names);
        self.changes.push(Change::Listed { kind: self.kind, namespace: self.namespace.clone(), names });
    }
}

impl Classes {
    pub(super) const fn new(names: BTreeSet<Arc<str>>, controller: Arc<str>, feed: Feed) -> Self {
        Self { names, controller, feed, controllers: BTreeMap::new(), is_listing: false, told: None }
    }

    fn applied(&mut self, value: &Value) {
        if let Some(name) = self.names.get(text(value, "/metadata/name")) {
            self.controllers.insert(name.clone(), text(value, "/spec/controllerName").to_owned());
        }
    }

    fn take(&mut self) -> Vec<Change> {
        if self.is_listing {
            return Vec::new();
        }
        let foreign: BTreeSet<Arc<str>> = self
            .controllers
            .iter()
            .filter(|(_, controller)| **controller != *self.controller)
            .map(|(name, _)| name.clone())
            .collect();
        if self.told.as_ref() == Some(&foreign) {
            return Vec::new();
        }
        for class in &foreign {
            let controller = self.controllers.get(class).map(String::as_str).unwrap_or_default();
            tracing::warn!(%class, controller, "the class belongs to another controller, its Gateways are left alone");
        }
        self.told = Some(foreign.clone());
        self.feed.board().set_foreign_classes(foreign.clone());
        vec![Change::ForeignClasses(foreign)]
    }
}

impl Acknowledged {
    pub(super) const fn new(
        controller: Arc<str>,
        version: &'static str,
        pending: Pending,
        wake: Rc<Notify>,
    ) -> Self {
        Self { controller, version, pending, wake }
    }

    fn applied(&self, value: Value) {
        if text(&value, "/spec/controllerName") == &*self.controller {
            let name = text(&value, "/metadata/name").to_owned();
            self.pending.borrow_mut().insert(name, SeenClass { version: self.version, object: value });
            self.wake.notify_one();
        }
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::sync::mpsc;

    use super::{Classes, Intake, Objects};
    use crate::api::Kind;
    use crate::cluster::board::Board;
    use crate::cluster::feed::Feed;
    use crate::cluster::{Change, WatchKey};

    fn feed() -> (Feed, Rc<RefCell<Board>>) {
        let board = Rc::new(RefCell::new(Board::default()));
        // Intake only collects: what is sent, `watch` sends.
        let (changes, _) = mpsc::channel(1);
        (Feed::new(changes, board.clone(), None, Duration::from_secs(1)), board)
    }

    fn service(name: &str, port: Value) -> Value {
        json!({"metadata": {"namespace": "ns", "name": name}, "spec": {"ports": [{"port": port}]}})
    }

    fn told(changes: &[Change]) -> Vec<String> {
        let line = |change: &Change| match change {
            Change::Applied(id, _) => format!("applied {}", id.name.name),
            Change::Deleted(id) => format!("deleted {}", id.name.name),
            Change::Malformed { id, field, .. } => format!("malformed {} {field}", id.name.name),
            Change::Listed { names, .. } => format!("listed {}", names.len()),
            Change::ForeignClasses(names) => format!("foreign {}", names.len()),
            other => format!("{other:?}"),
        };
        changes.iter().map(line).collect()
    }

    // O50: one malformed object never hides its neighbours, nor takes its own last good version away.
    #[test]
    fn a_malformed_object_costs_itself_only() {
        let (feed, board) = feed();
        let mut intake = Intake::Objects(Objects::new(Kind::Service, "v1", Some("ns".into()), feed));
        intake.begin();
        for item in [service("a", json!(80)), service("b", json!("http")), json!(7), service("c", json!(80))]
        {
            intake.applied(item);
        }
        intake.listed();
        assert_eq!(
            told(&intake.take()),
            ["applied a", "malformed b spec.ports[0].port", "applied c", "listed 3"],
            "what is malformed is not gone"
        );
        assert_eq!(board.borrow().malformed().count(), 1);
        intake.applied(service("b", json!(80)));
        intake.deleted(service("c", json!(80)));
        assert_eq!(told(&intake.take()), ["applied b", "deleted c"]);
        assert_eq!(board.borrow().malformed().count(), 0);
    }

    #[test]
    fn classes_of_others_are_told_when_they_change() {
        let (feed, _board) = feed();
        let ours = ["edge".into(), "inner".into()].into();
        let mut intake = Intake::Classes(Classes::new(ours, "example.com/agent".into(), feed));
        let class = |name: &str, controller: &str| json!({"metadata": {"name": name}, "spec": {"controllerName": controller}});
        intake.begin();
        intake.applied(class("edge", "example.com/agent"));
        intake.applied(class("stranger", "example.com/other"));
        assert!(intake.take().is_empty(), "half a list says nothing");
        intake.listed();
        let changes = intake.take();
        assert_eq!(told(&changes), ["foreign 0"]);
        assert_eq!(changes[0].passes(), Some(WatchKey { kind: "GatewayClass", namespace: None }));
        intake.applied(class("inner", "example.com/other"));
        assert_eq!(told(&intake.take()), ["foreign 1"]);
        intake.applied(class("inner", "example.com/other"));
        assert!(intake.take().is_empty());
        intake.deleted(class("inner", "example.com/other"));
        assert_eq!(told(&intake.take()), ["foreign 0"]);
    }
}
