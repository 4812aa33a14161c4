//! The worker dies without a warning: flows on the kernel path go on, and another worker takes over.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use lab::client::{EchoClient, Greeting, get, udp};
use lab::manifests::{gateway, http_route, l4_route, service, write};
use lab::servers::{HttpServer, tcp_echo, udp_echo};
use lab::{Agent, AgentOptions, Datapath, Family, Lab, eventually};

use crate::bed::{both, check_port, routed};
use crate::udp;

const TCP_PORT: u16 = 5432;
const UDP_PORT: u16 = 53;
const TARGET: u16 = 7000;

fn serve(lab: &Lab) -> Result<()> {
    let text = gateway("gw", &[("http", "HTTP", 80), ("tcp", "TCP", TCP_PORT), ("udp", "UDP", UDP_PORT)])
        + &http_route("http", "gw", "http", &[], &[("", &[("web", 80, 1)])])
        + &l4_route("TCPRoute", "tcp", "gw", "tcp", &[("tcp", 80, 1)])
        + &l4_route("UDPRoute", "udp", "gw", "udp", &[("udp", 80, 1)])
        + &service("web", "TCP", 80, 8080, &both(lab, 1))
        + &service("tcp", "TCP", 80, TARGET, &both(lab, 1))
        + &service("udp", "UDP", 80, TARGET, &both(lab, 1));
    write(&lab.manifests(), "all.yaml", &text)
}

struct Flows {
    tcp: Vec<EchoClient>,
    udp: Vec<(UdpSocket, Greeting)>,
}

impl Flows {
    fn open(lab: &Lab, each: usize) -> Result<Self> {
        let (mut tcp, mut datagrams) = (Vec::new(), Vec::new());
        for family in Family::BOTH {
            for _ in 0..each {
                let mut client = EchoClient::connect(lab.client(), lab.at_gateway(family, TCP_PORT))?;
                client.echo(b"open")?;
                check_port(Datapath::Ebpf, &client.greeting)?;
                tcp.push(client);
                let socket = udp(lab.client(), lab.at_gateway(family, UDP_PORT))?;
                // Twice: established flows are those whose second packet was seen.
                udp::exchange(&socket, b"open")?;
                let greeting = udp::exchange(&socket, b"open")?;
                datagrams.push((socket, greeting));
            }
        }
        Ok(Self { tcp, udp: datagrams })
    }

    /// One exchange on each; the backend must see the same source as before.
    fn check(&mut self) -> Result<()> {
        for client in &mut self.tcp {
            client.echo(b"on and on").context("a TCP flow")?;
        }
        for (socket, before) in &self.udp {
            let now = udp::exchange(socket, b"on and on").context("a UDP flow")?;
            ensure!(now == *before, "a UDP flow moved from {before:?} to {now:?}");
        }
        Ok(())
    }
}

/// Kills the worker while flows are under load; then everything, old and new, is served.
fn survives_the_worker(lab: &Lab, options: &AgentOptions, restart: bool) -> Result<()> {
    serve(lab)?;
    let _web = HttpServer::identity(lab.backend(1), 8080, "web")?;
    let _tcp = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
    let _udp = udp_echo(lab.backend(1), TARGET, "backend-1")?;
    let mut agent = Agent::start(lab, options)?;
    let mut flows = Flows::open(lab, 50)?;
    flows.check()?;
    let stop = AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| -> Result<Flows> {
            while !stop.load(Ordering::Relaxed) {
                flows.check()?;
                rounds.fetch_add(1, Ordering::Relaxed);
            }
            Ok(flows)
        });
        let mut take_over = || -> Result<()> {
            for kill in 0..3 {
                let killed = agent.kill_worker()?;
                let before = rounds.load(Ordering::Relaxed);
                if restart {
                    agent.process().wait_exit(lab::DEADLINE)?;
                    let name = format!("agent-{}", kill + 2);
                    agent = Agent::start(lab, &AgentOptions { name, ..options.clone() })?;
                }
                eventually("another worker serves", || {
                    ensure!(agent.worker() != killed, "no other worker");
                    agent.wait_ready()
                })?;
                eventually("HTTP is served again", || {
                    for family in Family::BOTH {
                        let status = get(lab.client(), lab.at_gateway(family, 80), "any", "/")?.status;
                        ensure!(status == 200, "{family}: {status}");
                    }
                    Ok(())
                })?;
                for family in Family::BOTH {
                    let client = EchoClient::connect(lab.client(), lab.at_gateway(family, TCP_PORT))?;
                    check_port(Datapath::Ebpf, &client.greeting)?;
                }
                eventually("the load goes on", || {
                    ensure!(
                        load.is_finished() || rounds.load(Ordering::Relaxed) > before + 2,
                        "it stands still"
                    );
                    Ok(())
                })?;
            }
            Ok(())
        };
        let outcome = take_over();
        stop.store(true, Ordering::Relaxed);
        let mut flows = load.join().expect("no panic").context("an open flow broke")?;
        outcome?;
        flows.check()
    })
}

#[test]
fn flows_survive_the_worker_with_the_holder() {
    routed(1, |lab| survives_the_worker(lab, &AgentOptions::new(Datapath::Ebpf), false));
}

#[test]
fn flows_survive_the_agent_with_pins() {
    routed(1, |lab| {
        let bpffs: PathBuf = lab.mount_bpffs()?;
        let options = AgentOptions { bpffs: Some(bpffs), ..AgentOptions::new(Datapath::Ebpf) };
        survives_the_worker(lab, &options, true)
    });
}

/// While there is no agent at all, pinned programs serve new flows too.
#[test]
fn pinned_kernel_path_serves_new_flows_without_an_agent() {
    routed(1, |lab| {
        serve(lab)?;
        let _tcp = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _udp = udp_echo(lab.backend(1), TARGET, "backend-1")?;
        let options = AgentOptions { bpffs: Some(lab.mount_bpffs()?), ..AgentOptions::new(Datapath::Ebpf) };
        let agent = Agent::start(lab, &options)?;
        Flows::open(lab, 1)?.check()?;
        agent.kill_worker()?;
        agent.process().wait_exit(lab::DEADLINE)?;
        Flows::open(lab, 10)?.check()
    });
}

/// A steered port whose process died must not fall to another process that listens there, and says so by silence: a
/// connection is not made, and none is stolen.
#[test]
fn steered_port_is_nobodys_while_the_worker_is_away() {
    routed(1, |lab| {
        serve(lab)?;
        let _web = HttpServer::identity(lab.backend(1), 8080, "web")?;
        let options = AgentOptions { bpffs: Some(lab.mount_bpffs()?), ..AgentOptions::new(Datapath::Ebpf) };
        let agent = Agent::start(lab, &options)?;
        ensure!(get(lab.client(), lab.at_gateway(Family::V4, 80), "any", "/")?.status == 200, "not served");
        agent.kill_worker()?;
        agent.process().wait_exit(lab::DEADLINE)?;
        let _thief = HttpServer::identity(lab.gateway(), 80, "thief")?;
        let to: SocketAddr = lab.at_gateway(Family::V4, 80);
        let outcome =
            lab.client().run(|| TcpStream::connect_timeout(&to, std::time::Duration::from_millis(500)))?;
        ensure!(outcome.is_err(), "the connection went to another process");
        Ok(())
    });
}
