//! Who writes: the decisions of a lease, without the lease.
//!
//! The holder counts from the moment at which it *sent* its last renewal and gives up after two thirds of the lease's
//! duration; others count from the moment at which they *saw* the lease change and wait for the whole of it. No clock of
//! one machine is compared with that of another.
//!
//! **Invariant:** pure; time is passed in.

use std::time::Duration;

use std::time::Instant;

/// Of the object's `spec`, with what changes at every write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// `metadata.resourceVersion`.
    pub version: String,
    /// Empty: nobody.
    pub holder: String,
    pub duration: Duration,
    pub transitions: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    pub duration: Duration,
}

impl Timing {
    /// Time from sending a renewal until the holder gives up without another. What remains of the duration is what a
    /// write that was under way may take.
    pub(super) fn hold(self) -> Duration {
        self.duration * 2 / 3
    }

    /// Three renewals fit into the time to hold, so that two may fail.
    fn renew(self) -> Duration {
        self.duration / 5
    }
}

/// What to ask the API for next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Read,
    /// There is none yet.
    Create,
    /// Write ourselves into it, provided that it is still of this version.
    Update {
        version: String,
        transitions: i32,
    },
}

#[derive(Debug)]
pub(super) struct Elector {
    identity: String,
    timing: Timing,
    next: (Instant, Ask),
    /// Ours until then, unless renewed.
    held_until: Option<Instant>,
    /// The version of another's lease, and since when it is known.
    seen: Option<(String, Instant)>,
}

impl Elector {
    pub(super) const fn new(identity: String, timing: Timing, now: Instant) -> Self {
        Self { identity, timing, next: (now, Ask::Read), held_until: None, seen: None }
    }

    pub(super) fn is_leader(&self, now: Instant) -> bool {
        self.held_until.is_some_and(|until| now < until)
    }

    pub(super) const fn held_until(&self) -> Option<Instant> {
        self.held_until
    }

    /// When to ask, and what.
    pub(super) const fn next(&self) -> &(Instant, Ask) {
        &self.next
    }

    /// The lease as it is; `None`: there is none.
    pub(super) fn read(&mut self, now: Instant, record: Option<&Record>) {
        let Some(record) = record else {
            self.held_until = None;
            self.next = (now, Ask::Create);
            return;
        };
        let update = || Ask::Update {
            version: record.version.clone(),
            transitions: record.transitions + i32::from(record.holder != self.identity),
        };
        if record.holder == self.identity {
            // Only this process has this name: its renewal arrived and the answer did not.
            self.next = (now, update());
            return;
        }
        self.held_until = None;
        if record.holder.is_empty() {
            self.next = (now, update());
            return;
        }
        let since = match &self.seen {
            Some((version, since)) if *version == record.version => *since,
            _ => now,
        };
        self.seen = Some((record.version.clone(), since));
        // Its own duration is what its holder counts on.
        let expires = since + record.duration.max(self.timing.duration);
        self.next = if now >= expires {
            (now, update())
        } else {
            // It may be given back before.
            (expires.min(now + self.timing.renew()), Ask::Read)
        };
    }

    /// Our write, sent at `sent`, was accepted and made this of it.
    pub(super) fn written(&mut self, sent: Instant, record: &Record) {
        self.held_until = Some(sent + self.timing.hold());
        self.seen = None;
        let update = Ask::Update { version: record.version.clone(), transitions: record.transitions };
        self.next = (sent + self.timing.renew(), update);
    }

    /// Somebody else wrote in between: look again.
    pub(super) fn conflicted(&mut self, now: Instant) {
        self.next = (now, Ask::Read);
    }

