//! What the processes of a pod cost: CPU time by the kernel's account of its control group, memory by /proc.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// The v1 hierarchy that accounts CPU time; the kubelet of the test cluster uses v1.
const ACCOUNTS: &str = "/sys/fs/cgroup/cpuacct";

/// The control group of one pod.
#[derive(Clone, Debug)]
pub(super) struct Pod(PathBuf);

impl Pod {
    pub(super) fn find(uid: &str) -> Result<Self> {
        let name = format!("pod{uid}");
        let found = find(Path::new(ACCOUNTS), &name);
        Ok(Self(found.with_context(|| format!("no control group {name} below {ACCOUNTS}"))?))
    }

    /// Milliseconds of CPU time since the pod began, of all its processes ever.
    pub(super) fn cpu_ms(&self) -> Result<f64> {
        let path = self.0.join("cpuacct.usage");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let nanos: u64 = text.trim().parse()?;
        // Hours still have a precision of less than a microsecond.
        Ok(nanos as f64 / 1e6)
    }

    /// Resident memory of all its processes, in MB, but of the one that holds its namespaces.
    pub(super) fn rss_mb(&self) -> Result<f64> {
        let mut groups = vec![self.0.clone()];
        let (mut kib, mut processes) = (0u64, 0);
        while let Some(group) = groups.pop() {
            groups.extend(children(&group));
            for pid in fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default().lines() {
                let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                let field = |name: &str| {
                    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).unwrap_or_default()
                };
                if field("Name:") != "pause" {
                    kib += field("VmRSS:").trim_end_matches(" kB").parse().unwrap_or(0);
                    processes += 1;
                }
            }
        }
        ensure!(processes > 0, "no process in {}", self.0.display());
        Ok(kib as f64 * 1024.0 / 1e6)
    }
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    children(folder).into_iter().find_map(|child| {
        if child.file_name().is_some_and(|file| file == name) { Some(child) } else { find(&child, name) }
    })
}

/// None when the group went away meanwhile.
fn children(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()).collect()
}
