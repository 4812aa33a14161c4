//! The programs that make load: on the client's cpu, in the client's namespace, ended when they take far too long.
//!
//! It does not understand what they say.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab::Netns;

use super::vegeta;
use crate::bench::CLIENT_CPU;

pub(super) struct Output {
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// What timeout(1) exits with when it had to end the program, by TERM or by KILL.
const ENDED: [i32; 2] = [124, 137];

/// However the program exits by itself: load generators fail when single requests do, and those are counted.
pub(super) fn run(netns: &Netns, limit: Duration, tool: &str, args: &[String]) -> Result<Output> {
    let seconds = limit.as_secs().max(1).to_string();
    let cpu = CLIENT_CPU.to_string();
    let prefix = ["--kill-after=5", &seconds, "taskset", "-c", &cpu, tool];
    let output = netns
        .run(|| {
            let (key, value) = vegeta::ENVIRONMENT;
            Command::new("timeout").args(prefix).args(args).env(key, value).stdin(Stdio::null()).output()
        })?
        .with_context(|| format!("run {tool}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_ended = output.status.code().is_none_or(|code| ENDED.contains(&code));
    ensure!(!is_ended, "{tool} did not end within {seconds} s ({}):\n{stdout}{stderr}", output.status);
    Ok(Output { stdout, stderr })
}

/// `text` has this many lines at most, for messages.
pub(super) fn head(text: &str, lines: usize) -> String {
    text.lines().take(lines).collect::<Vec<_>>().join("; ")
}
