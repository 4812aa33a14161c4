//! One change after the other: how soon every replica serves it, and what it costs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use lab::Netns;

use super::candidates::Candidate;
use super::probe::{Answer, PACE, Probe};
use super::{cpu_ms, objects};

/// The route that comes and goes.
const CHANGED: &str = "changed";

/// Samples in milliseconds, one for each change.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    /// From the arrival of the event to the first 200 of the last replica.
    pub(super) visible: Vec<f64>,
    /// From the begin of the API call to there.
    pub(super) visible_from_call: Vec<f64>,
    /// From the arrival of the event to the last 200 of any replica.
    pub(super) gone: Vec<f64>,
}

fn millis(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1000.0
}

impl Candidate {
    /// Creates a route and deletes it, `count` times or until `end`.
    pub(super) fn follow(
        &mut self,
        netns: &Netns,
        count: usize,
        end: Instant,
        samples: &mut Latencies,
    ) -> Result<()> {
        let mut probes: Vec<_> = self.replicas.iter().map(|replica| Probe::new(netns, *replica)).collect();
        let path = objects::route_path(&self.namespace, CHANGED);
        let route = objects::route(&self.namespace, CHANGED, objects::BACKENDS[0]);
        let all = objects::routes_path(&self.namespace);
        for _ in 0..count {
            if Instant::now() > end {
                break;
            }
            let called = Instant::now();
            let seen = while_asking(&mut probes, PACE, Answer::is_ok, || self.api.create(&all, &route))?;
            let served = seen.iter().map(|(first, _)| *first).max().context("there are replicas")?;
            let arrival = self.watcher.arrival(CHANGED, 1)?;
            samples.visible.push(millis(arrival, served));
            samples.visible_from_call.push(millis(called, served));

            let is_gone = |answer: Answer| !answer.is_ok();
            let seen = while_asking(&mut probes, PACE, is_gone, || self.api.delete(&path))?;
            let removal = self.watcher.removal(CHANGED)?;
            let last = seen.iter().filter_map(|(_, last)| *last).max();
            samples.gone.push(last.map_or(0.0, |last| millis(removal, last)));
        }
        Ok(())
    }

    /// CPU milliseconds that a change costs each replica, `count` creates and as many deletes, without requests.
    ///
    /// What the replicas take at rest (`rest_ms_per_s`, of each) is not counted.
    pub(super) fn costs(&mut self, netns: &Netns, count: usize, rest_ms_per_s: &[f64]) -> Result<Vec<f64>> {
        // Seldom enough to cost nothing beside a change; one change is done before the next comes.
        const SELDOM: Duration = Duration::from_millis(25);
        let mut probes: Vec<_> = self.replicas.iter().map(|replica| Probe::new(netns, *replica)).collect();
        let path = objects::route_path(&self.namespace, CHANGED);
        let route = objects::route(&self.namespace, CHANGED, objects::BACKENDS[0]);
        let all = objects::routes_path(&self.namespace);
        let (before, start) = (cpu_ms(&self.pods)?, Instant::now());
        for _ in 0..count {
            while_asking(&mut probes, SELDOM, Answer::is_ok, || self.api.create(&all, &route))?;
            self.watcher.accepted(CHANGED)?;
            while_asking(&mut probes, SELDOM, |answer| !answer.is_ok(), || self.api.delete(&path))?;
            self.watcher.removal(CHANGED)?;
        }
        let (after, seconds) = (cpu_ms(&self.pods)?, start.elapsed().as_secs_f64());
        let busy = before.iter().zip(&after).zip(rest_ms_per_s).map(|((b, a), rest)| a - b - rest * seconds);
        Ok(busy.map(|ms| (ms / (2 * count) as f64).max(0.0)).collect())
    }
}

/// Makes a change while every replica is asked, until all answer as wanted.
fn while_asking(
    probes: &mut [Probe<'_>],
    pace: Duration,
    is_wanted: impl Fn(Answer) -> bool + Copy + Send + Sync,
    change: impl FnOnce() -> Result<()>,
) -> Result<Vec<(Instant, Option<Instant>)>> {
    let host = &objects::host(CHANGED);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            probes.iter_mut().map(|probe| scope.spawn(move || probe.until(host, pace, is_wanted))).collect();
        let changed = change();
        let seen = threads.into_iter().map(|thread| thread.join().expect("a probe does not panic"));
        let seen = seen.collect::<Result<Vec<_>>>();
        changed.and(seen)
    })
}
