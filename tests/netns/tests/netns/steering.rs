//! Who gets a connection: listeners by sk_lookup or bind, and that nothing else in the namespace is touched.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use lab::client::{EchoClient, connect, get, udp};
use lab::manifests::{gateway, http_route, l4_route, service, write};
use lab::servers::{HttpServer, TcpServer, any, tcp_echo, udp_echo};
use lab::{Agent, AgentOptions, Datapath, Family, Lab, agent, eventually};

use crate::bed::{PORT, TARGET, all, both, check_port, on_each_datapath, routed, serve_l4};
use crate::http::{identities, serve_http};
use crate::udp;

on_each_datapath!(
    no_other_port_is_touched,
    listeners_of_other_processes_keep_their_connections,
    port_taken_by_another_process_is_said_and_the_rest_serves,
);

fn bystander(lab: &Lab, address: SocketAddr) -> Result<TcpServer> {
    tcp_echo_at(lab, address, "bystander")
}

fn tcp_echo_at(lab: &Lab, address: SocketAddr, identity: &'static str) -> Result<TcpServer> {
    TcpServer::start(lab.gateway(), address, move |mut stream, peer| {
        use std::io::{Read as _, Write as _};
        writeln!(stream, "{identity} {peer}")?;
        let mut buffer = [0; 1024];
        loop {
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            stream.write_all(&buffer[..count])?;
        }
    })
}

fn no_other_port_is_touched(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "TCP", &all(lab, &[1]))?;
        let _server = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        // One started before the agent and one after, on the ports next to the listener's.
        let _before = bystander(lab, any(PORT - 1))?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        let _after = bystander(lab, any(PORT + 1))?;
        for family in Family::BOTH {
            for address in [lab.gateway_address(family), family.loopback()] {
                let from = if address.is_loopback() { lab.gateway() } else { lab.client() };
                for port in [PORT - 1, PORT + 1] {
                    let client = EchoClient::connect(from, SocketAddr::new(address, port))?;
                    ensure!(client.greeting.identity == "bystander", "{address}:{port} was taken");
                }
                let served = EchoClient::connect(from, SocketAddr::new(address, PORT))?;
                ensure!(served.greeting.identity == "backend-1", "{address}: {:?}", served.greeting);
                // An unused port refuses as ever.
                let unused = SocketAddr::new(address, PORT + 2);
                let outcome = from.run(|| TcpStream::connect_timeout(&unused, lab::client::TIMEOUT))?;
                let kind = outcome.err().map(|error| error.kind());
                ensure!(kind == Some(std::io::ErrorKind::ConnectionRefused), "{unused}: {kind:?}");
            }
        }
        Ok(())
    });
}

/// A connection that exists when the agent starts, and the same process's later ones, go on.
fn listeners_of_other_processes_keep_their_connections(datapath: Datapath) {
    routed(1, |lab| {
        serve_http(lab, 1, &[("route", &[], &[("", &[("web-1", 80, 1)])])])?;
        let _servers = identities(lab, 1)?;
        let _ssh = bystander(lab, any(22))?;
        let to = lab.at_gateway(Family::V4, 22);
        let mut early = EchoClient::connect(lab.client(), to)?;
        let agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        early.echo(b"still here")?;
        EchoClient::connect(lab.client(), to)?.echo(b"me too")?;
        drop(agent);
        early.echo(b"and after")?;
        EchoClient::connect(lab.client(), to)?.echo(b"me too")?;
        Ok(())
    });
}

