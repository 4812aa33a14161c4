//! CPU time of processes and threads, to the nanosecond: what the scheduler charged them.
//!
//! Softirq work is charged to whoever it interrupts, so the time of a process that sends holds the packets' way through
//! the kernel; what is left over is done by the ksoftirqd threads, which are counted too.

use std::fs;

use anyhow::{Context as _, Result};

/// Processes and threads whose time is summed.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    paths: Vec<String>,
}

impl Group {
    /// Every thread of these processes, as they are now.
    pub(super) fn processes(pids: &[i32]) -> Self {
        let paths = pids
            .iter()
            .flat_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten())
            .map(|task| format!("{}/schedstat", task.path().display()))
            .collect();
        Self { paths }
    }

    /// The threads of this process with these ids.
    pub(super) fn threads(tids: &[i32]) -> Self {
        Self { paths: tids.iter().map(|tid| format!("/proc/self/task/{tid}/schedstat")).collect() }
    }

    /// The kernel's own packet threads.
    pub(super) fn softirq() -> Self {
        let is_ksoftirqd = |pid: &str| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.starts_with("ksoftirqd/")
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let pids = pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && is_ksoftirqd(name));
        Self { paths: pids.map(|pid| format!("/proc/{pid}/schedstat")).collect() }
    }

    pub(super) fn with(mut self, other: Self) -> Self {
        self.paths.extend(other.paths);
        self
    }

    /// Microseconds since each began.
    pub(super) fn micros(&self) -> Result<f64> {
        let mut sum = 0.0;
        for path in &self.paths {
            let text = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
            let nanos = text.split(' ').next().and_then(|word| word.parse::<u64>().ok());
            // A sum of hours still has a precision of less than a microsecond.
            sum += nanos.with_context(|| format!("{path} holds {text:?}"))? as f64 / 1000.0;
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::Group;

    #[test]
    fn own_time_grows_with_work() {
        // This thread alone: those of other tests come and go.
        let own = Group::threads(&[nix::unistd::gettid().as_raw()]);
        let before = own.micros().expect("readable");
        let mut value = 1u64;
        while own.micros().expect("readable") < before + 1000.0 {
            value = value.wrapping_mul(31).rotate_left(7);
        }
        assert_ne!(value, 0);
    }
}
