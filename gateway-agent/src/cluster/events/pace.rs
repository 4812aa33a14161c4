//! Which Events may be sent now: none twice in a while, and never a flood.
//!
//! **Invariant:** pure: time is an argument. Bounded by [`MAX_KNOWN`].

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

/// The API server keeps Events for an hour: one that still holds is there again before the first is gone.
const REPEAT: Duration = Duration::from_secs(30 * 60);

/// Events at once.
const BURST: u32 = 25;

/// In the long run one per this.
const REFILL: Duration = Duration::from_secs(2);

/// Events that are remembered. More than this within [`REPEAT`] are beyond what the rate lets through.
const MAX_KNOWN: usize = 1024;

#[derive(Debug)]
pub(super) struct Pace {
    /// What the Events said that were sent.
    known: HashSet<u64>,
    by_age: BTreeSet<(Duration, u64)>,
    tokens: u32,
    refilled: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { known: HashSet::new(), by_age: BTreeSet::new(), tokens: BURST, refilled: Duration::ZERO }
    }
}

/// What is to become of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Send,
    /// The same was sent not long ago.
    Known,
    /// Too many.
    Drop,
}

impl Pace {
    /// Whether an Event that says `what` may be sent; if so it counts as sent.
    pub(super) fn admit(&mut self, now: Duration, what: u64) -> Verdict {
        self.forget(now);
        if self.known.contains(&what) {
            return Verdict::Known;
        }
        let periods = now.saturating_sub(self.refilled).as_millis() / REFILL.as_millis();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(periods).min(BURST);
        self.refilled += REFILL.saturating_mul(periods);
        if self.tokens == 0 {
            return Verdict::Drop;
        }
        self.tokens -= 1;
        self.known.insert(what);
        self.by_age.insert((now, what));
        Verdict::Send
    }

    fn forget(&mut self, now: Duration) {
        while let Some((sent, what)) = self.by_age.first() {
            if now.saturating_sub(*sent) < REPEAT && self.known.len() < MAX_KNOWN {
                return;
            }
            self.known.remove(what);
            self.by_age.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_again_only_after_a_while() {
        let mut pace = Pace::default();
        assert_eq!(pace.admit(Duration::ZERO, 1), Verdict::Send);
        assert_eq!(pace.admit(REPEAT - Duration::from_secs(1), 1), Verdict::Known);
        assert_eq!(pace.admit(REPEAT, 1), Verdict::Send);
    }

    #[test]
    fn a_flood_is_cut_to_the_rate() {
        let mut pace = Pace::default();
        let sent = |pace: &mut Pace, now, range: std::ops::Range<u64>| {
            range.filter(|what| pace.admit(now, *what) == Verdict::Send).count()
        };
        assert_eq!(sent(&mut pace, Duration::ZERO, 0..1000), 25);
        assert_eq!(sent(&mut pace, 3 * REFILL, 1000..2000), 3);
        assert_eq!(sent(&mut pace, 1000 * REFILL, 2000..3000), 25);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut pace = Pace::default();
        for what in 0..3000 {
            pace.admit(REFILL * u32::try_from(what).expect("small") / 10, what);
        }
        assert!(pace.known.len() <= MAX_KNOWN);
        assert_eq!(pace.known.len(), pace.by_age.len());
    }
}