    /// Nothing is known of the last request; `wait` before the next, which looks first.
    pub(super) fn failed(&mut self, now: Instant, wait: Duration) {
        self.next = (now + wait.min(self.timing.renew()), Ask::Read);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use std::time::Instant;

    use super::{Ask, Elector, Record, Timing};

    const DURATION: Duration = Duration::from_secs(15);
    const TIMING: Timing = Timing { duration: DURATION };

    fn record(version: &str, holder: &str) -> Record {
        Record { version: version.into(), holder: holder.into(), duration: DURATION, transitions: 3 }
    }

    fn update(version: &str, transitions: i32) -> Ask {
        Ask::Update { version: version.into(), transitions }
    }

    #[test]
    fn an_absent_or_released_lease_is_taken_at_once() {
        let now = Instant::now();
        let mut elector = Elector::new("me".into(), TIMING, now);
        assert_eq!(*elector.next(), (now, Ask::Read));
        elector.read(now, None);
        assert_eq!(*elector.next(), (now, Ask::Create));
        elector.read(now, Some(&record("1", "")));
        assert_eq!(*elector.next(), (now, update("1", 4)));
        assert!(!elector.is_leader(now), "not before it is written");
        elector.written(now, &record("2", "me"));
        assert!(elector.is_leader(now));
    }

    // O55: exactly one writer.
    #[test]
    fn a_holder_that_cannot_renew_gives_up_before_another_may_take_over() {
        let start = Instant::now();
        let (mut holder, mut other) =
            (Elector::new("a".into(), TIMING, start), Elector::new("b".into(), TIMING, start));
        holder.written(start, &record("1", "a"));
        // The other sees the write the moment it is sent, which is the earliest.
        other.read(start, Some(&record("1", "a")));
        while other.next().1 == Ask::Read {
            let now = other.next().0;
            other.read(now, Some(&record("1", "a")));
            holder.failed(now, Duration::ZERO);
        }
        assert_eq!(*other.next(), (start + DURATION, update("1", 4)));
        let until = holder.held_until().expect("held once");
        assert!(start + DURATION - until >= Duration::from_secs(4), "a write under way has time to end");
        assert!(!holder.is_leader(until));
    }

    #[test]
    fn a_renewed_lease_is_waited_for_anew() {
        let start = Instant::now();
        let mut elector = Elector::new("me".into(), TIMING, start);
        elector.read(start, Some(&record("1", "other")));
        let later = start + DURATION - Duration::from_secs(1);
        elector.read(later, Some(&record("2", "other")));
        elector.read(start + DURATION, Some(&record("2", "other")));
        assert_eq!(elector.next().1, Ask::Read);
    }

    #[test]
    fn a_renewal_whose_answer_was_lost_is_found_by_reading() {
        let now = Instant::now();
        let mut elector = Elector::new("me".into(), TIMING, now);
        elector.written(now, &record("1", "me"));
        elector.failed(now, Duration::ZERO);
        elector.read(now, Some(&record("2", "me")));
        assert_eq!(elector.next().1, update("2", 3), "no transition");
        assert!(elector.is_leader(now), "by the renewal before");
    }

    #[test]
    fn another_holder_ends_the_lead_at_once() {
        let now = Instant::now();
        let mut elector = Elector::new("me".into(), TIMING, now);
        elector.written(now, &record("1", "me"));
        elector.conflicted(now);
        elector.read(now, Some(&record("2", "other")));
        assert!(!elector.is_leader(now));
    }

    /// The API server, seen by electors: one record, each write checked against its version.
    #[derive(Default)]
    struct Server {
        record: Option<Record>,
        version: u64,
    }

    impl Server {
        fn write(&mut self, holder: &str, expected: Option<&str>, transitions: i32) -> Option<Record> {
            if self.record.as_ref().map(|record| record.version.as_str()) != expected {
                return None;
            }
            self.version += 1;
            let record = Record {
                version: self.version.to_string(),
                holder: holder.into(),
                duration: DURATION,
                transitions,
            };
            self.record = Some(record.clone());
            Some(record)
        }
    }

    proptest! {
        // O55: with any pattern of lost requests, lost answers and delays there is never a second writer.
        #[test]
        fn there_is_one_leader_at_most(faults in prop::collection::vec((0_u8..4, 0_u64..3000), 1..200)) {
            let start = Instant::now();
            let mut server = Server::default();
            let mut electors: Vec<_> =
                ["a", "b", "c"].map(|name| (name, Elector::new(name.into(), TIMING, start))).into();
            let mut now = start;
            for (fault, delay) in faults {
                let index = (0..electors.len()).min_by_key(|index| electors[*index].1.next().0).expect("three");
                let (name, elector) = &mut electors[index];
                let (sent, ask) = elector.next().clone();
                now = now.max(sent + Duration::from_millis(delay));
                match (ask, fault) {
                    // The request is lost.
                    (_, 0) => elector.failed(now, Duration::from_millis(500)),
                    (Ask::Read, _) => elector.read(now, server.record.clone().as_ref()),
                    (ask, _) => {
                        let written = match &ask {
                            Ask::Update { version, transitions } => server.write(name, Some(version), *transitions),
                            _ => server.write(name, None, 0),
                        };
                        match (written, fault) {
                            // The answer is lost.
                            (_, 1) => elector.failed(now, Duration::from_millis(500)),
                            (Some(record), _) => elector.written(sent, &record),
                            (None, _) => elector.conflicted(now),
                        }
                    }
                }
                let leaders = electors.iter().filter(|(_, elector)| elector.is_leader(now)).count();
                prop_assert!(leaders <= 1);
            }
        }
    }
}
