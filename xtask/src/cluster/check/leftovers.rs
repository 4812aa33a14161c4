//! The whole life of a cluster: up, checked, down; and that `down` removes what crashes leave.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use lab::eventually_within;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::super::{Folder, cgroup, link, name, network};
use super::{close, is_passed};
use crate::command::run as run_command;

type Step = fn() -> Result<()>;

/// From no cluster to no cluster.
pub(in super::super) fn test() -> Result<()> {
    lab::require_root()?;
    ensure!(
        !cgroup::exists()? && !network::exists(),
        "an earlier run was killed: `cargo xtask cluster --name {} down`",
        name()
    );
    let mut failed = 0;
    let life: [(&str, Step); 5] = [
        ("up", || run_command(&mut xtask(&["up"]))),
        ("it does what it promises", || run_command(&mut xtask(&["check"]))),
        ("what was killed starts again", parts_return),
        ("down removes all, after the death of parts", down_after_dead_parts),
        ("down removes what a killed up leaves, twice", down_after_killed_up),
    ];
    for (name, part) in life {
        failed += u32::from(!is_passed(name, part));
    }
    // Whatever failed, this machine is to be as it was.
    run_command(&mut xtask(&["down"]))?;
    close(life.len(), failed)
}

fn xtask(task: &[&str]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["cluster", "--name", name()]).args(task).stdin(Stdio::null());
    command
}

fn parts_return() -> Result<()> {
    let folder = Folder::running();
    for part in ["kube-apiserver", "etcd", "kube-scheduler", "faults", "loadbalancer", "n1"] {
        run_command(&mut xtask(&["stop", part]))?;
        if part == "kube-apiserver" {
            ensure!(
                super::kubectl(&folder, &["get", "nodes"]).is_err(),
                "the API server answers after its end"
            );
        }
        run_command(&mut xtask(&["start", part]))?;
    }
    // The node's own state still says Ready, from before: what counts is a pod there.
    let image = format!("--image={}", super::images::TOOLS);
    let on_n1 = r#"--overrides={"spec":{"nodeName":"n1"}}"#;
    let run = ["run", "again", &image, "--image-pull-policy=Never", "--restart=Never", on_n1];
    let command = ["--command", "--", "/busybox", "sleep", "3600"];
    eventually_within(super::super::DEADLINE, "a pod is made", || {
        super::kubectl(&folder, &[&run[..], &command].concat()).map(drop)
    })?;
    super::kubectl(&folder, &["wait", "--for=condition=Ready", "pod/again", "--timeout=120s"]).map(drop)
}

fn down_after_dead_parts() -> Result<()> {
    let folder = Folder::running();
    let pid = fs::read_to_string(folder.path("n1/pid"))?.trim().parse()?;
    kill(Pid::from_raw(pid), Signal::SIGKILL).context("the power cut of n1")?;
    for pid in cgroup::processes()? {
        let name = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_wanted =
            ["etcd", "kubelet"].iter().any(|part| name.contains(&format!("kubernetes\0{part}\0")));
        if is_wanted {
            match kill(Pid::from_raw(pid), Signal::SIGKILL) {
                // What ran on n1 has ended with it.
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(error).with_context(|| format!("cannot kill {name}")),
            }
        }
    }
    run_command(&mut xtask(&["down"]))?;
    nothing_is_left()
}

fn down_after_killed_up() -> Result<()> {
    let mut up = xtask(&["up"]).stdout(Stdio::null()).spawn()?;
    let killed = eventually_within(super::super::DEADLINE, "a kubelet is started", || {
        fs::metadata(Folder::own().path("logs/n1-kubelet.log")).map(drop).context("no log")
    });
    up.kill()?;
    up.wait()?;
    killed?;
    for _ in 0..2 {
        run_command(&mut xtask(&["down"]))?;
        nothing_is_left()?;
    }
    Ok(())
}

fn nothing_is_left() -> Result<()> {
    let processes = cgroup::processes()?;
    ensure!(processes.is_empty(), "processes: {processes:?}");
    ensure!(!cgroup::exists()?, "control groups");
    ensure!(!network::exists(), "network namespaces");
    let folder = Folder::own().0;
    ensure!(!folder.exists(), "{}", folder.display());
    ensure!(fs::symlink_metadata(link()).is_err(), "{}", link().display());
    let folder = folder.to_str().context("the path is not UTF-8")?;
    for process in fs::read_dir("/proc")? {
        let process = process?.path();
        // One that ends meanwhile has no mounts.
        let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
        ensure!(!mounts.contains(folder), "{} still sees mounts of {folder}", process.display());
        let arguments = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        ensure!(!arguments.contains(folder), "{} still runs: {arguments}", process.display());
    }
    Ok(())
}
