//! Start, change and end: listeners at run time, draining, the admin server, what is left behind.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, ensure};
use lab::client::{EchoClient, connect, get};
use lab::http::{exchange, read_response};
use lab::manifests::{gateway, http_route, l4_route, remove, service, write};
use lab::servers::{HttpServer, ok, tcp_echo};
use lab::{Agent, AgentOptions, Datapath, Family, Lab, eventually};

use crate::bed::{PORT, TARGET, all, both, on_each_datapath, routed, serve_l4};
use crate::http::{identities, serve_http};

on_each_datapath!(
    listeners_open_and_close_at_run_time,
    open_connections_outlive_changes_of_other_objects,
    sigterm_finishes_what_is_in_flight,
    nothing_is_left_after_the_end,
);

fn listeners_open_and_close_at_run_time(datapath: Datapath) {
    routed(1, |lab| {
        let _http = identities(lab, 1)?;
        let _tcp = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        let route = http_route("http", "gw", "http", &[], &[("", &[("web", 80, 1)])])
            + &service("web", "TCP", 80, 8080, &both(lab, 1))
            + &l4_route("TCPRoute", "tcp", "gw", "tcp", &[("tcp", 80, 1)])
            + &service("tcp", "TCP", 80, TARGET, &both(lab, 1));
        write(&lab.manifests(), "routes.yaml", &route)?;
        write(&lab.manifests(), "gateway.yaml", &gateway("gw", &[("http", "HTTP", 80)]))?;
        let agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            ensure!(
                get(lab.client(), lab.at_gateway(family, 80), "any", "/")?.status == 200,
                "{family}: not served"
            );
            ensure!(
                connect(lab.client(), lab.at_gateway(family, PORT)).is_err(),
                "{family}: served too early"
            );
        }
        for round in 0..3 {
            write(
                &lab.manifests(),
                "gateway.yaml",
                &gateway("gw", &[("http", "HTTP", 80), ("tcp", "TCP", PORT)]),
            )?;
            for family in Family::BOTH {
                eventually("the new listener serves", || {
                    EchoClient::connect(lab.client(), lab.at_gateway(family, PORT))?.echo(b"x")
                })?;
            }
            let mut open = EchoClient::connect(lab.client(), lab.at_gateway(Family::V4, PORT))?;
            write(&lab.manifests(), "gateway.yaml", &gateway("gw", &[("http", "HTTP", 80)]))?;
            for family in Family::BOTH {
                eventually("the listener is closed", || {
                    ensure!(
                        connect(lab.client(), lab.at_gateway(family, PORT)).is_err(),
                        "round {round}: still open"
                    );
                    Ok(())
                })?;
                ensure!(
                    get(lab.client(), lab.at_gateway(family, 80), "any", "/")?.status == 200,
                    "the other is gone"
                );
            }
            if datapath == Datapath::Ebpf {
                // Flows that the kernel holds end with their ends, not with the listener.
                open.echo(b"still open")?;
            }
        }
        agent.process().check_running()
    });
}

fn open_connections_outlive_changes_of_other_objects(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "TCP", &all(lab, &[1]))?;
        let text = gateway("web", &[("http", "HTTP", 80)])
            + &http_route("http", "web", "http", &[], &[("", &[("web", 80, 1)])])
            + &service("web", "TCP", 80, 8080, &both(lab, 1));
        write(&lab.manifests(), "web.yaml", &text)?;
        let _http = identities(lab, 1)?;
        let _tcp = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        let mut stream = connect(lab.client(), lab.at_gateway(Family::V6, 80))?;
        let mut client = EchoClient::connect(lab.client(), lab.at_gateway(Family::V6, PORT))?;
        for round in 0..10 {
            let port = 8100 + round;
            let more = gateway("more", &[("more", "HTTP", port)])
                + &http_route("more", "more", "more", &[], &[("", &[("web", 80, 1)])]);
            write(&lab.manifests(), "more.yaml", &more)?;
            eventually("the change is in force", || {
                get(lab.client(), lab.at_gateway(Family::V4, port), "any", "/")
            })?;
            client.echo(b"x").context("the TCP connection")?;
            let response = exchange(&mut stream, b"GET / HTTP/1.1\r\nHost: any\r\n\r\n")
                .context("the HTTP connection")?;
            ensure!(response.status == 200, "status {}", response.status);
        }
        remove(&lab.manifests(), "more.yaml")?;
        client.echo(b"x")
    });
}

