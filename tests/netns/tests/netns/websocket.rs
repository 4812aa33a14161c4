//! WebSocket with a client and a server of their own, through listeners in clear and by TLS.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab::manifests::service;
use lab::pki::Certificate;
use lab::{Agent, AgentOptions, Datapath, Family, Lab, Process, eventually, suites};
use nix::sys::signal::Signal;

use crate::bed::{both, on_each_datapath, routed};
use crate::http2::service_that_speaks;
use crate::https::serve_in_clear_and_by_tls;

const WS: u16 = 8090;

const ROUTES: &str = r#"
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: gw}]
  rules:
    - matches: [{path: {value: /ws}}]
      backendRefs: [{name: ws, port: 80}]
"#;

fn serve(lab: &Lab) -> Result<Certificate> {
    let ws = service("ws", "TCP", 80, WS, &both(lab, 1));
    let text = ROUTES.to_owned() + &service_that_speaks("kubernetes.io/ws", &ws)?;
    serve_in_clear_and_by_tls(lab, &text)
}

/// The words of a command of the script.
fn script(words: &[&str]) -> Result<Vec<String>> {
    lab::require_program("python3", "python3")?;
    let script = suites::websocket().into_os_string().into_string().ok().context("the path is not UTF-8")?;
    let mut all = vec![script, suites::find("python")?];
    all.extend(words.iter().map(|word| (*word).to_owned()));
    Ok(all)
}

fn server(lab: &Lab) -> Result<Process> {
    let words = script(&["serve", &WS.to_string()])?;
    lab::Command::new("websocket-server", "python3").args(words).netns(lab.backend(1)).start(lab)
}

on_each_datapath!(messages_pings_and_the_close_handshake_pass);

// O33
fn messages_pings_and_the_close_handshake_pass(datapath: Datapath) {
    routed(1, |lab| {
        let certificate = serve(lab)?;
        let _server = server(lab)?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        let authorities = certificate.certificate.display().to_string();
        for family in Family::BOTH {
            let address = lab.gateway_address(family).to_string();
            let in_clear = ["talk", &address, "ws://one.example.com/ws"];
            let by_tls = ["talk", &address, "wss://one.example.com/ws", &authorities];
            for words in [&in_clear[..], &by_tls] {
                let words = script(words)?;
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let said = eventually("the server is up", || lab.client().output("python3", &words))?;
                ensure!(said == "ok\n", "{family} {words:?}: {said}");
            }
        }
        Ok(())
    });
}

/// How often the client got its line back.
fn echoes(client: &Process) -> usize {
    client.log().lines().filter(|line| line.starts_with("echo ")).count()
}

fn held(lab: &Lab, more: usize, client: &Process) -> Result<()> {
    let before = echoes(client);
    eventually("more lines come back", || {
        client.check_running()?;
        ensure!(echoes(client) >= before + more, "{} of {more}", echoes(client) - before);
        Ok(())
    })
    .with_context(|| lab.logs())
}

fn hold(lab: &Lab, name: &str) -> Result<Process> {
    let address = lab.gateway_address(Family::V4).to_string();
    let words = script(&["hold", &address, "ws://one.example.com/ws"])?;
    lab::Command::new(name, "python3").args(words).netns(lab.client()).start(lab)
}

// O39: an upgraded connection is work under way.
#[test]
fn open_connection_is_kept_until_it_ends_or_the_grace_period_does() {
    routed(1, |lab| {
        serve(lab)?;
        let _server = server(lab)?;
        let options = |grace: &str| AgentOptions::new(Datapath::Userspace).extra(["--grace-period", grace]);
        for (round, grace) in [60, 10].into_iter().enumerate() {
            let agent = Agent::start(lab, &options(&grace.to_string()))?;
            let client = eventually("the server is up", || {
                let client = hold(lab, &format!("websocket-{round}"))?;
                held(lab, 1, &client)?;
                Ok(client)
            })?;
            let told = Instant::now();
            agent.process().signal(Signal::SIGTERM)?;
            eventually("nothing new is taken", || {
                let fresh = lab::client::connect(lab.client(), lab.at_gateway(Family::V4, 80));
                ensure!(fresh.is_err(), "still accepting");
                Ok(())
            })?;
            held(lab, 10, &client)?;
            agent.process().check_running()?;
            if grace == 60 {
                // It ends by itself, and the agent with it.
                drop(client);
                let status = agent.process().wait_exit(lab::DEADLINE)?;
                ensure!(status.success(), "exit {status}");
            } else {
                agent.process().wait_exit(lab::DEADLINE)?;
                ensure!(told.elapsed() >= Duration::from_millis(9900), "ended after {:?}", told.elapsed());
                client.wait_exit(lab::DEADLINE)?;
                ensure!(client.log().ends_with("closed without a word\n"), "{}", client.log());
            }
        }
        Ok(())
    });
}
