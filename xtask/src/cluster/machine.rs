//! A machine of the cluster: a process 1 in namespaces and control groups of its own, and programs run beside it.
//!
//! `kill -9` of that process is the machine's power cut. What a machine runs, `control_plane` and `node` decide.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use lab::eventually;

use super::network::Place;
use super::{Folder, cgroup};

const INIT: &str = include_str!("init.sh");

/// Joins the groups whose `cgroup.procs` come before `--`, then becomes the program after it.
const JOIN: &str = r#"while [ "$1" != -- ]; do echo 0 >"$1"; shift; done; shift; exec "$@""#;

pub(super) struct Machine {
    pub(super) place: &'static Place,
    /// Process 1, as the host numbers it.
    pid: i32,
    groups: Vec<PathBuf>,
}

impl Machine {
    pub(super) fn boot(place: &'static Place, folder: &Folder, binaries: &Path) -> Result<Self> {
        let groups = cgroup::create(place.name)?;
        let data = folder.path(place.name);
        // It may have been up before.
        if data.join("booted").exists() {
            fs::remove_file(data.join("booted"))?;
        }
        for part in ["containerd", "kubelet"] {
            fs::create_dir_all(data.join(part))?;
        }
        let mut init = joined(&groups);
        init.arg("nsenter")
            .arg(format!("--net=/run/netns/{}", place.netns()))
            .args(["unshare", "-m", "-p", "-u", "-i", "-C", "--fork", "--kill-child=KILL", "sh", "-c", INIT])
            .env("NODE", place.name)
            .env("DATA", &data)
            .env("CONTROLLERS", cgroup::controllers()?.join(" "))
            .env("PAUSE", binaries.join("pause"));
        let unshare = detach(&mut init, &folder.log(&format!("{}-init", place.name)))?;
        eventually("the machine's process 1 is up", || {
            fs::metadata(data.join("booted")).context("see the log of its init").map(drop)
        })?;
        let children = format!("/proc/{unshare}/task/{unshare}/children");
        let pid = fs::read_to_string(&children)?.trim().parse().with_context(|| format!("in {children}"))?;
        fs::write(data.join("pid"), format!("{pid}\n"))?;
        Ok(Self { place, pid, groups })
    }

    /// The machine that an earlier run booted.
    pub(super) fn running(folder: &Folder, place: &'static Place) -> Result<Self> {
        let groups = cgroup::of(place.name)?;
        let text = fs::read_to_string(folder.path(place.name).join("pid"))?;
        Ok(Self { place, pid: text.trim().parse()?, groups })
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// A program inside: in the machine's groups and namespaces.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = joined(&self.groups);
        command.args(["nsenter", "-t"]).arg(self.pid.to_string());
        command.args(["-m", "-p", "-n", "-u", "-i", "-C", "--"]).arg(program);
        command
    }

    /// Starts a program that stays.
    pub(super) fn start(&self, name: &str, folder: &Folder, command: &mut Command) -> Result<()> {
        detach(command, &folder.log(&format!("{}-{name}", self.place.name))).map(drop)
    }
}

/// A program in the groups; in no namespace yet.
pub(super) fn joined(groups: &[PathBuf]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", JOIN, "sh"]).args(groups).arg("--");
    command
}

/// Starts a program that outlives this process, with its output in a file.
pub(super) fn detach(command: &mut Command, log: &Path) -> Result<u32> {
    let file = File::options()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("cannot write {}", log.display()))?;
    let child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .current_dir("/")
        // An interrupt at the terminal is for this process.
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", crate::command::line(command)))?;
    Ok(child.id())
}
