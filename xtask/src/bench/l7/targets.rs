//! What the figures are held against, and what a reader needs to know about them.

use super::contender::Peer;
use super::scenario::ALL;
use super::{CIPHER, CONNECTIONS_PER_SECOND, CURVE, Tally};
use crate::bench::report::{Report, Row, Target};

/// The scenario that has targets of its own.
const MANY: &str = "h1-10k";

const PEERS: [Peer; 4] = [Peer::Nginx, Peer::Haproxy, Peer::Envoy, Peer::Traefik];

pub(super) fn judge(report: &mut Report, tally: &Tally) {
    let row = |peer: Peer, scenario: &str| report.row(peer.name(), scenario).map(Row::medians);
    let mut targets = Vec::new();
    if let Some(agent) = row(Peer::Agent, MANY) {
        targets.push(Target::at_most("10,000 routes: CPU per request, µs", agent.gateway, 10.0));
        for (peer, bound) in [(Peer::Nginx, 1.15), (Peer::Haproxy, 1.3), (Peer::Envoy, 4.0)] {
            if let Some(other) = row(peer, MANY) {
                let text = format!("10,000 routes: per core against {}", peer.name());
                targets.push(Target::at_least(&text, other.gateway / agent.gateway, bound));
            }
        }
        if let Some(nginx) = row(Peer::Nginx, MANY) {
            let text = "10,000 routes: p99 at equal load against nginx";
            targets.push(Target::at_most(text, agent.p99_us / nginx.p99_us, 1.0));
        }
        if let Some(one) = row(Peer::Agent, "h1") {
            // Within the noise of the measurement.
            targets.push(Target::at_most("10,000 routes against 1", agent.gateway / one.gateway, 1.05));
        }
    }
    for scenario in ALL.map(|scenario| scenario.name) {
        let best = PEERS
            .into_iter()
            .filter_map(|peer| Some((peer, row(peer, scenario)?.gateway)))
            .min_by(|(_, one), (_, other)| one.total_cmp(other));
        if let (Some(agent), Some((peer, gateway))) = (row(Peer::Agent, scenario), best) {
            let text = format!("{scenario}: per core against the best peer, {}", peer.name());
            targets.push(Target::at_least(&text, gateway / agent.gateway, 1.0));
        }
    }
    for (peer, wrong) in &tally.wrong {
        targets.push(Target::at_most(&format!("wrong answers, {peer}"), *wrong as f64, 0.0));
    }
    targets.push(Target::at_most("candidates left out", tally.left_out.len() as f64, 0.0));
    report.targets = targets;
    report.fault = tally.fault();
    report.notes.extend(tally.left_out.iter().map(|text| format!("Left out: {text}")));
    report.notes.extend(tally.complaints.iter().map(|text| format!("Wrong: {text}")));
    report.notes.extend(notes());
}

fn notes() -> [String; 4] {
    [
        "Everyone has one thread of work, on the cpu where the backend is too; the client has the other cpu. \
         Names of scenarios: 10k is the number of routes, 64k the size of the body, connect one request per \
         connection; h2c, tls-h2 and grpc have 4 connections with 16 requests under way on each, \
         h1 and tls-h1 have 64 connections. grpc is in clear on both sides."
            .into(),
        format!(
            "TLS 1.3 with {CIPHER}, {CURVE} and an ECDSA certificate on P-256; every connection of tls-connect makes \
             a whole handshake. Backends are asked by HTTP/1.1 in clear, but HTTP/2 in clear for grpc, and \
             connections to them are kept."
        ),
        format!(
            "Latencies are those at equal load: half of what the slowest did in the first round, and \
             {CONNECTIONS_PER_SECOND} connections a second, where they count from the begin of the connection. Requests come at a \
             steady rate, whatever the answers take; those of h2c, tls-h2 and grpc on one connection."
        ),
        "RSS is that of the gateway's processes after the load of the scenario, for which it was started.".into(),
    ]
}
