//! The steps that need the test cluster: one is started for them unless one runs, and only what they started ends.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::binaries;
use super::job::Log;
use super::step::xtask;
use crate::command::{output, target_dir};

/// Up within a minute once built; the rest is a busy machine.
const UP_LIMIT: Duration = Duration::from_secs(10 * 60);

/// The whole suite, with the time that its slowest tests wait; it has a limit of its own below this.
const CONFORMANCE_LIMIT: Duration = Duration::from_secs(65 * 60);

/// The Go programs: compiled in the first minutes, needed in the last.
pub(super) fn build(log: &mut Log, limit: Duration) -> Result<()> {
    log.run(xtask(&["cluster", "build"]), limit)?;
    log.run(xtask(&["conformance", "--build-only"]), limit)
}

/// Runs `work` with a cluster that has the images of the agent and of backends.
pub(super) fn with_cluster(log: &mut Log, work: impl FnOnce(&mut Log) -> Result<()>) -> Result<()> {
    let was_up = is_up();
    if !was_up {
        log.run(xtask(&["cluster", "up"]), UP_LIMIT)?;
    }
    let result = images(log).and_then(|()| work(log));
    let down = if was_up { Ok(()) } else { log.run(xtask(&["cluster", "down"]), UP_LIMIT) };
    result.and(down)
}

/// The whole suite with the acknowledger; with Roles only, its short form, which has the tests of status also for features
/// that are not claimed. Both of the agent that the tests are built with.
pub(super) fn conformance(log: &mut Log) -> Result<()> {
    let agent = binaries::agent();
    let agent = agent.to_str().context("the path is not UTF-8")?;
    // Each is run though another failed: their reports say different things.
    let passes: [&[&str]; 2] = [&[], &["--roles-only", "--short"]];
    let mut failed = Vec::new();
    for pass in passes {
        let args: Vec<&str> = ["conformance", "--agent", agent].iter().chain(pass).copied().collect();
        if let Err(error) = log.run(xtask(&args), CONFORMANCE_LIMIT) {
            failed.push(format!("{error:#}"));
        }
    }
    anyhow::ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

fn is_up() -> bool {
    output(&mut xtask(&["cluster", "kubectl", "get", "--raw", "/readyz", "--request-timeout=5s"])).is_ok()
}

fn images(log: &mut Log) -> Result<()> {
    let archive = target_dir().join("image/gateway-agent.tar");
    let archive = archive.to_str().context("the path is not UTF-8")?;
    let agent = binaries::agent();
    let agent = agent.to_str().context("the path is not UTF-8")?;
    log.run(xtask(&["image", "--binary", agent, "--output", archive]), UP_LIMIT)?;
    log.run(xtask(&["cluster", "load", "--conformance", archive]), UP_LIMIT)
}
