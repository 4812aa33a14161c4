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
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use lab::Netns;

pub use agent::{Agent, Options};
pub use faults::{Fault, Faults};
pub use team::Team;

/// The network outside the nodes.
const LAN: &str = "ga-cluster-lan";

/// Where the running cluster keeps its files: `GA_CLUSTER`, else the one of `cargo xtask cluster up`.
pub fn root() -> Result<PathBuf> {
    let root = std::env::var_os("GA_CLUSTER").map_or_else(|| PathBuf::from("/run/ga-cluster"), PathBuf::from);
    if !root.join("admin.kubeconfig").is_file() {
        bail!("no test cluster at {}: run `cargo xtask cluster up`", root.display());
    }
    Ok(root)
}

/// The network in which the agents of these tests and their clients run.
pub fn lan() -> Result<Netns> {
    lab::require_root()?;
    root()?;
    Netns::open(LAN).context("the test cluster's network: run `cargo xtask cluster up`")
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
