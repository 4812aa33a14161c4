//! What objects are called.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Namespace and name of a Kubernetes object. A copy is one pointer: a route's name is in a dozen indices and tables, of
/// thousands of routes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectName(Arc<Names>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Names {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl ObjectName {
    /// `namespace`: empty for an object of the cluster.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(Names { namespace: namespace.into(), name: name.into() }))
    }
}

impl Deref for ObjectName {
    type Target = Names;

    fn deref(&self) -> &Names {
        &self.0
    }
}

impl Ord for ObjectName {
    /// By namespace, then by name.
    fn cmp(&self, other: &Self) -> Ordering {
        // Nearly always a copy of the one that is looked for.
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for ObjectName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ObjectName;

    #[test]
    fn names_made_apart_are_equal_and_in_order_of_namespace_then_name() {
        let names = ["a/b", "a/c", "b/a"].map(|text| text.split_once('/').unwrap());
        let mut set = BTreeSet::new();
        for (namespace, name) in names.iter().rev().chain(&names) {
            set.insert(ObjectName::new(*namespace, *name));
        }
        assert_eq!(format!("{set:?}"), "{a/b, a/c, b/a}");
    }
}