fn sigterm_finishes_what_is_in_flight(datapath: Datapath) {
    routed(1, |lab| {
        serve_http(lab, 1, &[("route", &[], &[("", &[("web-1", 80, 1)])])])?;
        let (started, wait_started) = sync_channel::<()>(1);
        let (release, wait_release) = sync_channel::<()>(1);
        let wait_release = Mutex::new(wait_release);
        let _server = HttpServer::start(lab.backend(1), 8080, move |_| {
            started.try_send(()).ok();
            let receiver = wait_release.lock().expect("no other thread panics");
            receiver.recv().ok();
            ok("finished\n")
        })?;
        let agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        let mut stream = connect(lab.client(), lab.at_gateway(Family::V4, 80))?;
        let mut idle = connect(lab.client(), lab.at_gateway(Family::V4, 80))?;
        stream.write_all(b"GET /slow HTTP/1.1\r\nHost: any\r\n\r\n")?;
        wait_started.recv_timeout(lab::DEADLINE).context("the request does not reach the backend")?;
        agent.process().signal(nix::sys::signal::Signal::SIGTERM)?;
        // Idle connections are closed at once, new ones are refused.
        ensure!(idle.read(&mut [0])? == 0, "the idle connection gets data");
        eventually("new connections are refused", || {
            ensure!(connect(lab.client(), lab.at_gateway(Family::V4, 80)).is_err(), "still accepted");
            Ok(())
        })?;
        agent.process().check_running()?;
        release.send(())?;
        let response = read_response(&mut stream, &mut Vec::new())?;
        ensure!(response.text() == "finished\n", "{:?}", response.text());
        ensure!(
            response.header("connection") == Some("close"),
            "no Connection: close: {}",
            response.raw_head
        );
        let status = agent.process().wait_exit(lab::DEADLINE)?;
        ensure!(status.success(), "exit {status}");
        Ok(())
    });
}

#[test]
fn grace_period_ends_what_does_not_end_by_itself() {
    routed(1, |lab| {
        serve_l4(lab, "TCP", &all(lab, &[1]))?;
        let _tcp = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        let agent =
            Agent::start(lab, &AgentOptions::new(Datapath::Userspace).extra(["--grace-period", "1"]))?;
        let mut client = EchoClient::connect(lab.client(), lab.at_gateway(Family::V4, PORT))?;
        client.echo(b"x")?;
        let start = std::time::Instant::now();
        agent.terminate(lab::DEADLINE)?;
        ensure!(
            start.elapsed() >= std::time::Duration::from_millis(900),
            "the open connection was not waited for"
        );
        ensure!(client.echo(b"x").is_err(), "the connection outlives the process");
        Ok(())
    });
}

/// A clean end takes the programs along: nothing of ours stays in the namespace, and the ports are free.
fn nothing_is_left_after_the_end(datapath: Datapath) {
    routed(1, |lab| {
        serve_http(lab, 1, &[("route", &[], &[("", &[("web-1", 80, 1)])])])?;
        let _servers = identities(lab, 1)?;
        let agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        ensure!(get(lab.client(), lab.at_gateway(Family::V4, 80), "any", "/")?.status == 200, "not served");
        let status = agent.terminate(lab::DEADLINE)?;
        ensure!(status.success(), "exit {status}");
        for command in [["qdisc", "show"], ["link", "show"]] {
            let program = if command[0] == "qdisc" { "tc" } else { "ip" };
            let text = lab.gateway().output(program, &command)?;
            ensure!(!text.contains("clsact") && !text.contains("prog/"), "left behind: {text}");
        }
        eventually("connections are refused", || {
            ensure!(connect(lab.client(), lab.at_gateway(Family::V4, 80)).is_err(), "still accepted");
            Ok(())
        })?;
        let _again = Agent::start(lab, &AgentOptions::new(datapath))?;
        ensure!(
            get(lab.client(), lab.at_gateway(Family::V4, 80), "any", "/")?.status == 200,
            "not served again"
        );
        Ok(())
    });
}

