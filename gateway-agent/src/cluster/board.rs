//! What the agent knows of its own view of the cluster: how each watch and each lease stands, which objects cannot be read.
//!
//! It is what `/snapshot`, `/metrics` and the scope ConfigMap tell, and it is where "say once" is decided.
//!
//! **Invariant:** pure; times are seconds since the epoch, passed in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::client::ErrorClass;
use super::decode::Malformed;
use super::lease::LeaseName;
use crate::api::{Kind, ObjectId};
use crate::snapshot::ObjectName;

/// Malformed objects that are listed one by one. Past that the cluster has another trouble than one of them, and each is
/// still counted.
const MAX_MALFORMED: usize = 256;

/// One watch: a kind in a namespace, or in all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchKey {
    /// As in `kind:` of an object.
    pub kind: &'static str,
    pub namespace: Option<Arc<str>>,
}

/// How a watch stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WatchState {
    /// Not known yet whether the kind can be had.
    #[default]
    Starting,
    /// Everything was listed, and changes are followed.
    Watching,
    /// It was denied or broke, and is tried again; what was known stays.
    Failing(String),
    /// The kind is not served: its definition is not installed, or at other versions only.
    Missing(String),
    /// The agent has not the rights.
    Forbidden(String),
}

/// Why a watch was opened anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Restart {
    /// The server closed it, as it does every few minutes.
    Closed,
    /// Nothing came for too long, not even a bookmark.
    Idle,
    /// The connection broke, or the server ended it with an error.
    Broken,
    /// The server had forgotten the version: everything was listed again.
    Expired,
}

#[derive(Clone, Debug, Default)]
pub struct WatchRecord {
    pub state: WatchState,
    /// Of the last line from the server, be it a bookmark; 0 before the first.
    pub heard_at: u64,
    /// What was listed or changed since, deletions not subtracted.
    pub events: u64,
    pub restarts: BTreeMap<Restart, u64>,
    pub errors: BTreeMap<ErrorClass, u64>,
}

/// How a lease stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    pub is_held: bool,
    /// Who holds it as far as is known; empty for nobody.
    pub holder: String,
    /// Why nothing is known, or why it cannot be had.
    pub trouble: Option<String>,
}

#[derive(Debug, Default)]
pub struct Board {
    watches: BTreeMap<WatchKey, WatchRecord>,
    leases: BTreeMap<LeaseName, LeaseRecord>,
    malformed: BTreeMap<ObjectId, Malformed>,
    /// Malformed objects in all, also those that are not listed and those that were mended.
    malformed_total: u64,
    /// Classes of our names that belong to another controller.
    foreign_classes: BTreeSet<Arc<str>>,
    /// Whether GatewayClasses can be read; `None` before it is known.
    reads_classes: Option<bool>,
    stored: StoredRecord,
}

/// How the state folder stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredRecord {
    /// Objects in the file that was written last.
    pub objects: u64,
    pub bytes: u64,
    pub written_at: u64,
    pub failures: u64,
    pub trouble: Option<String>,
}

impl Board {
    pub(super) fn expect_watch(&mut self, key: WatchKey) {
        self.watches.entry(key).or_default();
    }

    /// True when it stood otherwise before, so that it is worth a line in the log.
    pub(super) fn set_watch(&mut self, key: &WatchKey, state: WatchState) -> bool {
        let record = self.watches.entry(key.clone()).or_default();
        // The text of an error may differ with every try.
        let is_same = std::mem::discriminant(&record.state) == std::mem::discriminant(&state);
        record.state = state;
        !is_same
    }

    pub(super) fn heard(&mut self, key: &WatchKey, now: u64, events: u64) {
        let record = self.watches.entry(key.clone()).or_default();
        record.heard_at = now;
        record.events += events;
    }

    pub(super) fn restarted(&mut self, key: &WatchKey, why: Restart) {
        *self.watches.entry(key.clone()).or_default().restarts.entry(why).or_default() += 1;
    }

