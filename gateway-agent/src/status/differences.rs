//! What differs between two lists of statuses.
//!
//! **Invariant:** pure. Chunks that are the same in memory are not looked into.

use std::cmp::Ordering;
use std::sync::Arc;

use super::ObjectStatus;
use super::list::{Chunk, StatusList, order};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Difference<'a> {
    Removed(&'a Arc<ObjectStatus>),
    Updated { old: Option<&'a Arc<ObjectStatus>>, new: &'a Arc<ObjectStatus> },
}

/// In the order of the lists.
pub(super) fn differences<'a>(old: &'a StatusList, new: &'a StatusList) -> Vec<Difference<'a>> {
    walk(old, new, || {})
}

/// `look` is called before each status of which anything is read.
fn walk<'a>(old: &'a StatusList, new: &'a StatusList, mut look: impl FnMut()) -> Vec<Difference<'a>> {
    let mut differences = Vec::new();
    let (mut old, mut new) = (Cursor::new(old), Cursor::new(new));
    loop {
        if old.is_at_chunk_of(&new) {
            old.skip_chunk();
            new.skip_chunk();
            continue;
        }
        look();
        let ordering = match (old.peek(), new.peek()) {
            (None, None) => return differences,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            // Nearly all of a chunk: their names need not be compared.
            (Some(one), Some(other)) if Arc::ptr_eq(one, other) => Ordering::Equal,
            (Some(one), Some(other)) => order(one, other.kind, &other.name),
        };
        let old = if ordering == Ordering::Greater { None } else { old.next() };
        let new = if ordering == Ordering::Less { None } else { new.next() };
        match (old, new) {
            (Some(old), Some(new)) if Arc::ptr_eq(old, new) || old == new => {}
            (old, Some(new)) => differences.push(Difference::Updated { old, new }),
            (Some(old), None) => differences.push(Difference::Removed(old)),
            (None, None) => return differences,
        }
    }
}

/// A place in a list.
struct Cursor<'a> {
    /// The one that it is in, and all behind it.
    chunks: &'a [Chunk],
    /// In the first of them.
    position: usize,
}

impl<'a> Cursor<'a> {
    fn new(list: &'a StatusList) -> Self {
        Self { chunks: list.chunks(), position: 0 }
    }

    fn peek(&self) -> Option<&'a Arc<ObjectStatus>> {
        self.chunks.first()?.get(self.position)
    }

    fn next(&mut self) -> Option<&'a Arc<ObjectStatus>> {
        let status = self.peek()?;
        self.position += 1;
        if self.peek().is_none() {
            self.skip_chunk();
        }
        Some(status)
    }

    /// Whether both are at the beginning of the same chunk.
    fn is_at_chunk_of(&self, other: &Self) -> bool {
        let is_at_start = self.position == 0 && other.position == 0;
        match (self.chunks.first(), other.chunks.first()) {
            (Some(one), Some(other)) => is_at_start && Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    fn skip_chunk(&mut self) {
        self.chunks = self.chunks.get(1..).unwrap_or_default();
        self.position = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::list::StatusChanges;
    use super::super::list::tests::{changes, many, rounds, status};
    use super::*;

    /// By looking at everything.
    fn naive<'a>(old: &'a StatusList, new: &'a StatusList) -> Vec<Difference<'a>> {
        fn by_key(list: &StatusList) -> BTreeMap<(&str, &str), &Arc<ObjectStatus>> {
            list.iter().map(|status| ((status.kind, &*status.name.name), status)).collect()
        }
        let (old, new) = (by_key(old), by_key(new));
        let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
        let difference = |key| match (old.get(key).copied(), new.get(key).copied()) {
            (Some(old), None) => Some(Difference::Removed(old)),
            (old, Some(new)) => (old != Some(new)).then_some(Difference::Updated { old, new }),
            (None, None) => None,
        };
        keys.into_iter().filter_map(difference).collect()
    }

    proptest! {
        #[test]
        fn differences_are_those_of_a_look_at_everything(before in rounds(), after in rounds()) {
            let mut list = StatusList::default();
            before.into_iter().for_each(|round| list.apply(changes(round)));
            let start = list.clone();
            for round in after {
                let before = list.clone();
                list.apply(changes(round));
                prop_assert_eq!(differences(&before, &list), naive(&before, &list));
                prop_assert_eq!(differences(&start, &list), naive(&start, &list));
            }
        }
    }

    #[test]
    fn of_thousands_with_one_change_few_are_looked_at() {
        let looks = |before: &StatusList, change: Arc<ObjectStatus>, is_there: bool| {
            let mut after = before.clone();
            let key = (change.kind, change.name.clone());
            after.apply(StatusChanges::from([(key, is_there.then_some(change))]));
            let mut n_looks = 0;
            let found = walk(before, &after, || n_looks += 1).len();
            (found, n_looks)
        };
        let before = many(10_000);
        for change in [(5_000, 2, true), (20_000, 1, true), (5_000, 1, false)] {
            let (number, generation, is_there) = change;
            let (found, n_looks) = looks(&before, status("HTTPRoute", number, generation), is_there);
            assert_eq!(found, 1);
            assert!(n_looks <= 130, "{n_looks} of 10,000 for {change:?}");
        }
        let mut n_looks = 0;
        assert!(walk(&before, &before.clone(), || n_looks += 1).is_empty());
        assert_eq!(n_looks, 1, "the end");
    }
}
