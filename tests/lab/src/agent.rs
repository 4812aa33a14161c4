//! The agent's binary as a process in the gateway's namespace.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::client::get;
use crate::process::{Command, Process};
use crate::{Lab, Netns, eventually};

/// Which value of `--datapath`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    Auto,
    Ebpf,
    Userspace,
}

impl Datapath {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ebpf => "ebpf",
            Self::Userspace => "userspace",
        }
    }
}

#[derive(Clone, Debug)]
pub struct AgentOptions {
    pub datapath: Datapath,
    pub manifests: Option<PathBuf>,
    pub bpffs: Option<PathBuf>,
    pub workers: u16,
    pub cpu: Option<usize>,
    pub extra: Vec<OsString>,
    /// Runs `WRAPPER... BINARY ARGS...`, for example `setpriv` to take rights away.
    pub wrapper: Vec<OsString>,
    pub binary: Option<PathBuf>,
    /// Names the log.
    pub name: String,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            datapath: Datapath::Ebpf,
            manifests: None,
            bpffs: None,
            workers: 2,
            cpu: None,
            extra: Vec::new(),
            wrapper: Vec::new(),
            binary: None,
            name: "agent".into(),
        }
    }
}

impl AgentOptions {
    pub fn new(datapath: Datapath) -> Self {
        Self { datapath, ..Self::default() }
    }

    #[must_use]
    pub fn extra<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.extra.extend(args.into_iter().map(Into::into));
        self
    }
}

pub const ADMIN_PORT: u16 = 9901;

/// A running agent; killed when dropped.
#[derive(Debug)]
pub struct Agent {
    process: Process,
    netns: Netns,
}

impl Agent {
    /// Starts it and waits until it is ready.
    pub fn start(lab: &Lab, options: &AgentOptions) -> Result<Self> {
        let agent = Self::launch(lab, options)?;
        agent.wait_ready()?;
        Ok(agent)
    }

    /// Starts it and does not wait.
    pub fn launch(lab: &Lab, options: &AgentOptions) -> Result<Self> {
        let binary = match &options.binary {
            Some(binary) => binary.clone(),
            None => binary()?.to_owned(),
        };
        let mut words = options.wrapper.clone();
        words.push(binary.into_os_string());
        words.extend(["--manifests".into(), manifests(lab, options).into_os_string()]);
        words.extend(["--datapath", options.datapath.as_str()].map(Into::into));
        words.extend(["--workers".into(), options.workers.to_string().into()]);
        if let Some(bpffs) = &options.bpffs {
            words.extend(["--bpffs".into(), bpffs.clone().into_os_string()]);
        }
        words.extend(options.extra.iter().cloned());
        let program = words.remove(0);
        let mut command = Command::new(&options.name, program).args(words).netns(lab.gateway());
        if let Some(cpu) = options.cpu {
            command = command.cpu(cpu);
        }
        Ok(Self { process: command.start(lab)?, netns: lab.gateway().clone() })
    }

    /// Until it is ready; fails at once when it ends before that.
    pub fn wait_ready(&self) -> Result<()> {
        eventually("the agent is ready", || {
            if self.process.exit().is_some() {
                return Ok(());
            }
            match self.admin("/readyz")? {
                (200, _) => Ok(()),
                (status, body) => Err(anyhow!("/readyz says {status}: {body}")),
            }
        })
        .with_context(|| format!("log of the agent:\n{}", self.process.log()))?;
        self.process.check_running()
    }

