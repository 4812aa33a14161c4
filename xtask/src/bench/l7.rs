//! HTTP/1.1, HTTP/2, gRPC and TLS, beside nginx, HAProxy, Envoy and Traefik: CPU per request, latency at equal load,
//! memory, and whether every answer is right.
//!
//! Scenario after scenario; in each, the gateways take turns. h2load and vegeta make the load, this program only counts.

mod contender;
mod envoy;
mod h2load;
mod haproxy;
mod manifests;
mod nginx;
mod probe;
mod scenario;
mod targets;
mod tool;
mod traefik;
mod vegeta;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum as _;

use self::contender::{Contender, Peer};
use self::scenario::{Scenario, Traffic};
use self::vegeta::Drive;
use super::facts::{Machine, rss_mb};
use super::load::Outcome;
use super::report::Report;
use super::{Plan, WARM_UP, wheel};
use crate::command::{output, program};

#[derive(Clone, Debug, clap::Args)]
#[group(id = "l7")]
pub(super) struct Options {
    /// `l7`: measure only these gateways
    #[arg(long, value_enum, value_delimiter = ',')]
    peers: Vec<Peer>,
}

impl Options {
    pub(super) fn has_agent(&self) -> bool {
        self.peers.is_empty() || self.peers.contains(&Peer::Agent)
    }
}

/// What every client offers and every server therefore chooses.
const CIPHER: &str = "TLS_AES_128_GCM_SHA256";
const CURVE: &str = "X25519";

/// At which latencies of new connections are measured: a handshake takes a slow gateway a millisecond of CPU.
const CONNECTIONS_PER_SECOND: u32 = 200;

/// Of what the slowest gateway can do: nobody's queue grows, whatever the noise.
const EQUAL_SHARE: f64 = 0.5;

/// The least that latencies are measured: p99 is to be more than a handful of samples.
const PACED_LEAST: Duration = Duration::from_secs(1);

/// Complaints that the report repeats; the count has them all.
const COMPLAINTS_MAX: usize = 10;

/// What a load generator got done.
struct Done {
    requests: f64,
    wrong: u64,
    /// In its own words, if any was wrong.
    complaint: Option<String>,
}

/// What must not happen.
#[derive(Default)]
struct Tally {
    /// Answers, by gateway.
    wrong: BTreeMap<&'static str, u64>,
    complaints: Vec<String>,
    left_out: Vec<String>,
}

impl Tally {
    fn count(&mut self, peer: Peer, scenario: &Scenario, done: &Done) {
        *self.wrong.entry(peer.name()).or_default() += done.wrong;
        if let Some(complaint) = &done.complaint {
            eprintln!("bench: WRONG: {}, {}: {complaint}", peer.name(), scenario.name);
            if self.complaints.len() < COMPLAINTS_MAX {
                self.complaints.push(format!("{}, {}: {complaint}", peer.name(), scenario.name));
            }
        }
    }

    fn fault(&self) -> Option<String> {
        let wrong: u64 = self.wrong.values().sum();
        let left_out = self.left_out.len();
        let is_good = wrong == 0 && left_out == 0;
        (!is_good).then(|| format!("{wrong} wrong answers, {left_out} candidates left out: see the notes"))
    }

    /// The rest of the comparison goes on without it.
    fn leave_out(&mut self, peer: Peer, scenario: &Scenario, error: &anyhow::Error) {
        let text = format!("{}, {}: {error:#}", peer.name(), scenario.name);
        eprintln!("bench: LEFT OUT: {text}");
        self.left_out.push(tool::head(&text, 8));
    }
}

/// Whether there are scenarios of these names.
pub(super) fn check_names(names: &[String]) -> Result<()> {
    scenario::choose(names).map(drop)
}

pub(super) fn measure(options: &Options, plan: &Plan, report: &mut Report) -> Result<()> {
    let scenarios = scenario::choose(&plan.only)?;
    let chosen = |peer: &Peer| options.peers.is_empty() || options.peers.contains(peer);
    let peers: Vec<Peer> = Peer::value_variants().iter().copied().filter(chosen).collect();
    report.notes.push(versions(&peers, &plan.agent)?);
    let machine = Machine::now()?;
    let mut tally = Tally::default();
    for scenario in scenarios {
        compare(scenario, &peers, plan, report, &mut tally)?;
    }
    report.notes.push(machine.describe_since()?);
    targets::judge(report, &tally);
    Ok(())
}

/// Also says early what is missing.
fn versions(peers: &[Peer], agent: &Path) -> Result<String> {
    let mut lines = Vec::new();
    let mut say = |program_path: &Path, arg: &str| -> Result<()> {
        let text = output(program("sh").args(["-c", "\"$0\" \"$1\" 2>&1"]).arg(program_path).arg(arg))?;
        let mut words = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.push(words.next().unwrap_or_default().to_owned());
        Ok(())
    };
    for peer in peers {
        match peer {
            Peer::Agent => say(agent, "--version")?,
            Peer::Nginx => say(&lab::require_program("nginx", "nginx-light")?, "-v")?,
            Peer::Haproxy => say(&lab::require_program("haproxy", "haproxy")?, "-v")?,
            Peer::Envoy => {
                wheel::ENVOY.fetch()?;
            }
            Peer::Traefik => {
                wheel::TRAEFIK.fetch()?;
            }
        }
    }
    say(&lab::require_program("h2load", "nghttp2-client")?, "--version")?;
    for tool in ["curl", "openssl", "nghttpd"] {
        lab::require_program(tool, if tool == "nghttpd" { "nghttp2-server" } else { tool })?;
    }
    vegeta::install()?;
    lines.push(format!("vegeta {}", vegeta::VERSION));
    for (peer, wheel) in [(Peer::Envoy, wheel::ENVOY), (Peer::Traefik, wheel::TRAEFIK)] {
        if peers.contains(&peer) {
            lines.push(format!("{} {}", wheel.package, wheel.version));
        }
    }
    Ok(format!("Measured: {}.", lines.join("; ")))
}

