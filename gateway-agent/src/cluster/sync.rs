//! When the agent has seen everything once: before that it says and publishes nothing new.
//!
//! **Invariant:** pure.

use std::collections::BTreeSet;

use super::board::WatchKey;

/// What has neither been listed nor been reported as out of reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncGate {
    waiting: BTreeSet<WatchKey>,
}

impl SyncGate {
    pub fn new(expected: impl IntoIterator<Item = WatchKey>) -> Self {
        Self { waiting: expected.into_iter().collect() }
    }

    /// Listed, or reported as out of reach.
    pub fn pass(&mut self, key: &WatchKey) {
        self.waiting.remove(key);
    }

    pub fn is_open(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What is waited for, in order.
    pub fn waiting(&self) -> impl Iterator<Item = &WatchKey> {
        self.waiting.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::{SyncGate, WatchKey};

    #[test]
    fn the_gate_opens_when_every_kind_has_passed_in_every_namespace() {
        let key = |kind, namespace: &str| WatchKey { kind, namespace: Some(namespace.into()) };
        let mut gate = SyncGate::new([key("Gateway", "a"), key("Gateway", "b")]);
        gate.pass(&key("Gateway", "a"));
        gate.pass(&key("Gateway", "a"));
        gate.pass(&key("Service", "b"));
        assert!(!gate.is_open());
        assert_eq!(gate.waiting().count(), 1);
        gate.pass(&key("Gateway", "b"));
        assert!(gate.is_open());
    }
}
