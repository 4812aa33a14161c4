//! `bench`: the agent beside its peers in network namespaces, in interleaved rounds, CPU per unit of work.
//!
//! Wall-clock rates on a shared machine swing by the factor of three, CPU time of the processes involved by a few
//! percent: that is what is compared. It gates nothing by itself: it says which targets are met, and writes a file.

mod candidates;
mod cpu;
mod figure;
mod l4;
mod l7;
mod load;
mod passthrough;
mod report;
mod routes;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;

use crate::command::{cargo, run as run_command};
use crate::setup::{self, Purpose};
use report::Report;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// What to measure
    #[arg(value_enum)]
    path: Path,
    /// Rounds; in each, every candidate is measured once, in turn
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(3..=50))]
    rounds: u32,
    /// Seconds for each measurement
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Measure only candidates whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Write no result file
    #[arg(long)]
    no_file: bool,
    #[command(flatten)]
    routes: routes::Options,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Path {
    /// HTTP/1.1 proxying with 1 and with 10,000 routes, beside nginx and HAProxy
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
    only: Option<String>,
}

impl Plan {
    fn wants(&self, candidate: &str) -> bool {
        self.only.as_ref().is_none_or(|only| candidate.contains(only.as_str()))
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    lab::require_root()?;
    if std::thread::available_parallelism()?.get() < 2 {
        bail!("the benches pin client and gateway to two cpus: this machine offers one");
    }
    // The client of the routes is paced, and its own time is in no figure.
    if cfg!(debug_assertions) && args.path != Path::Routes {
        return run_optimised();
    }
    setup::prepare(&[Purpose::Bench])?;
    // To compare builds, that variable names another one, for here as for the tests.
    if std::env::var_os("GATEWAY_AGENT_BIN").is_none() && args.needs_agent() {
        run_command(&mut cargo(["build", "--release", "--locked", "--package", "gateway-agent"]))?;
    }
    // The cluster's processes are not this one's children: raised above them, the client would starve them.
    let _priority = if args.path == Path::Routes { None } else { Some(Priority::raise()?) };
    let plan =
        Plan { rounds: args.rounds, length: Duration::from_secs(args.seconds), only: args.only.clone() };
    let mut report = Report::new(args.path.name())?;
    match args.path {
        Path::L7 => l7::measure(&plan, &mut report)?,
        Path::Passthrough => passthrough::measure(&plan, &mut report)?,
        Path::L4 => l4::measure(&plan, &mut report)?,
        Path::Routes => routes::measure(&args.routes, &plan, &mut report)?,
    }
    report.print();
    if !args.no_file {
        report.write()?;
    }
    Ok(())
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
    /// The other paths have several candidates that are the agent.
    fn needs_agent(&self) -> bool {
        self.path != Path::Routes || self.only.as_ref().is_none_or(|only| "agent".contains(only.as_str()))
    }
}

impl Path {
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
