//! The running test cluster, by the commands that anyone uses: `cargo xtask cluster ...`.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::command::{output, program, run};

/// The network outside of the nodes.
pub(super) const OUTSIDE: &str = "/run/netns/ga-cluster-lan";

/// This very program, even if a build has meanwhile put another in its place.
fn cluster(task: &str) -> Command {
    let mut command = program("/proc/self/exe");
    command.args(["cluster", task]);
    command
}

pub(super) fn require_running() -> Result<()> {
    kubectl(["get", "--raw", "/readyz", "--request-timeout=10s"])
        .map(drop)
        .context("no cluster answers: `cargo xtask cluster up` first")
}

pub(super) fn kubeconfig() -> Result<PathBuf> {
    Ok(PathBuf::from(output(&mut cluster("kubeconfig"))?.trim_end()))
}

pub(super) fn load<'a>(archives: impl Iterator<Item = &'a PathBuf>) -> Result<()> {
    run(cluster("load").args(archives))
}

/// kubectl's standard output.
pub(super) fn kubectl<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Result<String> {
    output(&mut kubectl_command(args))
}

pub(super) fn kubectl_command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = cluster("kubectl");
    command.arg("--").args(args);
    command
}

/// As a user who installs the agent does it.
pub(super) fn apply_folder(folder: &Path) -> Result<()> {
    kubectl([OsStr::new("apply"), OsStr::new("--server-side"), OsStr::new("-k"), folder.as_os_str()]).map(drop)
}

/// `text` is one or more manifests; `args` say where they go.
pub(super) fn apply_text(text: &str, args: &[&str]) -> Result<()> {
    let mut command = kubectl_command(["apply", "--server-side", "-f", "-"].iter().chain(args));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start kubectl")?;
    child.stdin.take().context("kubectl has a standard input")?.write_all(text.as_bytes())?;
    let result = child.wait_with_output()?;
    if !result.status.success() {
        bail!("kubectl apply failed: {}", String::from_utf8_lossy(&result.stderr).trim_end());
    }
    Ok(())
}
