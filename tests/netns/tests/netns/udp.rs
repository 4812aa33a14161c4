//! UDPRoute: by the kernel path where it owns the flow, by the relay behind it everywhere else.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context as _, Result, bail, ensure};
use lab::client::{Greeting, ask, udp, udp_from};
use lab::servers::{UdpServer, any, udp_echo};
use lab::{Agent, AgentOptions, Datapath, Family, Lab, Shape, eventually};

use crate::bed::{
    PORT, TARGET, all, check_port, check_source, on_each_datapath, proxied, routed, serve_l4, set_endpoints,
    with_lab,
};

on_each_datapath!(
    flows_pass_by_the_expected_path,
    flows_pass_where_everyone_has_one_interface,
    datagrams_of_every_size_pass_unchanged,
    answers_larger_than_the_mtu_pass_unchanged,
    client_is_told_when_there_is_no_endpoint,
    client_is_told_when_the_backend_has_no_socket,
    flow_leaves_an_endpoint_that_went_away,
    many_clients_are_kept_apart,
);

pub(crate) fn exchange(socket: &UdpSocket, payload: &[u8]) -> Result<Greeting> {
    let answer = ask(socket, payload)?;
    // `ID PEER PAYLOAD`: the payload may be anything.
    let second_space = answer.iter().enumerate().filter(|(_, byte)| **byte == b' ').nth(1);
    let (end, _) = second_space.context("the answer holds no greeting")?;
    ensure!(&answer[end + 1..] == payload, "{} bytes came back changed", payload.len());
    Greeting::parse(std::str::from_utf8(&answer[..end])?)
}

fn ask_gateway(lab: &Lab, family: Family, payload: &[u8]) -> Result<Greeting> {
    exchange(&udp(lab.client(), lab.at_gateway(family, PORT))?, payload)
}

fn flows_pass_by_the_expected_path(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "UDP", &all(lab, &[1]))?;
        let _server = udp_echo(lab.backend(1), TARGET, "backend-1")?;
        let agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let before = proxied(&agent, "main")?;
            let socket = udp(lab.client(), lab.at_gateway(family, PORT))?;
            let first = exchange(&socket, b"one")?;
            check_source(lab, datapath, 1, family, &first)?;
            ensure!(exchange(&socket, b"two")? == first, "{family}: the second datagram came by another way");
            let grown = proxied(&agent, "main")? - before;
            let expected = f64::from(u8::from(datapath == Datapath::Userspace));
            ensure!(grown == expected, "{family}: the proxy counted {grown} flows");
        }
        Ok(())
    });
}

fn flows_pass_where_everyone_has_one_interface(datapath: Datapath) {
    with_lab(Shape::Flat { backends: 1 }, |lab| {
        serve_l4(lab, "UDP", &all(lab, &[1]))?;
        let _server = udp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            check_source(lab, datapath, 1, family, &ask_gateway(lab, family, b"hello")?)?;
        }
        Ok(())
    });
}

fn datagrams_of_every_size_pass_unchanged(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "UDP", &all(lab, &[1]))?;
        let _server = udp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            // O14: the last two are larger than the MTU and go in fragments, both ways. A flow of its own each: the
            // kernel path leaves fragments to the relay.
            for size in [0, 1, 2, 3, 17, 511, 1400, 3000, 20_000] {
                let payload: Vec<u8> = (0..size).map(|place: usize| place.to_le_bytes()[0]).collect();
                ask_gateway(lab, family, &payload).with_context(|| format!("{family}, {size} bytes"))?;
            }
        }
        Ok(())
    });
}

/// O14: every fragment of an answer comes from the gateway, also where the kernel path owns the flow; and fragments of a
/// client's datagrams, which it leaves to the relay, do not disturb that flow.
fn answers_larger_than_the_mtu_pass_unchanged(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "UDP", &all(lab, &[1]))?;
        let _server = UdpServer::start(lab.backend(1), any(TARGET), |request, _| {
            let size: usize = std::str::from_utf8(request).ok()?.trim().parse().ok()?;
            Some((0..size).map(|place| (place / 3).to_le_bytes()[0]).collect())
        })?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let socket = udp(lab.client(), lab.at_gateway(family, PORT))?;
            // The last requests are padded beyond the MTU themselves.
            for (size, request_length) in
                [(10, 0), (1473, 0), (3000, 0), (20_000, 0), (10, 3000), (3000, 3000), (10, 0)]
            {
                let mut request = size.to_string();
                request.extend(std::iter::repeat_n(' ', request_length));
                let answer = ask(&socket, request.as_bytes())
                    .with_context(|| format!("{family}: {size} bytes to a request of {request_length}"))?;
                let expected: Vec<u8> = (0..size).map(|place: usize| (place / 3).to_le_bytes()[0]).collect();
                ensure!(answer == expected, "{family}: {} bytes instead of {size}, or others", answer.len());
            }
        }
        Ok(())
    });
}

fn is_refused(socket: &UdpSocket) -> Result<()> {
    match ask(socket, b"anyone?") {
        Ok(answer) => bail!("answered: {:?}", String::from_utf8_lossy(&answer)),
        Err(error) => {
            let io = error.downcast::<std::io::Error>()?;
            ensure!(io.kind() == std::io::ErrorKind::ConnectionRefused, "{io}");
            Ok(())
        }
    }
}

