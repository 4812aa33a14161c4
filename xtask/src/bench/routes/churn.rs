//! Many changes at once under load, and whether any answer was wrong.
//!
//! A replica may be late, and may leave out what was overtaken. It may not answer what no version of the route ever
//! said, nor go back to a version before one that it has served.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use lab::Netns;

use super::candidates::Candidate;
use super::objects;
use super::probe::{Answer, PACE, Probe};

/// Routes that change; the others stand still and are asked as often.
const POOL: usize = 24;

/// How long a candidate may take to come to the last version of each route.
const SETTLE: Duration = Duration::from_secs(60);

/// Stands for the last version of a route when it never came: no status is so low.
const NEVER: u16 = 1;

/// What a hostname answers from some moment on.
type Version = (Instant, Answer);

/// Index of the host, when the answer was there, and what it was.
type Observation = (usize, Instant, Answer);

#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) wrong: usize,
    pub(super) requests: usize,
    pub(super) changes_per_s: f64,
    /// Some wrong answers, in words.
    pub(super) examples: Vec<String>,
}

fn name(index: usize) -> String {
    if index < POOL { format!("churn{index}") } else { format!("r{}", index - POOL) }
}

fn answer(backend: &str) -> Answer {
    Answer::From(backend.as_bytes().first().copied().unwrap_or_default())
}

impl Candidate {
    pub(super) fn churn(&mut self, netns: &Netns, changes: usize) -> Result<Outcome> {
        let still = self.routes.min(POOL);
        let start = Instant::now();
        let versions: Vec<Vec<Version>> = (0..POOL + still)
            .map(|index| {
                vec![(start, if index < POOL { Answer::Missing } else { answer(objects::BACKENDS[0]) })]
            })
            .collect();
        let versions = Mutex::new(versions);
        let is_done = AtomicBool::new(false);
        let replicas = self.replicas.clone();
        let (done, observations) = std::thread::scope(|scope| {
            let (versions, is_done) = (&versions, &is_done);
            let threads: Vec<_> = replicas
                .into_iter()
                .map(|replica| {
                    scope.spawn(move || load(Probe::new(netns, replica), still, is_done, versions))
                })
                .collect();
            let done = self.change(changes, versions);
            is_done.store(true, Ordering::SeqCst);
            let all: Vec<_> =
                threads.into_iter().map(|t| t.join().expect("a client does not panic")).collect();
            (done, all)
        });
        let seconds = done?;
        let versions = versions.into_inner().ok().context("no thread panicked")?;
        self.clean(&versions)?;
        let mut outcome =
            Outcome { wrong: 0, requests: 0, changes_per_s: changes as f64 / seconds, examples: Vec::new() };
        for (replica, observed) in observations.iter().enumerate() {
            outcome.requests += observed.len();
            for (index, versions) in versions.iter().enumerate() {
                let of_host =
                    observed.iter().filter(|(host, _, _)| *host == index).map(|(_, at, a)| (*at, *a));
                let wrong = wrong(versions, of_host);
                outcome.wrong += wrong.len();
                outcome.examples.extend(wrong.iter().take(3).map(|(at, answer)| {
                    let after = at.saturating_duration_since(start).as_secs_f64();
                    format!("replica {replica}, {}, after {after:.3} s: {answer:?}", name(index))
                }));
            }
        }
        Ok(outcome)
    }

