//! TCP through the kernel path, beside plain routing and one rule of nftables.
//!
//! The kernel's work is charged to the processes that send, so the totals are compared: client, backend and the packet
//! threads are the same everywhere, the difference is what lies between them.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result};
use lab::{Datapath, Family, Lab, manifests};

use super::candidates::{self, Candidate, Running};
use super::load::{Load, Server, Work, measure as measure_load};
use super::report::{Report, Row, Target};
use super::{CLIENT_CPU, GATEWAY_CPU, Plan, WARM_UP};

const PORT: u16 = 5432;
const BACKEND_PORT: u16 = 7000;

pub(super) fn measure(plan: &Plan, report: &mut Report) -> Result<()> {
    let mut candidates = Vec::new();
    for name in ["routing", "nftables DNAT", "agent, kernel", "agent, relay"] {
        if plan.wants(name) {
            candidates.push(start(name, &plan.agent).context(name)?);
        }
    }
    for round in 0..plan.rounds {
        for (candidate, server) in &candidates {
            for work in Work::ALL {
                eprintln!("bench: round {}: {}, {}", round + 1, candidate.name, work.name());
                let load = Load {
                    client: candidate.lab.client(),
                    to: candidate.to,
                    preamble: &[],
                    work,
                    warm_up: WARM_UP,
                    length: plan.length,
                    cpu: CLIENT_CPU,
                };
                let outcome = measure_load(&load, &candidate.gateway(), &server.group())
                    .with_context(|| format!("{}, {}", candidate.name, work.name()))?;
                report.add(&candidate.name, work.name(), work.unit(), outcome);
            }
        }
    }
    targets(report);
    Ok(())
}

fn start(name: &str, agent: &Path) -> Result<(Candidate, Server)> {
    let lab = candidates::network()?;
    let server = Server::start(lab.backend(1), BACKEND_PORT, 0, GATEWAY_CPU)?;
    let target = SocketAddr::new(lab.backend_address(1, Family::V4), BACKEND_PORT);
    let mut to = lab.at_gateway(Family::V4, PORT);
    let running = match name {
        "routing" => {
            lab.gateway().sysctl("ipv4/ip_forward", "1")?;
            to = target;
            Running::Kernel
        }
        "nftables DNAT" => {
            lab.gateway().sysctl("ipv4/ip_forward", "1")?;
            nftables(&lab, target)?;
            Running::Kernel
        }
        "agent, kernel" => {
            write_manifests(&lab)?;
            candidates::agent(&lab, Datapath::Ebpf, agent)?
        }
        _ => {
            write_manifests(&lab)?;
            candidates::agent(&lab, Datapath::Userspace, agent)?
        }
    };
    Ok((Candidate { name: name.to_owned(), lab, to, running }, server))
}

/// Destination NAT as kube-proxy's nftables mode has it: a map from port to backend, and conntrack for the way back.
fn nftables(lab: &Lab, target: SocketAddr) -> Result<()> {
    lab::require_program("nft", "nftables")?;
    let rules = lab.folder().join("rules.nft");
    let text = format!(
        "table ip bench {{\n  map services {{ type inet_service : ipv4_addr . inet_service; elements = {{ {PORT} : {} . \
         {} }} }}\n  chain prerouting {{ type nat hook prerouting priority dstnat; dnat to tcp dport map @services; \
         }}\n  chain postrouting {{ type nat hook postrouting priority srcnat; ip daddr {} masquerade; }}\n}}\n",
        target.ip(),
        target.port(),
        target.ip(),
    );
    std::fs::write(&rules, text)?;
    lab.gateway().output("nft", &["-f", &rules.to_string_lossy()]).map(drop)
}

fn write_manifests(lab: &Lab) -> Result<()> {
    let text = manifests::gateway("gw", &[("tcp", "TCP", PORT)])
        + &manifests::l4_route("TCPRoute", "tcp", "gw", "tcp", &[("tcp", 80, 1)])
        + &manifests::service("tcp", "TCP", 80, BACKEND_PORT, &[lab.backend_address(1, Family::V4)]);
    manifests::write(&lab.manifests(), "all.yaml", &text)
}

fn targets(report: &mut Report) {
    let row = |name: &str, work: Work| report.row(name, work.name()).map(Row::medians);
    let mut targets = Vec::new();
    if let (Some(agent), Some(routing)) =
        (row("agent, kernel", Work::RoundTrips), row("routing", Work::RoundTrips))
    {
        targets.push(Target::at_most("round trip against plain routing", agent.total / routing.total, 1.02));
    }
    if let (Some(agent), Some(nft)) =
        (row("agent, kernel", Work::Connects), row("nftables DNAT", Work::Connects))
    {
        targets.push(Target::at_least("connections against nftables DNAT", nft.total / agent.total, 1.15));
    }
    report.targets = targets;
    report.notes.push("Flat from 1 to 10,000 services: not measured by this bench yet.".into());
}