    pub(super) fn failed(&mut self, key: &WatchKey, class: ErrorClass) {
        *self.watches.entry(key.clone()).or_default().errors.entry(class).or_default() += 1;
    }

    /// True when this is news.
    pub(super) fn set_malformed(&mut self, id: &ObjectId, malformed: Malformed) -> bool {
        if self.malformed.get(id) == Some(&malformed) {
            return false;
        }
        self.malformed_total += 1;
        if self.malformed.len() < MAX_MALFORMED || self.malformed.contains_key(id) {
            self.malformed.insert(id.clone(), malformed);
        }
        true
    }

    /// The object is well, or gone. True when it was listed as malformed.
    pub(super) fn clear_malformed(&mut self, id: &ObjectId) -> bool {
        self.malformed.remove(id).is_some()
    }

    /// After a list: what is not in it is gone.
    pub(super) fn retain_malformed(
        &mut self,
        kind: Kind,
        namespace: Option<&str>,
        names: &BTreeSet<ObjectName>,
    ) {
        self.malformed.retain(|id, _| {
            let is_of_list =
                id.kind == kind && namespace.is_none_or(|namespace| *id.name.namespace == *namespace);
            !is_of_list || names.contains(&id.name)
        });
    }

    /// True when it stood otherwise before.
    pub(super) fn set_lease(&mut self, name: &LeaseName, record: LeaseRecord) -> bool {
        let before = self.leases.insert(name.clone(), record.clone());
        before.is_none_or(|before| {
            before.is_held != record.is_held || before.trouble.is_some() != record.trouble.is_some()
        })
    }

    pub(super) fn set_foreign_classes(&mut self, classes: BTreeSet<Arc<str>>) {
        self.foreign_classes = classes;
    }

    /// True when this is news.
    pub(super) fn set_reads_classes(&mut self, can: bool) -> bool {
        self.reads_classes.replace(can) != Some(can)
    }

    pub(super) const fn stored_mut(&mut self) -> &mut StoredRecord {
        &mut self.stored
    }
}

/// What others tell of it.
impl Board {
    pub const fn watches(&self) -> &BTreeMap<WatchKey, WatchRecord> {
        &self.watches
    }

    pub const fn leases(&self) -> &BTreeMap<LeaseName, LeaseRecord> {
        &self.leases
    }

    pub const fn stored(&self) -> &StoredRecord {
        &self.stored
    }

    /// Objects whose last version cannot be read; an earlier one may still be in use.
    pub fn malformed(&self) -> impl Iterator<Item = (&ObjectId, &str, &str)> {
        self.malformed.iter().map(|(id, why)| (id, why.field.as_str(), why.message.as_str()))
    }

    pub const fn malformed_total(&self) -> u64 {
        self.malformed_total
    }

    pub const fn foreign_classes(&self) -> &BTreeSet<Arc<str>> {
        &self.foreign_classes
    }

    pub const fn reads_classes(&self) -> Option<bool> {
        self.reads_classes
    }

    /// What cannot be seen: kinds that are missing or forbidden, one line each.
    pub fn unavailable(&self) -> Vec<String> {
        let line = |(key, record): (&WatchKey, &WatchRecord)| {
            let (WatchState::Missing(why) | WatchState::Forbidden(why)) = &record.state else { return None };
            Some(format!("{key}: {why}"))
        };
        self.watches.iter().filter_map(line).collect()
    }

