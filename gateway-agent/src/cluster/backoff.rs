//! How long to wait before the next try: exponential, with jitter, from the beginning again after a success.
//!
//! **Invariant:** no clock, no randomness of its own: the seed decides everything.

use std::time::Duration;

use crate::random::SplitMix64;

/// A restart of the API server takes seconds: the first tries come quickly.
const FIRST: Duration = Duration::from_millis(250);

/// What a server that has been away for long is asked at most, by each task.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(super) struct Backoff {
    failures: u32,
    first: Duration,
    longest: Duration,
    random: SplitMix64,
}

impl Backoff {
    pub(super) const fn new(seed: u64) -> Self {
        Self::between(FIRST, LONGEST, seed)
    }

    pub(super) const fn between(first: Duration, longest: Duration, seed: u64) -> Self {
        Self { failures: 0, first, longest, random: SplitMix64::new(seed) }
    }

    /// The wait after one more failure: at least half of the exponential step, so that it never degrades to none, and
    /// at least as long as the server asked for.
    pub(super) fn failed(&mut self, retry_after: Option<Duration>) -> Duration {
        let step = self.first.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        let step = step.min(self.longest);
        self.failures = self.failures.saturating_add(1).min(31);
        let wait = step / 2 + self.jitter(step / 2);
        retry_after.map_or(wait, |asked| wait.max(asked + self.jitter(self.first)))
    }

    /// After a success that is worth the name.
    pub(super) const fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// A time below `span`.
    pub(super) fn jitter(&mut self, span: Duration) -> Duration {
        span.mul_f64(f64::from(self.random.next_u32()) / (f64::from(u32::MAX) + 1.0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Backoff, FIRST, LONGEST};

    // O52: what fails for long is asked ever more rarely, but never given up, and not in step with others.
    #[test]
    fn waits_grow_to_a_bound_and_differ_between_tasks() {
        let (mut one, mut other) = (Backoff::new(1), Backoff::new(2));
        let waits: Vec<_> = (0..40).map(|_| one.failed(None)).collect();
        assert!(waits[0] >= FIRST / 2 && waits[0] < FIRST, "{waits:?}");
        assert!(waits.iter().skip(8).all(|wait| *wait >= LONGEST / 2 && *wait < LONGEST), "{waits:?}");
        assert_ne!(waits, (0..40).map(|_| other.failed(None)).collect::<Vec<_>>());
    }

    #[test]
    fn a_success_starts_over() {
        let mut backoff = Backoff::new(3);
        for _ in 0..10 {
            backoff.failed(None);
        }
        backoff.succeeded();
        assert!(backoff.failed(None) < FIRST);
    }

    #[test]
    fn the_servers_wish_is_the_least_wait() {
        let asked = Duration::from_secs(20);
        assert!(Backoff::new(4).failed(Some(asked)) >= asked);
    }
}