#[test]
fn admin_server_tells_health_metrics_and_snapshot() {
    routed(1, |lab| {
        serve_http(lab, 1, &[("route", &["a.example.com"], &[("", &[("web-1", 80, 1)])])])?;
        let _servers = identities(lab, 1)?;
        for datapath in [Datapath::Ebpf, Datapath::Userspace] {
            let agent = Agent::start(lab, &AgentOptions::new(datapath))?;
            get(lab.client(), lab.at_gateway(Family::V4, 80), "a.example.com", "/")?;
            ensure!(agent.admin("/livez")?.0 == 200, "/livez");
            ensure!(agent.admin("/nothing")?.0 == 404, "/nothing");
            // An answer is counted once it has been sent: the client may be ahead of that.
            eventually("the request is counted", || {
                let labels = [("route", "route"), ("code", "2xx")];
                let requests = agent.metrics()?.sum("gateway_agent_route_requests_total", &labels);
                ensure!(requests == 1.0, "{requests} requests counted");
                Ok(())
            })?;
            let snapshot = agent.snapshot()?.to_string();
            for word in ["HTTPRoute", "route", "tcp/*:80", "Programmed"] {
                ensure!(snapshot.contains(word), "/snapshot does not hold {word}: {snapshot}");
            }
        }
        Ok(())
    });
}

/// Clients choose hosts, paths and headers; none of them may make a series.
#[test]
fn clients_cannot_make_metric_series() {
    routed(1, |lab| {
        serve_http(lab, 1, &[("route", &["*.example.com"], &[("", &[("web-1", 80, 1)])])])?;
        let _servers = identities(lab, 1)?;
        let agent = Agent::start(lab, &AgentOptions::new(Datapath::Userspace))?;
        let visit = |number: u32| -> Result<()> {
            let host = format!("h{number}.example.com");
            get(lab.client(), lab.at_gateway(Family::V4, 80), &host, &format!("/{number}"))?;
            get(
                lab.client(),
                lab.at_gateway(Family::V6, 80),
                &format!("h{number}.org"),
                &format!("/{number}"),
            )?;
            Ok(())
        };
        let series = || -> Result<BTreeSet<String>> {
            let samples = agent.metrics()?.samples;
            Ok(samples.iter().map(|sample| format!("{} {:?}", sample.name, sample.labels)).collect())
        };
        visit(0)?;
        // The client may be ahead of the counting.
        let before = eventually("the first answers are counted", || {
            let series = series()?;
            let is_counted =
                |one: &String| one.starts_with("gateway_agent_route_requests_total") && one.contains("2xx");
            ensure!(series.iter().any(is_counted), "{series:?}");
            Ok(series)
        })?;
        for number in 1..100 {
            visit(number)?;
        }
        let after = series()?;
        ensure!(after == before, "new series: {:?}", after.difference(&before).collect::<Vec<_>>());
        Ok(())
    });
}

