//! What a reader needs to know of the machine to judge figures: its size, and what else it did meanwhile.

use std::fs;

use anyhow::{Context as _, Result};

/// The machine as it was when measuring began.
pub(super) struct Machine {
    load: String,
    ticks: Ticks,
}

#[derive(Clone, Copy)]
struct Ticks {
    all: f64,
    /// The hypervisor gave them to others.
    stolen: f64,
}

impl Machine {
    pub(super) fn now() -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
        Ok(Self { load: load()?, ticks: ticks(&stat).context("/proc/stat begins with all cpus")? })
    }

    /// One line on the machine and on the time since `self`.
    pub(super) fn describe_since(&self) -> Result<String> {
        let now = Self::now()?;
        let cpus = std::thread::available_parallelism()?;
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib: f64 = meminfo.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0.0);
        let stolen = (now.ticks.stolen - self.ticks.stolen) / (now.ticks.all - self.ticks.all).max(1.0);
        Ok(format!(
            "{cpus} cpus, {:.0} GiB; load before {}, after {} (1 and 5 minutes); {:.1} % of the CPU time stolen.",
            kib / f64::from(1 << 20),
            self.load,
            now.load,
            stolen * 100.0
        ))
    }
}

/// Resident memory of these processes together, in MB.
pub(super) fn rss_mb(pids: &[i32]) -> Result<f64> {
    let mut kib = 0.0;
    for pid in pids {
        let path = format!("/proc/{pid}/status");
        let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let size = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        kib +=
            size.and_then(|size| size.parse::<f64>().ok()).with_context(|| format!("no VmRSS in {path}"))?;
    }
    Ok(kib * 1024.0 / 1e6)
}

/// Of one and five minutes.
pub(super) fn load() -> Result<String> {
    let text = fs::read_to_string("/proc/loadavg").context("read /proc/loadavg")?;
    Ok(text.split(' ').take(2).collect::<Vec<_>>().join(" "))
}

/// Of all cpus together; the columns are those of proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal.
fn ticks(stat: &str) -> Option<Ticks> {
    let words = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> = words.split_whitespace().filter_map(|word| word.parse().ok()).take(8).collect();
    Some(Ticks { all: ticks.iter().sum(), stolen: *ticks.get(7)? })
}

#[cfg(test)]
mod tests {
    use super::ticks;

    #[test]
    fn stolen_time_is_the_eighth_column() {
        let ticks = ticks("cpu  10 0 20 50 5 0 5 10 99 99\ncpu0 1 1 1 1 1 1 1 1 0 0\n").expect("valid");
        assert_eq!((ticks.all, ticks.stolen), (100.0, 10.0));
        assert!(super::ticks("intr 1 2 3").is_none());
    }
}
