//! TCPRoute: by the kernel path where it owns the flow, by the relay behind it everywhere else.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use anyhow::{Result, ensure};
use lab::client::{EchoClient, connect, connect_from};
use lab::servers::{TcpServer, any, tcp_echo};
use lab::{Agent, AgentOptions, Datapath, Family, Lab, Netns, Shape, eventually};

use crate::bed::{
    PORT, TARGET, all, check_port, check_source, on_each_datapath, proxied, routed, serve_l4, set_endpoints,
    with_lab,
};

on_each_datapath!(
    flows_pass_by_the_expected_path,
    flows_pass_where_everyone_has_one_interface,
    half_close_passes_both_ways,
    bulk_data_arrives_unchanged,
    client_is_refused_at_once_without_endpoints,
    client_is_told_when_the_backend_refuses,
    connections_stay_when_another_endpoint_goes,
    client_ports_can_be_used_again_at_once,
);

fn check_echo(lab: &Lab, family: Family) -> Result<EchoClient> {
    let mut client = EchoClient::connect(lab.client(), lab.at_gateway(family, PORT))?;
    client.echo(b"some bytes")?;
    Ok(client)
}

fn flows_pass_by_the_expected_path(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "TCP", &all(lab, &[1]))?;
        let _server = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        let agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let before = proxied(&agent, "main")?;
            let client = check_echo(lab, family)?;
            check_source(lab, datapath, 1, family, &client.greeting)?;
            let grown = proxied(&agent, "main")? - before;
            let expected = f64::from(u8::from(datapath == Datapath::Userspace));
            ensure!(grown == expected, "{family}: the proxy counted {grown} connections");
        }
        ensure!(lab.gateway().read_sysctl("ipv4/ip_forward")? == "0", "the agent switched forwarding on");
        ensure!(
            lab.gateway().read_sysctl("ipv6/conf/all/forwarding")? == "0",
            "the agent switched forwarding on"
        );
        Ok(())
    });
}

fn flows_pass_where_everyone_has_one_interface(datapath: Datapath) {
    with_lab(Shape::Flat { backends: 1 }, |lab| {
        serve_l4(lab, "TCP", &all(lab, &[1]))?;
        let _server = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let client = check_echo(lab, family)?;
            check_source(lab, datapath, 1, family, &client.greeting)?;
        }
        Ok(())
    });
}

fn half_close_passes_both_ways(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "TCP", &all(lab, &[1]))?;
        let _server = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let client = check_echo(lab, family)?;
            ensure!(client.finish()? == "end 10\n", "{family}: the answer after our end is lost");
        }
        Ok(())
    });
}

/// Sends and receives `size` bytes at once, and fails unless both sides agree on them.
pub(crate) fn bulk(from: &Netns, to: SocketAddr, size: usize) -> Result<()> {
    let client = EchoClient::connect(from, to)?;
    let mut stream = client.stream().try_clone()?;
    let mut writer = client.stream().try_clone()?;
    let sent: Vec<u8> = (0..size).map(|place| (place * place / 11).to_le_bytes()[0]).collect();
    let mut back = vec![0; size];
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| writer.write_all(&sent).and_then(|()| writer.shutdown(Shutdown::Write)));
        let read = stream.read_exact(&mut back);
        sender.join().expect("the sender does not panic").and(read)
    })?;
    ensure!(back == sent, "{to}: other bytes came back");
    Ok(())
}

fn bulk_data_arrives_unchanged(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "TCP", &all(lab, &[1]))?;
        let _server = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            bulk(lab.client(), lab.at_gateway(family, PORT), 8_000_000)?;
        }
        Ok(())
    });
}

/// O08: told within a round trip, and served as soon as there is somewhere to go.
fn client_is_refused_at_once_without_endpoints(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "TCP", &[])?;
        let _server = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let to = lab.at_gateway(family, PORT);
            let refused = lab.client().run(|| TcpStream::connect_timeout(&to, lab::client::TIMEOUT))?;
            let kind = refused.err().map(|error| error.kind());
            ensure!(kind == Some(std::io::ErrorKind::ConnectionRefused), "{family}: {kind:?}");
        }
        set_endpoints(lab, "TCP", &all(lab, &[1]))?;
        for family in Family::BOTH {
            eventually("the endpoint is used", || check_echo(lab, family))?;
        }
        set_endpoints(lab, "TCP", &[])?;
        for family in Family::BOTH {
            let to = lab.at_gateway(family, PORT);
            eventually("new clients are refused again", || {
                let outcome = lab.client().run(|| TcpStream::connect_timeout(&to, lab::client::TIMEOUT))?;
                ensure!(
                    outcome
                        .as_ref()
                        .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused),
                    "{family}: {outcome:?}"
                );
                Ok(())
            })?;
        }
        Ok(())
    });
}

/// By the backend's own RST on the kernel path, by the relay's elsewhere; and the next connection is another matter.
fn client_is_told_when_the_backend_refuses(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "TCP", &all(lab, &[1]))?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            for _ in 0..3 {
                let refused = EchoClient::connect(lab.client(), lab.at_gateway(family, PORT));
                ensure!(refused.is_err(), "{family}: somebody answers");
            }
        }
        let _server = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        for family in Family::BOTH {
            check_echo(lab, family)?;
        }
        Ok(())
    });
}