/// Bad files, good files, and a folder that goes away: the last good state serves on.
#[test]
fn last_good_state_serves_while_manifests_are_bad_or_gone() {
    routed(1, |lab| {
        serve_http(lab, 1, &[("route", &[], &[("", &[("web-1", 80, 1)])])])?;
        let _servers = identities(lab, 1)?;
        let agent = Agent::start(lab, &AgentOptions::new(Datapath::Userspace))?;
        let check = |what: &str| -> Result<()> {
            let status = get(lab.client(), lab.at_gateway(Family::V4, 80), "any", "/")?.status;
            ensure!(status == 200, "{what}: {status}");
            Ok(())
        };
        check("at first")?;
        let folder = lab.manifests();
        let good = std::fs::read_to_string(folder.join("all.yaml"))?;
        for (what, text, said) in [
            ("malformed", "kind: [\n".to_owned(), "all.yaml:"),
            ("unknown kind", good.replace("kind: Gateway\n", "kind: Gatewai\n"), "Gatewai"),
            ("unknown field", good.replace("gatewayClassName:", "gatewayClazzName:"), "gatewayClazzName"),
            ("value out of range", good.replace("port: 80\n", "port: 70000\n"), "port"),
        ] {
            let before = agent.log().len();
            write(&folder, "all.yaml", &text)?;
            eventually("the error is printed", || {
                let log = agent.log();
                let new = log.get(before..).unwrap_or_default();
                ensure!(new.contains(said) && new.contains("all.yaml"), "{what}: not said: {new}");
                Ok(())
            })?;
            check(what)?;
            let findings = agent.metrics()?.sum("gateway_agent_manifest_findings", &[]);
            ensure!(findings >= 1.0, "{what}: {findings} findings");
        }
        write(&folder, "all.yaml", &good)?;
        eventually("the findings are gone", || {
            let findings = agent.metrics()?.sum("gateway_agent_manifest_findings", &[]);
            ensure!(findings == 0.0, "{findings} findings");
            Ok(())
        })?;
        let away = lab.folder().join("manifests-away");
        let before = agent.log().len();
        std::fs::rename(&folder, &away)?;
        eventually("the loss is said", || {
            let log = agent.log();
            ensure!(log.get(before..).unwrap_or_default().contains("manifests"), "nothing said");
            Ok(())
        })?;
        for _ in 0..20 {
            check("without a folder")?;
        }
        let new = good.replace("[{path: {value: /}}]", "");
        std::fs::create_dir(&folder)?;
        write(&folder, "all.yaml", &new)?;
        write(&folder, "more.yaml", &gateway("more", &[("more", "HTTP", 8100)]))?;
        eventually("the new folder is read", || {
            let status = get(lab.client(), lab.at_gateway(Family::V4, 8100), "any", "/")?.status;
            ensure!(status == 404, "{status}");
            Ok(())
        })?;
        check("after all")
    });
}

/// Many clients during many changes: none sees an error.
#[test]
fn changes_under_load_break_no_request() {
    routed(2, |lab| {
        let _servers = identities(lab, 2)?;
        let serve = |to: &str| serve_http(lab, 2, &[("route", &[], &[("", &[(to, 80, 1)])])]);
        serve("web-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(Datapath::Ebpf))?;
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let load = |lab: &Lab, family: Family, keep: bool| -> Result<u32> {
            let mut count = 0;
            let mut stream = connect(lab.client(), lab.at_gateway(family, 80))?;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                if !keep {
                    stream = connect(lab.client(), lab.at_gateway(family, 80))?;
                }
                let response = exchange(&mut stream, b"GET / HTTP/1.1\r\nHost: any\r\n\r\n")?;
                ensure!(response.status == 200, "status {} after {count} requests", response.status);
                count += 1;
            }
            Ok(count)
        };
        std::thread::scope(|scope| {
            let clients: Vec<_> =
                [(Family::V4, true), (Family::V6, true), (Family::V4, false), (Family::V6, false)]
                    .map(|(family, keep)| scope.spawn(move || load(lab, family, keep)))
                    .into_iter()
                    .collect();
            let changes = (0..30).try_for_each(|round| {
                let to = if round % 2 == 0 { "web-2" } else { "web-1" };
                serve(to)?;
                eventually("the change is in force", || {
                    let text = get(lab.client(), lab.at_gateway(Family::V4, 80), "any", "/")?.text();
                    ensure!(text.starts_with(to), "still {text:?}");
                    Ok(())
                })
            });
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            for client in clients {
                let count = client.join().expect("no panic")?;
                ensure!(count > 0, "a client got nothing done");
            }
            changes
        })
    });
}
