//! Which status is written next: the writer's queue, without its I/O.
//!
//! One state per object: what is wanted of it, what the API server was last seen to hold ([`Digest`]), and when it may be
//! tried again. The latest wish wins; an object is tried by one task at a time; an object that says already what is wanted
//! costs nothing. The queue is bounded by the number of objects, work in flight by [`MAX_IN_FLIGHT`].
//!
//! **Invariant:** pure: time is an argument, chance a seed. Does not write, and does not decide who leads.

mod backoff;
mod copies;
mod entry;
mod objects;
#[cfg(test)]
mod tests;
mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use self::backoff::{Backoff, Chance};
use self::copies::Copies;
use self::entry::{Entry, FIGHT, Phase};
use self::objects::Objects;
pub use self::version::ResourceVersion;
use super::differences::{Difference, differences};
use super::write::{Digest, Leading, Parents, Part, Standing, is_settled, wants};
use super::{ObjectStatus, Parent, StatusList};
use crate::interner::Interner;
use crate::snapshot::ObjectName;

/// Writes under way at once. A write takes the API server some 5 ms, so that 8 make more than a thousand writes a second
/// possible, far more than routes change; and one agent takes a small part of what the API server grants to one level of
/// priority.
pub const MAX_IN_FLIGHT: usize = 8;

/// Between two writes of one object. A Gateway changes with every route that attaches: 3,000 routes must not cost 3,000
/// writes of it.
const SPACING: Duration = Duration::from_millis(200);

/// An object of a kind that has a status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// As in the spec.
    pub kind: &'static str,
    pub name: ObjectName,
}

/// What the API server was seen to hold of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub resource_version: ResourceVersion,
    pub digest: Digest,
}

/// One object to be brought to its status.
#[derive(Clone, Debug)]
pub struct Job {
    pub target: Target,
    pub desired: Arc<ObjectStatus>,
    /// The object as the watch delivered it, if it has not been dropped: JSON. Else it has to be read.
    pub copy: Option<Box<[u8]>>,
    parents: Arc<Parents>,
    leading: Arc<Leading>,
    /// Parents that went to others, and whose entries of ours are to go.
    released: Vec<Parent>,
}

/// What became of a [`Job`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// It was as wanted already.
    Same(Seen),
    Written(Seen),
    /// Its spec is newer than what is wanted of it.
    Outdated(Seen),
    /// The read was older than what is wanted of it.
    StaleRead,
    /// Written by another in between.
    Conflict,
    /// It does not exist.
    NotFound,
    /// This object cannot be written now.
    Failed,
    /// May not be written; said once by the caller.
    Forbidden,
    /// No object can be written now: the API server cannot be reached or is overloaded.
    Unreachable(Option<Duration>),
    /// The lease was lost before the write.
    NotLeading,
}

/// Numbers that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub writes: u64,
    pub conflicts: u64,
    pub failures: u64,
    /// Times that another writer changed what we had written.
    pub alterations: u64,
    /// Objects over which another writer fights with us.
    pub fights: u64,
}

/// First and longest delay after a conflict: the other write is done, what it wrote has to be read.
const CONFLICT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// After a failure that concerns one object.
const FAILURE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// While a right is missing: somebody has to grant it first.
const FORBIDDEN: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(300));

/// While the API server is away or overloaded.
const OUTAGE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Fights and delays that are kept for a caller who does not ask; beyond it they are only counted.
const MAX_KEPT: usize = 1024;

#[derive(Debug)]
pub struct Schedule {
    desired: StatusList,
    parents: Arc<Parents>,
    leading: Arc<Leading>,
    objects: Objects,
    /// What digests are of.
    parts: Interner<[Part]>,
    /// In the order in which they became ready.
    ready: BTreeMap<u64, Target>,
    next_ready: u64,
    timers: BTreeSet<(Duration, Target)>,
    copies: Copies,
    in_flight: usize,
    /// Of the API server as a whole.
    outage: Backoff,
    paused_until: Duration,
    chance: Chance,
    counts: Counts,
    /// Since the caller last asked: how long each write was in coming.
    delays: Vec<Duration>,
    fights: Vec<Target>,
}

impl Target {
    pub fn of(status: &ObjectStatus) -> Self {
        Self { kind: status.kind, name: status.name.clone() }
    }
}

