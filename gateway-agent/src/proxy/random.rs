//! A small generator for load balancing: SplitMix64 (Steele et al., OOPSLA 2014). Not for secrets.
//!
//! **Invariant:** the seed decides everything, so tests can repeat a choice.

use std::cell::Cell;

#[derive(Debug)]
pub(super) struct Random(Cell<u64>);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    /// The next number, uniform over all of `u32`.
    pub(super) fn next(&self) -> u32 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // The upper half is the better mixed one; the shift leaves 32 bits.
        ((mixed ^ (mixed >> 31)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn shares_come_out_even() {
        let random = Random::new(7);
        let mut hits = [0_u32; 4];
        for _ in 0..40_000 {
            hits[random.next() as usize % 4] += 1;
        }
        assert!(hits.iter().all(|n| (9_500..10_500).contains(n)), "{hits:?}");
    }
}
