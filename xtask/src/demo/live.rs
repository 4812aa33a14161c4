//! The parts of the demo in which something changes while traffic flows.

use std::fs;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use lab::client::{EchoClient, Greeting, ask, get, udp};
use lab::{Family, eventually, manifests};

use super::Demo;

/// Long enough for the worker to be gone and another to be at work.
const EXCHANGES_AFTER_KILL: usize = 200;

impl Demo<'_> {
    /// Two edits: weights, and a listener with a route that was not there. Counted from the write to the first answer.
    pub(super) fn live_change(&self) -> Result<()> {
        self.screen.section("live changes: edit a file, no reload");
        let folder = self.lab.manifests();
        let http = fs::read_to_string(folder.join("http.yaml"))?;
        let changed = http.replace("{name: web, port: 80, weight: 3}", "{name: web, port: 80, weight: 0}");
        ensure!(changed != http, "http.yaml has no weight 3 to change");
        let to = self.lab.at_gateway(Family::V4, 80);
        let start = Instant::now();
        manifests::write(&folder, "http.yaml", &changed)?;
        let all_next = || {
            for _ in 0..8 {
                let text = get(self.lab.client(), to, "shop.example.com", "/")?.text();
                ensure!(text.starts_with("web-next"), "still {text:?}");
            }
            Ok(())
        };
        eventually("every request goes to web-next", all_next)?;
        self.screen.fact(
            "weight of web set to 0: every answer from web-next",
            &format!("after {:.0?}", start.elapsed()),
        );
        manifests::write(&folder, "http.yaml", &http)?;

        let port = 8081;
        let gateway = fs::read_to_string(folder.join("gateway.yaml"))?;
        let listener = format!("    - name: extra\n      protocol: HTTP\n      port: {port}\n");
        let route = manifests::http_route("extra", "quickstart", "extra", &[], &[("", &[("web", 80, 1)])]);
        manifests::write(&folder, "extra.yaml", &route)?;
        let start = Instant::now();
        manifests::write(&folder, "gateway.yaml", &format!("{gateway}{listener}"))?;
        let to = self.lab.at_gateway(Family::V6, port);
        eventually("the new listener answers", || {
            let status = get(self.lab.client(), to, "any.example.com", "/")?.status;
            if status == 200 { Ok(()) } else { Err(anyhow!("status {status}")) }
        })?;
        let elapsed = start.elapsed();
        self.screen.fact(
            &format!("listener and route added on port {port}: answers"),
            &format!("after {elapsed:.0?}"),
        );
        // The route first: one that names a listener which is gone would be reported.
        manifests::remove(&folder, "extra.yaml")?;
        manifests::write(&folder, "gateway.yaml", &gateway)
    }

    /// The worker dies without a warning; one TCP connection and one UDP flow of each family go on.
    pub(super) fn kill_worker(&self) -> Result<()> {
        self.screen.section("kill -9 of the serving process, under open flows");
        if self.agent.worker() == self.agent.process().pid() {
            self.screen.fact("this machine grants no eBPF: all is served by one process", "not shown");
            return Ok(());
        }
        let mut streams = Vec::new();
        let mut datagrams = Vec::new();
        for family in Family::BOTH {
            let mut stream = EchoClient::connect(self.lab.client(), self.lab.at_gateway(family, 5432))?;
            stream.echo(b"before")?;
            streams.push(stream);
            let socket = udp(self.lab.client(), self.lab.at_gateway(family, 53))?;
            let greeting = greeting(&socket)?;
            datagrams.push((socket, greeting));
        }
        let start = Instant::now();
        let killed = self.agent.kill_worker()?;
        for round in 0..EXCHANGES_AFTER_KILL {
            for stream in &mut streams {
                stream.echo(b"after").with_context(|| format!("TCP, exchange {round} after the kill"))?;
            }
            for (socket, before) in &datagrams {
                let after =
                    greeting(socket).with_context(|| format!("UDP, exchange {round} after the kill"))?;
                ensure!(after == *before, "the UDP flow moved from {before:?} to {after:?}");
            }
        }
        let during = start.elapsed();
        eventually("another worker serves", || {
            ensure!(self.agent.worker() != killed, "the killed process is still listed");
            self.agent.wait_ready()
        })?;
        let ready = start.elapsed();
        let count = EXCHANGES_AFTER_KILL * 4;
        self.screen.fact(
            &format!("kill -9 {killed}: open TCP and UDP flows, IPv4 and IPv6"),
            &format!("{count} of {count} exchanges in {during:.0?}, none reset"),
        );
        eventually("HTTP is served again", || {
            let status =
                get(self.lab.client(), self.lab.at_gateway(Family::V4, 80), "blue.apps.example.com", "/")?
                    .status;
            ensure!(status == 200, "status {status}");
            Ok(())
        })?;
        self.screen
            .fact("a new worker took over", &format!("pid {}, ready after {ready:.0?}", self.agent.worker()));
        Ok(())
    }
}

fn greeting(socket: &UdpSocket) -> Result<Greeting> {
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    Greeting::parse(&String::from_utf8_lossy(&ask(socket, b"x")?))
}
