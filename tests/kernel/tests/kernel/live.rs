//! Between network namespaces: real stacks on both sides, veth, forwarding off in the gateway.

use std::ffi::CStr;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;

use anyhow::{Context as _, Result, bail, ensure};
use aya::programs::tc::{self, NlOptions, TcHandle};
use aya::programs::{LinkOrder, TcAttach, TcAttachType};
use gateway_common::abi::{Counter, TCP, UDP};
use kernel_tests::object::Object;
use lab::client::{self, EchoClient};
use lab::servers::{self, UdpServer};
use lab::{Family, Lab, Netns, Shape, eventually};

const PORT: u16 = 4_000;

/// Attaches to every Ethernet interface of the gateway: TCX, else clsact.
fn attach(lab: &Lab, object: &mut Object) -> Result<&'static str> {
    lab.gateway().try_run(|| {
        let mut way = "TCX";
        for name in [c"cli", c"be1", c"be2"] {
            let order = LinkOrder::default();
            let tcx = TcAttach::Tcx { attach_type: TcAttachType::Ingress, order };
            if object.classifier().attach(name, tcx).is_ok() {
                continue;
            }
            way = "clsact";
            tc::qdisc_add_clsact(name)?;
            let options = NlOptions { priority: 1, handle: TcHandle::new(0, 1), classid: None };
            let netlink = TcAttach::Netlink { parent: TcAttachType::Ingress.into(), options };
            object.classifier().attach(name, netlink).context("neither TCX nor clsact")?;
        }
        Ok(way)
    })
}

fn index(netns: &Netns, name: &CStr) -> Result<u32> {
    Ok(netns.run(|| nix::net::if_::if_nametoindex(name))??)
}

/// A gateway with the program attached and one listener for each family, over both backends.
fn bed(proto: u8) -> Result<(Lab, Object)> {
    let lab = Lab::new(Shape::Routed { backends: 2 })?;
    let mut object = Object::load();
    for family in Family::BOTH {
        let mut ids = Vec::new();
        for (number, name) in [(1, c"be1"), (2, c"be2")] {
            ids.push(object.backend_by(
                SocketAddr::new(lab.backend_address(number, family), PORT),
                lab.gateway_address_towards(number, family),
                index(lab.gateway(), name)?,
            ));
        }
        object.listen(proto, lab.at_gateway(family, 80), &ids);
    }
    static SAID: std::sync::Once = std::sync::Once::new();
    let way = attach(&lab, &mut object)?;
    SAID.call_once(|| println!("fact: l4_ingress attached by {way}"));
    Ok((lab, object))
}

/// As `ethtool -K INTERFACE tx on|off`.
fn transmit_checksums(netns: &Netns, interface: &CStr, on: bool) -> Result<()> {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    const ETHTOOL_STXCSUM: u32 = 0x17;
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    netns.try_run(|| {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
        let mut value = Value { command: ETHTOOL_STXCSUM, data: u32::from(on) };
        // SAFETY: all zeros is a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(interface.to_bytes()) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request holds a terminated name and a pointer to a value that outlives the call.
        if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) } != 0 {
            return Err(io::Error::last_os_error()).with_context(|| format!("ethtool -K {interface:?} tx"));
        }
        Ok(())
    })
}

/// Who leaves checksums to its card, and so sends packets with none, as veth does not compute them.
#[derive(Clone, Copy, Debug)]
enum Offload {
    /// Nobody ever computes one.
    Everywhere,
    /// The hosts do not; the gateway completes what it sends on from the pseudo header's sum that it finds there.
    Hosts,
    /// The hosts compute all of them.
    Nowhere,
}

impl Offload {
    const ALL: [Self; 3] = [Self::Everywhere, Self::Hosts, Self::Nowhere];

    fn set(self, lab: &Lab) -> Result<()> {
        for netns in [lab.client(), lab.backend(1), lab.backend(2)] {
            transmit_checksums(netns, c"eth0", !matches!(self, Self::Nowhere))?;
        }
        for interface in [c"cli", c"be1", c"be2"] {
            transmit_checksums(lab.gateway(), interface, matches!(self, Self::Everywhere))?;
        }
        Ok(())
    }
}

