//! `bench`: the agent beside its peers in network namespaces, in interleaved rounds, CPU per unit of work.
//!
//! Wall-clock rates on a shared machine swing by the factor of three, CPU time of the processes involved by a few
//! percent: that is what is compared. It gates nothing by itself: it says which targets are met, and writes a file.

mod candidates;
mod cpu;
mod facts;
mod figure;
mod l4;
mod l7;
mod load;
mod passthrough;
mod report;
mod routes;
mod wheel;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;

use crate::command::{cargo, run as run_command, target_dir};
use crate::setup::{self, Purpose};
use report::Report;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// What to measure
    #[arg(value_enum)]
    path: Path,
    /// Rounds; in each, every candidate is measured once, in turn [default: 5; l7: 4, with --short 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=50))]
    rounds: Option<u32>,
    /// Seconds for each measurement [default: 3; l7 with --short: 1]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: Option<u64>,
    /// Measure only these: scenarios of `l7`, elsewhere candidates whose name contains one of these words
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// `l7`: in less time, so with more noise; `routes`: leave out --at-rest
    #[arg(long)]
    short: bool,
    /// The agent's binary, to compare builds [default: GATEWAY_AGENT_BIN, else an optimised build is made]
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
    /// Write no result file
    #[arg(long)]
    no_file: bool,
    #[command(flatten)]
    l7: l7::Options,
    #[command(flatten)]
    routes: routes::Options,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Path {
    /// HTTP/1.1, HTTP/2, gRPC and TLS, beside nginx, HAProxy, Envoy and Traefik
    L7,
    /// TLS passthrough by server name, beside nginx and HAProxy
    Passthrough,
    /// TCP in the kernel, beside plain routing and nftables
    L4,
    /// Changes of routes in the test cluster, beside Traefik: latency, correctness, CPU, memory
    Routes,
}

/// The client's side runs on the first cpu, gateway and backend on the second: the machine that CI has.
const CLIENT_CPU: usize = 0;
const GATEWAY_CPU: usize = 1;

/// Before each measurement: connections are made and caches are warm by then.
const WARM_UP: Duration = Duration::from_millis(500);

/// What the measurements of one path share.
struct Plan {
    rounds: u32,
    length: Duration,
    only: Vec<String>,
    is_short: bool,
    /// The agent's binary.
    agent: PathBuf,
}

impl Plan {
    fn wants(&self, candidate: &str) -> bool {
        wants(&self.only, candidate)
    }
}

/// By where cargo puts it.
fn is_debug_build(agent: &std::path::Path) -> bool {
    agent.parent().is_some_and(|folder| folder.ends_with("debug"))
}

fn wants(only: &[String], candidate: &str) -> bool {
    only.is_empty() || only.iter().any(|word| candidate.contains(word.as_str()))
}

pub(crate) fn run(args: &Args) -> Result<()> {
    lab::require_root()?;
    if std::thread::available_parallelism()?.get() < 2 {
        bail!("the benches pin client and gateway to two cpus: this machine offers one");
    }
    if cfg!(debug_assertions) && args.path.makes_load() {
        return run_optimised();
    }
    if args.path == Path::L7 {
        // Before anything is built for it.
        l7::check_names(&args.only)?;
    }
    setup::prepare(&[Purpose::Bench])?;
    let agent = args.agent_binary()?;
    let is_debug = is_debug_build(&agent);
    // The cluster's processes are not this one's children: raised above them, the client would starve them. And what
    // is no measurement may wait for the rest of the machine.
    let is_raised = args.path != Path::Routes && !is_debug;
    let _priority = if is_raised { Some(Priority::raise()?) } else { None };
    let (rounds, seconds) = args.path.defaults(args.short);
    let plan = Plan {
        rounds: args.rounds.unwrap_or(rounds),
        length: Duration::from_secs(args.seconds.unwrap_or(seconds)),
        only: args.only.clone(),
        is_short: args.short,
        agent,
    };
    let mut report = Report::new(args.path.name())?;
    match args.path {
        Path::L7 => l7::measure(&args.l7, &plan, &mut report)?,
        Path::Passthrough => passthrough::measure(&plan, &mut report)?,
        Path::L4 => l4::measure(&plan, &mut report)?,
        Path::Routes => routes::measure(&args.routes, &plan, &mut report)?,
    }
    if is_debug {
        report.notes.push("The agent is a build without optimisation: its figures say nothing.".into());
    }
    report.print();
    if !args.no_file && !is_debug {
        report.write()?;
    }
    report.fault.map_or(Ok(()), |fault| bail!("{fault}"))
}

/// What else runs on the machine must not preempt what is measured: each switch costs microseconds and warm caches.
///
/// Children inherit the priority. Where the scheduler groups by session, it counts within the session only, so the
/// session is raised too, until this is dropped.
struct Priority;

impl Priority {
    const NICE: libc::c_int = -15;
    const SESSION: &str = "/proc/self/autogroup";

    fn raise() -> Result<Self> {
        // SAFETY: setpriority(2) takes three numbers.
        let outcome = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, Self::NICE) };
        ensure!(outcome == 0, "setpriority: {}", std::io::Error::last_os_error());
        // Absent where the scheduler does not group.
        std::fs::write(Self::SESSION, Self::NICE.to_string()).ok();
        Ok(Self)
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        std::fs::write(Self::SESSION, "0").ok();
    }
}

impl Args {
    /// The one that is named, by argument or as for the tests; else one that is built now, if it is measured at all.
    fn agent_binary(&self) -> Result<PathBuf> {
        let named = self.agent.clone().or_else(|| std::env::var_os("GATEWAY_AGENT_BIN").map(PathBuf::from));
        if let Some(path) = named {
            return path.canonicalize().with_context(|| format!("the agent's binary {}", path.display()));
        }
        let is_measured = match self.path {
            Path::L7 => self.l7.has_agent(),
            Path::Routes => wants(&self.only, "agent"),
            // Several of their candidates are the agent.
            Path::Passthrough | Path::L4 => true,
        };
        if is_measured {
            run_command(&mut cargo(["build", "--release", "--locked", "--package", "gateway-agent"]))?;
        }
        Ok(target_dir().join("release/gateway-agent"))
    }
}

impl Path {
    /// Whether the load is made by this program, so that its own time is in the figures. Where others make it, or
    /// where it is paced, this program may be any build.
    const fn makes_load(self) -> bool {
        matches!(self, Self::Passthrough | Self::L4)
    }

    /// Rounds, and seconds for each measurement. There are ten scenarios of `l7` with five gateways each: 20 minutes,
    /// and less than ten if it is to be short.
    const fn defaults(self, is_short: bool) -> (u32, u64) {
        match self {
            Self::L7 if is_short => (3, 1),
            Self::L7 => (4, 3),
            Self::Passthrough | Self::L4 | Self::Routes => (5, 3),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::L7 => "l7",
            Self::Passthrough => "passthrough",
            Self::L4 => "l4",
            Self::Routes => "routes",
        }
    }
}

/// The load generator is part of this program, and its own time is in the totals: it must be an optimised one.
fn run_optimised() -> Result<()> {
    let mut command = cargo(["run", "--quiet", "--release", "--locked", "--package", "xtask", "--"]);
    // As they came: `bench` and all that follows it.
    command.args(std::env::args_os().skip(1));
    run_command(&mut command)
}
