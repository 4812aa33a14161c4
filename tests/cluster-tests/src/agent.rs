//! The agent's binary as a process in the network outside the nodes, on a loopback address of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context as _, Result, anyhow, bail};
use lab::agent::{Metrics, binary};
use lab::client::get;
use lab::{Command, Netns, Process};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::team::Way;
use crate::{DEADLINE, Team, eventually, lan};

const ADMIN_PORT: u16 = 9901;

#[derive(Clone, Debug)]
pub struct Options {
    pub way: Way,
    /// `--address-provider`.
    pub provider: &'static str,
    /// Where it listens; empty: a loopback address of its own.
    pub addresses: Vec<IpAddr>,
    pub state_dir: Option<PathBuf>,
    pub extra: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { way: Way::Direct, provider: "host", addresses: Vec::new(), state_dir: None, extra: Vec::new() }
    }
}

/// A running agent; killed when dropped.
#[derive(Debug)]
pub struct Agent {
    process: Process,
    netns: Netns,
    address: IpAddr,
}

impl Agent {
    /// Starts it as the account of `team` and waits until it is ready.
    pub fn start(team: &Team, options: &Options) -> Result<Self> {
        let agent = Self::launch(team, options)?;
        agent.wait_ready()?;
        Ok(agent)
    }

    /// As [`Self::start`], without waiting.
    pub fn launch(team: &Team, options: &Options) -> Result<Self> {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let [.., high, low] = std::process::id().to_be_bytes();
        // Test programs and their tests run side by side in one network.
        let address = Ipv4Addr::new(127, 64 | (high % 64), low, u8::try_from(number % 250 + 1)?);
        let mut args = vec![
            "--kubeconfig".to_owned(),
            team.kubeconfig(options.way)?.display().to_string(),
            "--datapath".into(),
            "userspace".into(),
            "--workers".into(),
            "1".into(),
            "--address-provider".into(),
            options.provider.into(),
            "--admin-address".into(),
            format!("{address}:{ADMIN_PORT}"),
            "--grace-period".into(),
            "1".into(),
        ];
        let own = [IpAddr::from(address)];
        let addresses = if options.addresses.is_empty() { &own[..] } else { &options.addresses };
        for address in addresses {
            args.extend(["--address".into(), address.to_string()]);
        }
        if let Some(dir) = &options.state_dir {
            args.extend(["--state-dir".into(), dir.display().to_string()]);
        }
        args.extend(options.extra.iter().cloned());
        let netns = lan()?;
        let command = Command::new(&format!("agent-{number}"), binary()?).args(args).netns(&netns);
        let process = command.start_in(team.folder())?;
        Ok(Self { process, netns, address: address.into() })
    }

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
        .with_context(|| self.log())?;
        self.process.check_running()
    }

    /// Status and body of a path of the admin server.
    pub fn admin(&self, path: &str) -> Result<(u16, String)> {
        let response = get(&self.netns, SocketAddr::new(self.address, ADMIN_PORT), "localhost", path)?;
        Ok((response.status, response.text()))
    }

    pub fn is_ready(&self) -> bool {
        matches!(self.admin("/readyz"), Ok((200, _)))
    }

    pub fn metrics(&self) -> Result<Metrics> {
        Ok(Metrics::parse(&self.admin("/metrics")?.1))
    }

    /// `/snapshot`'s part about the cluster.
    pub fn cluster(&self) -> Result<Value> {
        let (_, body) = self.admin("/snapshot")?;
        let mut snapshot: Value = serde_json::from_str(&body).context("/snapshot is JSON")?;
        Ok(snapshot["cluster"].take())
    }

    /// `/snapshot`'s entry of an object.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Result<Value> {
        let (_, body) = self.admin("/snapshot")?;
        let snapshot: Value = serde_json::from_str(&body).context("/snapshot is JSON")?;
        let objects = snapshot["objects"].as_array().context("objects")?;
        let is_it = |object: &&Value| {
            object["kind"] == kind && object["namespace"] == namespace && object["name"] == name
        };
        objects.iter().find(is_it).cloned().with_context(|| format!("no {kind} {namespace}/{name}"))
    }

    /// How the watch of `kind` stands in `namespace`.
    pub fn watch_state(&self, kind: &str, namespace: &str) -> Result<String> {
        let cluster = self.cluster()?;
        let watches = cluster["watches"].as_array().context("watches")?;
        let is_it = |watch: &&Value| watch["kind"] == kind && watch["namespace"] == namespace;
        let watch =
            watches.iter().find(is_it).with_context(|| format!("no watch of {kind} in {namespace}"))?;
        Ok(watch["state"].as_str().unwrap_or_default().to_owned())
    }

    pub fn await_watch_state(&self, kind: &str, namespace: &str, state: &str) -> Result<()> {
        let what = format!("the watch of {kind} is {state}");
        eventually(&what, || match self.watch_state(kind, namespace)? {
            now if now == state => Ok(()),
            now => bail!("it is {now}"),
        })
        .with_context(|| self.log())
    }

    /// Whether it holds the lease of `namespace`.
    pub fn leads(&self, namespace: &str) -> Result<bool> {
        let cluster = self.cluster()?;
        let leases = cluster["leases"].as_array().context("leases")?;
        let lease = leases.iter().find(|lease| lease["namespace"] == namespace);
        Ok(lease.with_context(|| format!("no lease in {namespace}"))?["held"] == true)
    }

    /// The status of a request to any address that its network reaches; 0 for no connection.
    pub fn status_at(&self, address: SocketAddr, host: &str) -> u16 {
        get(&self.netns, address, host, "/").map_or(0, |response| response.status)
    }

    /// The status of a request to a listener; 0 for no connection.
    pub fn status(&self, port: u16, host: &str) -> u16 {
        get(&self.netns, SocketAddr::new(self.address, port), host, "/").map_or(0, |response| response.status)
    }

    /// Waits until a request to a listener is answered so.
    pub fn await_status(&self, port: u16, host: &str, expected: u16) -> Result<()> {
        let what = format!("{host} at port {port} answers {expected}");
        eventually(&what, || match self.status(port, host) {
            status if status == expected => Ok(()),
            status => bail!("it answers {status}"),
        })
        .with_context(|| self.log())
    }

    pub fn log(&self) -> String {
        format!("log of the agent:\n{}", self.process.log())
    }

    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// Ends it without a warning.
    pub fn kill(self) -> Result<()> {
        self.process.signal(Signal::SIGKILL)
    }

    /// Ends it by SIGTERM, and waits.
    pub fn terminate(self) -> Result<()> {
        self.process.signal(Signal::SIGTERM)?;
        let status = self.process.wait_exit(DEADLINE)?;
        if !status.success() {
            bail!("the agent ended with {status}\n{}", self.log());
        }
        Ok(())
    }
}
