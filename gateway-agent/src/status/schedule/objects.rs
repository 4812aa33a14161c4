//! The states of all objects.
//!
//! **Invariant:** pure.

use std::collections::{BTreeMap, HashMap};

use super::Target;
use super::entry::Entry;
use crate::snapshot::ObjectName;

/// The kinds are few: a key need not hold its own.
#[derive(Debug, Default)]
pub(super) struct Objects {
    by_kind: BTreeMap<&'static str, HashMap<ObjectName, Entry>>,
}

impl Objects {
    pub(super) fn get(&self, target: &Target) -> Option<&Entry> {
        self.by_kind.get(target.kind)?.get(&target.name)
    }

    pub(super) fn get_mut(&mut self, target: &Target) -> Option<&mut Entry> {
        self.by_kind.get_mut(target.kind)?.get_mut(&target.name)
    }

    /// A new one where there is none.
    pub(super) fn entry(&mut self, target: &Target) -> &mut Entry {
        self.by_kind.entry(target.kind).or_default().entry(target.name.clone()).or_default()
    }

    pub(super) fn remove(&mut self, target: &Target) {
        if let Some(entries) = self.by_kind.get_mut(target.kind) {
            entries.remove(&target.name);
        }
    }

    /// Those of one kind for which `is_wanted`, in no order.
    pub(super) fn of_kind(&self, kind: &str, is_wanted: impl Fn(&ObjectName) -> bool) -> Vec<Target> {
        let Some((kind, entries)) = self.by_kind.get_key_value(kind) else { return Vec::new() };
        let names = entries.keys().filter(|name| is_wanted(name));
        names.map(|name| Target { kind, name: name.clone() }).collect()
    }

    /// All that there are, in no order.
    pub(super) fn targets(&self) -> Vec<Target> {
        let entries =
            self.by_kind.iter().flat_map(|(kind, entries)| entries.keys().map(|name| (*kind, name)));
        entries.map(|(kind, name)| Target { kind, name: name.clone() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settled_object_costs_little() {
        // There is one for each of thousands of routes: a name, a version, a digest, and two words for what is rare.
        assert!(size_of::<(ObjectName, Entry)>() <= 72, "{}", size_of::<(ObjectName, Entry)>());
    }
}