impl Job {
    /// For what the replica was leading when the job was given out. Once that is no longer so the job is void.
    pub fn leading(&self) -> &Leading {
        &self.leading
    }

    /// What may be done with the entries of `parent`.
    pub fn standing(&self, parent: &Parent) -> Standing {
        standing(&self.parents, &self.released, parent, &self.leading)
    }
}

fn standing(parents: &Parents, released: &[Parent], parent: &Parent, leading: &Leading) -> Standing {
    if released.contains(parent) {
        parents.released(parent, leading)
    } else {
        parents.standing(parent, leading)
    }
}

/// Inputs.
impl Schedule {
    pub fn new(seed: u64) -> Self {
        Self {
            desired: StatusList::default(),
            parents: Arc::default(),
            leading: Arc::default(),
            objects: Objects::default(),
            parts: Interner::default(),
            ready: BTreeMap::new(),
            next_ready: 0,
            timers: BTreeSet::new(),
            copies: Copies::default(),
            in_flight: 0,
            outage: Backoff::default(),
            paused_until: Duration::ZERO,
            chance: Chance::new(seed),
            counts: Counts::default(),
            delays: Vec::new(),
            fights: Vec::new(),
        }
    }

    /// Takes what is wanted now.
    pub fn desired(&mut self, now: Duration, desired: StatusList, parents: Arc<Parents>) {
        let old = std::mem::replace(&mut self.desired, desired.clone());
        let is_all_affected = self.parents != parents;
        self.parents = parents;
        for difference in differences(&old, &desired) {
            match difference {
                Difference::Removed(status) => self.forget(&Target::of(status)),
                Difference::Updated { old, new } => {
                    let target = Target::of(new);
                    let released = old.map_or_else(Vec::new, |old| self.parents.released_by(old, new));
                    let work = self.objects.entry(&target).work_mut();
                    work.accepted = None;
                    work.released.extend(released);
                    work.unsettled_since.get_or_insert(now);
                    self.consider(now, &target);
                }
            }
        }
        if is_all_affected {
            self.consider_all(now);
        }
    }

    /// Takes for what this replica is the writer now. Who has a job under way looks at [`Job::leading`] itself before it
    /// writes.
    pub fn leading(&mut self, now: Duration, leading: Leading) {
        if *self.leading != leading {
            self.leading = Arc::new(leading);
            self.consider_all(now);
        }
    }

    /// Takes what the watch delivered. `copy` gives the object as JSON; it is kept while it may spare a read.
    pub fn observed(
        &mut self,
        now: Duration,
        target: &Target,
        mut seen: Seen,
        copy: impl FnOnce() -> Box<[u8]>,
    ) {
        let was_settled = self.is_settled(target);
        let entry = self.objects.entry(target);
        // The watch may be behind what a write answered.
        if entry.seen.as_ref().is_some_and(|known| *known == seen || known.is_newer_than(&seen)) {
            return;
        }
        let generation = seen.digest.generation;
        if !entry.released().is_empty() {
            entry.work_mut().released.retain(|parent| seen.digest.has_entry_of(parent));
        }
        seen.digest.intern(&mut self.parts);
        entry.seen = Some(seen);
        self.drop_copy(target);
        if !self.is_settled(target) {
            let desired = self.desired.find(target.kind, &target.name);
            if was_settled && desired.is_some_and(|desired| desired.observed_generation == generation) {
                self.altered(now, target);
            }
            let place = self.copies.put(copy());
            if let Some(entry) = self.objects.get_mut(target) {
                entry.work_mut().copy = place;
            }
        }
        self.consider(now, target);
    }

    /// The object is gone.
    pub fn forget(&mut self, target: &Target) {
        self.drop_copy(target);
        self.unqueue(target);
        self.objects.remove(target);
    }

    /// After a full list: every other object of that kind and namespace is gone.
    pub fn retain(&mut self, kind: &str, namespace: Option<&str>, is_listed: impl Fn(&ObjectName) -> bool) {
        let is_gone = |name: &ObjectName| {
            namespace.is_none_or(|namespace| namespace == &*name.namespace) && !is_listed(name)
        };
        for target in self.objects.of_kind(kind, is_gone) {
            self.forget(&target);
        }
    }