    /// As JSON, for `/snapshot`.
    pub fn view(&self) -> Value {
        let watches: Vec<Value> = self
            .watches
            .iter()
            .map(|(key, record)| {
                json!({
                    "kind": key.kind,
                    "namespace": key.namespace.as_deref(),
                    "state": record.state.as_str(),
                    "detail": record.state.detail(),
                    "heardAt": record.heard_at,
                })
            })
            .collect();
        let leases: Vec<Value> = self
            .leases
            .iter()
            .map(|(name, record)| {
                json!({
                    "namespace": &*name.namespace,
                    "name": &*name.name,
                    "class": &*name.class,
                    "held": record.is_held,
                    "holder": record.holder,
                    "trouble": record.trouble,
                })
            })
            .collect();
        let malformed: Vec<Value> = self
            .malformed()
            .map(|(id, field, message)| {
                let kind = id.kind.as_str();
                json!({"object": format!("{kind} {}", id.name), "field": field, "message": message})
            })
            .collect();
        json!({
            "watches": watches,
            "leases": leases,
            "malformed": malformed,
            "foreignClasses": self.foreign_classes.iter().map(|name| &**name).collect::<Vec<_>>(),
            "readsGatewayClasses": self.reads_classes,
        })
    }
}

impl WatchState {
    pub const ALL: [&str; 5] = ["starting", "watching", "failing", "missing", "forbidden"];

    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Watching => "watching",
            Self::Failing(_) => "failing",
            Self::Missing(_) => "missing",
            Self::Forbidden(_) => "forbidden",
        }
    }

    pub fn detail(&self) -> &str {
        match self {
            Self::Starting | Self::Watching => "",
            Self::Failing(why) | Self::Missing(why) | Self::Forbidden(why) => why,
        }
    }
}

impl Restart {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Idle => "idle",
            Self::Broken => "broken",
            Self::Expired => "expired",
        }
    }
}

impl std::fmt::Display for WatchKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} in {namespace}", self.kind),
            None => f.write_str(self.kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Board, MAX_MALFORMED, Malformed, WatchKey, WatchState};
    use crate::api::{Kind, ObjectId};
    use crate::snapshot::ObjectName;

    fn name(name: &str) -> ObjectName {
        ObjectName::new("ns", name)
    }

    fn route(of: &str) -> ObjectId {
        ObjectId { kind: Kind::HttpRoute, name: name(of) }
    }

    fn malformed(message: &str) -> Malformed {
        Malformed { field: "spec".into(), message: message.into() }
    }

    // O54: what cannot be read is said once, and stays visible.
    #[test]
    fn a_state_is_news_once() {
        let mut board = Board::default();
        let key = WatchKey { kind: "TLSRoute", namespace: Some("ns".into()) };
        assert!(board.set_watch(&key, WatchState::Forbidden("cannot list".into())));
        assert!(!board.set_watch(&key, WatchState::Forbidden("cannot watch".into())));
        assert_eq!(board.unavailable(), ["TLSRoute in ns: cannot watch"]);
        assert!(board.set_watch(&key, WatchState::Watching));
        assert!(board.unavailable().is_empty());
    }

    #[test]
    fn malformed_objects_are_listed_up_to_a_bound_and_all_counted() {
        let mut board = Board::default();
        for n in 0..MAX_MALFORMED + 10 {
            assert!(board.set_malformed(&route(&format!("r{n}")), malformed("bad")));
        }
        assert_eq!(board.malformed().count(), MAX_MALFORMED);
        assert_eq!(board.malformed_total(), MAX_MALFORMED as u64 + 10);
        assert!(!board.set_malformed(&route("r0"), malformed("bad")), "said before");
        assert!(board.clear_malformed(&route("r0")) && !board.clear_malformed(&route("r0")));
    }

    #[test]
    fn a_list_ends_the_trouble_of_what_is_gone() {
        let mut board = Board::default();
        board.set_malformed(&route("gone"), malformed("bad"));
        board.set_malformed(&route("here"), malformed("bad"));
        board.set_malformed(&ObjectId { kind: Kind::Gateway, name: name("gone") }, malformed("bad"));
        board.retain_malformed(Kind::HttpRoute, Some("ns"), &BTreeSet::from([name("here")]));
        assert_eq!(board.malformed().count(), 2);
        board.retain_malformed(Kind::Gateway, Some("other"), &BTreeSet::new());
        assert_eq!(board.malformed().count(), 2);
    }
}