// O11: the receivers' stacks check every checksum.
#[test]
fn tcp_connections_pass_with_and_without_checksum_offload() -> Result<()> {
    let (lab, mut object) = bed(TCP)?;
    let _servers =
        [servers::tcp_echo(lab.backend(1), PORT, "one")?, servers::tcp_echo(lab.backend(2), PORT, "two")?];
    ensure!(lab.gateway().read_sysctl("ipv4/ip_forward")? == "0");
    let mut n_connections = 0;
    for offload in Offload::ALL {
        offload.set(&lab)?;
        for family in Family::BOTH {
            let mut seen = std::collections::BTreeSet::new();
            // Both serve: that 64 connections all meet the same one does not happen by chance.
            for number in 0..64 {
                if number >= 4 && seen.len() == 2 {
                    break;
                }
                let mut connection = EchoClient::connect(lab.client(), lab.at_gateway(family, 80))
                    .with_context(|| format!("{family}, offload {offload:?}"))?;
                seen.insert(connection.greeting.identity.clone());
                let peer = connection.greeting.peer;
                ensure!((10_000..30_000).contains(&peer.port()), "{peer} is not of our port range");
                for length in [1, 2, 3, 1_447, 100_001] {
                    let bytes: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
                    connection
                        .echo(&bytes)
                        .with_context(|| format!("{family}, offload {offload:?}, {length} bytes"))?;
                }
                let rest = connection.finish()?;
                ensure!(rest == "end 101454\n", "after half-close: {rest:?}");
                n_connections += 1;
            }
            ensure!(seen.len() == 2, "both backends serve: {seen:?}");
        }
    }
    ensure!(object.counter(Counter::Promoted) == n_connections);
    ensure!(object.counter(Counter::Dropped) == 0);
    Ok(())
}

// O11
#[test]
fn datagrams_pass_with_and_without_checksum_offload() -> Result<()> {
    let (lab, mut object) = bed(UDP)?;
    let _servers =
        [servers::udp_echo(lab.backend(1), PORT, "one")?, servers::udp_echo(lab.backend(2), PORT, "two")?];
    for offload in Offload::ALL {
        offload.set(&lab)?;
        for family in Family::BOTH {
            for _ in 0..4 {
                let socket = client::udp(lab.client(), lab.at_gateway(family, 80))?;
                for payload in [&b"x"[..], b"xy", b"xyz", &[7; 1_200]] {
                    let reply = client::ask(&socket, payload)
                        .with_context(|| format!("{family}, offload {offload:?}, {} bytes", payload.len()))?;
                    ensure!(reply.ends_with(payload), "another payload came back");
                }
            }
        }
    }
    ensure!(object.counter(Counter::Promoted) == 24);
    Ok(())
}

// O14: a reply of 3,000 bytes over a link of 1,500.
#[test]
fn long_reply_reaches_the_client_in_fragments() -> Result<()> {
    let (lab, mut object) = bed(UDP)?;
    let long = |_: &[u8], _| Some(vec![9; 3_000]);
    let any = |family: Family| SocketAddr::new(family.unspecified(), PORT);
    for family in Family::BOTH {
        let _servers = [
            UdpServer::start(lab.backend(1), any(family), long)?,
            UdpServer::start(lab.backend(2), any(family), long)?,
        ];
        let socket = client::udp(lab.client(), lab.at_gateway(family, 80))?;
        let reply = client::ask(&socket, b"how long?").with_context(|| family.to_string())?;
        ensure!(reply == vec![9; 3_000]);
    }
    ensure!(object.counter(Counter::Fragments) >= 4);
    Ok(())
}

// O13: the backend's port unreachable becomes the client's connection refused.
#[test]
fn closed_backend_port_tells_the_client() -> Result<()> {
    let (lab, mut object) = bed(UDP)?;
    for family in Family::BOTH {
        let socket = client::udp(lab.client(), lab.at_gateway(family, 80))?;
        eventually("the client is told", || {
            // Either call reports the error that has come in.
            for result in [socket.send(b"anyone?").map(drop), socket.recv(&mut [0; 16]).map(drop)] {
                match result {
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(()),
                    other => drop(other),
                }
            }
            bail!("no connection refused over {family}");
        })?;
    }
    ensure!(object.counter(Counter::IcmpErrors) >= 2);
    Ok(())
}