    pub fn done(&mut self, now: Duration, job: &Job, mut done: Done) {
        if let Done::Same(seen) | Done::Written(seen) | Done::Outdated(seen) = &mut done {
            seen.digest.intern(&mut self.parts);
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        match &done {
            Done::Written(_) => self.counts.writes += 1,
            Done::Conflict => self.counts.conflicts += 1,
            Done::Failed | Done::Forbidden | Done::Unreachable(_) => self.counts.failures += 1,
            Done::Same(_) | Done::Outdated(_) | Done::StaleRead | Done::NotFound | Done::NotLeading => {}
        }
        if let Done::Unreachable(at_least) = done {
            let delay = self.outage.next(OUTAGE, &mut self.chance).max(at_least.unwrap_or_default());
            self.paused_until = self.paused_until.max(now + delay);
        } else {
            self.outage.reset();
        }
        let is_latest = self
            .desired
            .find(job.target.kind, &job.target.name)
            .is_some_and(|desired| *desired == job.desired);
        // It may be gone, or gone and back, meanwhile.
        let Some(entry) = self.objects.get_mut(&job.target).filter(|entry| entry.phase() == Phase::InFlight)
        else {
            return;
        };
        entry.work_mut().phase = Phase::Idle;
        let mut wait = |entry: &mut Entry, bounds| {
            entry.not_before = now + entry.work_mut().failures.next(bounds, &mut self.chance);
        };
        // Whoever leads more now, or other parents, has not been asked to write these.
        let is_by_present = job.leading == self.leading && job.parents == self.parents;
        let lacks_room = |digest: &Digest, released: &[Parent]| {
            let standing = |parent: &Parent| standing(&self.parents, released, parent, &self.leading);
            is_latest && is_by_present && !is_settled(digest, &job.desired, &standing)
        };
        match done {
            Done::Same(seen) => entry.settle(seen, job, lacks_room),
            Done::Written(seen) => {
                entry.settle(seen, job, lacks_room);
                entry.not_before = now + SPACING;
                if let Some(since) = entry.work_mut().unsettled_since.take_if(|_| is_latest)
                    && self.delays.len() < MAX_KEPT
                {
                    self.delays.push(now.saturating_sub(since));
                }
            }
            Done::Outdated(seen) => entry.see(seen),
            Done::Conflict | Done::StaleRead => wait(entry, CONFLICT),
            Done::Failed | Done::NotFound => wait(entry, FAILURE),
            Done::Forbidden => wait(entry, FORBIDDEN),
            Done::Unreachable(_) | Done::NotLeading => {}
        }
        self.consider(now, &job.target);
    }
}

/// Outputs.
impl Schedule {
    /// What to do now, if anything. Every job has to be brought back to [`Schedule::done`].
    pub fn next(&mut self, now: Duration) -> Option<Job> {
        while self.timers.first().is_some_and(|(due, _)| *due <= now) {
            let Some((_, target)) = self.timers.pop_first() else { break };
            self.make_ready(&target);
        }
        if self.in_flight >= MAX_IN_FLIGHT || now < self.paused_until {
            return None;
        }
        let (_, target) = self.ready.pop_first()?;
        let entry = self.objects.get_mut(&target)?;
        let work = entry.work_mut();
        work.phase = Phase::Idle;
        let desired = self.desired.find(target.kind, &target.name)?.clone();
        work.phase = Phase::InFlight;
        let copy = work.copy.take().and_then(|place| self.copies.take(place));
        self.in_flight += 1;
        let (parents, leading, released) =
            (self.parents.clone(), self.leading.clone(), work.released.clone());
        Some(Job { target, desired, copy, parents, leading, released })
    }

    /// When [`Schedule::next`] may have something at the earliest, unless something else happens.
    pub fn due(&self) -> Option<Duration> {
        if self.in_flight >= MAX_IN_FLIGHT {
            return None;
        }
        let timer = self.timers.first().map(|(due, _)| *due);
        let first = if self.ready.is_empty() { timer? } else { Duration::ZERO };
        Some(first.max(self.paused_until))
    }

    /// Objects that wait for a write or are being written.
    pub fn depth(&self) -> usize {
        self.ready.len() + self.timers.len() + self.in_flight
    }

    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// How long each write was in coming, since this was last asked.
    pub fn take_delays(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.delays)
    }

