//! HTTP/1.1: kept connections, a small body, with one route and with ten thousand.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use lab::{Datapath, Family, Lab, Process, client, eventually, manifests};

use super::candidates::{self, Candidate, Running};
use super::cpu::Group;
use super::load::Outcome;
use super::report::{Report, Row, Target};
use super::{CLIENT_CPU, Plan};

const PORT: u16 = 80;
const BACKEND_PORT: u16 = 8080;
const ROUTES: [usize; 2] = [1, 10_000];

/// About what a small JSON answer has.
const BODY_BYTES: usize = 110;

const UNIT: &str = "µs/request";

pub(super) fn measure(plan: &Plan, report: &mut Report) -> Result<()> {
    lab::require_program("wrk", "wrk")?;
    let mut candidates = Vec::new();
    for routes in ROUTES {
        for peer in ["agent", "nginx", "haproxy"] {
            let name = format!("{peer}, {routes} route{}", if routes == 1 { "" } else { "s" });
            if plan.wants(&name) {
                candidates.push(start(&name, peer, routes).with_context(|| name.clone())?);
            }
        }
    }
    for round in 0..plan.rounds {
        for (candidate, backend) in &candidates {
            eprintln!("bench: round {}: {}", round + 1, candidate.name);
            let outcome = one(plan, candidate, backend).with_context(|| candidate.name.clone())?;
            report.add(&candidate.name, "small requests", UNIT, outcome);
        }
    }
    targets(report);
    Ok(())
}

fn host(number: usize) -> String {
    format!("h{number}.example.com")
}

fn start(name: &str, peer: &str, routes: usize) -> Result<(Candidate, Process)> {
    let lab = candidates::network()?;
    let body = "b".repeat(BODY_BYTES);
    let backend = candidates::nginx(
        &lab,
        "backend",
        &format!(
            "http {{ access_log off; keepalive_requests 1000000000; server {{ listen {BACKEND_PORT}; \
             return 200 {body}; }} }}\n"
        ),
    )?;
    let target = SocketAddr::new(lab.backend_address(1, Family::V4), BACKEND_PORT);
    let running = match peer {
        "agent" => {
            write_manifests(&lab, routes)?;
            candidates::agent(&lab, Datapath::Auto)?
        }
        "nginx" => Running::Peer(candidates::nginx(&lab, "nginx", &nginx(target, routes))?),
        _ => {
            let hosts: String = (0..routes).map(|number| format!("{} web\n", host(number))).collect();
            let map = lab.folder().join("hosts.map");
            std::fs::write(&map, hosts)?;
            Running::Peer(candidates::haproxy(&lab, &haproxy(target, &map.to_string_lossy()))?)
        }
    };
    let to = lab.at_gateway(Family::V4, PORT);
    let wanted = host(routes / 2);
    eventually("requests are answered", || {
        let status = client::get(lab.client(), to, &wanted, "/")?.status;
        ensure!(status == 200, "status {status}");
        Ok(())
    })?;
    Ok((Candidate { name: name.to_owned(), lab, to, running }, backend))
}

fn write_manifests(lab: &Lab, routes: usize) -> Result<()> {
    // Files of a size that an editor opens.
    const PER_FILE: usize = 500;
    let folder = lab.manifests();
    let base = manifests::gateway("gw", &[("http", "HTTP", PORT)])
        + &manifests::service("web", "TCP", 80, BACKEND_PORT, &[lab.backend_address(1, Family::V4)]);
    manifests::write(&folder, "gateway.yaml", &base)?;
    for first in (0..routes).step_by(PER_FILE) {
        let text: String = (first..routes.min(first + PER_FILE))
            .map(|number| {
                let hosts = [host(number)];
                let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
                manifests::http_route(&format!("r{number}"), "gw", "http", &hosts, &[("", &[("web", 80, 1)])])
            })
            .collect();
        manifests::write(&folder, &format!("routes-{first:05}.yaml"), &text)?;
    }
    Ok(())
}

/// What the agent does to a request, in nginx's words: the client's address is passed on, connections are kept.
fn nginx(target: SocketAddr, routes: usize) -> String {
    let servers: String = (0..routes)
        .map(|number| {
            format!(
                "  server {{ listen {PORT}; server_name {}; location / {{ proxy_pass http://web; }} }}\n",
                host(number)
            )
        })
        .collect();
    format!(
        "http {{\n  access_log off;\n  keepalive_requests 1000000000;\n  server_names_hash_max_size 65536;\n  \
         server_names_hash_bucket_size 128;\n  proxy_http_version 1.1;\n  proxy_set_header Connection \"\";\n  \
         proxy_set_header Host $http_host;\n  proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n  \
         proxy_set_header X-Forwarded-Proto $scheme;\n  \
         upstream web {{ server {target}; keepalive 256; keepalive_requests 1000000000; }}\n{servers}}}\n"
    )
}

