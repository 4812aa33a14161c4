//! CPU time of processes and threads, to the nanosecond: what the scheduler charged them.
//!
//! Softirq work is charged to whoever it interrupts, so the time of a process that sends holds the packets' way through
//! the kernel; what is left over is done by the ksoftirqd threads, which are counted too.

use std::fs;

use anyhow::{Context as _, Result};
use nix::time::ClockId;
use nix::unistd::Pid;

/// Processes and threads whose time is summed.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    processes: Vec<Pid>,
    /// Accounts of single threads.
    paths: Vec<String>,
}

impl Group {
    /// These processes with all their threads, also those that begin or end meanwhile.
    pub(super) fn processes(pids: &[i32]) -> Self {
        Self { processes: pids.iter().copied().map(Pid::from_raw).collect(), paths: Vec::new() }
    }

    /// The threads of this process with these ids.
    pub(super) fn threads(tids: &[i32]) -> Self {
        let paths = tids.iter().map(|tid| format!("/proc/self/task/{tid}/schedstat")).collect();
        Self { processes: Vec::new(), paths }
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
        Self { processes: Vec::new(), paths: pids.map(|pid| format!("/proc/{pid}/schedstat")).collect() }
    }

    pub(super) fn with(mut self, other: Self) -> Self {
        self.processes.extend(other.processes);
        self.paths.extend(other.paths);
        self
    }

    /// Microseconds since each began.
    pub(super) fn micros(&self) -> Result<f64> {
        let mut sum = 0.0;
        for pid in &self.processes {
            let now = ClockId::pid_cpu_clock_id(*pid).and_then(ClockId::now);
            let now = now.with_context(|| format!("CPU time of process {pid}"))?;
            sum += now.tv_sec() as f64 * 1e6 + now.tv_nsec() as f64 / 1e3;
        }
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

    /// Works until this thread alone (those of other tests come and go) has taken as much more CPU time.
    fn work(micros: f64) {
        let own = Group::threads(&[nix::unistd::gettid().as_raw()]);
        let before = own.micros().expect("readable");
        let mut value = 1u64;
        while own.micros().expect("readable") < before + micros {
            value = value.wrapping_mul(31).rotate_left(7);
        }
        assert_ne!(value, 0);
    }

    #[test]
    fn own_time_grows_with_work() {
        work(1000.0);
    }

    #[test]
    fn a_process_keeps_the_time_of_threads_that_came_and_went() {
        let process = Group::processes(&[nix::unistd::getpid().as_raw()]);
        let before = process.micros().expect("readable");
        std::thread::spawn(|| work(3000.0)).join().expect("no panic");
        assert!(process.micros().expect("readable") >= before + 3000.0);
    }
}
