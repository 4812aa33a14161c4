//! Changes of routes in the running test cluster, the agent beside Traefik's Gateway API provider: how soon they are
//! served, whether any answer is wrong meanwhile, and what they cost.
//!
//! Two replicas of each, with their own Gateway and routes in their own namespaces, so that none pays for the other's;
//! they are measured in turns. The backends are this program's, outside of the nodes like its clients.

mod api;
mod candidates;
mod changes;
mod churn;
mod objects;
mod pods;
mod probe;
mod targets;
mod traefik;
mod watch;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab::Netns;
use lab::http::read_request;
use lab::servers::{TcpServer, any, ok};

use self::api::{Cluster, Name};
use self::candidates::{AGENT, Backends, Candidate, TRAEFIK};
use self::changes::Latencies;
use self::pods::Pod;
use super::Plan;
use super::facts::Machine;
use super::figure::Figure;
use super::report::Report;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Options {
    /// `routes`: with how many routes changes are measured
    #[arg(long, value_delimiter = ',', default_value = "10,3000", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    routes: Vec<u16>,
    /// `routes`: with how many routes only memory and CPU at rest are measured, besides
    #[arg(long, value_delimiter = ',', default_value = "1000,5000", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    at_rest: Vec<u16>,
    /// `routes`: how many routes come and go, one after the other, for each candidate
    #[arg(long, default_value = "100", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    changes: u32,
    /// `routes`: how many creates, changes of the backend and deletes there are under load
    #[arg(long, default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    churn: u32,
    /// `routes`: the name of the cluster, as in `cargo xtask cluster --name`
    #[arg(long, default_value = "ga-cluster")]
    cluster: String,
}

/// Changes of one candidate before it is another one's turn.
const TURN: usize = 10;

/// The most that one candidate's changes may take at one number of routes; what was measured by then counts.
const CHANGES_LIMIT: Duration = Duration::from_secs(150);

/// Creates, and as many deletes, whose CPU is measured.
const COSTED: usize = 15;

/// How long CPU is measured at rest.
const REST: Duration = Duration::from_secs(10);

/// Watched for until a candidate is at rest, and then taken as it is.
const REST_LIMIT: Duration = Duration::from_secs(45);

/// The most that routes may take to be accepted.
const ACCEPT_LIMIT: Duration = Duration::from_secs(300);

/// Writers of many routes: more bring nothing on two cores.
const WRITERS: usize = 8;

/// The router of the cluster's network, where this program's backends listen.
const OUTSIDE_ADDRESS: &str = "172.31.0.1";

const BACKEND_PORTS: [u16; 2] = [18_081, 18_082];

pub(super) fn measure(options: &Options, plan: &Plan, report: &mut Report) -> Result<()> {
    let mut names = Vec::new();
    for name in [AGENT, TRAEFIK] {
        if !plan.wants(name) {
            continue;
        }
        if name == AGENT && !candidates::agent_has_cluster(&plan.agent)? {
            report.notes.push("This build of the agent watches no cluster: it was left out.".into());
            continue;
        }
        names.push(name);
    }
    let machine = Machine::now()?;
    let cluster = Cluster::reach(Name::new(&options.cluster))?;
    let netns = cluster.name.outside()?;
    let _backends = backends(&netns)?;
    candidates::remove(&cluster.name)?;
    let result = all(options, plan, &cluster, &netns, &names, report);
    let removed = candidates::remove(&cluster.name);
    result?;
    removed?;
    report.notes.push(machine.describe_since()?);
    targets::judge(report);
    report.notes.extend(targets::notes());
    Ok(())
}

/// Each answers its own name.
fn backends(netns: &Netns) -> Result<Vec<TcpServer>> {
    let named = objects::BACKENDS.into_iter().zip(BACKEND_PORTS);
    named
        .map(|(name, port)| {
            let answer = ok(name);
            TcpServer::start(netns, any(port), move |mut stream, _| {
                let mut buffered = Vec::new();
                while read_request(&mut stream, &mut buffered)?.is_some() {
                    std::io::Write::write_all(&mut stream, &answer)?;
                }
                Ok(())
            })
        })
        .collect()
}