fn haproxy(target: SocketAddr, map: &str) -> String {
    format!(
        "  mode http\n  option forwardfor\n  http-reuse always\nfrontend web_in\n  bind :{PORT}\n  \
         http-request set-header X-Forwarded-Proto http\n  \
         use_backend %[req.hdr(host),lower,map({map},none)]\nbackend web\n  server s1 {target}\nbackend none\n  \
         http-request deny deny_status 404\n"
    )
}

fn one(plan: &Plan, candidate: &Candidate, backend: &Process) -> Result<Outcome> {
    wrk(candidate, Duration::from_secs(1))?;
    let gateway = candidate.gateway();
    let around = gateway.clone().with(Group::processes(&backend.tree())).with(Group::softirq());
    let (gateway_before, around_before) = (gateway.micros()?, around.micros()?);
    let before_children = children_micros()?;
    let done = wrk(candidate, plan.length)?;
    let own = children_micros()? - before_children;
    Ok(Outcome {
        gateway: (gateway.micros()? - gateway_before) / done.requests,
        total: (around.micros()? - around_before + own) / done.requests,
        rate: done.requests / done.seconds,
        p50_us: done.p50_us,
        p99_us: done.p99_us,
    })
}

struct Done {
    requests: f64,
    seconds: f64,
    p50_us: f64,
    p99_us: f64,
}

fn wrk(candidate: &Candidate, length: Duration) -> Result<Done> {
    let routes = if candidate.name.contains("10000") { ROUTES[1] } else { ROUTES[0] };
    let host = format!("Host: {}", host(routes / 2));
    let seconds = length.as_secs().max(1);
    let text = candidate.lab.client().output(
        "taskset",
        &[
            "-c",
            &CLIENT_CPU.to_string(),
            "wrk",
            "-t1",
            "-c64",
            &format!("-d{seconds}s"),
            "--latency",
            "-H",
            &host,
            &format!("http://{}/", candidate.to),
        ],
    )?;
    parse(&text).with_context(|| format!("wrk said:\n{text}"))
}

fn parse(text: &str) -> Result<Done> {
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        bail!("requests failed");
    }
    let latency = |share: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(share));
        line.and_then(|line| micros(line.split_whitespace().nth(1)?)).with_context(|| format!("no {share}"))
    };
    let line = text.lines().find(|line| line.contains(" requests in ")).context("no count of requests")?;
    let mut words = line.split_whitespace();
    let requests = words.next().and_then(|word| word.parse().ok()).context("no count of requests")?;
    let seconds = words.nth(2).and_then(|word| micros(word.trim_end_matches(','))).context("no time")? / 1e6;
    Ok(Done { requests, seconds, p50_us: latency("50%")?, p99_us: latency("99%")? })
}

/// `1.25ms` in microseconds.
fn micros(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 60e6)];
    units.iter().find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor))
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

fn targets(report: &mut Report) {
    let row = |name: &str| report.row(name, "small requests").map(Row::medians);
    let many = |peer: &str| row(&format!("{peer}, 10000 routes"));
    let mut targets = Vec::new();
    if let Some(agent) = many("agent") {
        targets.push(Target::at_most("10,000 routes: CPU per request, µs", agent.gateway, 10.0));
        if let Some(nginx) = many("nginx") {
            targets.push(Target::at_least(
                "10,000 routes: per core against nginx",
                nginx.gateway / agent.gateway,
                1.15,
            ));
            targets.push(Target::at_most(
                "10,000 routes: p99 against nginx",
                agent.p99_us / nginx.p99_us,
                1.0,
            ));
        }
        if let Some(haproxy) = many("haproxy") {
            let ratio = haproxy.gateway / agent.gateway;
            targets.push(Target::at_least("10,000 routes: per core against HAProxy", ratio, 1.3));
        }
        if let Some(one) = row("agent, 1 route") {
            // Within the noise of the measurement.
            targets.push(Target::at_most("10,000 routes against 1", agent.gateway / one.gateway, 1.05));
        }
    }
    report.targets = targets;
}

#[cfg(test)]
mod tests {
    use super::{micros, parse};

    #[test]
    fn output_of_wrk_is_understood() {
        let text = "  Latency Distribution\n     50%  614.00us\n     75%  700.00us\n     99%    1.20ms\n  \
                    123456 requests in 3.10s, 20.00MB read\nRequests/sec:  41152.00\n";
        let done = parse(text).expect("valid");
        assert_eq!((done.requests, done.seconds, done.p50_us, done.p99_us), (123_456.0, 3.1, 614.0, 1200.0));
        assert!(parse(&format!("{text}  Non-2xx or 3xx responses: 3\n")).is_err());
        assert_eq!(micros("2.5s"), Some(2.5e6));
    }
}
