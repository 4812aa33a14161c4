//! `instructions`: how many instructions the hot paths take, against the counts on record.
//!
//! Time on a shared machine swings by the factor of three; what valgrind counts is the same in every run to a fraction
//! of a percent, so that a change which costs something shows in the change itself. It counts no cache misses and no
//! system calls: those are the benches' business. The paths are in `tests/wire/src/paths.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::command::{cargo, output, program, root, run as run_command, target_dir};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Put the counts on record: the change that moved them says why
    #[arg(long)]
    record: bool,
    /// Only paths whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Nanoseconds on this machine as it is now, in place of instructions
    #[arg(long, conflicts_with = "record")]
    time: bool,
}

/// By which a count may differ from the one on record. Another patch release of the compiler or of a crate moves them
/// by one or two.
const TOLERANCE_PERCENT: u64 = 5;

/// Below so few the tolerance would be less than one instruction more in a loop.
const TOLERANCE_MIN: u64 = 8;

/// What a look for a route is to take at most among 100,000, in nanoseconds.
const LOOKUP_TARGET_NS: f64 = 1000.0;

const PROFILE: &str = "instructions";

pub(crate) fn run(args: &Args) -> Result<()> {
    let binary = build()?;
    let mut paths = Vec::new();
    for line in output(program(&binary).arg("--list"))?.lines() {
        let (name, times) = line.split_once(' ').context("the list names paths and times")?;
        if args.only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            paths.push((name.to_owned(), times.parse::<u64>()?));
        }
    }
    ensure!(!paths.is_empty(), "no hot path has such a name");
    if args.time {
        return time(&binary, &paths);
    }
    let counts = paths
        .iter()
        .map(|(name, times)| Ok((name.clone(), count(&binary, name)? / times)))
        .collect::<Result<BTreeMap<_, _>>>()?;
    if args.record {
        return record(counts);
    }
    compare(&counts, &recorded()?, args.only.is_none())
}

/// Optimised like a release, in a folder of its own. Not much: the parsers need few of the agent's crates.
fn build() -> Result<PathBuf> {
    let mut build = cargo(["build", "--locked", "--profile", PROFILE, "--package", "wire-tests"]);
    run_command(build.args(["--bin", "instructions"]))?;
    Ok(target_dir().join(PROFILE).join("instructions"))
}

/// Of all the times that the path is done.
fn count(binary: &Path, name: &str) -> Result<u64> {
    let file = target_dir().join(PROFILE).join(format!("callgrind.{name}"));
    let mut valgrind = program("valgrind");
    valgrind
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*measured*"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(binary)
        .arg(name);
    output(&mut valgrind).context("it needs valgrind: `cargo xtask setup --for test`")?;
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    total(&text).with_context(|| format!("no total in {}", file.display()))
}

/// Callgrind's own sum; 0 where it has not seen the function that is counted.
fn total(text: &str) -> Option<u64> {
    let sum = text.lines().find_map(|line| line.strip_prefix("totals: "))?;
    sum.trim().parse().ok().filter(|total| *total > 0)
}

fn record_path() -> PathBuf {
    root().join("tests/wire/instructions.json")
}

fn recorded() -> Result<BTreeMap<String, u64>> {
    let path = record_path();
    let text = fs::read_to_string(&path).with_context(|| {
        format!("cannot read {}: `cargo xtask instructions --record` writes it", path.display())
    })?;
    let value: BTreeMap<String, Value> = serde_json::from_str(&text)?;
    let counts = value.into_iter().map(|(name, count)| {
        let count = count.as_u64().with_context(|| format!("the count of {name} is no number"))?;
        Ok((name, count))
    });
    counts.collect()
}

/// Those of paths that were not counted now stay.
fn record(counts: BTreeMap<String, u64>) -> Result<()> {
    let mut all = if record_path().exists() { recorded()? } else { BTreeMap::new() };
    for (name, count) in counts {
        println!("{name:<24} {count:>8}");
        all.insert(name, count);
    }
    let text = serde_json::to_string_pretty(&all)? + "\n";
    fs::write(record_path(), text).context("cannot write the counts")
}

fn compare(counts: &BTreeMap<String, u64>, recorded: &BTreeMap<String, u64>, is_all: bool) -> Result<()> {
    let mut differ = Vec::new();
    let mut n_held = 0;
    for (name, count) in counts {
        let known = recorded.get(name).copied();
        let verdict = match known {
            None => "not on record".to_owned(),
            Some(known) if is_within(*count, known) => {
                n_held += 1;
                String::new()
            }
            Some(known) => {
                format!("{:+.1} %", (*count as f64 - known as f64) / known.max(1) as f64 * 100.0)
            }
        };
        println!("{name:<24} {count:>8} {:>8}  {verdict}", known.unwrap_or_default());
        if !verdict.is_empty() {
            differ.push(name.as_str());
        }
    }
    if is_all {
        differ.extend(recorded.keys().filter(|name| !counts.contains_key(*name)).map(String::as_str));
    }
    println!("{n_held} passed, {} failed", differ.len());
    if differ.is_empty() {
        return Ok(());
    }
    bail!(
        "more than {TOLERANCE_PERCENT} % off the record: {}. Where that is meant, also where it has become less: `cargo \
         xtask instructions --record`",
        differ.join(", ")
    );
}

fn is_within(count: u64, known: u64) -> bool {
    count.abs_diff(known) <= (known * TOLERANCE_PERCENT / 100).max(TOLERANCE_MIN)
}

fn time(binary: &Path, paths: &[(String, u64)]) -> Result<()> {
    let mut missed = Vec::new();
    for (name, _) in paths {
        let nanos: f64 = output(program(binary).args(["--time", name]))?.trim().parse()?;
        println!("{name:<24} {nanos:>8.1} ns");
        if name.starts_with("lookup_") && nanos > LOOKUP_TARGET_NS {
            missed.push(name.as_str());
        }
    }
    ensure!(missed.is_empty(), "above {LOOKUP_TARGET_NS} ns: {}", missed.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{is_within, total};

    #[test]
    fn the_sum_is_found_in_what_callgrind_writes() {
        assert_eq!(total("version: 1\nevents: Ir\nsummary: 4812\n\nfn=(1)\n0 3\ntotals: 4812\n"), Some(4812));
        // The function was not found by its name.
        assert_eq!(total("events: Ir\ntotals: 0\n"), None);
    }

    #[test]
    fn counts_may_differ_by_the_tolerance_in_both_directions() {
        assert!(is_within(1050, 1000) && is_within(950, 1000) && is_within(28, 20));
        assert!(!is_within(1051, 1000) && !is_within(949, 1000) && !is_within(29, 20));
    }
}