/// O08: an ICMP error within a round trip, not silence.
fn client_is_told_when_there_is_no_endpoint(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "UDP", &[])?;
        let _server = udp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            is_refused(&udp(lab.client(), lab.at_gateway(family, PORT))?)?;
        }
        set_endpoints(lab, "UDP", &all(lab, &[1]))?;
        for family in Family::BOTH {
            eventually("the endpoint is used", || ask_gateway(lab, family, b"hello"))?;
        }
        Ok(())
    });
}

/// O13: the backend's own ICMP error comes back to the client, translated.
fn client_is_told_when_the_backend_has_no_socket(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "UDP", &all(lab, &[1]))?;
        let agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let socket = udp(lab.client(), lab.at_gateway(family, PORT))?;
            if datapath == Datapath::Ebpf {
                is_refused(&socket)?;
            } else {
                // A relay cannot make ICMP errors; it counts them and stays fit for the next datagram.
                socket.send(b"anyone?")?;
                eventually("the failure is counted", || {
                    let failures = agent
                        .metrics()?
                        .sum("gateway_agent_route_upstream_failures_total", &[("route", "route")]);
                    ensure!(failures >= 1.0, "no failure counted");
                    Ok(())
                })?;
            }
        }
        let _server = udp_echo(lab.backend(1), TARGET, "backend-1")?;
        for family in Family::BOTH {
            ask_gateway(lab, family, b"hello")?;
        }
        Ok(())
    });
}

/// O15: with a fixed source port and without a pause, the client must be moved all the same.
fn flow_leaves_an_endpoint_that_went_away(datapath: Datapath) {
    routed(2, |lab| {
        serve_l4(lab, "UDP", &all(lab, &[1, 2]))?;
        let _one = udp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _two = udp_echo(lab.backend(2), TARGET, "backend-2")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let socket = udp(lab.client(), lab.at_gateway(family, PORT))?;
            let first = exchange(&socket, b"one")?.identity;
            ensure!(exchange(&socket, b"two")?.identity == first, "{family}: the flow moves by itself");
            let (other, keep) = if first == "backend-1" { ("backend-2", 2) } else { ("backend-1", 1) };
            set_endpoints(lab, "UDP", &all(lab, &[keep]))?;
            eventually("the flow moves", || {
                let now = exchange(&socket, b"three")?.identity;
                ensure!(now == other, "still {now}");
                Ok(())
            })?;
            set_endpoints(lab, "UDP", &all(lab, &[1, 2]))?;
            eventually("both endpoints are used", || {
                let seen: BTreeSet<String> = (0..20)
                    .map(|_| ask_gateway(lab, family, b"x").map(|greeting| greeting.identity))
                    .collect::<Result<_>>()?;
                ensure!(seen.len() == 2, "only {seen:?}");
                Ok(())
            })?;
        }
        Ok(())
    });
}

fn many_clients_are_kept_apart(datapath: Datapath) {
    routed(2, |lab| {
        serve_l4(lab, "UDP", &all(lab, &[1, 2]))?;
        let _one = udp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _two = udp_echo(lab.backend(2), TARGET, "backend-2")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let sockets = (0..200)
                .map(|_| udp(lab.client(), lab.at_gateway(family, PORT)))
                .collect::<Result<Vec<_>>>()?;
            let mut sources = BTreeSet::new();
            for (socket, number) in sockets.iter().zip(0u32..) {
                let greeting = exchange(socket, &number.to_be_bytes())?;
                check_port(datapath, &greeting)?;
                ensure!(
                    sources.insert((greeting.identity, greeting.peer)),
                    "two clients share a source port"
                );
            }
            ensure!(
                sources.iter().map(|(identity, _)| identity).collect::<BTreeSet<_>>().len() == 2,
                "one backend got all"
            );
        }
        Ok(())
    });
}

#[test]
fn relay_serves_loopback_and_other_families_beside_the_kernel_path() {
    routed(1, |lab| {
        let _server = udp_echo(lab.backend(1), TARGET, "backend-1")?;
        for backend in Family::BOTH {
            serve_l4(lab, "UDP", &[lab.backend_address(1, backend)])?;
            for datapath in [Datapath::Ebpf, Datapath::Userspace] {
                let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
                for client in Family::BOTH {
                    let greeting = ask_gateway(lab, client, b"hello")?;
                    let path = if client == backend { datapath } else { Datapath::Userspace };
                    check_source(lab, path, 1, backend, &greeting)
                        .with_context(|| format!("{client} to {backend}"))?;
                    let local = udp(lab.gateway(), SocketAddr::new(client.loopback(), PORT))?;
                    check_port(Datapath::Userspace, &exchange(&local, b"local")?)?;
                }
            }
        }
        Ok(())
    });
}

/// The answer must come from the address that was asked, whichever of the host's addresses that is.
#[test]
fn answers_come_from_the_address_that_was_asked() {
    routed(2, |lab| {
        serve_l4(lab, "UDP", &all(lab, &[1]))?;
        let _server = udp_echo(lab.backend(1), TARGET, "backend-1")?;
        for datapath in [Datapath::Ebpf, Datapath::Userspace] {
            let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
            for family in Family::BOTH {
                // From another host, to the gateway's address on that side.
                let to = SocketAddr::new(lab.gateway_address_towards(2, family), PORT);
                let from = SocketAddr::new(lab.backend_address(2, family), 40_000);
                // The socket is connected: an answer from elsewhere would not be received.
                exchange(&udp_from(lab.backend(2), from, to)?, b"hello")?;
                // And to an address of another interface.
                let to = lab.at_gateway(family, PORT);
                exchange(&udp_from(lab.backend(2), from, to)?, b"hello").context("to the far address")?;
            }
        }
        Ok(())
    });
}