fn all(
    options: &Options,
    plan: &Plan,
    cluster: &Cluster,
    netns: &Netns,
    names: &[&'static str],
    report: &mut Report,
) -> Result<()> {
    let backends = Backends { address: OUTSIDE_ADDRESS, ports: BACKEND_PORTS };
    let mut candidates = Vec::new();
    for name in names {
        eprintln!("bench: installing {name}");
        candidates.push(
            Candidate::install(cluster, name, &plan.agent, &backends)
                .with_context(|| format!("install {name}"))?,
        );
    }
    let mut sizes: Vec<(usize, bool)> =
        options.routes.iter().map(|size| (usize::from(*size), true)).collect();
    if !plan.is_short {
        let more = options.at_rest.iter().map(|size| usize::from(*size));
        sizes.extend(
            more.filter(|size| !options.routes.iter().any(|other| usize::from(*other) == *size))
                .map(|size| (size, false)),
        );
    }
    sizes.sort_unstable();
    for (size, has_changes) in sizes {
        for candidate in &mut candidates {
            candidate.grow(cluster, size).with_context(|| format!("{}: {size} routes", candidate.name))?;
            add(report, candidate, CREATED, "s", vec![candidate.creation_s]);
            add(report, candidate, ACCEPTED, "s", vec![candidate.growth_s]);
        }
        let mut rests = Vec::new();
        for candidate in &candidates {
            rests.push(candidate.rest(report)?);
        }
        if has_changes {
            follow(options, netns, &mut candidates, report)?;
            for (candidate, rest) in candidates.iter_mut().zip(&rests) {
                candidate.cost(cluster, netns, rest, report)?;
            }
            for candidate in &mut candidates {
                candidate.hold(options, netns, report)?;
            }
        }
    }
    Ok(())
}

fn add(report: &mut Report, candidate: &Candidate, what: &str, unit: &'static str, samples: Vec<f64>) {
    report.figures.push(Figure::new(what, candidate.routes, candidate.name, unit, samples));
}

pub(super) const VISIBLE: &str = "event to first 200, both replicas";
pub(super) const WRONG: &str = "wrong answers under load";
pub(super) const COST: &str = "CPU per change, busier replica";
pub(super) const WRITES: &str = "status writes per new route";
pub(super) const MEMORY: &str = "RSS, larger replica";
pub(super) const AT_REST: &str = "CPU at rest, busier replica";
/// What the API server itself takes for the routes, while the candidate writes its first statuses.
pub(super) const CREATED: &str = "all created";
pub(super) const ACCEPTED: &str = "all Accepted";

/// The candidates take turns, until each has all changes or no time left.
fn follow(options: &Options, netns: &Netns, candidates: &mut [Candidate], report: &mut Report) -> Result<()> {
    let wanted = usize::try_from(options.changes)?;
    let mut measured: Vec<_> = candidates.iter().map(|_| (Latencies::default(), Duration::ZERO)).collect();
    loop {
        let mut is_done = true;
        for (candidate, (samples, spent)) in candidates.iter_mut().zip(&mut measured) {
            let missing = wanted - samples.visible.len();
            if missing == 0 || *spent >= CHANGES_LIMIT {
                continue;
            }
            is_done = false;
            eprintln!("bench: {} routes, {}: {missing} changes to go", candidate.routes, candidate.name);
            let start = Instant::now();
            candidate
                .follow(netns, missing.min(TURN), start + CHANGES_LIMIT.saturating_sub(*spent), samples)
                .with_context(|| format!("changes of {}", candidate.name))?;
            *spent += start.elapsed();
        }
        if is_done {
            break;
        }
    }
    for (candidate, (samples, _)) in candidates.iter().zip(measured) {
        add(report, candidate, VISIBLE, "ms", samples.visible);
        add(report, candidate, "API call to first 200, both replicas", "ms", samples.visible_from_call);
        add(report, candidate, "event of the delete to last 200", "ms", samples.gone);
    }
    Ok(())
}

/// Of each pod.
fn cpu_ms(pods: &[Pod]) -> Result<Vec<f64>> {
    pods.iter().map(Pod::cpu_ms).collect()
}

fn max(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::NAN, f64::max)
}

