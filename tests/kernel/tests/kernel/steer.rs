//! `sk_lookup`: which connections are given to a listening socket, and which are left alone.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _};

use anyhow::{Context as _, Result, ensure};
use aya::maps::SockMap;
use aya::programs::SkLookup;
use gateway_common::abi::{Counter, ListenerKey, SteerValue, TCP};
use gateway_common::maps;
use kernel_tests::object::{Object, listener_key};
use lab::{Family, Lab, Shape, client};

const DROP: u32 = 0;
const PASS: u32 = 1;

/// `struct bpf_sk_lookup`. Its end came in 5.17; older kernels want it to be 0, newer ones want it to be there.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Lookup {
    cookie: u64,
    family: u32,
    protocol: u32,
    remote_ip4: u32,
    remote_ip6: [u32; 4],
    remote_port_be: u16,
    zero: u16,
    local_ip4: u32,
    local_ip6: [u32; 4],
    local_port: u32,
    ingress_ifindex: u32,
    padding: u32,
}

fn lookup(proto: u8, local: SocketAddr) -> Lookup {
    let mut lookup = Lookup { protocol: proto.into(), local_port: local.port().into(), ..Lookup::default() };
    match local.ip() {
        IpAddr::V4(ip) => {
            lookup.family = libc::AF_INET as u32;
            lookup.local_ip4 = u32::from_ne_bytes(ip.octets());
        }
        IpAddr::V6(ip) => {
            lookup.family = libc::AF_INET6 as u32;
            let octets = ip.octets();
            for (word, bytes) in lookup.local_ip6.iter_mut().zip(octets.as_chunks::<4>().0) {
                *word = u32::from_ne_bytes(*bytes);
            }
        }
    }
    lookup
}

/// BPF_PROG_TEST_RUN, for which the library has no call: the verdict, and the cookie of the chosen socket or 0.
fn run(object: &mut Object, mut lookup: Lookup) -> io::Result<(u32, u64)> {
    const BPF_PROG_TEST_RUN: libc::c_long = 10;
    /// `union bpf_attr`, member `test`.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        prog_fd: u32,
        retval: u32,
        data_size_in: u32,
        data_size_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
        ctx_size_in: u32,
        ctx_size_out: u32,
        ctx_in: u64,
        ctx_out: u64,
    }
    let program = program(object).fd().expect("loaded").as_fd().as_raw_fd();
    let size = size_of::<Lookup>() as u32;
    let at = &raw mut lookup;
    let mut attributes = Attributes {
        prog_fd: program.cast_unsigned(),
        ctx_size_in: size,
        ctx_size_out: size,
        ctx_in: at.expose_provenance() as u64,
        ctx_out: at.expose_provenance() as u64,
        ..Attributes::default()
    };
    // SAFETY: the attributes point at memory that outlives the call and is as large as they say.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_TEST_RUN, &raw mut attributes, size_of::<Attributes>())
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((attributes.retval, lookup.cookie))
}

fn program(object: &mut Object) -> &mut SkLookup {
    object.ebpf.program_mut(maps::STEER).and_then(|program| program.try_into().ok()).expect("loaded")
}

fn steer(object: &mut Object, address: SocketAddr, socket: u32) {
    object
        .hash::<ListenerKey, SteerValue>(maps::STEERED)
        .insert(&listener_key(TCP, address), &SteerValue { socket }, 0)
        .expect("write STEERED");
}

fn register(object: &mut Object, slot: u32, listener: &TcpListener) {
    let map = object.ebpf.map_mut(maps::SOCKETS).expect("no map SOCKETS");
    SockMap::try_from(map).and_then(|mut map| map.set(slot, listener, 0)).expect("write SOCKETS");
}

fn forget(object: &mut Object, slot: u32) {
    let map = object.ebpf.map_mut(maps::SOCKETS).expect("no map SOCKETS");
    SockMap::try_from(map).and_then(|mut map| map.clear_index(&slot)).expect("clear SOCKETS");
}

fn cookie(listener: &TcpListener) -> u64 {
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the value is as large as the length says.
    let result = unsafe {
        libc::getsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0, "SO_COOKIE: {}", io::Error::last_os_error());
    cookie
}

