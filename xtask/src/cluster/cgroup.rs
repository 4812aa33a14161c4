//! The control groups of the machines: what holds every process of the cluster together, so that `down` finds them all.
//!
//! They lie below the group that made them, never at the root: this machine's limits stay in force. It knows the
//! hierarchies of cgroup v1, beside which a v2 without controllers may be mounted; a machine that has v2 alone is refused.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::name;
use super::network::CONTROL_PLANE;

const MOUNTS: &str = "/sys/fs/cgroup";

/// The weight of a cluster, 1024 being one process's: the kernel weighs the group against every single compiler beside
/// it, and an API server that waits for its turn breaks its clients' handshakes.
const CLUSTER_SHARES: &str = "20480";
/// The weight of the control plane among the cluster's machines.
const CONTROL_PLANE_SHARES: &str = "4096";
/// Killed processes leave their groups at once; what a shim starts meanwhile is found by the next round.
const KILL_DEADLINE: Duration = Duration::from_secs(60);

/// One line of /proc/self/cgroup: the controllers, empty for v2, and our group.
struct Hierarchy {
    controllers: String,
    own: String,
}

impl Hierarchy {
    fn mount(&self) -> PathBuf {
        let name = self.controllers.strip_prefix("name=").unwrap_or(&self.controllers);
        Path::new(MOUNTS).join(if name.is_empty() { "unified" } else { name })
    }
}

fn hierarchies() -> Result<Vec<Hierarchy>> {
    let text = fs::read_to_string("/proc/self/cgroup")?;
    let all: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some(Hierarchy { controllers: parts.next()?.to_owned(), own: parts.next()?.to_owned() })
        })
        .filter(|hierarchy| hierarchy.mount().is_dir())
        .collect();
    ensure!(
        all.iter().any(|one| one.controllers == "memory"),
        "the memory controller of cgroup v1 is not mounted below {MOUNTS}: the nodes need the v1 hierarchies"
    );
    Ok(all)
}

/// Names of the v1 hierarchies that a node mounts, by mount folder.
pub(super) fn controllers() -> Result<Vec<String>> {
    let all = hierarchies()?.into_iter().map(|one| one.controllers);
    Ok(all.filter(|name| !name.is_empty() && !name.starts_with("name=")).collect())
}

/// Of a group whose weight is not that of one process.
fn shares_of(level: &str) -> Option<&'static str> {
    let unlike_others = [(name(), CLUSTER_SHARES), (CONTROL_PLANE.name, CONTROL_PLANE_SHARES)];
    unlike_others.into_iter().find_map(|(group, shares)| (group == level).then_some(shares))
}

/// Makes the groups of `machine` and gives their `cgroup.procs`.
pub(super) fn create(machine: &str) -> Result<Vec<PathBuf>> {
    let mut procs = Vec::new();
    for hierarchy in hierarchies()? {
        let mut group = hierarchy.mount().join(hierarchy.own.trim_start_matches('/'));
        for level in [name(), machine] {
            let parent = group.clone();
            group.push(level);
            match fs::create_dir(&group) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(error).with_context(|| format!("cannot make {}", group.display()));
                }
                _ => {}
            }
            if hierarchy.controllers.split(',').any(|controller| controller == "cpu")
                && let Some(shares) = shares_of(level)
            {
                fs::write(group.join("cpu.shares"), shares)?;
            }
            // A new v1 cpuset is empty, and nothing may join it.
            if hierarchy.controllers == "cpuset" {
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    fs::write(group.join(file), fs::read_to_string(parent.join(file))?)?;
                }
            }
        }
        procs.push(group.join("cgroup.procs"));
    }
    Ok(procs)
}

/// The `cgroup.procs` of a machine that runs.
pub(super) fn of(machine: &str) -> Result<Vec<PathBuf>> {
    let found: Vec<_> = roots()?
        .into_iter()
        .map(|root| root.join(machine).join("cgroup.procs"))
        .filter(|p| p.exists())
        .collect();
    if found.is_empty() {
        bail!("no machine {machine} runs: `cargo xtask cluster up`");
    }
    Ok(found)
}

pub(super) fn exists() -> Result<bool> {
    Ok(!roots()?.is_empty())
}

/// Our topmost group of each hierarchy, wherever the process that made it was.
fn roots() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(MOUNTS)? {
        // Two names of one hierarchy are links to one folder.
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find(&entry.path(), &mut found)?;
        }
    }
    Ok(found)
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for child in children(folder)? {
        if child.file_name().is_some_and(|child| child == name()) {
            found.push(child);
        } else {
            find(&child, found)?;
        }
    }
    Ok(())
}

/// The groups in a group; none when it went away meanwhile.
fn children(group: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(group) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", group.display())),
    };
    let mut children = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            children.push(entry.path());
        }
    }
    Ok(children)
}

pub(super) fn processes() -> Result<BTreeSet<i32>> {
    below(roots()?)
}

/// Those of one machine; none when it was never there.
pub(super) fn processes_of(machine: &str) -> Result<BTreeSet<i32>> {
    below(roots()?.into_iter().map(|root| root.join(machine)).collect())
}

fn below(mut groups: Vec<PathBuf>) -> Result<BTreeSet<i32>> {
    let mut pids = BTreeSet::new();
    while let Some(group) = groups.pop() {
        // It may be gone: then so are its processes.
        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        // 0 stands for a process of a pid namespace that cannot be seen from here; it is not ours to kill by number.
        pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
        groups.extend(children(&group)?);
    }
    Ok(pids)
}

/// Kills every process and removes every group.
pub(super) fn remove_all() -> Result<()> {
    let end = Instant::now() + KILL_DEADLINE;
    loop {
        let pids = processes()?;
        if pids.is_empty() {
            break;
        }
        ensure!(Instant::now() < end, "these processes do not end: {pids:?}");
        for pid in pids {
            match kill(Pid::from_raw(pid), Signal::SIGKILL) {
                // It may have ended since it was read.
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(error).with_context(|| format!("cannot kill {pid}")),
            }
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    for root in roots()? {
        lab::eventually(&format!("remove {}", root.display()), || remove(&root))?;
    }
    Ok(())
}

fn remove(group: &Path) -> Result<()> {
    for child in children(group)? {
        remove(&child)?;
    }
    match fs::remove_dir(group) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", group.display()))
        }
        _ => Ok(()),
    }
}
