//! The agent as a process outside the nodes of the test cluster, as the service account of a team that has Roles in its
//! namespaces and nothing else; the API server is the real one, the faults come from the proxy before it.
//!
//! Needs `cargo xtask cluster up`, and root to enter its network. Each test makes namespaces of its own and removes
//! them.

pub mod agent;
pub mod faults;
pub mod team;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use lab::Netns;

pub use agent::{Agent, Options};
pub use faults::{Fault, Faults};
pub use team::Team;

/// For what an API server and an agent do in a second, on a machine that also compiles.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Between two probes, which make a connection each: short against what an API server takes.
const PAUSE: Duration = Duration::from_millis(200);

/// Repeats `probe` until it succeeds; the error is that of the last attempt.
pub fn eventually<T>(what: &str, probe: impl FnMut() -> Result<T>) -> Result<T> {
    eventually_within(DEADLINE, what, probe)
}

/// As [`eventually`], with another deadline.
pub fn eventually_within<T>(deadline: Duration, what: &str, probe: impl FnMut() -> Result<T>) -> Result<T> {
    lab::eventually_every(PAUSE, deadline, what, probe)
}

/// The cluster under test: `GA_CLUSTER`, the name of one of `cargo xtask cluster --name NAME up`, else the one without
/// a name.
fn name() -> String {
    std::env::var("GA_CLUSTER").unwrap_or_else(|_unset| "ga-cluster".to_owned())
}

/// Where the running cluster keeps its files.
pub fn root() -> Result<PathBuf> {
    let root = Path::new("/run").join(name());
    if !root.join("admin.kubeconfig").is_file() {
        bail!("no test cluster at {}: run `cargo xtask cluster up`", root.display());
    }
    Ok(root)
}

/// The network outside the nodes, in which the agents of these tests and their clients run.
pub fn lan() -> Result<Netns> {
    lab::require_root()?;
    root()?;
    Netns::open(&format!("{}-lan", name()))
        .context("the test cluster's network: run `cargo xtask cluster up`")
}

/// Runs kubectl as the cluster's administrator; `input` is its standard input.
pub fn kubectl(args: &[&str], input: &str) -> Result<String> {
    let root = root()?;
    let mut words: Vec<OsString> = vec!["kubectl".into(), "--kubeconfig".into()];
    words.push(root.join("admin.kubeconfig").into_os_string());
    words.extend(args.iter().map(Into::into));
    let output = lan()?.try_run(|| {
        let mut child = Command::new(root.join("bin/kubernetes"))
            .args(&words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("run kubectl")?;
        child.stdin.take().context("standard input of kubectl")?.write_all(input.as_bytes())?;
        Ok(child.wait_with_output()?)
    })?;
    if !output.status.success() {
        bail!("kubectl {}: {}\n{input}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
