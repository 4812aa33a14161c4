//! Equal values kept once: thousands of routes are of few namespaces, and nearly all of them say the same of the same Gateway.
//!
//! **Invariant:** pure. What comes out is equal to what went in.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// As few are not worth a look for what has no user any more.
const FEW: usize = 64;

/// Values that are in use, and some that were: unused ones are looked for when there are twice as many as were used at the
/// last look, so that a look costs each that came a constant, and there are never more than twice as many as ever were in
/// use at once.
#[derive(Debug)]
pub(crate) struct Interner<T: ?Sized> {
    values: HashSet<Arc<T>>,
    sweep_at: usize,
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), sweep_at: FEW }
    }
}

impl<T: Eq + Hash + ?Sized> Interner<T> {
    /// The one that is equal to `value`.
    pub(crate) fn intern(&mut self, value: Arc<T>) -> Arc<T> {
        if let Some(known) = self.values.get(&value) {
            return known.clone();
        }
        if self.values.len() >= self.sweep_at {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = FEW.max(2 * self.values.len());
            self.values.shrink_to(self.sweep_at);
        }
        self.values.insert(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_what_nobody_uses_goes() {
        let mut interner = Interner::default();
        let kept: Vec<Arc<[usize]>> = (0..100).map(|number| interner.intern([number].into())).collect();
        for number in 0..100_000 {
            let interned = interner.intern([number].into());
            assert_eq!(*interned, [number]);
            assert!(number >= 100 || Arc::ptr_eq(&interned, &kept[number]));
            assert!(interner.values.len() <= 2 * (kept.len() + FEW));
        }
    }
}
