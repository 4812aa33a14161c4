//! Which share and which endpoint takes a request. Pure: numbers in, an index out.

use smallvec::SmallVec;

use crate::random::SplitMix64;

/// Endpoints of one set that this request has tried in vain.
pub(super) type Tried = SmallVec<[usize; 4]>;

/// Points on the line of weights, one per request: multiples of the golden ratio, of which any run is spread evenly,
/// so that shares are met within a few requests where random points take thousands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares(u32);

/// Picks endpoints.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random(SplitMix64);

impl Shares {
    pub(super) fn new(seed: u64) -> Self {
        // The upper half, narrowed without loss.
        Self((seed >> 32) as u32)
    }

    /// Evenly spread below `total`.
    pub(super) fn next(&mut self, total: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9);
        scale(self.0, total)
    }
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Whether one of `numerator` in `denominator` is met.
    pub(super) fn hits(&mut self, numerator: u32, denominator: u32) -> bool {
        scale(self.number(), denominator) < numerator
    }

    /// Below `bound`; 0 where that is 0.
    fn below(&mut self, bound: usize) -> usize {
        scale(self.number(), u32::try_from(bound).unwrap_or(u32::MAX)) as usize
    }

    pub(super) fn number(&mut self) -> u32 {
        self.0.next_u32()
    }
}

/// Maps the whole range of `u32` evenly to what is below `bound`.
fn scale(value: u32, bound: u32) -> u32 {
    ((u64::from(value) * u64::from(bound)) >> 32) as u32
}

/// The less loaded of two endpoints drawn from the `count` that were not tried; `None`: all were.
pub(super) fn endpoint(
    count: usize,
    tried: &Tried,
    random: &mut Random,
    load: impl Fn(usize) -> u32,
) -> Option<usize> {
    let left = count.saturating_sub(tried.len());
    match left {
        0 => None,
        1 => nth_untried(0, tried),
        _ => {
            let first = random.below(left);
            // Another one than the first.
            let second = (first + 1 + random.below(left - 1)) % left;
            let (first, second) = (nth_untried(first, tried)?, nth_untried(second, tried)?);
            Some(if load(second) < load(first) { second } else { first })
        }
    }
}

/// The index of the `n`th endpoint that was not tried.
fn nth_untried(n: usize, tried: &Tried) -> Option<usize> {
    let mut index = n;
    let mut sorted = tried.clone();
    sorted.sort_unstable();
    for used in sorted {
        if used <= index {
            index += 1;
        }
    }
    Some(index)
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::{Random, Shares, Tried, endpoint};

    #[test]
    fn shares_are_met_within_few_requests() {
        let mut shares = Shares::new(7 << 40);
        let mut counts = [0_u32; 10];
        for _ in 0..100 {
            counts[shares.next(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (8..=12).contains(count)), "{counts:?}");
    }

    #[test]
    fn less_loaded_of_two_is_taken_and_all_are_reached() {
        let mut random = Random::new(1);
        let mut seen = [0_u32; 5];
        for _ in 0..1000 {
            let index = endpoint(5, &Tried::new(), &mut random, |index| u32::from(index == 3) * 9).unwrap();
            seen[index] += 1;
        }
        assert_eq!(seen[3], 0);
        assert!(seen.iter().enumerate().all(|(index, count)| index == 3 || *count > 150), "{seen:?}");
    }

    #[test]
    fn part_of_the_draws_hits() {
        let mut random = Random::new(7);
        for (numerator, denominator, least, most) in
            [(0, 100, 0, 0), (1, 1, 10_000, 10_000), (20, 100, 1_800, 2_200), (25, 50, 4_700, 5_300)]
        {
            let n_hits = (0..10_000).filter(|_| random.hits(numerator, denominator)).count();
            assert!((least..=most).contains(&n_hits), "{numerator}/{denominator}: {n_hits}");
        }
    }

    #[test]
    fn tried_endpoints_are_not_taken_again() {
        let mut random = Random::new(1);
        for _ in 0..100 {
            let index = endpoint(4, &smallvec![2, 0], &mut random, |_| 0).unwrap();
            assert!(index == 1 || index == 3);
        }
        assert_eq!(endpoint(2, &smallvec![1], &mut random, |_| 0), Some(0));
        assert_eq!(endpoint(1, &smallvec![0], &mut random, |_| 0), None);
        assert_eq!(endpoint(0, &Tried::new(), &mut random, |_| 0), None);
    }
}
