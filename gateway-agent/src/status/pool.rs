//! Equal lists kept once: nearly all of thousands of routes say the same of the same Gateway.
//!
//! **Invariant:** pure. What comes out is equal to what went in.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// As few are not worth a look for what has no user any more.
const FEW: usize = 64;

/// Lists that are in use. Those that are not any more go before the pool doubles, so that it never holds more than twice
/// what is.
#[derive(Debug)]
pub struct Pool<T> {
    lists: HashSet<Arc<[T]>>,
    sweep_at: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { lists: HashSet::new(), sweep_at: FEW }
    }
}

impl<T: Eq + Hash> Pool<T> {
    /// The one that is equal to `list`.
    pub fn share(&mut self, list: Arc<[T]>) -> Arc<[T]> {
        if let Some(known) = self.lists.get(&list) {
            return known.clone();
        }
        if self.lists.len() >= self.sweep_at {
            self.lists.retain(|list| Arc::strong_count(list) > 1);
            self.sweep_at = FEW.max(2 * self.lists.len());
        }
        self.lists.insert(list.clone());
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_are_one_and_what_nobody_uses_goes() {
        let mut pool = Pool::default();
        let kept: Vec<Arc<[usize]>> = (0..100).map(|number| pool.share([number].into())).collect();
        for number in 0..100_000 {
            let shared = pool.share([number].into());
            assert_eq!(*shared, [number]);
            assert!(number >= 100 || Arc::ptr_eq(&shared, &kept[number]));
            assert!(pool.lists.len() <= 2 * (kept.len() + FEW));
        }
    }
}
