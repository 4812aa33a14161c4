//! One network namespace, and code that runs in it.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use nix::sched::{CloneFlags, setns};

use crate::cleanup;

/// A named network namespace; sockets opened inside stay there whatever thread uses them later.
#[derive(Clone, Debug)]
pub struct Netns {
    name: String,
    file: Arc<File>,
}

impl Netns {
    /// Makes the namespace, with loopback up.
    pub fn create(name: &str) -> Result<Self> {
        // Registered first: an interrupt in between must find it.
        cleanup::add_namespace(name);
        ip(&[], &format!("netns add {name}\n"))?;
        Self::open(name)
    }

    /// A namespace that someone else made, and removes.
    pub fn open(name: &str) -> Result<Self> {
        let path = Path::new("/run/netns").join(name);
        let file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
        Ok(Self { name: name.to_owned(), file: Arc::new(file) })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Runs `work` on a thread of its own that has entered the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(self.fd(), CloneFlags::CLONE_NEWNET).with_context(|| format!("enter {}", self.name))?;
                Ok(work())
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// As [`Self::run`], for work that can fail.
    pub fn try_run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.run(work)?
    }

    /// `ip` commands, one a line, without the leading `ip`.
    pub fn ip(&self, commands: &str) -> Result<()> {
        ip(&["-n", &self.name], commands)
    }

    /// Names that programs started by `ip netns exec` resolve; gone with the namespace.
    pub fn hosts(&self, entries: &[(IpAddr, &str)]) -> Result<()> {
        let folder = cleanup::etc_folder(&self.name);
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let lines: String = entries.iter().map(|(address, names)| format!("{address} {names}\n")).collect();
        fs::write(folder.join("hosts"), format!("127.0.0.1 localhost\n::1 localhost\n{lines}"))?;
        Ok(())
    }

    /// Sets a value below /proc/sys/net of this namespace.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        let path = Path::new("/proc/sys/net").join(name);
        self.run(|| fs::write(&path, value))?.with_context(|| format!("write {value} to {}", path.display()))
    }

    /// A value below /proc/sys/net of this namespace.
    pub fn read_sysctl(&self, name: &str) -> Result<String> {
        let path = Path::new("/proc/sys/net").join(name);
        let text = self.run(|| fs::read_to_string(&path))?;
        Ok(text.with_context(|| format!("read {}", path.display()))?.trim().to_owned())
    }

    /// The output of a short-lived program in the namespace; an exit code other than 0 is an error with both outputs.
    pub fn output(&self, program: &str, args: &[&str]) -> Result<String> {
        let output = self
            .run(|| std::process::Command::new(program).args(args).stdin(Stdio::null()).output())?
            .with_context(|| format!("run {program}"))?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("{program} {}: {}\n{stdout}{stderr}", args.join(" "), output.status);
        }
        Ok(stdout)
    }
}

/// Runs `ip` on a batch of commands.
pub(crate) fn ip(global: &[&str], commands: &str) -> Result<()> {
    let mut child = std::process::Command::new("ip")
        .args(global)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("run `ip` (Debian: apt-get install iproute2)")?;
    child.stdin.take().context("stdin of ip")?.write_all(commands.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("ip {}: {}\n{commands}", global.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