fn connections_stay_when_another_endpoint_goes(datapath: Datapath) {
    routed(3, |lab| {
        serve_l4(lab, "TCP", &all(lab, &[1, 2, 3]))?;
        let _servers = (1..=3)
            .map(|index| tcp_echo(lab.backend(index), TARGET, &format!("backend-{index}")))
            .collect::<Result<Vec<_>>>()?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let mut clients = (0..60).map(|_| check_echo(lab, family)).collect::<Result<Vec<_>>>()?;
            let mut count: BTreeMap<String, u32> = BTreeMap::new();
            for client in &clients {
                *count.entry(client.greeting.identity.clone()).or_default() += 1;
            }
            // 20 each on average; fewer than 5 happens once in a million.
            ensure!(count.len() == 3 && count.values().all(|n| *n >= 5), "{family}: uneven: {count:?}");
            set_endpoints(lab, "TCP", &all(lab, &[1, 2]))?;
            eventually("no new flow goes to the endpoint that left", || {
                for _ in 0..20 {
                    ensure!(check_echo(lab, family)?.greeting.identity != "backend-3", "it still gets some");
                }
                Ok(())
            })?;
            for client in &mut clients {
                client.echo(b"still here")?;
            }
            set_endpoints(lab, "TCP", &all(lab, &[1, 2, 3]))?;
            eventually("the endpoint is back", || {
                for _ in 0..40 {
                    if check_echo(lab, family)?.greeting.identity == "backend-3" {
                        return Ok(());
                    }
                }
                anyhow::bail!("it gets nothing")
            })?;
            for client in &mut clients {
                client.echo(b"still here")?;
            }
        }
        Ok(())
    });
}

fn client_ports_can_be_used_again_at_once(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "TCP", &all(lab, &[1]))?;
        let _server = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            for round in 0..10 {
                let from = SocketAddr::new(lab.client_address(family), 44_444);
                // A program that another test starts holds copies of our descriptors until it runs: the port of the
                // round before may be free a moment later only.
                let to = lab.at_gateway(family, PORT);
                let stream = eventually("the port is free", || connect_from(lab.client(), from, to))?;
                // By reset, so that the client's own TIME_WAIT does not hold the port.
                socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO))?;
                let mut client = EchoClient::new(stream)?;
                client.echo(format!("round {round}").as_bytes())?;
            }
        }
        Ok(())
    });
}

/// What the kernel path does not own, the relay serves.
#[test]
fn relay_serves_loopback_and_other_families_beside_the_kernel_path() {
    routed(2, |lab| {
        serve_l4(lab, "TCP", &[lab.backend_address(1, Family::V4), lab.backend_address(2, Family::V6)])?;
        let _one = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _two = tcp_echo(lab.backend(2), TARGET, "backend-2")?;
        let agent = Agent::start(lab, &AgentOptions::new(Datapath::Ebpf))?;
        for (family, backend) in [(Family::V4, "backend-1"), (Family::V6, "backend-2")] {
            let client = check_echo(lab, family)?;
            ensure!(client.greeting.identity == backend, "{family}: {}", client.greeting.identity);
            check_port(Datapath::Ebpf, &client.greeting)?;
            let before = proxied(&agent, "main")?;
            let local = EchoClient::connect(lab.gateway(), SocketAddr::new(family.loopback(), PORT))?;
            ensure!(local.greeting.identity == backend, "{family}: {}", local.greeting.identity);
            check_port(Datapath::Userspace, &local.greeting)?;
            ensure!(proxied(&agent, "main")? == before + 1.0, "the relay did not count the loopback client");
        }
        Ok(())
    });
}

#[test]
fn relay_joins_ipv4_and_ipv6() {
    routed(1, |lab| {
        let _server = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        for (client, backend) in [(Family::V4, Family::V6), (Family::V6, Family::V4)] {
            serve_l4(lab, "TCP", &[lab.backend_address(1, backend)])?;
            for datapath in [Datapath::Ebpf, Datapath::Userspace] {
                let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
                let echo = check_echo(lab, client)?;
                check_source(lab, Datapath::Userspace, 1, backend, &echo.greeting)?;
                ensure!(echo.finish()? == "end 10\n", "{client} to {backend}: the end is lost");
                bulk(lab.client(), lab.at_gateway(client, PORT), 1_000_000)?;
                // The same listener's own family goes by the kernel where that is allowed.
                check_source(lab, datapath, 1, backend, &check_echo(lab, backend)?.greeting)?;
            }
        }
        Ok(())
    });
}

/// O10: bytes still on their way to a slow backend when the client ends its direction.
#[test]
fn slow_backend_gets_every_byte_before_the_end() {
    routed(1, |lab| {
        serve_l4(lab, "TCP", &all(lab, &[1]))?;
        let _server = TcpServer::start(lab.backend(1), any(TARGET), |mut stream, _| {
            socket2::SockRef::from(&stream).set_recv_buffer_size(4096)?;
            let mut total = 0;
            let mut buffer = [0; 1000];
            loop {
                let count = stream.read(&mut buffer)?;
                if count == 0 {
                    break;
                }
                total += count;
            }
            writeln!(stream, "got {total}")?;
            Ok(())
        })?;
        for datapath in [Datapath::Ebpf, Datapath::Userspace] {
            let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
            for family in Family::BOTH {
                let mut stream = connect(lab.client(), lab.at_gateway(family, PORT))?;
                stream.write_all(&vec![1; 1_000_000])?;
                stream.shutdown(Shutdown::Write)?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer)?;
                ensure!(answer == "got 1000000\n", "{family}: {answer:?}");
            }
        }
        Ok(())
    });
}
