//! The kernel path packet by packet: checksums with and without offload, padding, fragments.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context as _, Result, ensure};
use lab::client::{ask, udp};
use lab::packet::{Link, mac, snmp, snmp6, udp_frame, without_checksum};
use lab::servers::{UdpServer, any, tcp_echo, udp_echo};
use lab::{Agent, AgentOptions, Command, Datapath, Family, Lab, Netns, eventually};

use crate::bed::{PORT, TARGET, all, check_source, on_each_datapath, routed, serve_l4};
use crate::{tcp, udp};

on_each_datapath!(
    datagram_without_checksum_arrives_without_one,
    one_byte_in_a_padded_frame_arrives,
    ports_without_a_listener_answer_as_ever,
);

fn offload(netns: &Netns, interface: &str, state: &str) -> Result<()> {
    lab::require_program("ethtool", "ethtool")?;
    netns.output("ethtool", &["-K", interface, "tx", state, "rx", state]).map(drop)
}

/// Wrong checksums that the kernel of this namespace met.
fn checksum_errors(netns: &Netns) -> Result<u64> {
    let v4 = snmp(netns, "Tcp", "InCsumErrors")? + snmp(netns, "Udp", "InCsumErrors")?;
    Ok(v4 + snmp6(netns, "Udp6InCsumErrors")?)
}

/// O11: each combination of offload at the two ends and at the gateway. Without offload at the sender the kernel fills in
/// real checksums, and the receiver verifies them in software.
#[test]
fn checksums_are_right_with_and_without_offload() {
    routed(1, |lab| {
        serve_l4(lab, "TCP", &all(lab, &[1]))?;
        let text = lab::manifests::gateway("gw-udp", &[("udp", "UDP", PORT)])
            + &lab::manifests::l4_route("UDPRoute", "udp", "gw-udp", "udp", &[("svc-udp", 80, 1)])
            + &lab::manifests::service("svc-udp", "UDP", 80, TARGET, &all(lab, &[1]));
        lab::manifests::write(&lab.manifests(), "udp.yaml", &text)?;
        let _tcp = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _udp = udp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(Datapath::Ebpf))?;
        for client in ["on", "off"] {
            for gateway in ["on", "off"] {
                for backend in ["on", "off"] {
                    offload(lab.client(), "eth0", client)?;
                    offload(lab.gateway(), "cli", gateway)?;
                    offload(lab.gateway(), "be1", gateway)?;
                    offload(lab.backend(1), "eth0", backend)?;
                    let state = format!("client {client}, gateway {gateway}, backend {backend}");
                    check_both_protocols(lab).with_context(|| state.clone())?;
                    let errors = checksum_errors(lab.client())? + checksum_errors(lab.backend(1))?;
                    ensure!(errors == 0, "{state}: {errors} packets with a wrong checksum");
                }
            }
        }
        Ok(())
    });
}

fn check_both_protocols(lab: &Lab) -> Result<()> {
    for family in Family::BOTH {
        let to = lab.at_gateway(family, PORT);
        tcp::bulk(lab.client(), to, 300_000).with_context(|| format!("{family} TCP"))?;
        let socket = udp(lab.client(), to)?;
        for size in [1, 2, 3, 998, 1399] {
            let payload: Vec<u8> = (0..size).map(|place: usize| (place * 7).to_le_bytes()[0]).collect();
            let seen =
                udp::exchange(&socket, &payload).with_context(|| format!("{family} UDP, {size} bytes"))?;
            check_source(lab, Datapath::Ebpf, 1, family, &seen)?;
        }
    }
    Ok(())
}