    /// Objects over which a fight has begun, since this was last asked.
    pub fn take_fights(&mut self) -> Vec<Target> {
        std::mem::take(&mut self.fights)
    }
}

/// Workings.
impl Schedule {
    fn is_settled(&self, target: &Target) -> bool {
        let (Some(entry), Some(desired)) =
            (self.objects.get(target), self.desired.find(target.kind, &target.name))
        else {
            return false;
        };
        entry.seen.as_ref().is_some_and(|seen| self.says_all(entry, seen, desired))
    }

    fn says_all(&self, entry: &Entry, seen: &Seen, desired: &ObjectStatus) -> bool {
        let standing = |parent: &Parent| standing(&self.parents, entry.released(), parent, &self.leading);
        entry.has_accepted(&seen.digest) || is_settled(&seen.digest, desired, &standing)
    }

    fn has_work(&self, target: &Target) -> bool {
        let (Some(entry), Some(desired)) =
            (self.objects.get(target), self.desired.find(target.kind, &target.name))
        else {
            return false;
        };
        match &entry.seen {
            // What is wanted of the newer spec is on its way.
            Some(seen) if seen.digest.generation > desired.observed_generation => false,
            Some(seen) => !self.says_all(entry, seen, desired),
            // The watch has not delivered it; as long as nothing is wanted there is no need to look.
            None => wants(desired, &|parent| self.parents.standing(parent, &self.leading)),
        }
    }

    /// Puts `target` where it belongs.
    fn consider(&mut self, now: Duration, target: &Target) {
        let has_work = self.has_work(target);
        let is_settled = self.is_settled(target);
        let Some(entry) = self.objects.get_mut(target) else { return };
        if entry.phase() == Phase::InFlight {
            return;
        }
        if has_work {
            entry.work_mut().unsettled_since.get_or_insert(now);
            let due = entry.not_before;
            if entry.phase() == Phase::Waiting(due) && due > now
                || due <= now && matches!(entry.phase(), Phase::Ready(_))
            {
                return;
            }
            self.unqueue(target);
            if due <= now {
                self.make_ready(target);
            } else {
                self.timers.insert((due, target.clone()));
                self.set_phase(target, Phase::Waiting(due));
            }
        } else {
            if is_settled {
                entry.settled();
                self.drop_copy(target);
            }
            self.unqueue(target);
            if let Some(entry) = self.objects.get_mut(target) {
                entry.tidy(now);
            }
        }
    }

    /// After a change of whose the parents are.
    fn consider_all(&mut self, now: Duration) {
        for target in self.objects.targets() {
            if let Some(entry) = self.objects.get_mut(&target) {
                entry.forget_accepted();
            }
            self.consider(now, &target);
        }
    }

    fn altered(&mut self, now: Duration, target: &Target) {
        let Some(entry) = self.objects.get_mut(target) else { return };
        let fight = &mut entry.work_mut().fight;
        let (until, is_fight) = (fight.altered(now), fight.alterations == FIGHT);
        entry.not_before = entry.not_before.max(until);
        self.counts.alterations += 1;
        if is_fight {
            self.counts.fights += 1;
            if self.fights.len() < MAX_KEPT {
                self.fights.push(target.clone());
            }
        }
    }

    fn make_ready(&mut self, target: &Target) {
        self.next_ready += 1;
        self.ready.insert(self.next_ready, target.clone());
        self.set_phase(target, Phase::Ready(self.next_ready));
    }

    fn unqueue(&mut self, target: &Target) {
        let Some(entry) = self.objects.get_mut(target) else { return };
        match entry.phase() {
            Phase::Idle | Phase::InFlight => return,
            Phase::Ready(place) => drop(self.ready.remove(&place)),
            Phase::Waiting(due) => drop(self.timers.remove(&(due, target.clone()))),
        }
        entry.work_mut().phase = Phase::Idle;
    }

    fn set_phase(&mut self, target: &Target, phase: Phase) {
        if let Some(entry) = self.objects.get_mut(target) {
            entry.work_mut().phase = phase;
        }
    }

    fn drop_copy(&mut self, target: &Target) {
        let place = self.objects.get_mut(target).and_then(Entry::take_copy);
        drop(place.and_then(|place| self.copies.take(place)));
    }
}