fn port_taken_by_another_process_is_said_and_the_rest_serves(datapath: Datapath) {
    routed(1, |lab| {
        let text = gateway("gw", &[("http", "HTTP", 80), ("taken", "HTTP", 8080)])
            + &http_route("route", "gw", "http", &[], &[("", &[("web", 80, 1)])])
            + &service("web", "TCP", 80, 8080, &both(lab, 1));
        write(&lab.manifests(), "all.yaml", &text)?;
        let _server = HttpServer::identity(lab.backend(1), 8080, "web")?;
        let taken = bystander(lab, any(8080))?;
        let agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        eventually("PortUnavailable is said", || {
            ensure!(agent.log().contains("PortUnavailable"), "not in the log");
            Ok(())
        })?;
        for family in Family::BOTH {
            ensure!(
                get(lab.client(), lab.at_gateway(family, 80), "any", "/")?.status == 200,
                "{family}: the rest fails"
            );
            let client = EchoClient::connect(lab.client(), lab.at_gateway(family, 8080))?;
            ensure!(client.greeting.identity == "bystander", "the port was stolen");
        }
        drop(taken);
        // Once free it is taken without a change of the manifests: nobody is there to make one.
        eventually("the port is served once it is free", || {
            let status = get(lab.client(), lab.at_gateway(Family::V4, 8080), "any", "/")?.status;
            ensure!(status == 404, "status {status}");
            Ok(())
        })
    });
}

#[test]
fn listeners_are_steered_without_a_bound_port() {
    routed(1, |lab| {
        serve_http(lab, 1, &[("route", &[], &[("", &[("web-1", 80, 1)])])])?;
        let _servers = identities(lab, 1)?;
        let agent = Agent::start(lab, &AgentOptions::new(Datapath::Ebpf))?;
        let metrics = agent.metrics()?;
        let labels = [("listener", "http"), ("path", "proxy"), ("mechanism", "sk_lookup")];
        ensure!(metrics.sum("gateway_agent_listener_path", &labels) == 1.0, "not served by sk_lookup");
        // The port itself stays free: nothing is bound there.
        lab.gateway().run(|| TcpListener::bind(any(80)))??;
        for family in Family::BOTH {
            ensure!(get(lab.client(), lab.at_gateway(family, 80), "any", "/")?.status == 200, "{family}");
        }
        Ok(())
    });
}

/// `setpriv` that leaves only these capabilities, for user 65534.
pub(crate) fn with_capabilities(capabilities: &[&str]) -> Result<Vec<OsString>> {
    let setpriv = lab::require_program("setpriv", "util-linux")?;
    let list: String = std::iter::once("-all".to_owned())
        .chain(capabilities.iter().map(|name| format!("+{name}")))
        .collect::<Vec<_>>()
        .join(",");
    let mut words: Vec<OsString> = vec![setpriv.into_os_string()];
    words.extend(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"].map(OsString::from));
    for option in ["--bounding-set", "--inh-caps", "--ambient-caps"] {
        words.push(format!("{option}={list}").into());
    }
    Ok(words)
}

/// A copy of the binary that another user can run.
pub(crate) fn readable_binary(lab: &Lab) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let target = lab.folder().join("gateway-agent");
    std::fs::copy(agent::binary()?, &target).context("copy the binary")?;
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o755))?;
    Ok(target)
}

/// One listener of each protocol, each on a port below 1024.
fn serve_low_ports(lab: &Lab) -> Result<()> {
    let text = gateway("gw", &[("http", "HTTP", 80), ("tcp", "TCP", 700), ("udp", "UDP", 53)])
        + &http_route("http", "gw", "http", &[], &[("", &[("web", 80, 1)])])
        + &l4_route("TCPRoute", "tcp", "gw", "tcp", &[("tcp", 80, 1)])
        + &l4_route("UDPRoute", "udp", "gw", "udp", &[("udp", 80, 1)])
        + &service("web", "TCP", 80, 8080, &both(lab, 1))
        + &service("tcp", "TCP", 80, TARGET, &both(lab, 1))
        + &service("udp", "UDP", 80, TARGET, &both(lab, 1));
    write(&lab.manifests(), "all.yaml", &text)
}

fn check_low_ports(lab: &Lab) -> Result<()> {
    for family in Family::BOTH {
        ensure!(get(lab.client(), lab.at_gateway(family, 80), "any", "/")?.status == 200, "{family} HTTP");
        EchoClient::connect(lab.client(), lab.at_gateway(family, 700))?.echo(b"x")?;
        udp::exchange(&udp(lab.client(), lab.at_gateway(family, 53))?, b"x")?;
    }
    Ok(())
}

