//! The running test cluster: its administrator's kubectl, the network outside of its nodes, and whose turn it is.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use lab::{Netns, eventually_within};

/// Leads to the files of the cluster that runs, from whichever clone of the tree it was started.
const FOLDER: &str = "/run/ga-cluster";

/// Ports of nodes and names at cluster scope are there once, and so are the machine's two cores.
static TURN: Mutex<()> = Mutex::new(());

/// For what controllers and kubelets do on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

pub struct Cluster {
    outside: Netns,
    _turn: MutexGuard<'static, ()>,
}

/// The folder of bases.
pub fn bases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// kubectl without a cluster: it is what builds kustomizations.
pub fn kustomize(folder: &Path) -> Result<String> {
    let mut command = Command::new(program());
    run(command.args(["kubectl", "kustomize"]).arg(folder), None)
        .context("the cluster's programs are built by `cargo xtask cluster build`")
}

/// The running cluster's programs, or those that this clone has built.
fn program() -> PathBuf {
    let running = Path::new(FOLDER).join("bin/kubernetes");
    if running.exists() {
        return running;
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(target).join("cluster/bin/kubernetes")
}

impl Cluster {
    /// The cluster that runs, with the one thing that its administrator does for teams. Waits for its turn.
    pub fn running() -> Result<Self> {
        lab::require_root()?;
        // A test that failed in its turn has left its namespace, which goes before the next is made.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let outside =
            Netns::open("ga-cluster-lan").context("no cluster runs: `cargo xtask cluster up` first")?;
        let cluster = Self { outside, _turn: turn };
        cluster.apply_folder(&bases().join("cluster-admin"))?;
        // What one test adds to that is not there for the others.
        cluster.kubectl(["delete", "clusterrole", "gateway-agent-endpointslices", "--ignore-not-found"])?;
        Ok(cluster)
    }

    /// Clients here are outside of the nodes.
    pub const fn outside(&self) -> &Netns {
        &self.outside
    }

    /// kubectl as the cluster's administrator; gives its standard output.
    pub fn kubectl<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        run(self.command().args(args), None)
    }

    /// As [`Self::kubectl`], with manifests at its standard input.
    pub fn kubectl_with<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &str,
    ) -> Result<String> {
        run(self.command().args(args), Some(input))
    }

    pub fn apply_folder(&self, folder: &Path) -> Result<()> {
        self.kubectl([OsStr::new("apply"), OsStr::new("--server-side"), OsStr::new("-k"), folder.as_os_str()])
            .map(drop)
    }

    /// Everything that the API server has logged of service accounts since the cluster began.
    pub fn audit_log(&self) -> Result<String> {
        let logs = Path::new(FOLDER).join("logs");
        let mut text = String::new();
        for entry in fs::read_dir(&logs).with_context(|| format!("no {}", logs.display()))? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with("audit") && name.ends_with(".log")) {
                text += &fs::read_to_string(entry.path())?;
            }
        }
        Ok(text)
    }

    /// Repeats `probe` for as long as anything in a cluster may take.
    pub fn eventually<T>(&self, what: &str, mut probe: impl FnMut() -> Result<T>) -> Result<T> {
        eventually_within(DEADLINE, what, || {
            let result = probe();
            if result.is_err() {
                // Each probe starts a program; the pods need the cores too.
                std::thread::park_timeout(Duration::from_millis(200));
            }
            result
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.outside.path().display()))
            .arg(program())
            .args(["kubectl", "--kubeconfig"])
            .arg(Path::new(FOLDER).join("admin.kubeconfig"))
            .env("KUBECACHEDIR", Path::new(FOLDER).join("cache"));
        command
    }
}

fn run(command: &mut Command, input: Option<&str>) -> Result<String> {
    let mut child = command
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        bail!("`{}`: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).context("kubectl wrote no UTF-8")
}