fn vips() -> [SocketAddr; 2] {
    ["192.0.2.1:443", "[2001:db8::1]:443"].map(|text| text.parse().expect("an address"))
}

#[test]
fn only_what_is_in_the_map_is_steered() {
    let mut object = Object::lease();
    for (slot, vip) in vips().into_iter().enumerate() {
        let loopback = if vip.is_ipv4() { Family::V4 } else { Family::V6 }.loopback();
        let listener = TcpListener::bind((loopback, 0)).expect("bind to loopback");
        let slot = u32::try_from(slot).expect("small");
        register(&mut object, slot, &listener);
        steer(&mut object, vip, slot);
        let chosen = run(&mut object, lookup(TCP, vip)).expect("test run of sk_lookup");
        assert_eq!(chosen, (PASS, cookie(&listener)));
        let untouched = (PASS, 0);
        let other_port = SocketAddr::new(vip.ip(), 444);
        assert_eq!(run(&mut object, lookup(TCP, other_port)).expect("test run"), untouched);
        assert_eq!(
            run(&mut object, lookup(TCP, SocketAddr::new(loopback, 443))).expect("test run"),
            untouched
        );
        assert_eq!(run(&mut object, lookup(gateway_common::abi::UDP, vip)).expect("test run"), untouched);
    }
    assert_eq!(object.counter(Counter::Steered), 2);
    println!("fact: steer ran by BPF_PROG_TEST_RUN");
}

#[test]
fn listener_without_a_socket_refuses_rather_than_leak() {
    let mut object = Object::lease();
    for (slot, vip) in vips().into_iter().enumerate() {
        steer(&mut object, vip, u32::try_from(slot).expect("small"));
        assert_eq!(run(&mut object, lookup(TCP, vip)).expect("test run of sk_lookup"), (DROP, 0));
    }
    // A slot beyond the map is no socket either.
    let vip = "192.0.2.2:443".parse().expect("an address");
    steer(&mut object, vip, u32::MAX);
    assert_eq!(run(&mut object, lookup(TCP, vip)).expect("test run of sk_lookup"), (DROP, 0));
    assert_eq!(object.counter(Counter::SteerDropped), 3);
}

#[test]
fn connections_reach_a_listener_bound_elsewhere() -> Result<()> {
    let lab = Lab::new(Shape::Routed { backends: 1 })?;
    let mut object = Object::load();
    let netns = std::fs::File::open(lab.gateway().path()).context("open the gateway's namespace")?;
    program(&mut object).attach(netns).context("attach sk_lookup")?;
    println!("fact: steer attached by a link to the network namespace");
    for (slot, family) in (0..).zip(Family::BOTH) {
        let vip = lab.at_gateway(family, 443);
        let listener = lab.gateway().run(|| TcpListener::bind((family.loopback(), 0)))??;
        register(&mut object, slot, &listener);
        steer(&mut object, vip, slot);

        let mut stream = client::connect(lab.client(), vip)?;
        let (mut accepted, peer) = listener.accept()?;
        ensure!(peer.ip() == lab.client_address(family));
        ensure!(accepted.local_addr()? == vip, "the socket has the address that the client connected to");
        stream.write_all(b"hello")?;
        let mut bytes = [0; 5];
        accepted.read_exact(&mut bytes)?;
        ensure!(&bytes == b"hello");

        // No other port of the namespace is touched.
        let connect = |to: SocketAddr| lab.client().run(|| TcpStream::connect_timeout(&to, client::TIMEOUT));
        let refused = connect(lab.at_gateway(family, 444))?.err().context("connected to a closed port")?;
        ensure!(refused.kind() == ErrorKind::ConnectionRefused, "{refused}");

        // With the socket gone, the stack answers RST; what else is bound to the port does not get the connection.
        forget(&mut object, slot);
        let _other = lab.gateway().run(|| TcpListener::bind(vip))??;
        let dropped = connect(vip)?.err().context("another listener got the connection")?;
        ensure!(dropped.kind() == ErrorKind::ConnectionRefused, "{dropped}");
    }
    ensure!(object.counter(Counter::Steered) >= 2);
    Ok(())
}
