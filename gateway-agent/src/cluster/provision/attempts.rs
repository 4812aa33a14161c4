//! Which wanted writes are due: when each was last tried, and how that went.
//!
//! A write that succeeded stays wanted until the watch has told of its result; one that has to be made again and again
//! meets somebody who undoes it. Both wait, each time longer. **Invariant:** no I/O and no clock; at most one entry per
//! wanted object, so the plan bounds it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::provision::{Change, ManifestKind, Wanted};
use crate::snapshot::ObjectName;

/// The first wait after a failure.
const FAILED: Duration = Duration::from_millis(500);
/// The first wait for the watch to tell of a success: seconds pass only when the API server is in trouble.
const ECHO: Duration = Duration::from_secs(5);
/// What is refused for good is asked for this often, for rights and quotas do change.
const LONGEST: Duration = Duration::from_secs(60);
/// From this many successes of one write on somebody else is thought to undo it.
const CONTESTED: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct Attempts {
    by_object: HashMap<(ManifestKind, ObjectName), Attempt>,
}

#[derive(Debug)]
struct Attempt {
    change: Change,
    /// Tries of the same change since it was first wanted, one after the other.
    n_tries: u32,
    n_successes: u32,
    not_before: Instant,
    failure: Option<String>,
}

impl Attempts {
    /// The wanted writes that may be made now, in order, and when the next one may be. Forgets what is not wanted any
    /// more, or otherwise than it was.
    pub(super) fn due<'a>(
        &mut self,
        wanted: &'a [Wanted],
        leads: impl Fn(&Wanted) -> bool,
        now: Instant,
    ) -> (Vec<&'a Wanted>, Option<Instant>) {
        let by_object: HashMap<(ManifestKind, &ObjectName), &Wanted> =
            wanted.iter().map(|wanted| ((wanted.change.kind(), wanted.change.name()), wanted)).collect();
        self.by_object.retain(|(kind, name), attempt| {
            // Who does not lead knows nothing of how its writes would go.
            by_object
                .get(&(*kind, name))
                .is_some_and(|wanted| wanted.change == attempt.change && leads(wanted))
        });
        let mut due = Vec::new();
        let mut next: Option<Instant> = None;
        for wanted in wanted.iter().filter(|wanted| leads(wanted)) {
            let key = (wanted.change.kind(), wanted.change.name().clone());
            match self.by_object.get(&key).map(|attempt| attempt.not_before).filter(|at| *at > now) {
                None => due.push(wanted),
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
            }
        }
        (due, next)
    }

    /// `failure`: why it was not written.
    pub(super) fn tried(&mut self, wanted: &Wanted, failure: Option<String>, now: Instant) {
        let key = (wanted.change.kind(), wanted.change.name().clone());
        let attempt = self.by_object.entry(key).or_insert_with(|| Attempt {
            change: wanted.change.clone(),
            n_tries: 0,
            n_successes: 0,
            not_before: now,
            failure: None,
        });
        let first = if failure.is_some() { FAILED } else { ECHO };
        let factor = 1_u32.checked_shl(attempt.n_tries).unwrap_or(u32::MAX);
        attempt.not_before = now + first.saturating_mul(factor).min(LONGEST);
        attempt.n_tries = attempt.n_tries.saturating_add(1).min(31);
        attempt.n_successes = if failure.is_none() { attempt.n_successes.saturating_add(1) } else { 0 };
        attempt.failure = failure;
    }

    /// By Gateway, what keeps its objects from being as they should be.
    pub(super) fn problems(&self, wanted: &[Wanted]) -> BTreeMap<ObjectName, String> {
        let mut problems = BTreeMap::new();
        for wanted in wanted {
            let (kind, name) = (wanted.change.kind(), wanted.change.name());
            let Some(attempt) = self.by_object.get(&(kind, name.clone())) else { continue };
            let what = format!("{} {name}", kind.as_str());
            let problem = match &attempt.failure {
                Some(failure) => format!("{what}: {failure}"),
                None if attempt.n_successes >= CONTESTED => {
                    format!("{what} does not stay as it is written: somebody else changes it")
                }
                None => continue,
            };
            problems.entry(wanted.gateway.clone()).or_insert(problem);
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Attempts, CONTESTED, ECHO, LONGEST};
    use crate::provision::{Change, ManifestKind, Wanted};
    use crate::snapshot::ObjectName;

    fn wanted(name: &str, uid: &str) -> Wanted {
        let name = ObjectName::new("team", name);
        let change =
            Change::Delete { kind: ManifestKind::Service, name: name.clone(), uid: Some(uid.into()) };
        Wanted { class: "c".into(), gateway: name, change }
    }

    fn names(due: &[&Wanted]) -> Vec<String> {
        due.iter().map(|wanted| wanted.change.name().name.to_string()).collect()
    }

    const LEADER: fn(&Wanted) -> bool = |_| true;

    #[test]
    fn only_the_leader_writes() {
        let now = Instant::now();
        let wanted = [wanted("a", "1"), wanted("b", "1")];
        let mut attempts = Attempts::default();
        let (due, next) = attempts.due(&wanted, |wanted| &*wanted.gateway.name == "b", now);
        assert_eq!((names(&due), next), (vec!["b".to_owned()], None));
    }

    #[test]
    fn success_is_not_repeated_before_the_watch_had_time_to_tell() {
        let now = Instant::now();
        let wanted = [wanted("a", "1")];
        let mut attempts = Attempts::default();
        attempts.tried(&wanted[0], None, now);
        assert_eq!(attempts.due(&wanted, LEADER, now), (vec![], Some(now + ECHO)));
        assert_eq!(attempts.due(&wanted, LEADER, now + ECHO).0.len(), 1);
    }

    #[test]
    fn failures_wait_ever_longer_and_never_give_up() {
        let mut now = Instant::now();
        let wanted = [wanted("a", "1")];
        let mut attempts = Attempts::default();
        let mut waits = Vec::new();
        for _ in 0..40 {
            attempts.tried(&wanted[0], Some("refused".into()), now);
            let next = attempts.due(&wanted, LEADER, now).1.unwrap();
            waits.push(next - now);
            now = next;
        }
        assert!(waits.is_sorted() && waits[0] < Duration::from_secs(1), "{waits:?}");
        assert_eq!(waits[39], LONGEST);
        let problems = attempts.problems(&wanted);
        assert_eq!(problems.values().collect::<Vec<_>>(), ["Service team/a: refused"]);
    }

    #[test]
    fn another_change_of_the_object_is_due_at_once() {
        let now = Instant::now();
        let mut attempts = Attempts::default();
        attempts.tried(&wanted("a", "1"), Some("refused".into()), now);
        let changed = [wanted("a", "2")];
        assert_eq!(attempts.due(&changed, LEADER, now).0.len(), 1);
        assert!(attempts.problems(&changed).is_empty());
    }

    #[test]
    fn what_is_not_wanted_any_more_is_forgotten() {
        let now = Instant::now();
        let mut attempts = Attempts::default();
        attempts.tried(&wanted("a", "1"), None, now);
        attempts.due(&[], LEADER, now);
        assert!(attempts.by_object.is_empty());
    }

    #[test]
    fn who_lost_the_lease_starts_anew_when_it_has_it_again() {
        let now = Instant::now();
        let wanted = [wanted("a", "1")];
        let mut attempts = Attempts::default();
        attempts.tried(&wanted[0], Some("refused".into()), now);
        assert!(attempts.due(&wanted, |_| false, now).0.is_empty());
        assert!(attempts.problems(&wanted).is_empty());
        assert_eq!(attempts.due(&wanted, LEADER, now).0.len(), 1);
    }

    #[test]
    fn write_that_somebody_undoes_is_told_of() {
        let mut now = Instant::now();
        let wanted = [wanted("a", "1")];
        let mut attempts = Attempts::default();
        for _ in 0..CONTESTED {
            assert!(attempts.problems(&wanted).is_empty());
            attempts.tried(&wanted[0], None, now);
            now = attempts.due(&wanted, LEADER, now).1.unwrap();
        }
        assert!(attempts.problems(&wanted).values().all(|problem| problem.contains("somebody else")));
        assert_eq!(attempts.problems(&wanted).len(), 1);
    }
}