#[test]
fn closed_backend_port_resets_the_client() -> Result<()> {
    let (lab, _object) = bed(TCP)?;
    for family in Family::BOTH {
        let to = lab.at_gateway(family, 80);
        let error = lab
            .client()
            .run(|| std::net::TcpStream::connect_timeout(&to, client::TIMEOUT))?
            .err()
            .context("connected to nobody")?;
        ensure!(error.kind() == ErrorKind::ConnectionRefused, "{error}");
    }
    Ok(())
}

/// The stack of the gateway serves whatever is not in the maps.
#[test]
fn other_ports_of_the_gateway_are_served_by_its_stack() -> Result<()> {
    let (lab, _object) = bed(TCP)?;
    let _server = servers::tcp_echo(lab.gateway(), 81, "gateway")?;
    for family in Family::BOTH {
        let mut connection = EchoClient::connect(lab.client(), lab.at_gateway(family, 81))?;
        ensure!(connection.greeting.identity == "gateway");
        ensure!(connection.greeting.peer.ip() == lab.client_address(family));
        connection.echo(b"untouched")?;
    }
    Ok(())
}

// O13: a path of 1,280 bytes behind the client; the backend sends larger segments and is told.
#[test]
fn path_mtu_towards_the_client_is_learnt_by_the_backend() -> Result<()> {
    let (lab, mut object) = bed(UDP)?;
    // The client reports that it can take less than the backend sends: as a router on its side would.
    for family in Family::BOTH {
        let answer = |_: &[u8], _| Some(vec![5; 1_400]);
        let any = SocketAddr::new(family.unspecified(), PORT);
        let _servers =
            [UdpServer::start(lab.backend(1), any, answer)?, UdpServer::start(lab.backend(2), any, answer)?];
        let socket = client::udp(lab.client(), lab.at_gateway(family, 80))?;
        client::ask(&socket, b"request")?;
        // The error that the client's side sends about such a reply, quoting IP header and 8 bytes of it.
        let reply = kernel_tests::frame::udp(lab.at_gateway(family, 80), socket.local_addr()?, &[5; 1_400]);
        let quoted = &kernel_tests::frame::ip_packet(&reply)[..if family == Family::V4 { 28 } else { 48 }];
        let (icmp_type, code) = if family == Family::V4 { (3, 4) } else { (2, 0) };
        let error = kernel_tests::frame::icmp_error(
            lab.client_address(family),
            lab.gateway_address(family),
            icmp_type,
            code,
            quoted,
        );
        send_ip(lab.client(), lab.gateway_address(family), &error)?;
        eventually("a backend has learnt the path's MTU", || {
            for number in [1, 2] {
                let gateway = lab.gateway_address_towards(number, family).to_string();
                let route = lab.backend(number).output("ip", &["route", "get", &gateway])?;
                if route.contains("mtu 1300") {
                    return Ok(());
                }
            }
            bail!("no route of a backend has the MTU, {family}")
        })?;
    }
    ensure!(object.counter(Counter::IcmpErrors) == 2);
    Ok(())
}

/// Sends the ICMP message of `frame` from the namespace's own address.
fn send_ip(netns: &Netns, to: std::net::IpAddr, frame: &[u8]) -> Result<()> {
    let (domain, protocol, offset) = if to.is_ipv4() {
        (libc::AF_INET, libc::IPPROTO_ICMP, 34)
    } else {
        (libc::AF_INET6, libc::IPPROTO_ICMPV6, 54)
    };
    let message = frame[offset..].to_vec();
    netns.try_run(|| {
        use std::os::fd::FromRawFd as _;
        // SAFETY: a system call with numbers only.
        let fd = unsafe { libc::socket(domain, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
        ensure!(fd >= 0, "raw socket: {}", io::Error::last_os_error());
        // SAFETY: the descriptor was just made and is owned by nothing else. UdpSocket only calls send_to on it.
        let socket = unsafe { std::net::UdpSocket::from_raw_fd(fd) };
        socket.send_to(&message, SocketAddr::new(to, 0)).context("send the ICMP message")?;
        Ok(())
    })
}