    /// Creates, changes and deletes in turn. Gives the seconds that it took.
    fn change(&mut self, count: usize, versions: &Mutex<Vec<Vec<Version>>>) -> Result<f64> {
        let start = Instant::now();
        for change in 0..count {
            let index = change % POOL;
            let name = name(index);
            let path = objects::route_path(&self.namespace, &name);
            let say = |answer| {
                // Before the call: from now on the answer may be so.
                if let Ok(mut versions) = versions.lock() {
                    versions[index].push((Instant::now(), answer));
                }
            };
            let [a, b] = objects::BACKENDS;
            match change / POOL % 3 {
                0 => {
                    say(answer(a));
                    let route = objects::route(&self.namespace, &name, a);
                    self.api.create(&objects::routes_path(&self.namespace), &route)?;
                }
                1 => {
                    say(answer(b));
                    self.api.patch(&path, &objects::backend_patch(b))?;
                }
                _ => {
                    say(Answer::Missing);
                    self.api.delete(&path)?;
                }
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Deletes what the last round left.
    fn clean(&mut self, versions: &[Vec<Version>]) -> Result<()> {
        for (index, versions) in versions.iter().enumerate().take(POOL) {
            if versions.last().is_some_and(|(_, answer)| answer.is_ok()) {
                self.api.delete(&objects::route_path(&self.namespace, &name(index)))?;
            }
        }
        Ok(())
    }
}

/// Asks all hosts in turn until everything is done, and then until each answers its last version.
fn load(
    mut probe: Probe<'_>,
    still: usize,
    is_done: &AtomicBool,
    versions: &Mutex<Vec<Vec<Version>>>,
) -> Vec<Observation> {
    let hosts: Vec<_> = (0..POOL + still).map(|index| objects::host(&name(index))).collect();
    let mut observed = Vec::new();
    let mut end = None;
    loop {
        let is_last = is_done.load(Ordering::SeqCst);
        let begin = observed.len();
        for (index, host) in hosts.iter().enumerate() {
            let (at, answer) = probe.ask(host);
            observed.push((index, at, answer));
            std::thread::park_timeout(PACE);
        }
        if !is_last {
            continue;
        }
        let deadline = *end.get_or_insert_with(|| Instant::now() + SETTLE);
        let last = |index: usize| {
            let versions = versions.lock().ok()?;
            versions[index].last().map(|(_, answer)| *answer)
        };
        let round = observed[begin..].iter();
        let late: Vec<_> = round.filter(|(index, _, seen)| last(*index) != Some(*seen)).copied().collect();
        if late.is_empty() || Instant::now() > deadline {
            // What never comes is wrong, once for each host.
            observed.extend(late.into_iter().map(|(index, at, _)| (index, at, Answer::Other(NEVER))));
            return observed;
        }
    }
}

/// The answers that neither the version served last nor a later one gives.
fn wrong(versions: &[Version], observed: impl Iterator<Item = (Instant, Answer)>) -> Vec<(Instant, Answer)> {
    let mut served = 0;
    observed
        .filter(|(at, answer)| {
            let later = versions.iter().enumerate().skip(served);
            let found = later.take_while(|(_, (since, _))| since <= at).find(|(_, (_, said))| said == answer);
            found.map(|(version, _)| served = version).is_none()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Answer = Answer::From(b'a');
    const B: Answer = Answer::From(b'b');
    const NONE: Answer = Answer::Missing;

    /// Versions since 0, 10, 20 ... ms; answers at their times; how many are wrong.
    fn count(versions: &[Answer], observed: &[(u64, Answer)]) -> usize {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let versions: Vec<_> = versions.iter().zip((0..).step_by(10)).map(|(a, ms)| (at(ms), *a)).collect();
        wrong(&versions, observed.iter().map(|(ms, answer)| (at(*ms), *answer))).len()
    }

    #[test]
    fn late_and_overtaken_versions_are_right() {
        assert_eq!(count(&[NONE, A, B, NONE], &[(5, NONE), (15, NONE), (35, A), (50, NONE)]), 0);
    }

    #[test]
    fn going_back_is_wrong_unless_a_later_version_says_the_same() {
        assert_eq!(count(&[NONE, A], &[(15, A), (16, NONE), (17, A)]), 1);
        assert_eq!(count(&[NONE, A, NONE, A], &[(35, A), (36, NONE), (37, A)]), 0);
        assert_eq!(count(&[A, B], &[(15, B), (16, A)]), 1);
    }

    #[test]
    fn what_no_version_says_is_wrong_and_so_is_what_comes_too_early() {
        assert_eq!(count(&[NONE, A], &[(15, Answer::Other(503)), (16, B)]), 2);
        assert_eq!(count(&[NONE, A], &[(5, A)]), 1);
    }
}
