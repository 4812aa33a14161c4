//! From what the API server holds and what the agent has to say, to the status that is to be written.
//!
//! `status.parents` and `status.ancestors` are atomic lists that several controllers share, and condition lists are shared
//! too. So nothing is applied blindly: [`plan`] takes the object as it was read and gives the whole new status, in which
//! everything of others is as it was. The write then carries the resourceVersion that was read.
//!
//! **Invariant:** pure. Does not decide whether the agent may write at all, beyond [`Standing`]: leadership and retries
//! are the caller's.

mod class;
mod conditions;
mod digest;
mod entries;
mod object;
mod parents;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use class::plan_class;
pub(super) use digest::Part;
pub use digest::{Digest, is_settled};
pub use parents::{Leading, Parents, Standing};

use super::{Address, Condition, ObjectStatus, Parent, Scope, ScopeStatus};

/// Who writes, of what it knows, and when.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// What our entries carry as controllerName.
    pub controller_name: &'a str,
    /// RFC 3339, in whole seconds: the transition time of conditions that change.
    pub now: &'a str,
    pub standing: &'a dyn Fn(&Parent) -> Standing,
}

/// What to do about one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub outcome: Outcome,
    /// Entries and conditions that found no room: the lists are bounded, and what others wrote is never pushed out.
    pub unplaced: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The object says already what is wanted of us.
    Same,
    /// The whole new value of `status`.
    Write(Value),
    /// The object's spec is newer than what the status speaks of: newer statuses are on their way.
    Outdated,
    /// What was read is older than what the status speaks of: read again.
    StaleRead,
}

/// The status that `current`, an object as the API server gave it, should have.
pub fn plan(current: &Value, desired: &ObjectStatus, context: &Context<'_>) -> Plan {
    let generation = generation(current);
    if generation != desired.observed_generation {
        let outcome =
            if generation > desired.observed_generation { Outcome::Outdated } else { Outcome::StaleRead };
        return Plan { outcome, unplaced: 0 };
    }
    let old = current.get("status").cloned().unwrap_or(Value::Null);
    let mut new = if old.is_object() { old.clone() } else { Value::Object(serde_json::Map::new()) };
    let unplaced = match Wanted::of(desired) {
        Wanted::Object(wanted) => {
            if !is_ours(desired, context.standing) {
                return Plan { outcome: Outcome::Same, unplaced: 0 };
            }
            object::merge(&mut new, &wanted, generation, context.now)
        }
        Wanted::Entries(wanted) => entries::merge(&mut new, current, &wanted, desired, context),
    };
    let outcome = if is_same(&old, &new) { Outcome::Same } else { Outcome::Write(new) };
    Plan { outcome, unplaced }
}

/// Whether anything is wanted of us that is ours to write.
pub fn wants(desired: &ObjectStatus, standing: &dyn Fn(&Parent) -> Standing) -> bool {
    match Wanted::of(desired) {
        Wanted::Object(_) => is_ours(desired, standing),
        Wanted::Entries(wanted) => {
            wanted.entries.iter().any(|entry| standing(&entry.parent) == Standing::Ours)
        }
    }
}

/// Of a Gateway or ListenerSet itself.
fn is_ours(desired: &ObjectStatus, standing: &dyn Fn(&Parent) -> Standing) -> bool {
    parents::of_object(desired).is_some_and(|object| standing(&object) == Standing::Ours)
}

/// A status without anything is as good as none.
fn is_same(old: &Value, new: &Value) -> bool {
    old == new || (old.is_null() && new.as_object().is_some_and(serde_json::Map::is_empty))
}

/// `metadata.generation`; 0 where there is none.
pub fn generation(object: &Value) -> i64 {
    object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0)
}

/// What a status is made of, by the shape of its kind.
#[derive(Debug)]
enum Wanted<'a> {
    Object(WantedObject<'a>),
    Entries(WantedEntries<'a>),
}

/// Gateway and ListenerSet: the object's own conditions and its listeners.
#[derive(Debug)]
struct WantedObject<'a> {
    conditions: &'a [Condition],
    addresses: &'a [Address],
    /// `None` where the kind has no such field.
    attached_listener_sets: Option<usize>,
    listeners: Vec<(&'a str, &'a ScopeStatus)>,
}

/// Routes and policies: one entry per parent in a list that other controllers write to as well.
#[derive(Debug)]
struct WantedEntries<'a> {
    list: List,
    entries: Vec<WantedEntry<'a>>,
}

#[derive(Debug)]
struct WantedEntry<'a> {
    parent: Parent,
    /// The position in `spec.parentRefs` that is echoed; an ancestor has none.
    index: Option<usize>,
    conditions: &'a [Condition],
}

/// One of the two atomic lists.
#[derive(Debug)]
struct List {
    /// Below `status`.
    field: &'static str,
    reference: &'static str,
    /// `maxItems` of the CRDs.
    max: usize,
}

const PARENTS: List = List { field: "parents", reference: "parentRef", max: 32 };
const ANCESTORS: List = List { field: "ancestors", reference: "ancestorRef", max: 16 };

impl<'a> Wanted<'a> {
    fn of(status: &'a ObjectStatus) -> Self {
        match status.kind {
            "Gateway" | "ListenerSet" => Self::Object(WantedObject::of(status)),
            "BackendTLSPolicy" => Self::Entries(WantedEntries::of(ANCESTORS, status)),
            _ => Self::Entries(WantedEntries::of(PARENTS, status)),
        }
    }
}

impl<'a> WantedObject<'a> {
    fn of(status: &'a ObjectStatus) -> Self {
        let mut wanted = Self {
            conditions: &[],
            addresses: status.addresses(),
            attached_listener_sets: status.attached_listener_sets(),
            listeners: Vec::new(),
        };
        for scope in status.scopes.iter() {
            match &scope.scope {
                Scope::Object => wanted.conditions = &scope.conditions,
                Scope::Listener(name) => wanted.listeners.push((name, scope)),
                Scope::Parent { .. } | Scope::Ancestor { .. } => {}
            }
        }
        wanted
    }
}

impl<'a> WantedEntries<'a> {
    fn of(list: List, status: &'a ObjectStatus) -> Self {
        let entry = |scope: &'a ScopeStatus| {
            let index = match scope.scope {
                Scope::Parent { index, .. } => Some(index),
                Scope::Object | Scope::Listener(_) | Scope::Ancestor { .. } => None,
            };
            let parent = parents::of_scope(&scope.scope)?;
            Some(WantedEntry { parent, index, conditions: &scope.conditions })
        };
        Self { list, entries: status.scopes.iter().filter_map(entry).collect() }
    }
}