/// The steered paths need no capability to bind; the pod sysctl cures the rest.
#[test]
fn low_ports_are_served_without_the_right_to_bind_them() {
    routed(1, |lab| {
        serve_low_ports(lab)?;
        let _web = HttpServer::identity(lab.backend(1), 8080, "web")?;
        let _tcp = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _udp = udp_echo(lab.backend(1), TARGET, "backend-1")?;
        let options = AgentOptions {
            wrapper: with_capabilities(&["bpf", "net_admin", "perfmon"])?,
            binary: Some(readable_binary(lab)?),
            ..AgentOptions::new(Datapath::Auto)
        };
        let agent = Agent::start(lab, &options)?;
        for family in Family::BOTH {
            ensure!(
                get(lab.client(), lab.at_gateway(family, 80), "any", "/")?.status == 200,
                "{family} HTTP"
            );
            let client = EchoClient::connect(lab.client(), lab.at_gateway(family, 700))?;
            check_port(Datapath::Ebpf, &client.greeting)?;
            // TCP listeners are steered for loopback clients too.
            EchoClient::connect(lab.gateway(), SocketAddr::new(family.loopback(), 700))?;
        }
        drop(agent);
        lab.gateway().sysctl("ipv4/ip_unprivileged_port_start", "53")?;
        let _agent = Agent::start(lab, &options)?;
        check_low_ports(lab)
    });
}

#[test]
fn without_capabilities_everything_is_served_in_userspace() {
    routed(1, |lab| {
        serve_low_ports(lab)?;
        let _web = HttpServer::identity(lab.backend(1), 8080, "web")?;
        let _tcp = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _udp = udp_echo(lab.backend(1), TARGET, "backend-1")?;
        let options = AgentOptions {
            wrapper: with_capabilities(&[])?,
            binary: Some(readable_binary(lab)?),
            ..AgentOptions::new(Datapath::Auto)
        };
        {
            let agent = Agent::start(lab, &options)?;
            // The message names the cure.
            eventually("the sysctl is named", || {
                let log = agent.log();
                ensure!(
                    log.contains("PortUnavailable") && log.contains("ip_unprivileged_port_start"),
                    "not said"
                );
                Ok(())
            })?;
        }
        lab.gateway().sysctl("ipv4/ip_unprivileged_port_start", "53")?;
        let _agent = Agent::start(lab, &options)?;
        check_low_ports(lab)?;
        let client = EchoClient::connect(lab.client(), lab.at_gateway(Family::V4, 700))?;
        check_port(Datapath::Userspace, &client.greeting)
    });
}

#[test]
fn datapath_ebpf_refuses_to_start_without_capabilities() {
    routed(0, |lab| {
        let options = AgentOptions {
            wrapper: with_capabilities(&[])?,
            binary: Some(readable_binary(lab)?),
            ..AgentOptions::new(Datapath::Ebpf)
        };
        let agent = Agent::launch(lab, &options)?;
        let status = agent.process().wait_exit(lab::DEADLINE)?;
        ensure!(!status.success(), "it ended with success");
        let log = agent.log();
        ensure!(
            log.contains("CAP_BPF") || log.contains("CAP_NET_ADMIN"),
            "the message names no capability: {log}"
        );
        Ok(())
    });
}

/// The address given is the only one that is served.
#[test]
fn address_option_narrows_what_is_served() {
    routed(1, |lab| {
        serve_http(lab, 1, &[("route", &[], &[("", &[("web-1", 80, 1)])])])?;
        let _servers = identities(lab, 1)?;
        for datapath in [Datapath::Ebpf, Datapath::Userspace] {
            let address = lab.gateway_address(Family::V4).to_string();
            let options = AgentOptions::new(datapath).extra(["--address", &address]);
            let _agent = Agent::start(lab, &options)?;
            ensure!(
                get(lab.client(), lab.at_gateway(Family::V4, 80), "any", "/")?.status == 200,
                "not served"
            );
            ensure!(connect(lab.client(), lab.at_gateway(Family::V6, 80)).is_err(), "IPv6 is served too");
            let other = SocketAddr::new(lab.gateway_address_towards(1, Family::V4), 80);
            ensure!(connect(lab.client(), other).is_err(), "{other} is served too");
        }
        Ok(())
    });
}
