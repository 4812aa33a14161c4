//! The state of one object in the schedule.
//!
//! **Invariant:** pure.

use std::time::Duration;

use super::backoff::{Backoff, doubled};
use super::copies::Place;
use super::{Digest, Job, Parent, Seen};

/// Alterations that are further apart than this have nothing to do with each other.
const FIGHT_MEMORY: Duration = Duration::from_secs(600);

/// Alterations from which on it is a fight and not an accident.
pub(super) const FIGHT: u32 = 3;

/// How long our entries stay altered, at most, while another writer insists: a slow fight costs neither side much.
const MOST_PATIENCE: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing to do, as far as is known.
    #[default]
    Idle,
    /// At that place of the queue.
    Ready(u64),
    /// Until then.
    Waiting(Duration),
    InFlight,
}

#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) seen: Option<Seen>,
    pub(super) not_before: Duration,
    /// Apart, for of thousands of objects nearly all are settled and have none.
    work: Option<Box<Work>>,
}

/// What there is to remember of an object that is not settled, or was not a moment ago.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) phase: Phase,
    pub(super) copy: Option<Place>,
    /// What is wanted found no more room than this holds.
    pub(super) accepted: Option<Digest>,
    /// Parents that went to another class while this process ran: our entries for them are to go.
    pub(super) released: Vec<Parent>,
    pub(super) failures: Backoff,
    /// Since when it is known not to be as wanted.
    pub(super) unsettled_since: Option<Duration>,
    pub(super) fight: Fight,
}

impl Entry {
    pub(super) fn work(&self) -> Option<&Work> {
        self.work.as_deref()
    }

    pub(super) fn work_mut(&mut self) -> &mut Work {
        self.work.get_or_insert_default()
    }

    pub(super) fn phase(&self) -> Phase {
        self.work().map_or(Phase::Idle, |work| work.phase)
    }

    pub(super) fn released(&self) -> &[Parent] {
        self.work().map_or(&[], |work| &work.released)
    }

    /// Takes the copy out.
    pub(super) fn take_copy(&mut self) -> Option<Place> {
        self.work.as_mut()?.copy.take()
    }

    /// Whether `digest` has all that there is room for.
    pub(super) fn has_accepted(&self, digest: &Digest) -> bool {
        self.work().is_some_and(|work| work.accepted.as_ref() == Some(digest))
    }

    /// What is wanted is another now, or to be written by another.
    pub(super) fn forget_accepted(&mut self) {
        if let Some(work) = &mut self.work {
            work.accepted = None;
        }
    }

    /// Takes what a read or a write answered, unless the watch has delivered something newer.
    pub(super) fn see(&mut self, seen: Seen) {
        if !self.seen.as_ref().is_some_and(|known| known.is_newer_than(&seen)) {
            self.seen = Some(seen);
        }
    }

    /// The API server holds what `job` wanted, as far as it has room. `lacks_room`: whether a digest has not all of it, with
    /// these parents released.
    pub(super) fn settle(
        &mut self,
        seen: Seen,
        job: &Job,
        lacks_room: impl FnOnce(&Digest, &[Parent]) -> bool,
    ) {
        let work = self.work_mut();
        work.failures.reset();
        work.released.retain(|parent| !job.released.contains(parent));
        work.accepted = lacks_room(&seen.digest, &work.released).then(|| seen.digest.clone());
        self.see(seen);
    }

    /// It is as wanted.
    pub(super) fn settled(&mut self) {
        if let Some(work) = &mut self.work {
            work.unsettled_since = None;
            // Another may have written it.
            work.failures.reset();
        }
    }

    /// Lets go what is of no use any more.
    pub(super) fn tidy(&mut self, now: Duration) {
        if self.work().is_some_and(|work| work.is_over(now)) {
            self.work = None;
        }
    }
}

impl Work {
    fn is_over(&self, now: Duration) -> bool {
        let Self { phase, copy, accepted, released, failures, unsettled_since, fight } = self;
        *phase == Phase::Idle
            && copy.is_none()
            && accepted.is_none()
            && released.is_empty()
            && *failures == Backoff::default()
            && unsettled_since.is_none()
            && fight.is_over(now)
    }
}

/// How often another writer changed what we had written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fight {
    pub(super) alterations: u32,
    last: Duration,
}

impl Fight {
    /// Counts one more, and says until when to leave it so: the first is put right at once.
    pub(super) fn altered(&mut self, now: Duration) -> Duration {
        if self.is_over(now) {
            self.alterations = 0;
        }
        self.last = now;
        self.alterations = self.alterations.saturating_add(1);
        match self.alterations {
            1 => now,
            n => now + doubled(Duration::from_secs(1), n - 2, MOST_PATIENCE),
        }
    }

    fn is_over(&self, now: Duration) -> bool {
        self.alterations == 0 || now.saturating_sub(self.last) > FIGHT_MEMORY
    }
}

impl Seen {
    /// Whether `other` is what the API server held before.
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        self.resource_version.is_newer_than(&other.resource_version)
    }
}
