//! A complete list of one kind: what is not in it is gone.

use std::collections::BTreeSet;

use super::Store;
use crate::api::{Kind, ObjectId};
use crate::snapshot::ObjectName;

impl Store {
    /// Removes every object of `kind` in `namespace`, or in all, that is not among `names`. True when there was one.
    pub fn retain(&mut self, kind: Kind, namespace: Option<&str>, names: &BTreeSet<ObjectName>) -> bool {
        let is_gone = |id: &ObjectId| {
            id.kind == kind
                && namespace.is_none_or(|namespace| *id.name.namespace == *namespace)
                && !names.contains(&id.name)
        };
        let gone: Vec<ObjectId> = self.ids().into_iter().filter(is_gone).collect();
        let mut has_changed = false;
        for id in gone {
            has_changed |= self.delete(&id);
        }
        has_changed
    }
}
