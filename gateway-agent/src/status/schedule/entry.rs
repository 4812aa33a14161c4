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
    pub(super) phase: Phase,
    pub(super) seen: Option<Seen>,
    pub(super) copy: Option<Place>,
    /// What is wanted found no more room than this holds.
    pub(super) accepted: Option<Digest>,
    /// Parents that went to another class while this process ran: our entries for them are to go.
    pub(super) released: Vec<Parent>,
    pub(super) failures: Backoff,
    pub(super) not_before: Duration,
    /// Since when it is known not to be as wanted.
    pub(super) unsettled_since: Option<Duration>,
    pub(super) fight: Fight,
}

impl Entry {
    /// Takes what a read or a write answered, unless the watch has delivered something newer.
    pub(super) fn see(&mut self, seen: Seen) {
        if !self.seen.as_ref().is_some_and(|known| known.is_newer_than(&seen)) {
            self.seen = Some(seen);
        }
    }

    /// The API server holds what `job` wanted, as far as it has room.
    pub(super) fn settle(&mut self, seen: Seen, job: &Job, is_latest: bool) {
        self.failures.reset();
        if is_latest {
            self.accepted = Some(seen.digest.clone());
        }
        self.released.retain(|parent| !job.released.contains(parent));
        self.see(seen);
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
        if now.saturating_sub(self.last) > FIGHT_MEMORY {
            self.alterations = 0;
        }
        self.last = now;
        self.alterations = self.alterations.saturating_add(1);
        match self.alterations {
            1 => now,
            n => now + doubled(Duration::from_secs(1), n - 2, MOST_PATIENCE),
        }
    }
}

impl Seen {
    /// Whether `other` is what the API server held before. The API server's versions are numbers that grow.
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        let number = |seen: &Self| seen.resource_version.parse::<u64>();
        match (number(self), number(other)) {
            (Ok(own), Ok(others)) => own > others,
            _ => false,
        }
    }
}