impl Candidate {
    /// Creates routes until there are `size`, and waits until all are accepted.
    fn grow(&mut self, cluster: &Cluster, size: usize) -> Result<()> {
        eprintln!("bench: {}: from {} to {size} routes", self.name, self.routes);
        let start = Instant::now();
        let namespace = &self.namespace;
        let first = self.routes;
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    scope.spawn(move || {
                        let mut api = cluster.connect()?;
                        (first..size).skip(writer).step_by(WRITERS).try_for_each(|index| {
                            let route = objects::route(namespace, &format!("r{index}"), objects::BACKENDS[0]);
                            api.create(&objects::routes_path(namespace), &route)
                        })
                    })
                })
                .collect();
            writers.into_iter().try_for_each(|writer| writer.join().expect("a writer does not panic"))
        })?;
        self.creation_s += start.elapsed().as_secs_f64();
        let what = format!("{size} routes are Accepted");
        let last = lab::eventually_within(ACCEPT_LIMIT, &what, || {
            let (count, last) = self.watcher.all_accepted()?;
            ensure!(count == size, "{count} are");
            last.context("none is")
        })?;
        self.growth_s += last.saturating_duration_since(start).as_secs_f64();
        self.routes = size;
        Ok(())
    }

    /// Memory, and the CPU milliseconds a second that each replica takes while nothing happens.
    fn rest(&self, report: &mut Report) -> Result<Vec<f64>> {
        eprintln!("bench: {} routes, {}: at rest", self.routes, self.name);
        let end = Instant::now() + REST_LIMIT;
        let mut last = self.cpu_over(Duration::from_secs(2))?;
        // Work that is left over from before ends some time: then it is no less any more.
        loop {
            let now = self.cpu_over(Duration::from_secs(2))?;
            let (before, after) = (max(last), max(now.iter().copied()));
            if after > before * 0.7 - 1.0 || Instant::now() > end {
                break;
            }
            last = now;
        }
        let rest = self.cpu_over(REST)?;
        // A millisecond a second is a tenth of a percent.
        add(report, self, AT_REST, "%", vec![max(rest.iter().map(|ms| ms / 10.0))]);
        let memory = self.pods.iter().map(Pod::rss_mb).collect::<Result<Vec<_>>>()?;
        add(report, self, MEMORY, "MB", vec![max(memory)]);
        Ok(rest)
    }

    /// Milliseconds a second of each replica.
    fn cpu_over(&self, length: Duration) -> Result<Vec<f64>> {
        let (before, start) = (cpu_ms(&self.pods)?, Instant::now());
        while start.elapsed() < length {
            std::thread::park_timeout(length.saturating_sub(start.elapsed()));
        }
        let (after, seconds) = (cpu_ms(&self.pods)?, start.elapsed().as_secs_f64());
        Ok(before.iter().zip(after).map(|(before, after)| (after - before) / seconds).collect())
    }

    fn cost(&mut self, cluster: &Cluster, netns: &Netns, rest: &[f64], report: &mut Report) -> Result<()> {
        eprintln!("bench: {} routes, {}: CPU per change", self.routes, self.name);
        let before = cluster.name.status_writes(&self.user)?;
        let costs = self.costs(netns, COSTED, rest)?;
        let writes = cluster.name.status_writes(&self.user)? - before;
        add(report, self, COST, "ms", vec![max(costs.iter().copied())]);
        add(report, self, "CPU per change, all replicas", "ms", vec![costs.iter().sum()]);
        add(report, self, WRITES, "", vec![writes as f64 / COSTED as f64]);
        Ok(())
    }

    /// Changes under load.
    fn hold(&mut self, options: &Options, netns: &Netns, report: &mut Report) -> Result<()> {
        eprintln!("bench: {} routes, {}: {} changes under load", self.routes, self.name, options.churn);
        let outcome = self.churn(netns, usize::try_from(options.churn)?)?;
        let (changes, requests) = (options.churn, outcome.requests);
        report.notes.push(format!(
            "{}, {} routes: {} of {requests} answers wrong during {changes} changes at {:.0}/s.",
            self.name, self.routes, outcome.wrong, outcome.changes_per_s
        ));
        report
            .notes
            .extend(outcome.examples.into_iter().take(5).map(|example| format!("{}: {example}", self.name)));
        add(report, self, WRONG, "", vec![outcome.wrong as f64]);
        Ok(())
    }
}
