//! What a worker draws for load balancing. Not for secrets.

use std::cell::Cell;

use crate::random::SplitMix64;

#[derive(Debug)]
pub(super) struct Random(Cell<SplitMix64>);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(Cell::new(SplitMix64::new(seed)))
    }

    /// The next number, uniform over all of `u32`.
    pub(super) fn next(&self) -> u32 {
        let mut numbers = self.0.get();
        let number = numbers.next_u32();
        self.0.set(numbers);
        number
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
