//! The running test cluster: kubectl as its administrator, and images.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::command::{output, program, run};

/// The network outside of the nodes.
pub(super) const OUTSIDE: &str = "/run/netns/ga-cluster-lan";

/// Leads to the files of the cluster that runs; `tests/cluster/README.md` says what is in them.
const CLUSTER: &str = "/run/ga-cluster";

pub(super) fn require_running() -> Result<()> {
    kubectl(["get", "--raw", "/readyz", "--request-timeout=10s"])
        .map(drop)
        .context("no cluster answers: `cargo xtask cluster up` first")
}

pub(super) fn kubeconfig() -> PathBuf {
    Path::new(CLUSTER).join("admin.kubeconfig")
}

/// The agent's image, and those that the suite's manifests name.
pub(super) fn load(archive: &Path) -> Result<()> {
    // This very program: a build may have put another in its place.
    run(program("/proc/self/exe").args(["cluster", "load", "--conformance"]).arg(archive))
}

/// kubectl's standard output.
pub(super) fn kubectl<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Result<String> {
    output(&mut kubectl_command(args))
}

pub(super) fn kubectl_command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    // nsenter becomes kubectl, so that whoever ends the child ends that.
    let mut command = program("nsenter");
    command
        .arg(format!("--net={OUTSIDE}"))
        .arg(Path::new(CLUSTER).join("bin/kubernetes"))
        .args(["kubectl", "--kubeconfig"])
        .arg(kubeconfig())
        .args(args)
        .env("KUBECACHEDIR", super::folder().join("cache"));
    command
}

/// As a user who installs the agent does it.
pub(super) fn apply_folder(folder: &Path) -> Result<()> {
    kubectl([OsStr::new("apply"), OsStr::new("--server-side"), OsStr::new("-k"), folder.as_os_str()])
        .map(drop)
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