fn compare(
    scenario: Scenario,
    peers: &[Peer],
    plan: &Plan,
    report: &mut Report,
    tally: &mut Tally,
) -> Result<()> {
    let mut contenders = Vec::new();
    for peer in peers {
        eprintln!("bench: {}: starting {}", scenario.name, peer.name());
        match Contender::start(*peer, scenario, &plan.agent) {
            Ok(contender) => contenders.push((*peer, contender)),
            Err(error) => tally.leave_out(*peer, &scenario, &error),
        }
    }
    let mut equal = None;
    for round in 0..plan.rounds {
        eprintln!("bench: {}: round {} of {}", scenario.name, round + 1, plan.rounds);
        let mut outcomes = Vec::new();
        contenders.retain(|(peer, contender)| match saturated(contender, plan.length) {
            Ok((outcome, done)) => {
                tally.count(*peer, &scenario, &done);
                outcomes.push(outcome);
                true
            }
            Err(error) => {
                tally.leave_out(*peer, &scenario, &error);
                false
            }
        });
        let per_second = *equal.get_or_insert_with(|| equal_rate(&scenario, &outcomes));
        let mut outcomes = outcomes.into_iter();
        contenders.retain(|(peer, contender)| {
            let mut outcome = outcomes.next().expect("there is one for each that was kept");
            match contender.attack((plan.length / 2).max(PACED_LEAST), Drive::PerSecond(per_second)) {
                Ok(attack) => {
                    tally.count(*peer, &scenario, &attack.done);
                    outcome.paced = attack.done.requests / attack.seconds;
                    (outcome.p50_us, outcome.p99_us) = (attack.p50_us, attack.p99_us);
                    report.add(peer.name(), scenario.name, scenario.unit(), outcome);
                    true
                }
                Err(error) => {
                    tally.leave_out(*peer, &scenario, &error);
                    false
                }
            }
        });
    }
    Ok(())
}

fn equal_rate(scenario: &Scenario, outcomes: &[Outcome]) -> f64 {
    if scenario.traffic == Traffic::Connections {
        return f64::from(CONNECTIONS_PER_SECOND);
    }
    outcomes.iter().map(|outcome| outcome.rate).fold(f64::INFINITY, f64::min) * EQUAL_SHARE
}

/// Everything but the latencies.
fn saturated(contender: &Contender, length: Duration) -> Result<(Outcome, Done)> {
    contender.saturate(WARM_UP)?;
    let (gateway, around) = (contender.candidate.gateway(), contender.around());
    let (gateway_before, around_before) = (gateway.micros()?, around.micros()?);
    let client_before = children_micros()?;
    let (done, seconds) = contender.saturate(length)?;
    let client = children_micros()? - client_before;
    let outcome = Outcome {
        gateway: (gateway.micros()? - gateway_before) / done.requests,
        total: (around.micros()? - around_before + client) / done.requests,
        rate: done.requests / seconds,
        rss_mb: rss_mb(&contender.candidate.processes())?,
        ..Outcome::default()
    };
    Ok((outcome, done))
}

/// CPU time of the programs that this one started and waited for.
fn children_micros() -> Result<f64> {
    // SAFETY: rusage is plain data for which all zeros is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is that of a live local.
    let outcome = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    ensure!(outcome == 0, "getrusage: {}", std::io::Error::last_os_error());
    let micros = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    Ok(micros(usage.ru_utime) + micros(usage.ru_stime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_load_is_half_of_what_the_slowest_does() {
        let outcome = |rate| Outcome { rate, ..Outcome::default() };
        let [kept, connect] =
            ["h1", "tls-connect"].map(|name| scenario::choose(&[name.into()]).expect("known").remove(0));
        assert_eq!(equal_rate(&kept, &[outcome(9000.0), outcome(4000.0)]), 2000.0);
        assert_eq!(equal_rate(&connect, &[outcome(9000.0)]), 200.0);
    }

    #[test]
    fn wrong_answers_are_counted_for_each_gateway_and_told_to_a_bound() {
        let mut tally = Tally::default();
        for _ in 0..20 {
            let done = Done { requests: 10.0, wrong: 2, complaint: Some("502".into()) };
            tally.count(Peer::Envoy, &scenario::ALL[0], &done);
        }
        tally.count(Peer::Agent, &scenario::ALL[0], &Done { requests: 1.0, wrong: 0, complaint: None });
        assert_eq!(tally.wrong, BTreeMap::from([("agent", 0), ("envoy", 40)]));
        assert_eq!(tally.complaints.len(), COMPLAINTS_MAX);
        assert!(tally.fault().is_some_and(|fault| fault.starts_with("40 wrong answers, 0 ")));
    }

    #[test]
    fn a_gateway_that_is_left_out_fails_the_comparison_that_goes_on_without_it() {
        let mut tally = Tally::default();
        assert_eq!(tally.fault(), None);
        tally.leave_out(Peer::Nginx, &scenario::ALL[0], &anyhow::anyhow!("refused"));
        assert!(tally.fault().is_some_and(|fault| fault.starts_with("0 wrong answers, 1 ")));
        assert_eq!(tally.left_out, ["nginx, h1: refused"]);
    }
}
