//! `test`: everything that a change must pass, in one command; `--quick` is the inner loop.
//!
//! It decides order, overlap and summary only. What each step does is in `step`, how a command is run in `job`. The
//! last line it prints is `N passed, N failed`, summed over every test of every binary, here and in the guests.

mod binaries;
mod changed;
mod clients;
mod job;
mod on_cluster;
mod step;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use self::job::Log;
use self::step::Step;
use crate::libtest::Counts;
use crate::setup::{self, Purpose};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Format, lints and unit tests of the crates that differ from the main branch, in seconds
    #[arg(long, conflicts_with = "steps")]
    quick: bool,
    /// Only this step, with what it builds on; repeatable
    #[arg(long = "step", value_enum, value_name = "STEP")]
    steps: Vec<Step>,
}

/// Compilation and what needs no quiet machine: two lanes, since there are two cores at least and a lane is often
/// waiting for a single-threaded link, a download or the interpreter.
const LANES: [&[Step]; 2] = [
    &[Step::Fmt, Step::Tidy, Step::Deny, Step::Ebpf, Step::Build, Step::Units, Step::Clippy, Step::Doc],
    &[Step::Clients, Step::ClusterBuild, Step::Kernels, Step::ClippyBpf, Step::Miri, Step::Instructions],
];

/// Steps with real time in them, one after the other: on a machine that also compiles they would measure that.
const ALONE: &[Step] =
    &[Step::Kernel, Step::Netns, Step::Demo, Step::Vm, Step::Cluster, Step::Deploy, Step::Conformance];

/// What brings in more of Debian than the others need.
const ON_CLUSTER: &[Step] = &[Step::ClusterBuild, Step::Cluster, Step::Deploy, Step::Conformance];

struct Outcome {
    name: String,
    counts: Counts,
    took: Duration,
    /// What went wrong, with the end of the log.
    failure: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    job::stop_all_on_signal()?;
    let outcomes = if args.quick {
        serially(&changed::jobs()?)?
    } else if args.steps.is_empty() {
        everything()?
    } else {
        require_root(&args.steps)?;
        if args.steps.iter().any(|step| ON_CLUSTER.contains(step)) {
            setup::prepare(&[Purpose::Cluster])?;
        }
        steps(&with_needed(&args.steps))
    };
    finish(&outcomes, start.elapsed())
}

fn everything() -> Result<Vec<Outcome>> {
    require_root(ALONE)?;
    setup::prepare(&[Purpose::Test, Purpose::Demo, Purpose::Cluster])?;
    let mut outcomes = std::thread::scope(|scope| {
        let lanes = LANES.map(|lane| scope.spawn(move || steps(lane)));
        lanes.into_iter().flat_map(|lane| lane.join().expect("a lane does not panic")).collect::<Vec<_>>()
    });
    outcomes.extend(steps(ALONE));
    Ok(outcomes)
}

fn require_root(steps: &[Step]) -> Result<()> {
    let needs_it: Vec<&str> = steps.iter().filter(|step| step.needs_root()).map(|step| step.name()).collect();
    if needs_it.is_empty() || nix::unistd::Uid::effective().is_root() {
        return Ok(());
    }
    bail!(
        "the steps {} make network namespaces and load kernel programs: run this as root (`sudo -E env \
         \"PATH=$PATH\" cargo xtask test`). Without root: `cargo xtask test --quick`, or one step by `--step`",
        needs_it.join(", ")
    )
}

/// The steps asked for, each behind what it builds on, none twice.
fn with_needed(asked: &[Step]) -> Vec<Step> {
    let mut all: Vec<Step> = Vec::new();
    for step in asked.iter().flat_map(|step| step.needs().iter().chain([step])) {
        if !all.contains(step) {
            all.push(*step);
        }
    }
    all
}

fn steps(steps: &[Step]) -> Vec<Outcome> {
    steps.iter().map(|step| outcome(step.name(), |log| step.run(log))).collect()
}

fn serially(jobs: &[changed::Named]) -> Result<Vec<Outcome>> {
    Ok(jobs.iter().map(|named| outcome(&named.name, |log| (named.run)(log))).collect())
}

/// Runs one step and prints its line. An error is a result like any other: the steps behind it still run.
fn outcome(name: &str, run: impl FnOnce(&mut Log) -> Result<Counts>) -> Outcome {
    let start = Instant::now();
    let mut log = Log::create(name);
    let (mut counts, failure) = match &mut log {
        Ok(log) => match run(log) {
            Ok(counts) => (counts, None),
            Err(error) => (log.counts(), Some(format!("{error:#}\n{}", log.end()))),
        },
        Err(error) => (Counts::default(), Some(format!("{error:#}"))),
    };
    if failure.is_some() && counts.failed == 0 {
        // A step that fails without a test of its own counts as one, or the closing line would claim success.
        counts.failed = 1;
    }
    let took = start.elapsed();
    println!("{}", line(name, &counts, took, failure.is_none()));
    if let Some(failure) = &failure {
        println!("{failure}");
    }
    Outcome { name: name.to_owned(), counts, took, failure }
}

fn line(name: &str, counts: &Counts, took: Duration, is_fine: bool) -> String {
    let result = if is_fine { "ok" } else { "FAILED" };
    let tests = if *counts == Counts::default() {
        String::new()
    } else {
        format!("  {} tests passed", counts.passed)
    };
    format!("test: {name:<14} {result:<6} {:>5.0} s{tests}", took.as_secs_f64())
}

fn finish(outcomes: &[Outcome], took: Duration) -> Result<()> {
    let mut sum = Counts::default();
    println!("\nsummary, {:.0} s in all", took.as_secs_f64());
    for outcome in outcomes {
        sum += outcome.counts;
        println!("{}", line(&outcome.name, &outcome.counts, outcome.took, outcome.failure.is_none()));
    }
    let failed: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| outcome.failure.is_some())
        .map(|outcome| outcome.name.as_str())
        .collect();
    if !failed.is_empty() {
        println!("failed: {}; whole logs in {}", failed.join(", "), job::log_dir().display());
    }
    println!("{} passed, {} failed", sum.passed, sum.failed);
    if failed.is_empty() {
        return Ok(());
    }
    // Said above; another line would come behind the closing one.
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_comes_behind_what_it_needs_and_none_twice() {
        assert_eq!(
            with_needed(&[Step::Netns, Step::Units]),
            [Step::Ebpf, Step::Build, Step::Clients, Step::Netns, Step::Units]
        );
    }

    #[test]
    fn every_step_has_one_place() {
        use clap::ValueEnum as _;
        let lanes = LANES.into_iter().flatten();
        let planned: Vec<Step> = lanes.chain(ALONE).copied().collect();
        for step in Step::value_variants() {
            assert_eq!(planned.iter().filter(|planned| *planned == step).count(), 1, "{}", step.name());
        }
    }
}
