//! How long a rule's requests may take and how often they are tried.

use std::sync::Arc;
use std::time::Duration;

/// `HTTPRouteTimeouts`; `None`: no limit but those of the proxy itself on progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttpTimeouts {
    /// From the end of the request's head to the end of the answer, all tries together.
    pub request: Option<Duration>,
    /// One try, from the choice of the server to the end of its answer.
    pub backend_request: Option<Duration>,
}

/// `HTTPRouteRetry`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Further tries after the first one.
    pub attempts: u32,
    /// Statuses of answers that are not passed on while tries are left. Sorted.
    pub codes: Arc<[u16]>,
    /// The base interval.
    pub backoff: Duration,
}

/// The base interval where none is given: a blip of the network or a restart of a thread is over by then, and a person
/// does not notice.
pub const BACKOFF_DEFAULT: Duration = Duration::from_millis(25);

/// The interval doubles up to this many times the base: five tries later the next one comes no later than a person
/// would ask again.
const BACKOFF_GROWTH_MAX: u32 = 10;

impl Retry {
    pub fn covers(&self, status: u16) -> bool {
        self.codes.binary_search(&status).is_ok()
    }

    /// How long to wait before the `n`th further try, the first being 0. `random`: any number; the wait is evenly spread
    /// over the upper half of the interval, so that clients that failed together do not come back together.
    pub fn delay(&self, n: u32, random: u32) -> Duration {
        let growth = 1_u32.checked_shl(n).unwrap_or(u32::MAX).min(BACKOFF_GROWTH_MAX);
        let interval = self.backoff.saturating_mul(growth);
        let half = interval / 2;
        // Below one half, as a fixed-point fraction.
        let nanos = (half.as_nanos() * u128::from(random)) >> 32;
        half.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{BACKOFF_DEFAULT, Retry};

    #[test]
    fn interval_doubles_up_to_ten_times_the_base() {
        let retry = Retry { attempts: 9, codes: [500, 503].into(), backoff: Duration::from_millis(100) };
        let longest = |n| retry.delay(n, u32::MAX).as_millis();
        assert_eq!([0, 1, 2, 3, 4, 31, 32, 1000].map(longest), [99, 199, 399, 799, 999, 999, 999, 999]);
        assert!(retry.covers(500) && retry.covers(503) && !retry.covers(502));
    }

    proptest! {
        #[test]
        fn wait_is_in_the_upper_half_of_its_interval(n in any::<u32>(), random in any::<u32>()) {
            let retry = Retry { attempts: 1, codes: [].into(), backoff: BACKOFF_DEFAULT };
            let wait = retry.delay(n, random);
            prop_assert!(wait >= BACKOFF_DEFAULT / 2 && wait < BACKOFF_DEFAULT * 10);
        }
    }
}
