//! Coarse deadlines: one number per connection, looked at by the worker's ticker. No timer of the runtime per request,
//! unless a route limits how long its requests may take.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::deadline::{Deadline, Limit};
use super::limits::TICK;

const NEVER: u64 = u64::MAX;

/// Why a waiting connection was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Abort,
    Deadline,
    /// What the route allows.
    Limit(Limit),
}

#[derive(Debug, Default)]
pub(super) struct Clock {
    tick: Cell<u64>,
    stopping: Cell<bool>,
    aborting: Cell<bool>,
    slots: RefCell<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Slot {
    at: u64,
    waker: Option<Waker>,
}

/// One connection's deadline.
#[derive(Debug)]
pub(super) struct Timer {
    clock: Rc<Clock>,
    index: usize,
    route: RefCell<Deadline>,
}

impl Clock {
    pub(super) fn timer(self: &Rc<Self>) -> Timer {
        let mut slots = self.slots.borrow_mut();
        let slot = Slot { at: NEVER, waker: None };
        let index = match slots.free.pop() {
            Some(index) => index,
            None => slots.slots.len(),
        };
        match slots.slots.get_mut(index) {
            Some(vacant) => *vacant = slot,
            None => slots.slots.push(slot),
        }
        Timer { clock: self.clone(), index, route: RefCell::default() }
    }

    pub(super) fn tick(&self) -> u64 {
        self.tick.get()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    pub(super) fn is_aborting(&self) -> bool {
        self.aborting.get()
    }

    pub(super) fn has_timers(&self) -> bool {
        let slots = self.slots.borrow();
        slots.slots.len() > slots.free.len()
    }

    /// Sets the time and wakes what is due.
    pub(super) fn advance(&self, tick: u64) {
        self.tick.set(tick);
        self.wake(|slot| slot.at <= tick);
    }

    /// Wakes everybody: what is idle ends.
    pub(super) fn stop(&self) {
        self.stopping.set(true);
        self.wake(|_| true);
    }

    /// Wakes everybody: all ends.
    pub(super) fn abort(&self) {
        self.aborting.set(true);
        self.stop();
    }

    fn wake(&self, is_due: impl Fn(&Slot) -> bool) {
        let mut slots = self.slots.borrow_mut();
        let due = slots.slots.iter_mut().filter(|slot| is_due(slot));
        let wakers: Vec<_> = due.filter_map(|slot| slot.waker.take()).collect();
        // A waker may drop what owns a timer.
        drop(slots);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Timer {
    /// Due `after` from now, up to two ticks late and never early.
    pub(super) fn arm(&self, after: Duration) {
        let ticks = after.as_millis().div_ceil(TICK.as_millis());
        let ticks = u64::try_from(ticks).unwrap_or(u64::MAX);
        self.with(|slot| slot.at = self.clock.tick().saturating_add(ticks).saturating_add(1));
    }

    /// Never due until armed again.
    pub(super) fn disarm(&self) {
        self.with(|slot| slot.at = NEVER);
    }

    /// Ready when due or when all is to end. One task at a time may wait.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Due> {
        if self.clock.aborting.get() {
            return Poll::Ready(Due::Abort);
        }
        let mut is_due = false;
        self.with(|slot| {
            is_due = slot.at <= self.clock.tick();
            match &mut slot.waker {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                waker => *waker = Some(cx.waker().clone()),
            }
        });
        if is_due {
            return Poll::Ready(Due::Deadline);
        }
        self.route.borrow_mut().poll(cx).map(Due::Limit)
    }

    /// Limits the request, or one try of it, from now on. Precise, unlike [`Self::arm`].
    pub(super) fn limit(&self, limit: Limit, after: Option<Duration>) {
        self.route.borrow_mut().set(limit, after);
    }

    /// Ends all limits.
    pub(super) fn unlimit(&self) {
        self.route.borrow_mut().clear();
    }

    fn with(&self, change: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.clock.slots.borrow_mut().slots.get_mut(self.index) {
            change(slot);
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.with(|slot| *slot = Slot { at: NEVER, waker: None });
        self.clock.slots.borrow_mut().free.push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::{Clock, Due};

    #[test]
    fn deadline_is_never_early_and_at_most_two_ticks_late() {
        let cx = &mut Context::from_waker(Waker::noop());
        let clock = Rc::new(Clock::default());
        clock.advance(1000);
        let timer = clock.timer();
        assert_eq!(timer.poll(cx), Poll::Pending);
        timer.arm(Duration::from_millis(250));
        clock.advance(1003);
        assert_eq!(timer.poll(cx), Poll::Pending);
        clock.advance(1004);
        assert_eq!(timer.poll(cx), Poll::Ready(Due::Deadline));
        timer.arm(Duration::from_secs(1));
        assert_eq!(timer.poll(cx), Poll::Pending);
        clock.abort();
        assert_eq!(timer.poll(cx), Poll::Ready(Due::Abort));
    }

    #[test]
    fn slot_of_a_dropped_timer_is_used_again() {
        let clock = Rc::new(Clock::default());
        let first = clock.timer();
        first.arm(Duration::from_secs(1));
        let index = first.index;
        drop(first);
        assert!(!clock.has_timers());
        let second = clock.timer();
        assert_eq!(second.index, index);
        assert!(second.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}
