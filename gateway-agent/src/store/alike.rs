//! What thousands of objects say alike, kept once: names of namespaces, lists of parentRefs.
//!
//! **Invariant:** equal by value to what was given; does not keep for good what nothing uses.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::objects::ParentRefs;
use crate::snapshot::ObjectName;

#[derive(Debug, Default)]
pub(super) struct Alike {
    namespaces: HashSet<Arc<str>>,
    parents: BTreeSet<ParentRefs>,
    /// What was added since unused ones were last looked for.
    n_added: usize,
}

/// So many at least are added before unused ones are looked for. Further ones wait until there are as many as are kept,
/// so that a look costs each that was added a constant.
const ADDED_MIN: usize = 64;

impl Alike {
    /// `name`, of a namespace that is kept once.
    pub(super) fn name(&mut self, name: ObjectName) -> ObjectName {
        match self.namespaces.get(&name.namespace) {
            Some(known) if Arc::ptr_eq(known, &name.namespace) => name,
            Some(known) => ObjectName::new(known.clone(), name.name.clone()),
            None => {
                self.namespaces.insert(name.namespace.clone());
                self.added();
                name
            }
        }
    }

    pub(super) fn parents(&mut self, parents: ParentRefs) -> ParentRefs {
        if let Some(known) = self.parents.get(&parents) {
            return known.clone();
        }
        self.parents.insert(parents.clone());
        self.added();
        parents
    }

    fn added(&mut self) {
        self.n_added += 1;
        if self.n_added >= ADDED_MIN.max((self.namespaces.len() + self.parents.len()) / 2) {
            self.namespaces.retain(|name| Arc::strong_count(name) > 1);
            self.parents.retain(|parents| Arc::strong_count(parents) > 1);
            self.n_added = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{ADDED_MIN, Alike};
    use crate::snapshot::ObjectName;
    use crate::store::objects::{ParentRef, ParentRefs};

    fn parents(name: &str) -> ParentRefs {
        let none = || None;
        let reference = ParentRef {
            group: none(),
            kind: none(),
            namespace: none(),
            name: name.into(),
            section: none(),
            port: None,
        };
        [Arc::new(reference)].into()
    }

    #[test]
    fn what_is_equal_is_the_same_allocation() {
        let mut alike = Alike::default();
        let (one, other) = (alike.parents(parents("gw")), alike.parents(parents("gw")));
        assert!(Arc::ptr_eq(&one, &other));
        assert_ne!(alike.parents(parents("other")), one);
        let (one, other) = (alike.name(ObjectName::new("a", "1")), alike.name(ObjectName::new("a", "2")));
        assert!(Arc::ptr_eq(&one.namespace, &other.namespace));
        assert_eq!(other, ObjectName::new("a", "2"));
    }

    #[test]
    fn what_nothing_uses_is_dropped() {
        let mut alike = Alike::default();
        let kept = alike.parents(parents("kept"));
        for n in 0..10 * ADDED_MIN {
            alike.parents(parents(&n.to_string()));
            alike.name(ObjectName::new(n.to_string(), "x"));
        }
        assert!(alike.parents.len() + alike.namespaces.len() <= 2 * ADDED_MIN);
        assert!(Arc::ptr_eq(&alike.parents(parents("kept")), &kept));
    }
}