    /// Status and body of a path of the admin server.
    pub fn admin(&self, path: &str) -> Result<(u16, String)> {
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), ADMIN_PORT);
        let response = get(&self.netns, address, "localhost", path)?;
        Ok((response.status, response.text()))
    }

    pub fn metrics(&self) -> Result<Metrics> {
        let (status, body) = self.admin("/metrics")?;
        if status != 200 {
            bail!("/metrics says {status}: {body}");
        }
        Ok(Metrics::parse(&body))
    }

    pub fn snapshot(&self) -> Result<serde_json::Value> {
        let (status, body) = self.admin("/snapshot")?;
        if status != 200 {
            bail!("/snapshot says {status}: {body}");
        }
        serde_json::from_str(&body).context("/snapshot is JSON")
    }

    pub const fn process(&self) -> &Process {
        &self.process
    }

    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The process that serves: the holder's child, or the only one.
    pub fn worker(&self) -> i32 {
        let is_worker = |pid: &i32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).any(|word| word == b"--holder-fd")
        };
        self.process.tree().into_iter().find(is_worker).unwrap_or_else(|| self.process.pid())
    }

    /// Kills the serving process alone, without a warning.
    pub fn kill_worker(&self) -> Result<i32> {
        let pid = self.worker();
        kill(Pid::from_raw(pid), Signal::SIGKILL).with_context(|| format!("kill -9 {pid}"))?;
        Ok(pid)
    }

    /// Ends it by SIGTERM and says how it went.
    pub fn terminate(&self, deadline: Duration) -> Result<std::process::ExitStatus> {
        self.process.signal(Signal::SIGTERM)?;
        self.process.wait_exit(deadline)
    }
}

fn manifests(lab: &Lab, options: &AgentOptions) -> PathBuf {
    options.manifests.clone().unwrap_or_else(|| lab.manifests())
}

/// The binary under test: `GATEWAY_AGENT_BIN`, else that of this build, brought up to date once.
pub fn binary() -> Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let binary = BINARY.get_or_init(|| find_binary().map_err(|error| format!("{error:#}")));
    binary.as_deref().map_err(|error| anyhow!("{error}"))
}

fn find_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("GATEWAY_AGENT_BIN") {
        let path = PathBuf::from(path);
        if !path.is_file() {
            bail!("GATEWAY_AGENT_BIN names {}, which is no file", path.display());
        }
        return Ok(path);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = std::process::Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--package",
            "gateway-agent",
            "--message-format",
            "json-render-diagnostics",
        ])
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("run cargo build")?;
    if !output.status.success() {
        bail!("cargo build --package gateway-agent failed; or name a built binary in GATEWAY_AGENT_BIN");
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| message.get("executable")?.as_str().map(PathBuf::from))
        .next_back()
        .context("cargo named no executable of gateway-agent")
}

/// A scrape: samples by name with their labels.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Metrics {
    /// Reads the Prometheus text format; label values of ours hold no escaped quotes.
    pub fn parse(text: &str) -> Self {
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(parse_sample).collect();
        Self { samples }
    }

    /// The sum over all samples of `name` that carry these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.samples
            .iter()
            .filter(|sample| sample.name == name)
            .filter(|sample| {
                labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|has| has == value))
            })
            .map(|sample| sample.value)
            .sum()
    }
}

fn parse_sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = match series.split_once('{') {
        None => (series, BTreeMap::new()),
        Some((name, labels)) => (name, parse_labels(labels.strip_suffix('}')?)),
    };
    Some(Sample { name: name.to_owned(), labels, value: value.parse().ok()? })
}

fn parse_labels(text: &str) -> BTreeMap<String, String> {
    text.split("\",")
        .filter_map(|pair| pair.split_once("=\""))
        .map(|(key, value)| (key.to_owned(), value.trim_end_matches('"').to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn samples_are_summed_over_labels() {
        let metrics = Metrics::parse(
            "# TYPE a counter\na_total{x=\"1\",y=\"p,q\"} 2\na_total{x=\"1\",y=\"r\"} 3\nb 1\n",
        );
        assert_eq!(metrics.sum("a_total", &[("x", "1")]), 5.0);
        assert_eq!(metrics.sum("a_total", &[("y", "p,q")]), 2.0);
        assert_eq!(metrics.sum("b", &[]), 1.0);
    }
}