/// Zero means "none" over IPv4; adjusted, it would become a wrong one.
fn datagram_without_checksum_arrives_without_one(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "UDP", &all(lab, &[1]))?;
        let _server = udp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        let tcpdump = lab::require_program("tcpdump", "tcpdump")?;
        let capture = Command::new("tcpdump", tcpdump)
            .args(["-n", "-vv", "-l", "--immediate-mode", "-i", "eth0", &format!("udp dst port {TARGET}")])
            .netns(lab.backend(1))
            .start(lab)?;
        eventually("tcpdump listens", || {
            ensure!(capture.log().contains("listening on"), "{}", capture.log());
            Ok(())
        })?;
        for size in [1, 2, 100] {
            let socket = udp(lab.client(), lab.at_gateway(Family::V4, PORT))?;
            without_checksum(&socket)?;
            let seen = udp::exchange(&socket, &vec![b'z'; size])?;
            check_source(lab, datapath, 1, Family::V4, &seen)?;
        }
        eventually("the datagrams are in the capture", || {
            let log = capture.log();
            ensure!(log.matches(&format!(".{TARGET}: ")).count() >= 3, "{log}");
            ensure!(!log.contains("bad udp cksum") || datapath == Datapath::Userspace, "{log}");
            // A relay sends datagrams of its own, which have one.
            ensure!(log.contains("no cksum") == (datapath == Datapath::Ebpf), "{log}");
            Ok(())
        })?;
        ensure!(checksum_errors(lab.backend(1))? == 0, "a wrong checksum arrived");
        Ok(())
    });
}

fn one_byte_in_a_padded_frame_arrives(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "UDP", &all(lab, &[1]))?;
        let server = UdpServer::start(lab.backend(1), any(TARGET), |payload, _| Some(payload.to_vec()))?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        offload(lab.client(), "eth0", "off")?;
        offload(lab.backend(1), "eth0", "off")?;
        let link = Link::open(lab.client(), "eth0")?;
        let gateway = mac(lab.gateway(), "cli")?;
        for family in Family::BOTH {
            // Neighbours are known after this.
            ask(&udp(lab.client(), lab.at_gateway(family, PORT))?, b"first")?;
            let from = SocketAddr::new(lab.client_address(family), 33_333);
            let socket = lab.client().run(|| UdpSocket::bind(from))??;
            socket.set_read_timeout(Some(lab::client::TIMEOUT))?;
            for byte in 0..20 {
                let frame = udp_frame(from, lab.at_gateway(family, PORT), (link.mac, gateway), &[byte], 17)?;
                link.send(&frame)?;
                let mut buffer = [0; 100];
                let (count, peer) = socket
                    .recv_from(&mut buffer)
                    .with_context(|| format!("{family}: no answer to byte {byte}"))?;
                ensure!(buffer[..count] == [byte], "{family}: {:?}", &buffer[..count]);
                ensure!(peer == lab.at_gateway(family, PORT), "{family}: the answer came from {peer}");
            }
        }
        ensure!(server.received() >= 42, "{} datagrams arrived", server.received());
        ensure!(
            checksum_errors(lab.backend(1))? + checksum_errors(lab.client())? == 0,
            "a wrong checksum arrived"
        );
        Ok(())
    });
}

/// Messages for ports that are no listener are the stack's own business.
fn ports_without_a_listener_answer_as_ever(datapath: Datapath) {
    routed(1, |lab| {
        serve_l4(lab, "TCP", &all(lab, &[1]))?;
        let _server = tcp_echo(lab.backend(1), TARGET, "backend-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        // Its neighbours, the same number of the other protocol, ports of the kernel path's own range, and zero.
        for family in Family::BOTH {
            for port in [PORT - 1, PORT + 1, 10_000, 20_000] {
                let to = lab.at_gateway(family, port);
                let error = lab
                    .client()
                    .run(|| std::net::TcpStream::connect_timeout(&to, lab::client::TIMEOUT))?
                    .err()
                    .with_context(|| format!("TCP port {port} is open"))?;
                ensure!(error.kind() == std::io::ErrorKind::ConnectionRefused, "TCP {to}: {error}");
            }
            for port in [PORT, PORT + 1, 10_000, 20_000] {
                let socket = udp(lab.client(), lab.at_gateway(family, port))?;
                let error =
                    ask(&socket, b"anyone?").err().with_context(|| format!("UDP port {port} answers"))?;
                let io = error.downcast::<std::io::Error>()?;
                ensure!(io.kind() == std::io::ErrorKind::ConnectionRefused, "UDP {port}: {io}");
            }
        }
        Ok(())
    });
}
