//! TLS passthrough by server name: the relay beside nginx's and HAProxy's.
//!
//! What follows the ClientHello is opaque to all of them, so the load sends plain bytes after it.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result};
use lab::hello::Hello;
use lab::{Datapath, Family, Lab, manifests};

use super::candidates::{self, Candidate, Running};
use super::load::{Load, Server, Work, measure as measure_load};
use super::report::{Report, Row, Target};
use super::{CLIENT_CPU, GATEWAY_CPU, Plan, WARM_UP};

const PORT: u16 = 443;
const BACKEND_PORT: u16 = 8443;
const NAME: &str = "app.example.com";

pub(super) fn measure(plan: &Plan, report: &mut Report) -> Result<()> {
    // The size of a hello without post-quantum key shares.
    let hello = Hello { server_name: Some(NAME), at_least: 512 }.records(16_384);
    let mut candidates = Vec::new();
    for peer in ["direct", "agent", "nginx", "haproxy"] {
        if plan.wants(peer) {
            candidates.push(start(peer, hello.len(), &plan.agent).context(peer)?);
        }
    }
    for round in 0..plan.rounds {
        for (candidate, server) in &candidates {
            for work in Work::ALL {
                eprintln!("bench: round {}: {}, {}", round + 1, candidate.name, work.name());
                let load = Load {
                    client: candidate.lab.client(),
                    to: candidate.to,
                    preamble: &hello,
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

fn start(peer: &str, hello: usize, agent: &Path) -> Result<(Candidate, Server)> {
    let lab = candidates::network()?;
    let server = Server::start(lab.backend(1), BACKEND_PORT, hello, GATEWAY_CPU)?;
    let target = SocketAddr::new(lab.backend_address(1, Family::V4), BACKEND_PORT);
    let mut to = lab.at_gateway(Family::V4, PORT);
    let running = match peer {
        "direct" => {
            lab.gateway().sysctl("ipv4/ip_forward", "1")?;
            to = target;
            Running::Kernel
        }
        "agent" => {
            write_manifests(&lab)?;
            candidates::agent(&lab, Datapath::Auto, agent)?
        }
        "nginx" => Running::Peer(candidates::nginx(&lab, "nginx", &nginx(target))?),
        _ => Running::Peer(candidates::haproxy(&lab, &haproxy(target))?),
    };
    if let Running::Peer(process) = &running {
        candidates::wait_open(&lab, process, PORT)?;
    }
    Ok((Candidate { name: peer.to_owned(), lab, to, running }, server))
}

fn write_manifests(lab: &Lab) -> Result<()> {
    let text = manifests::gateway("gw", &[("tls", "TLS", PORT)])
        + &manifests::l4_route_with("TLSRoute", "tls", "gw", "tls", &[NAME], &[("tls", 443, 1)])
        + &manifests::service("tls", "TCP", 443, BACKEND_PORT, &[lab.backend_address(1, Family::V4)]);
    manifests::write(&lab.manifests(), "all.yaml", &text)
}

fn nginx(target: SocketAddr) -> String {
    format!(
        "stream {{\n  map $ssl_preread_server_name $to {{ {NAME} {target}; default 127.0.0.1:1; }}\n  server {{ \
         listen {PORT}; ssl_preread on; proxy_pass $to; tcp_nodelay on; }}\n}}\n"
    )
}

fn haproxy(target: SocketAddr) -> String {
    format!(
        "  mode tcp\n  option splice-auto\nfrontend tls_in\n  bind :{PORT}\n  tcp-request inspect-delay 5s\n  \
         tcp-request content accept if {{ req_ssl_hello_type 1 }}\n  \
         use_backend app if {{ req_ssl_sni -i {NAME} }}\nbackend app\n  server s1 {target}\n"
    )
}

fn targets(report: &mut Report) {
    let row = |name: &str, work: Work| report.row(name, work.name()).map(Row::medians);
    let mut targets = Vec::new();
    for work in [Work::Upload, Work::Download] {
        if let (Some(agent), Some(direct)) = (row("agent", work), row("direct", work)) {
            let text = format!("relay, {}: CPU added to a direct connection, ms/GB", work.name());
            targets.push(Target::at_most(&text, agent.total - direct.total, 100.0));
        }
    }
    for peer in ["nginx", "haproxy"] {
        for work in Work::ALL {
            if let (Some(agent), Some(peer_row)) = (row("agent", work), row(peer, work)) {
                let ratio = peer_row.gateway / agent.gateway;
                let text = format!("relay, {}: per core against {peer}", work.name());
                targets.push(Target::at_least(&text, ratio, 1.0));
            }
        }
    }
    report.targets = targets;
    report.notes.push(
        "The targets for flows after the handoff to the kernel (0.3 µs per round trip, 2x nginx and HAProxy in rate) \
         wait for the handoff; this measures the relay."
            .into(),
    );
}
