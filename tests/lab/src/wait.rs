//! Waiting for a condition, always with a deadline.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

/// Generous, because tests share few cores with builds; a healthy probe succeeds in milliseconds.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Between two probes: short against what is waited for, long enough to leave the core to it.
const PAUSE: Duration = Duration::from_millis(5);

/// Repeats `probe` until it succeeds; the error is that of the last attempt.
pub fn eventually<T>(what: &str, probe: impl FnMut() -> Result<T>) -> Result<T> {
    eventually_within(DEADLINE, what, probe)
}

/// As [`eventually`], with another deadline.
pub fn eventually_within<T>(deadline: Duration, what: &str, probe: impl FnMut() -> Result<T>) -> Result<T> {
    eventually_every(PAUSE, deadline, what, probe)
}

/// As [`eventually_within`], with another pause between two probes, for probes that cost something.
pub fn eventually_every<T>(
    pause: Duration,
    deadline: Duration,
    what: &str,
    mut probe: impl FnMut() -> Result<T>,
) -> Result<T> {
    let end = Instant::now() + deadline;
    loop {
        match probe() {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= end => {
                return Err(error.context(format!("not within {deadline:?}: {what}")));
            }
            Err(_) => std::thread::park_timeout(pause),
        }
    }
}

/// For conditions that are a plain yes or no.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    eventually(what, || if condition() { Ok(()) } else { Err(anyhow!("still not so")) })
}
