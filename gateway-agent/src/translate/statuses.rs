//! What changes of the statuses of all objects, and how it gets into the list of them.

use std::sync::Arc;

use crate::interner::Interner;
use crate::snapshot::ObjectName;
use crate::status::{ObjectStatus, ScopeStatus, StatusChanges, StatusList};

/// What the next [`Statuses::apply`] changes.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    pending: StatusChanges,
    /// What is said in the list.
    scopes: Interner<[ScopeStatus]>,
    /// Grows for ever.
    n_changed: u64,
}

impl Statuses {
    pub(super) const fn n_changed(&self) -> u64 {
        self.n_changed
    }

    /// `list`: as it is now.
    pub(super) fn set(&mut self, list: &StatusList, mut status: ObjectStatus) {
        if self.known(list, status.kind, &status.name).is_none_or(|known| **known != status) {
            status.scopes = self.scopes.intern(status.scopes);
            self.pending.insert((status.kind, status.name.clone()), Some(Arc::new(status)));
            self.n_changed += 1;
        }
    }

    pub(super) fn remove(&mut self, list: &StatusList, kind: &'static str, name: &ObjectName) {
        if self.known(list, kind, name).is_some() {
            self.pending.insert((kind, name.clone()), None);
            self.n_changed += 1;
        }
    }

    /// Brings the list up to date.
    pub(super) fn apply(&mut self, list: &mut StatusList) {
        list.apply(std::mem::take(&mut self.pending));
    }

    fn known<'a>(
        &'a self,
        list: &'a StatusList,
        kind: &'static str,
        name: &ObjectName,
    ) -> Option<&'a Arc<ObjectStatus>> {
        match self.pending.get(&(kind, name.clone())) {
            Some(pending) => pending.as_ref(),
            None => list.find(kind, name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn status(kind: &'static str, number: u8, generation: u8) -> ObjectStatus {
        ObjectStatus::new(kind, ObjectName::new("a", format!("o{number}")), generation.into(), Vec::new())
    }

    proptest! {
        #[test]
        fn the_list_is_that_of_an_ordered_map(
            rounds in prop::collection::vec(
                prop::collection::vec((any::<bool>(), 0..40_u8, prop::option::of(0..3_u8)), 0..80),
                0..8,
            ),
        ) {
            let (mut statuses, mut list) = (Statuses::default(), StatusList::default());
            let mut model = BTreeMap::new();
            let mut n_changed = 0;
            for round in rounds {
                for (is_route, number, generation) in round {
                    let kind = if is_route { "HTTPRoute" } else { "Gateway" };
                    let one = status(kind, number, generation.unwrap_or_default());
                    let key = (kind, one.name.clone());
                    if generation.is_some() {
                        n_changed += u64::from(model.insert(key, one.clone()) != Some(one.clone()));
                        statuses.set(&list, one);
                    } else {
                        n_changed += u64::from(model.remove(&key).is_some());
                        statuses.remove(&list, kind, &one.name);
                    }
                }
                statuses.apply(&mut list);
                let found: Vec<ObjectStatus> = list.iter().map(|one| (**one).clone()).collect();
                prop_assert_eq!(found, model.values().cloned().collect::<Vec<_>>());
                prop_assert_eq!(statuses.n_changed(), n_changed);
            }
        }
    }
}
