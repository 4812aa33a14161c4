//! The flows of one worker, in the order of their last use.
//!
//! **Invariant:** no I/O, no clock (callers pass `now`), never more than the bound.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use rustc_hash::FxBuildHasher;

/// A bounded map that forgets what was idle for longest.
#[derive(Debug)]
pub(crate) struct FlowTable<K, V> {
    index: HashMap<K, usize, FxBuildHasher>,
    /// Doubly linked by position, from the most to the least recently used.
    entries: Vec<Option<Entry<K, V>>>,
    free: Vec<usize>,
    newest: Option<usize>,
    oldest: Option<usize>,
    max: usize,
}

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    last_used: Instant,
    newer: Option<usize>,
    older: Option<usize>,
}

impl<K: Hash + Eq + Copy, V> FlowTable<K, V> {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            index: HashMap::default(),
            entries: Vec::new(),
            free: Vec::new(),
            newest: None,
            oldest: None,
            max: max.max(1),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    /// The value, which becomes the most recently used.
    pub(crate) fn touch(&mut self, key: &K, now: Instant) -> Option<&V> {
        let position = *self.index.get(key)?;
        self.unlink(position);
        self.link_newest(position);
        let entry = self.entries.get_mut(position)?.as_mut()?;
        entry.last_used = now;
        Some(&entry.value)
    }

    /// Adds a key that is not in the table. The caller has made room; beyond the bound the oldest goes.
    pub(crate) fn insert(&mut self, key: K, value: V, now: Instant) {
        self.remove(&key);
        while self.is_full() {
            self.pop_oldest();
        }
        let entry = Entry { key, value, last_used: now, newer: None, older: None };
        let position = match self.free.pop() {
            Some(position) => {
                self.entries[position] = Some(entry);
                position
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() - 1
            }
        };
        self.index.insert(key, position);
        self.link_newest(position);
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let position = self.index.remove(key)?;
        self.unlink(position);
        let entry = self.entries.get_mut(position)?.take()?;
        self.free.push(position);
        Some(entry.value)
    }

    /// Takes the one that was idle for longest.
    pub(crate) fn pop_oldest(&mut self) -> Option<V> {
        let key = self.entries.get(self.oldest?)?.as_ref()?.key;
        self.remove(&key)
    }

    /// Takes one that was last used at least `idle` before `now`.
    pub(crate) fn pop_idle(&mut self, now: Instant, idle: Duration) -> Option<V> {
        let oldest = self.entries.get(self.oldest?)?.as_ref()?;
        if now.saturating_duration_since(oldest.last_used) < idle {
            return None;
        }
        self.pop_oldest()
    }

    /// Removes those for which `keep` is false, and returns them.
    pub(crate) fn take_unless(&mut self, keep: impl Fn(&K, &V) -> bool) -> Vec<V> {
        let gone: Vec<K> = self
            .entries
            .iter()
            .flatten()
            .filter(|entry| !keep(&entry.key, &entry.value))
            .map(|entry| entry.key)
            .collect();
        gone.iter().filter_map(|key| self.remove(key)).collect()
    }

    fn unlink(&mut self, position: usize) {
        let Some(entry) = self.entries.get_mut(position).and_then(Option::as_mut) else { return };
        let (newer, older) = (entry.newer.take(), entry.older.take());
        match newer {
            Some(newer) => self.set_older(newer, older),
            None => self.newest = older,
        }
        match older {
            Some(older) => self.set_newer(older, newer),
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, position: usize) {
        let older = self.newest.replace(position);
        self.set_older(position, older);
        match older {
            Some(older) => self.set_newer(older, Some(position)),
            None => self.oldest = Some(position),
        }
    }

    fn set_older(&mut self, position: usize, older: Option<usize>) {
        if let Some(entry) = self.entries.get_mut(position).and_then(Option::as_mut) {
            entry.older = older;
        }
    }

    fn set_newer(&mut self, position: usize, newer: Option<usize>) {
        if let Some(entry) = self.entries.get_mut(position).and_then(Option::as_mut) {
            entry.newer = newer;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::FlowTable;

    #[test]
    fn full_table_forgets_what_was_idle_for_longest() {
        let now = Instant::now();
        let mut table = FlowTable::new(3);
        for key in [1, 2, 3] {
            table.insert(key, key, now);
        }
        assert!(table.is_full());
        assert_eq!(table.touch(&1, now), Some(&1));
        table.insert(4, 4, now);
        assert_eq!(table.len(), 3);
        assert_eq!(table.touch(&2, now), None);
        assert_eq!(table.pop_oldest(), Some(3));
    }

    #[test]
    fn idle_ones_leave_in_order_and_used_ones_stay() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut table = FlowTable::new(10);
        table.insert('a', 'a', at(0));
        table.insert('b', 'b', at(10));
        table.touch(&'a', at(30));
        let idle = Duration::from_secs(60);
        assert_eq!(table.pop_idle(at(69), idle), None);
        assert_eq!(table.pop_idle(at(70), idle), Some('b'));
        assert_eq!(table.pop_idle(at(70), idle), None);
        assert_eq!(table.pop_idle(at(90), idle), Some('a'));
        assert!(table.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8),
        Touch(u8),
        Remove(u8),
        Pop,
        KeepEven,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..12_u8).prop_map(Step::Insert),
            (0..12_u8).prop_map(Step::Touch),
            (0..12_u8).prop_map(Step::Remove),
            Just(Step::Pop),
            Just(Step::KeepEven),
        ]
    }

    proptest! {
        /// A vector in order of use is the model.
        #[test]
        fn behaves_like_a_list_in_order_of_use(steps in proptest::collection::vec(step(), 0..200)) {
            let now = Instant::now();
            let mut table = FlowTable::new(5);
            let mut model: Vec<u8> = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(key) => {
                        table.insert(key, key, now);
                        model.retain(|known| *known != key);
                        if model.len() == 5 {
                            model.remove(0);
                        }
                        model.push(key);
                    }
                    Step::Touch(key) => {
                        prop_assert_eq!(table.touch(&key, now).is_some(), model.contains(&key));
                        if model.contains(&key) {
                            model.retain(|known| *known != key);
                            model.push(key);
                        }
                    }
                    Step::Remove(key) => {
                        prop_assert_eq!(table.remove(&key).is_some(), model.contains(&key));
                        model.retain(|known| *known != key);
                    }
                    Step::Pop => {
                        let expected = if model.is_empty() { None } else { Some(model.remove(0)) };
                        prop_assert_eq!(table.pop_oldest(), expected);
                    }
                    Step::KeepEven => {
                        table.take_unless(|key, _| key % 2 == 0);
                        model.retain(|key| key % 2 == 0);
                    }
                }
                prop_assert_eq!(table.len(), model.len());
            }
        }
    }
}
