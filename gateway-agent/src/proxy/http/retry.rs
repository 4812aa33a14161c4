//! Whether a request may be tried once more. Pure: numbers in, a decision out.

use std::cell::Cell;
use std::time::Duration;

use super::balance::Random;
use super::limits::{RETRY_BURST_MAX, RETRY_REQUESTS};
use crate::snapshot::Retry;

/// What one worker may still spend on further tries, so that a service that fails gets its share of the load again and
/// not a multiple: each request adds a part of a try, each tick one more try.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// In parts of a try, `RETRY_REQUESTS` to one.
    parts: u64,
    tick: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { parts: RETRY_BURST_MAX * RETRY_REQUESTS, tick: 0 }
    }
}

impl Budget {
    /// A request whose route asks for retries.
    pub(super) fn deposit(&mut self) {
        self.add(1);
    }

    /// False: nothing is left.
    pub(super) fn take(&mut self, tick: u64) -> bool {
        self.add(tick.saturating_sub(self.tick).saturating_mul(RETRY_REQUESTS));
        self.tick = self.tick.max(tick);
        match self.parts.checked_sub(RETRY_REQUESTS) {
            Some(rest) => {
                self.parts = rest;
                true
            }
            None => false,
        }
    }

    fn add(&mut self, parts: u64) {
        self.parts = self.parts.saturating_add(parts).min(RETRY_BURST_MAX * RETRY_REQUESTS);
    }
}

/// The further tries of one request.
#[derive(Debug)]
pub(super) struct Tries<'a> {
    retry: Option<&'a Retry>,
    n_used: Cell<u32>,
    /// Once the budget of the worker was asked in vain.
    is_refused: Cell<bool>,
}

impl<'a> Tries<'a> {
    pub(super) fn new(retry: Option<&'a Retry>) -> Self {
        Self { retry, n_used: Cell::new(0), is_refused: Cell::new(false) }
    }

    pub(super) fn retry(&self) -> Option<&'a Retry> {
        self.retry
    }

    /// Whether the route asks for further tries at all: then the request's body is worth keeping.
    pub(super) fn are_wanted(&self) -> bool {
        self.retry.is_some_and(|retry| retry.attempts > 0)
    }

    /// Whether the route forbids even what the proxy repeats by itself.
    pub(super) fn are_forbidden(&self) -> bool {
        self.retry.is_some_and(|retry| retry.attempts == 0)
    }

    /// Takes one more try where the route has one left and the worker can afford it.
    pub(super) fn take(&self, budget: &Cell<Budget>, tick: u64) -> bool {
        let n_used = self.n_used.get();
        if self.retry.is_none_or(|retry| n_used >= retry.attempts) {
            return false;
        }
        let mut left = budget.get();
        let is_taken = left.take(tick);
        budget.set(left);
        if is_taken {
            self.n_used.set(n_used + 1);
        } else {
            self.is_refused.set(true);
        }
        is_taken
    }

    /// Likewise for an answer with this status, which is not passed on then.
    pub(super) fn take_for(&self, status: u16, budget: &Cell<Budget>, tick: u64) -> bool {
        self.retry.is_some_and(|retry| retry.covers(status)) && self.take(budget, tick)
    }

    /// How long to wait before the next try; `None`: the route asks for none.
    pub(super) fn pause(&self, random: &Cell<Random>) -> Option<Duration> {
        let mut numbers = random.get();
        let number = numbers.number();
        random.set(numbers);
        Some(self.retry?.delay(self.n_used.get().saturating_sub(1), number))
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.get()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::{Budget, Tries};
    use crate::snapshot::Retry;

    fn retry(attempts: u32, codes: &[u16]) -> Retry {
        Retry { attempts, codes: codes.into(), backoff: Duration::from_millis(25) }
    }

    fn spend(budget: &mut Budget, tick: u64) -> usize {
        (0..10_000).take_while(|_| budget.take(tick)).count()
    }

    #[test]
    fn outage_gets_a_fifth_of_the_requests_and_ten_tries_a_second_on_top() {
        let mut budget = Budget::default();
        assert_eq!(spend(&mut budget, 0), 100);
        for _ in 0..50 {
            budget.deposit();
        }
        assert_eq!(spend(&mut budget, 0), 10);
        assert_eq!(spend(&mut budget, 10), 10);
        assert_eq!(spend(&mut budget, 10), 0);
        assert_eq!(spend(&mut budget, 1_000_000), 100, "a quiet time saves no more than the burst");
        assert_eq!(spend(&mut budget, 5), 0, "nor does a clock that goes back");
    }

    #[test]
    fn request_has_the_tries_of_its_route() {
        let budget = Cell::new(Budget::default());
        let two = retry(2, &[500, 503]);
        let tries = Tries::new(Some(&two));
        assert!(tries.are_wanted() && !tries.are_forbidden());
        assert!(!tries.take_for(502, &budget, 0));
        assert!(
            tries.take_for(500, &budget, 0) && tries.take(&budget, 0) && !tries.take_for(500, &budget, 0)
        );
        assert_eq!((tries.n_used.get(), tries.is_refused()), (2, false));
        let none = retry(0, &[500]);
        let tries = Tries::new(Some(&none));
        assert!(tries.are_forbidden() && !tries.are_wanted() && !tries.take_for(500, &budget, 0));
        let tries = Tries::new(None);
        assert!(!tries.are_forbidden() && !tries.are_wanted() && !tries.take(&budget, 0));
    }

    #[test]
    fn empty_budget_ends_the_tries() {
        let mut empty = Budget::default();
        spend(&mut empty, 0);
        let (budget, one) = (Cell::new(empty), retry(1, &[500]));
        let tries = Tries::new(Some(&one));
        assert!(!tries.take_for(500, &budget, 0));
        assert_eq!((tries.n_used.get(), tries.is_refused()), (0, true));
    }
}
