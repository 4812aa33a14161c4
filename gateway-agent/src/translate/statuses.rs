//! The statuses of all objects, in order, and how changes get into the list of them.
//!
//! One among thousands is put in its place: whoever goes through all of them touches each allocation.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::snapshot::ObjectName;
use crate::status::{ObjectStatus, find, position};

type Key = (&'static str, ObjectName);

/// What the next [`Statuses::apply`] changes.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    /// `None`: the object has none of ours any more.
    pending: BTreeMap<Key, Option<Arc<ObjectStatus>>>,
    /// Grows for ever.
    n_changed: u64,
}

/// From so many on the list is made anew: each one that comes or goes moves all that are behind it.
const MANY: usize = 32;

impl Statuses {
    pub(super) const fn n_changed(&self) -> u64 {
        self.n_changed
    }

    /// `list`: as it is now, in kind and name order.
    pub(super) fn set(&mut self, list: &[Arc<ObjectStatus>], status: ObjectStatus) {
        let key = (status.kind, status.name.clone());
        if self.known(list, &key).is_none_or(|known| **known != status) {
            self.pending.insert(key, Some(Arc::new(status)));
            self.n_changed += 1;
        }
    }

    pub(super) fn remove(&mut self, list: &[Arc<ObjectStatus>], kind: &'static str, name: &ObjectName) {
        let key = (kind, name.clone());
        if self.known(list, &key).is_some() {
            self.pending.insert(key, None);
            self.n_changed += 1;
        }
    }

    /// Brings the list up to date.
    pub(super) fn apply(&mut self, list: &mut Vec<Arc<ObjectStatus>>) {
        let pending = std::mem::take(&mut self.pending);
        if pending.len() >= MANY {
            *list = merged(std::mem::take(list), pending);
            return;
        }
        for ((kind, name), status) in pending {
            match (position(list, kind, &name), status) {
                (Ok(position), Some(status)) => {
                    if let Some(place) = list.get_mut(position) {
                        *place = status;
                    }
                }
                (Ok(position), None) => drop(list.remove(position)),
                (Err(position), Some(status)) => list.insert(position, status),
                (Err(_), None) => {}
            }
        }
    }

    fn known<'a>(&'a self, list: &'a [Arc<ObjectStatus>], key: &Key) -> Option<&'a Arc<ObjectStatus>> {
        match self.pending.get(key) {
            Some(pending) => pending.as_ref(),
            None => find(list, key.0, &key.1),
        }
    }
}

/// Both in order: those of `pending` in the place of the old ones.
fn merged(
    old: Vec<Arc<ObjectStatus>>,
    pending: BTreeMap<Key, Option<Arc<ObjectStatus>>>,
) -> Vec<Arc<ObjectStatus>> {
    let mut all = Vec::with_capacity(old.len() + pending.len());
    let mut old = old.into_iter().peekable();
    for ((kind, name), status) in pending {
        while let Some(before) = old.next_if(|one| (one.kind, &one.name) < (kind, &name)) {
            all.push(before);
        }
        old.next_if(|one| (one.kind, &one.name) == (kind, &name));
        all.extend(status);
    }
    all.extend(old);
    all.shrink_to_fit();
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn status(kind: &'static str, number: u8, generation: u8) -> ObjectStatus {
        ObjectStatus {
            kind,
            name: ObjectName::new("a", format!("o{number}")),
            observed_generation: generation.into(),
            addresses: Vec::new(),
            attached_listener_sets: None,
            scopes: Vec::new(),
        }
    }

    proptest! {
        #[test]
        fn the_list_is_that_of_an_ordered_map(
            rounds in prop::collection::vec(
                prop::collection::vec((any::<bool>(), 0..40_u8, prop::option::of(0..3_u8)), 0..80),
                0..8,
            ),
        ) {
            let (mut statuses, mut list) = (Statuses::default(), Vec::new());
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
