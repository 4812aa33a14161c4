//! Growing, jittered delays.
//!
//! **Invariant:** pure: chance comes from a seed.

use std::time::Duration;

use crate::random::SplitMix64;

/// Numbers without a pattern that matters.
#[derive(Clone, Debug)]
pub(super) struct Chance(SplitMix64);

impl Chance {
    pub(super) const fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Between a half and the whole of `delay`: replicas that failed together do not come back together.
    fn jitter(&mut self, delay: Duration) -> Duration {
        let half = delay / 2;
        let span = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).saturating_add(1);
        half + Duration::from_micros(self.0.next() % span)
    }
}

/// Doubles with each failure in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// `bounds`: the first and the longest.
    pub(super) fn next(&mut self, bounds: (Duration, Duration), chance: &mut Chance) -> Duration {
        let (first, most) = bounds;
        let delay = doubled(first, self.failures, most);
        self.failures = self.failures.saturating_add(1);
        chance.jitter(delay)
    }

    pub(super) const fn reset(&mut self) {
        self.failures = 0;
    }
}

/// `first` times two to the power of `times`, at most `most`.
pub(super) fn doubled(first: Duration, times: u32, most: Duration) -> Duration {
    // 2^16 times any first delay is beyond every bound.
    first.saturating_mul(1 << times.min(16)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(100);
    const MOST: Duration = Duration::from_secs(30);

    #[test]
    fn delays_double_up_to_the_most_and_start_over() {
        let (mut backoff, mut chance) = (Backoff::default(), Chance::new(1));
        for exponent in 0..40 {
            let whole = doubled(FIRST, exponent, MOST);
            let delay = backoff.next((FIRST, MOST), &mut chance);
            assert!(delay >= whole / 2 && delay <= whole, "{exponent}: {delay:?} of {whole:?}");
        }
        backoff.reset();
        assert!(backoff.next((FIRST, MOST), &mut chance) <= FIRST);
    }

    #[test]
    fn two_seeds_do_not_wait_alike() {
        let delays = |seed| {
            let (mut backoff, mut chance) = (Backoff::default(), Chance::new(seed));
            (0..8).map(|_| backoff.next((FIRST, MOST), &mut chance)).collect::<Vec<_>>()
        };
        assert_ne!(delays(1), delays(2));
        assert_eq!(delays(3), delays(3));
    }
}
