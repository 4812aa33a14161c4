//! Programs that run in a namespace for a while: logs kept, dead with their owner.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::{Lab, Netns, cleanup, wait};

/// What to start.
#[derive(Debug)]
pub struct Command {
    name: String,
    program: OsString,
    args: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    netns: Option<Netns>,
    cpu: Option<usize>,
}

impl Command {
    /// `name` names the log file.
    pub fn new(name: &str, program: impl AsRef<OsStr>) -> Self {
        Self {
            name: name.to_owned(),
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            environment: Vec::new(),
            netns: None,
            cpu: None,
        }
    }

    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.environment.push((key.into(), value.into()));
        self
    }

    #[must_use]
    pub fn netns(mut self, netns: &Netns) -> Self {
        self.netns = Some(netns.clone());
        self
    }

    /// Pins the process to one cpu.
    #[must_use]
    pub const fn cpu(mut self, cpu: usize) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// Starts it, with standard output and error in `LAB/NAME.log`.
    pub fn start(self, lab: &Lab) -> Result<Process> {
        self.start_in(lab.folder())
    }

    /// As [`Self::start`], with the log in another folder.
    pub fn start_in(self, folder: &Path) -> Result<Process> {
        let log = folder.join(format!("{}.log", self.name));
        let file = File::create(&log).with_context(|| format!("make {}", log.display()))?;
        let mut command = std::process::Command::new(&self.program);
        command.args(&self.args).envs(self.environment.iter().map(|(key, value)| (key, value)));
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        // A group of its own: an interrupt at the terminal reaches us alone, and we end it whole.
        command.process_group(0);
        let netns = self.netns.clone();
        let cpu = self.cpu;
        let before_exec = move || {
            if let Some(netns) = &netns {
                setns(netns.fd(), CloneFlags::CLONE_NEWNET)?;
            }
            if let Some(cpu) = cpu {
                let mut set = nix::sched::CpuSet::new();
                set.set(cpu)?;
                nix::sched::sched_setaffinity(Pid::from_raw(0), &set)?;
            }
            // SAFETY: prctl with PR_SET_PDEATHSIG takes a signal number and touches no memory.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            Ok(())
        };
        // SAFETY: between fork and exec only system calls are made: no allocation, no lock.
        unsafe { command.pre_exec(before_exec) };
        let program = self.program.to_string_lossy().into_owned();
        let child = spawn(command).with_context(|| format!("start {program}"))?;
        let pid = i32::try_from(child.id()).context("pid")?;
        cleanup::add_group(pid);
        Ok(Process { name: self.name, pid, child: Arc::new(Mutex::new(child)), log })
    }
}

type SpawnRequest = (std::process::Command, SyncSender<std::io::Result<Child>>);

/// Spawns on one thread that lives as long as this process: the parent-death signal fires when the spawning *thread* ends.
fn spawn(command: std::process::Command) -> Result<Child> {
    static SPAWNER: OnceLock<SyncSender<SpawnRequest>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, receiver) = sync_channel::<SpawnRequest>(1);
        std::thread::Builder::new()
            .name("lab-spawner".into())
            .spawn(move || {
                for (mut command, reply) in receiver {
                    drop(reply.send(command.spawn()));
                }
            })
            .expect("a thread can be started");
        sender
    });
    let (reply, answer) = sync_channel(1);
    spawner.send((command, reply)).ok().context("the spawner thread is gone")?;
    Ok(answer.recv().context("the spawner thread is gone")??)
}

/// A running program; killed, with its process group, when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: i32,
    child: Arc<Mutex<Child>>,
    log: PathBuf,
}

impl Process {
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    pub fn log_path(&self) -> &Path {
        &self.log
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Whether it ended, and how.
    pub fn exit(&self) -> Option<ExitStatus> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.try_wait().ok().flatten()
    }

    /// Fails, with its log, if it ended.
    pub fn check_running(&self) -> Result<()> {
        match self.exit() {
            None => Ok(()),
            Some(status) => bail!("{} ended ({}):\n{}", self.name, describe(status), self.log()),
        }
    }

    pub fn wait_exit(&self, deadline: Duration) -> Result<ExitStatus> {
        wait::eventually_within(deadline, &format!("{} ends", self.name), || {
            self.exit().with_context(|| format!("still running:\n{}", self.log()))
        })
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.pid), signal).with_context(|| format!("signal {}", self.name))
    }

    /// The processes that it started and that still run.
    pub fn children(&self) -> Vec<i32> {
        children_of(self.pid)
    }

    /// Itself and everything below it.
    pub fn tree(&self) -> Vec<i32> {
        let mut all = vec![self.pid];
        let mut next = 0;
        while let Some(pid) = all.get(next).copied() {
            all.extend(children_of(pid));
            next += 1;
        }
        all
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let tree = self.tree();
        killpg(Pid::from_raw(self.pid), Signal::SIGKILL).ok();
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        drop(child.kill());
        drop(child.wait());
        // Its children die on their own: what they held, ports above all, is free when this returns.
        drop(wait::until("every process of the group is gone", || !tree.iter().any(|pid| is_alive(*pid))));
        cleanup::forget_group(self.pid);
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown".into(),
    }
}

/// Whether a thread of it still runs: descriptors are closed when the last one has ended, and until then the first may
/// be a zombie already.
fn is_alive(pid: i32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok()).any(|text| {
        // The state follows the name, which may hold anything, in parentheses.
        text.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    })
}

/// Children of every thread of `pid`.
fn children_of(pid: i32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
        .collect()
}
