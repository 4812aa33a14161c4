//! What an object says of ours, in a few bytes: enough to know that there is nothing to write without keeping the status
//! or reading it again.
//!
//! **Invariant:** pure. Where [`is_settled`] says yes, [`super::plan`] says `Same`; a digest that is not understood costs
//! one needless read and never a status that is not written.

use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

use serde_json::Value;

use super::entries::{ancestor, declared, present};
use super::parents::{Standing, of_reference};
use super::{Wanted, WantedEntry, conditions, object};
use crate::interner::Interner;
use crate::snapshot::ObjectName;
use crate::status::{ObjectStatus, Parent};

/// Of an object as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    pub generation: i64,
    parts: Arc<[Part]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::status) enum Part {
    /// A Gateway or ListenerSet: the whole of it.
    Object(u64),
    /// An entry that carries our controllerName.
    Entry {
        parent: Parent,
        echoes: Echo,
        /// Of its conditions.
        content: u64,
    },
}

/// How an entry names its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::status) enum Echo {
    /// Exactly as that element of `spec.parentRefs`.
    Declared(usize),
    /// By the full name, as ancestors are.
    Ancestor,
    /// Neither.
    Otherwise,
}

impl Digest {
    /// Of `object`, which is of `kind` and called `name`.
    pub fn new(kind: &str, name: &ObjectName, object: &Value, controller_name: &str) -> Self {
        let status = object.get("status").unwrap_or(&Value::Null);
        let parts = match kind {
            "Gateway" | "ListenerSet" => {
                let mut hasher = DefaultHasher::new();
                object::hash_present(status, &mut hasher);
                [Part::Object(hasher.finish())].into()
            }
            _ => {
                let list = if kind == "BackendTLSPolicy" { super::ANCESTORS } else { super::PARENTS };
                let is_ours = |entry: &&Value| {
                    entry.get("controllerName").and_then(Value::as_str) == Some(controller_name)
                };
                let entries = present(status, list.field).iter().filter(is_ours);
                let part = |entry: &Value| {
                    let reference = entry.get(list.reference).unwrap_or(&Value::Null);
                    let parent = of_reference(reference, &name.namespace)?;
                    let mut hasher = DefaultHasher::new();
                    conditions::hash_present(entry, &mut hasher);
                    let echoes = Echo::of(reference, declared(object), &parent);
                    Some(Part::Entry { parent, echoes, content: hasher.finish() })
                };
                entries.filter_map(part).collect()
            }
        };
        Self { generation: super::generation(object), parts }
    }
}

impl Digest {
    /// Routes of which the API server holds the same share it.
    pub(in crate::status) fn intern(&mut self, interner: &mut Interner<[Part]>) {
        self.parts = interner.intern(std::mem::take(&mut self.parts));
    }

    /// Whether an entry of ours speaks of `parent`.
    pub fn has_entry_of(&self, parent: &Parent) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Entry { parent: of, .. } if of == parent))
    }
}

impl Echo {
    fn of(reference: &Value, declared: &[Value], parent: &Parent) -> Self {
        match declared.iter().position(|declared| declared == reference) {
            Some(index) => Self::Declared(index),
            None if *reference == ancestor(&parent.name) => Self::Ancestor,
            None => Self::Otherwise,
        }
    }
}

/// Whether the object that `digest` was taken of says all that is wanted of us, and nothing of ours that is not.
pub fn is_settled(digest: &Digest, desired: &ObjectStatus, standing: &dyn Fn(&Parent) -> Standing) -> bool {
    if digest.generation != desired.observed_generation {
        return false;
    }
    match Wanted::of(desired) {
        Wanted::Object(wanted) => {
            if !super::is_ours(desired, standing) {
                return true;
            }
            let mut hasher = DefaultHasher::new();
            object::hash_wanted(&wanted, digest.generation, &mut hasher);
            *digest.parts == [Part::Object(hasher.finish())]
        }
        Wanted::Entries(wanted) => {
            let mut rest: Vec<&Part> = digest.parts.iter().collect();
            let mut ours = wanted.entries.iter().filter(|entry| standing(&entry.parent) == Standing::Ours);
            ours.all(|entry| take(&mut rest, entry, digest.generation))
                && rest.iter().all(|part| match part {
                    Part::Object(_) => false,
                    Part::Entry { parent, .. } => standing(parent) == Standing::Foreign,
                })
        }
    }
}

/// Takes the part that is `entry` out of `parts`; false if there is none.
fn take(parts: &mut Vec<&Part>, entry: &WantedEntry<'_>, generation: i64) -> bool {
    let mut hasher = DefaultHasher::new();
    conditions::hash_wanted(entry.conditions, generation, &mut hasher);
    let echoes = entry.index.map_or(Echo::Ancestor, Echo::Declared);
    let wanted = Part::Entry { parent: entry.parent.clone(), echoes, content: hasher.finish() };
    let found = parts.iter().position(|part| **part == wanted);
    if let Some(found) = found {
        parts.swap_remove(found);
    }
    found.is_some()
}
