//! Addresses of a pool: no interface has them, the network routes them here, and they are served all the same.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use lab::client::{EchoClient, get, udp};
use lab::manifests::{gateway, http_route, l4_route, remove, service, write};
use lab::servers::{HttpServer, tcp_echo, udp_echo};
use lab::{Agent, AgentOptions, Datapath, Family, Lab, eventually};

use crate::bed::{TARGET, both, on_each_datapath, routed};
use crate::steering::{readable_binary, with_capabilities};
use crate::udp::exchange;

const POOL: [&str; 2] = ["--address-pool", "203.0.113.8-203.0.113.9,fd77::8-fd77::9"];

on_each_datapath!(
    gateways_serve_at_addresses_of_their_own,
    addresses_go_with_their_gateway_and_with_the_agent,
);

fn options(datapath: Datapath) -> AgentOptions {
    AgentOptions::new(datapath).extra(["--address-provider", "pool"]).extra(POOL)
}

/// The addresses of the Gateway that is the first or second of the pool.
fn pair(index: u8) -> [IpAddr; 2] {
    [IpAddr::from([203, 0, 113, 8 + index]), IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, 8 + u16::from(index)])]
}

/// Addresses that local routes of the agent take in.
fn taken_in(lab: &Lab) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for family in ["-4", "-6"] {
        // `proto 97` marks the agent's.
        let routes =
            lab.gateway().output("ip", &[family, "route", "show", "table", "local", "proto", "97"])?;
        all.extend(routes.lines().filter_map(|line| Some(line.split_whitespace().nth(1)?.to_owned())));
    }
    Ok(all)
}

fn await_taken_in(lab: &Lab, expected: &[&str]) -> Result<()> {
    eventually(&format!("{expected:?} are taken in"), || {
        let now = taken_in(lab)?;
        ensure!(now == expected, "it is {now:?}");
        Ok(())
    })
}

/// Two Gateways with the same ports.
fn serve(lab: &Lab) -> Result<()> {
    let first = gateway("a", &[("http", "HTTP", 80), ("tcp", "TCP", 5432), ("udp", "UDP", 5432)])
        + &http_route("http", "a", "http", &[], &[("", &[("web", 80, 1)])])
        + &l4_route("TCPRoute", "tcp", "a", "tcp", &[("tcp", 80, 1)])
        + &l4_route("UDPRoute", "udp", "a", "udp", &[("udp", 80, 1)]);
    write(&lab.manifests(), "a.yaml", &first)?;
    write(&lab.manifests(), "b.yaml", &gateway("b", &[("http", "HTTP", 80)]))?;
    let services = service("web", "TCP", 80, 8080, &both(lab, 1))
        + &service("tcp", "TCP", 80, TARGET, &both(lab, 1))
        + &service("udp", "UDP", 80, TARGET, &both(lab, 1));
    write(&lab.manifests(), "services.yaml", &services)
}

fn gateways_serve_at_addresses_of_their_own(datapath: Datapath) {
    routed(1, |lab| {
        serve(lab)?;
        let _web = HttpServer::identity(lab.backend(1), 8080, "web")?;
        let _tcp = tcp_echo(lab.backend(1), TARGET, "tcp")?;
        let _udp = udp_echo(lab.backend(1), TARGET, "udp")?;
        let agent = Agent::start(lab, &options(datapath))?;
        await_taken_in(lab, &["203.0.113.8", "203.0.113.9", "fd77::8", "fd77::9"])?;
        for address in pair(0) {
            let at = |port| SocketAddr::new(address, port);
            let response = get(lab.client(), at(80), "x", "/")?;
            ensure!(response.status == 200, "{address} answers {}\n{}", response.status, agent.log());
            EchoClient::connect(lab.client(), at(5432))?.echo(b"some bytes")?;
            // A connected socket takes answers from that address only.
            exchange(&udp(lab.client(), at(5432))?, b"hello")?;
        }
        for address in pair(1) {
            let response = get(lab.client(), SocketAddr::new(address, 80), "x", "/")?;
            ensure!(response.status == 404, "{address} answers {}", response.status);
            ensure!(EchoClient::connect(lab.client(), SocketAddr::new(address, 5432)).is_err());
        }
        // The address of the interface serves no one.
        for family in Family::BOTH {
            ensure!(EchoClient::connect(lab.client(), lab.at_gateway(family, 5432)).is_err());
        }
        Ok(())
    });
}

fn addresses_go_with_their_gateway_and_with_the_agent(datapath: Datapath) {
    routed(1, |lab| {
        serve(lab)?;
        let agent = Agent::start(lab, &options(datapath))?;
        await_taken_in(lab, &["203.0.113.8", "203.0.113.9", "fd77::8", "fd77::9"])?;
        // A folder records nothing: the next in line gets the lowest address.
        remove(&lab.manifests(), "a.yaml")?;
        await_taken_in(lab, &["203.0.113.8", "fd77::8"])?;
        for address in pair(0) {
            eventually("the other Gateway answers there", || {
                match get(lab.client(), SocketAddr::new(address, 80), "x", "/")?.status {
                    404 => Ok(()),
                    status => bail!("it answers {status}"),
                }
            })?;
        }
        agent.terminate(Duration::from_secs(30))?;
        ensure!(taken_in(lab)?.is_empty(), "{:?}", taken_in(lab)?);
        Ok(())
    });
}

#[test]
fn routes_of_an_agent_that_was_killed_are_taken_over() {
    routed(1, |lab| {
        serve(lab)?;
        let agent = Agent::start(lab, &options(Datapath::Userspace))?;
        await_taken_in(lab, &["203.0.113.8", "203.0.113.9", "fd77::8", "fd77::9"])?;
        drop(agent);
        remove(&lab.manifests(), "b.yaml")?;
        let _agent = Agent::start(lab, &options(Datapath::Userspace))?;
        await_taken_in(lab, &["203.0.113.8", "fd77::8"])
    });
}

#[test]
fn address_that_does_not_arrive_for_lack_of_a_capability_is_said() {
    routed(1, |lab| {
        serve(lab)?;
        let options = AgentOptions {
            wrapper: with_capabilities(&["net_bind_service"])?,
            binary: Some(readable_binary(lab)?),
            ..options(Datapath::Userspace)
        };
        let agent = Agent::start(lab, &options)?;
        eventually("the Gateway says so", || {
            let snapshot = agent.snapshot()?["objects"].to_string();
            ensure!(snapshot.contains("AddressNotUsable"), "{snapshot}");
            ensure!(snapshot.contains("does not arrive at this pod"), "{snapshot}");
            ensure!(snapshot.contains("NET_ADMIN"), "{snapshot}");
            Ok(())
        })?;
        // Bound all the same: whoever delivers the address finds it served.
        lab.gateway().ip("route add local 203.0.113.9 dev lo\nroute add local fd77::9 dev lo\n")?;
        for address in pair(1) {
            eventually("the address is served", || {
                let status = get(lab.client(), SocketAddr::new(address, 80), "x", "/")?.status;
                ensure!(status == 404, "it answers {status}");
                Ok(())
            })?;
        }
        Ok(())
    });
}
