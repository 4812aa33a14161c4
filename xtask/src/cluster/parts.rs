//! Parts of a cluster that runs, killed and started again: the crashes that a test makes.
//!
//! A part is killed, never asked to end: the API server alone takes a minute for that while watches are open. Nothing
//! starts again by itself.

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::machine::Machine;
use super::network::{CONTROL_PLANE, NODES, Place};
use super::{Folder, addons, cgroup, control_plane, node, patiently};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    Etcd,
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    /// The fault proxy
    Faults,
    /// The controller of LoadBalancer addresses
    Loadbalancer,
    /// A node: its power
    N1,
    N2,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Faults => "faults",
            Self::Loadbalancer => "loadbalancer",
            Self::N1 => "n1",
            Self::N2 => "n2",
        }
    }

    fn node(self) -> Option<&'static Place> {
        NODES.iter().find(|place| place.name == self.name())
    }

    fn processes(self) -> Result<Vec<i32>> {
        if let Some(place) = self.node() {
            return Ok(cgroup::processes_of(place.name)?.into_iter().collect());
        }
        let machine = if self == Self::Loadbalancer { "lan" } else { CONTROL_PLANE.name };
        let is_it = |pid: &i32| {
            let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut arguments = arguments.split('\0');
            let program = arguments.next().unwrap_or_default();
            match self {
                Self::Faults => program.ends_with("/faults"),
                _ => program.ends_with("/kubernetes") && arguments.next() == Some(self.name()),
            }
        };
        Ok(cgroup::processes_of(machine)?.into_iter().filter(is_it).collect())
    }
}

/// Kills it, and returns when it is gone.
pub(super) fn stop(folder: &Folder, part: Part) -> Result<()> {
    let victims = match part.node() {
        // Process 1: with it the kernel ends all others of the machine.
        Some(place) => vec![Machine::running(folder, place)?.pid()],
        None => part.processes()?,
    };
    ensure!(!victims.is_empty(), "{} does not run", part.name());
    for pid in victims {
        match kill(Pid::from_raw(pid), Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(error).with_context(|| format!("cannot kill {}", part.name())),
        }
    }
    patiently("it is gone", || {
        let left = part.processes()?;
        ensure!(left.is_empty(), "processes of {}: {left:?}", part.name());
        Ok(())
    })
}

/// Starts what was stopped. Of the API server it waits for the answer, of a node for its runtime.
pub(super) fn start(folder: &Folder, part: Part) -> Result<()> {
    ensure!(part.processes()?.is_empty(), "{} runs", part.name());
    let binaries = folder.path("bin");
    match part {
        Part::N1 | Part::N2 => {
            let Some(place) = part.node() else { bail!("no node {}", part.name()) };
            let machine = Machine::boot(place, folder, &binaries)?;
            node::start_runtime(&machine, folder)?;
            node::wait_for_runtime(&machine)?;
            node::start_kubelet(&machine, folder, &binaries)
        }
        Part::Loadbalancer => addons::load_balancer(folder, &binaries),
        _ => {
            let machine = Machine::running(folder, &CONTROL_PLANE)?;
            control_plane::start_part(part.name(), &machine, folder, &binaries)?;
            if part == Part::KubeApiserver { control_plane::wait_until_ready(folder) } else { Ok(()) }
        }
    }
}
