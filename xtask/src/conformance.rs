//! `conformance`: the Gateway API's own suite, unmodified, against the agent in the running test cluster.
//!
//! The agent is installed from `deploy/` as its readers do it. The suite's client is outside of the nodes and reaches
//! Gateways at LoadBalancer addresses. This file decides the order only; it starts no cluster.

mod build;
mod cluster;
mod install;
mod namespaced;
mod suite;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use self::install::Mode;
use self::suite::Tests;
use crate::command::{output, program, target_dir};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this profile, such as GATEWAY-HTTP; repeatable. Without it: those whose kind of route the agent claims
    #[arg(long = "profile", value_name = "NAME")]
    profiles: Vec<String>,
    /// The agent has Roles in its namespaces and nothing else; this program acknowledges the class in its place
    #[arg(long)]
    roles_only: bool,
    /// Only this test of the suite, whatever features it needs, without a report
    #[arg(long, value_name = "NAME", conflicts_with_all = ["status_only", "short"])]
    run_test: Option<String>,
    /// The suite's tests that read status only, also for features that are not claimed, without a report
    #[arg(long)]
    status_only: bool,
    /// As --status-only, and one test with traffic for each kind of route
    #[arg(long)]
    short: bool,
    /// Build the suite, and nothing else
    #[arg(long)]
    build_only: bool,
    /// An agent that is already built; without it: the release build
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
    /// Leave the agent installed at the end
    #[arg(long)]
    keep: bool,
}

/// The class that the suite's Gateways name by default.
const CLASS: &str = "gateway-conformance";

/// What the agent calls itself in status entries and in classes.
const CONTROLLER: &str = "gateway-agent.dev/agent";

/// Each with the feature without which it makes no sense.
const PROFILES: [(&str, &str); 5] = [
    ("GATEWAY-HTTP", "HTTPRoute"),
    ("GATEWAY-GRPC", "GRPCRoute"),
    ("GATEWAY-TLS", "TLSRoute"),
    ("GATEWAY-TCP", "TCPRoute"),
    ("GATEWAY-UDP", "UDPRoute"),
];

pub(crate) fn run(args: &Args) -> Result<()> {
    let suite = build::suite()?;
    if args.build_only {
        println!("conformance: built {}", suite.display());
        return Ok(());
    }
    lab::require_root()?;
    cluster::require_running()?;
    let (agent, image) = build::agent(args.agent.as_deref())?;
    let features = features(&agent)?;
    cluster::load(&image)?;

    let mode = if args.roles_only { Mode::RolesOnly } else { Mode::Default };
    // What an interrupted run left would be counted as this one's.
    install::remove()?;
    let result = install::apply(mode, &features).and_then(|()| tests(args, mode, &suite, &features));
    let logs = install::logs(&folder().join(format!("{}-agent.log", mode.name())));
    if !args.keep {
        install::remove()?;
    }
    logs?;
    let outcome = result?;
    // The form of the closing line that `cargo xtask test` adds up.
    println!("{} passed, {} failed", outcome.passed, outcome.failed.len());
    ensure!(outcome.failed.is_empty(), "failed: {}", outcome.failed.join(", "));
    Ok(())
}

fn tests(args: &Args, mode: Mode, suite: &Path, features: &[String]) -> Result<suite::Outcome> {
    // Gone with it is the process that binds rights in namespaces which the tests make.
    let _granter = match mode {
        Mode::Default => None,
        Mode::RolesOnly => Some(namespaced::Granter::start()?),
    };
    suite::run(&suite::Selection {
        binary: suite,
        mode,
        features,
        profiles: &profiles(&args.profiles, features),
        tests: match &args.run_test {
            Some(name) => Tests::One(name),
            None if args.short => Tests::Short,
            None if args.status_only => Tests::Status,
            None => Tests::All,
        },
    })
}

fn profiles(asked: &[String], features: &[String]) -> Vec<String> {
    if !asked.is_empty() {
        return asked.to_vec();
    }
    let claimed = PROFILES.iter().filter(|(_, kind)| features.iter().any(|feature| feature == kind));
    claimed.map(|(profile, _)| (*profile).to_owned()).collect()
}

/// Where everything that this command makes lies, but the reports.
fn folder() -> PathBuf {
    target_dir().join("conformance")
}

/// What the agent says that it supports: one list for its status and for the suite.
fn features(agent: &Path) -> Result<Vec<String>> {
    let text = output(program(agent).arg("features")).context("the agent lists its features")?;
    let features: Vec<String> =
        text.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect();
    ensure!(!features.is_empty(), "the agent lists no feature");
    Ok(features)
}
