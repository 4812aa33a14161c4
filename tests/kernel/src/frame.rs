//! Building frames, and taking them apart with every checksum recomputed.

use std::net::{IpAddr, SocketAddr};

use etherparse::{
    Icmpv4Slice, Icmpv6Slice, NetSlice, PacketBuilder, PacketBuilderStep, SlicedPacket, TransportSlice,
    checksum::Sum16BitWords,
};

/// Flags of a segment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    pub syn: bool,
    pub ack: bool,
    pub fin: bool,
    pub rst: bool,
}

pub const SYN: Flags = Flags { syn: true, ack: false, fin: false, rst: false };
pub const SYN_ACK: Flags = Flags { syn: true, ack: true, fin: false, rst: false };
pub const ACK: Flags = Flags { syn: false, ack: true, fin: false, rst: false };
pub const FIN: Flags = Flags { syn: false, ack: true, fin: true, rst: false };
pub const RST: Flags = Flags { syn: false, ack: true, fin: false, rst: true };

/// A TCP segment to be built.
#[derive(Clone, Debug)]
pub struct Tcp<'a> {
    pub flags: Flags,
    pub sequence: u32,
    pub acknowledgment: u32,
    pub payload: &'a [u8],
}

impl Tcp<'_> {
    pub const fn new(flags: Flags) -> Self {
        Self { flags, sequence: 1_000, acknowledgment: 0, payload: &[] }
    }

    pub const fn acknowledging(mut self, acknowledgment: u32) -> Self {
        self.acknowledgment = acknowledgment;
        self
    }

    pub const fn sequence(mut self, sequence: u32) -> Self {
        self.sequence = sequence;
        self
    }
}

pub const TTL: u8 = 64;

/// Loopback's own address is all zeros: anything else would be for another host.
fn builder(source: IpAddr, destination: IpAddr) -> PacketBuilderStep<etherparse::IpHeaders> {
    let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [0; 6]);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            ethernet.ipv4(source.octets(), destination.octets(), TTL)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            ethernet.ipv6(source.octets(), destination.octets(), TTL)
        }
        _ => panic!("{source} and {destination} are of different families"),
    }
}

pub fn tcp(source: SocketAddr, destination: SocketAddr, segment: &Tcp<'_>) -> Vec<u8> {
    let mut step = builder(source.ip(), destination.ip()).tcp(
        source.port(),
        destination.port(),
        segment.sequence,
        64_000,
    );
    let Flags { syn, ack, fin, rst } = segment.flags;
    if syn {
        step = step.syn();
    }
    if ack {
        step = step.ack(segment.acknowledgment);
    }
    if fin {
        step = step.fin();
    }
    if rst {
        step = step.rst();
    }
    let mut frame = Vec::new();
    step.write(&mut frame, segment.payload).expect("a segment of this size");
    frame
}

pub fn udp(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    builder(source.ip(), destination.ip())
        .udp(source.port(), destination.port())
        .write(&mut frame, payload)
        .expect("a datagram of this size");
    frame
}

/// The frame with zero bytes up to Ethernet's smallest, as a card receives it.
pub fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(frame.len().max(60), 0);
    frame
}

/// The error that a router or host at `sender` sends to the source of the IP packet in `quoted` (without Ethernet header).
pub fn icmp_error(sender: IpAddr, receiver: IpAddr, icmp_type: u8, code: u8, quoted: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut payload = vec![icmp_type, code, 0, 0, 0, 0, 5, 0x14];
    payload.extend_from_slice(quoted);
    let step = builder(sender, receiver);
    match (sender, receiver) {
        (IpAddr::V4(_), _) => {
            let sum = Sum16BitWords::new().add_slice(&payload).ones_complement();
            payload[2..4].copy_from_slice(&sum.to_ne_bytes());
            step.write(&mut frame, etherparse::ip_number::ICMP, &payload)
        }
        (IpAddr::V6(sender), IpAddr::V6(receiver)) => {
            let sum = pseudo_v6(sender.octets(), receiver.octets(), payload.len(), 58)
                .add_slice(&payload)
                .ones_complement();
            payload[2..4].copy_from_slice(&sum.to_ne_bytes());
            step.write(&mut frame, etherparse::ip_number::IPV6_ICMP, &payload)
        }
        _ => panic!("different families"),
    }
    .expect("an error of this size");
    frame
}

fn pseudo_v6(source: [u8; 16], destination: [u8; 16], length: usize, proto: u8) -> Sum16BitWords {
    Sum16BitWords::new()
        .add_16bytes(source)
        .add_16bytes(destination)
        .add_4bytes(u32::try_from(length).expect("a short packet").to_be_bytes())
        .add_2bytes([0, proto])
}

/// Where a frame goes, with all of its checksums found right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub hops: u8,
}

fn addresses(net: &NetSlice<'_>) -> (IpAddr, IpAddr, u8) {
    match net {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.calc_header_checksum(), header.header_checksum, "IPv4 header checksum");
            (header.source.into(), header.destination.into(), header.time_to_live)
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            (header.source().into(), header.destination().into(), header.hop_limit())
        }
        NetSlice::Arp(_) => panic!("an ARP packet"),
    }
}

/// Takes a TCP or UDP frame apart; panics where a checksum is wrong. A UDP checksum of 0 must be meant.
pub fn ends(frame: &[u8]) -> Ends {
    let sliced = SlicedPacket::from_ethernet(frame).expect("a whole frame");
    let net = sliced.net.as_ref().expect("an IP packet");
    let (source, destination, hops) = addresses(net);
    let (source_port, destination_port) = match sliced.transport.as_ref().expect("a transport header") {
        TransportSlice::Tcp(tcp) => {
            let header = tcp.to_header();
            let sum = match net {
                NetSlice::Ipv4(ip) => header.calc_checksum_ipv4(&ip.header().to_header(), tcp.payload()),
                NetSlice::Ipv6(ip) => header.calc_checksum_ipv6(&ip.header().to_header(), tcp.payload()),
                NetSlice::Arp(_) => panic!("an ARP packet"),
            };
            assert_eq!(sum.expect("a segment of this size"), header.checksum, "TCP checksum");
            (header.source_port, header.destination_port)
        }
        TransportSlice::Udp(udp) => {
            let header = udp.to_header();
            let sum = match net {
                NetSlice::Ipv4(ip) => header.calc_checksum_ipv4(&ip.header().to_header(), udp.payload()),
                NetSlice::Ipv6(ip) => header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload()),
                NetSlice::Arp(_) => panic!("an ARP packet"),
            };
            if header.checksum != 0 {
                assert_eq!(sum.expect("a datagram of this size"), header.checksum, "UDP checksum");
            }
            (header.source_port, header.destination_port)
        }
        other => panic!("neither TCP nor UDP: {other:?}"),
    };
    Ends {
        source: SocketAddr::new(source, source_port),
        destination: SocketAddr::new(destination, destination_port),
        hops,
    }
}

/// An ICMP error taken apart, its checksum found right: outer addresses, and the quoted packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcmpError {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub icmp_type: u8,
    pub code: u8,
    pub quoted: Vec<u8>,
}

pub fn icmp(frame: &[u8]) -> IcmpError {
    let sliced = SlicedPacket::from_ethernet(frame).expect("a whole frame");
    let net = sliced.net.as_ref().expect("an IP packet");
    let (source, destination, _) = addresses(net);
    let bytes = match (net, sliced.transport.as_ref().expect("an ICMP message")) {
        (NetSlice::Ipv4(_), TransportSlice::Icmpv4(icmp)) => {
            check_icmp(Sum16BitWords::new(), Icmpv4Slice::slice(icmp));
            Icmpv4Slice::slice(icmp)
        }
        (NetSlice::Ipv6(ip), TransportSlice::Icmpv6(icmp)) => {
            let bytes = Icmpv6Slice::slice(icmp);
            let header = ip.header();
            check_icmp(pseudo_v6(header.source(), header.destination(), bytes.len(), 58), bytes);
            bytes
        }
        other => panic!("not ICMP: {other:?}"),
    };
    IcmpError { source, destination, icmp_type: bytes[0], code: bytes[1], quoted: bytes[8..].to_vec() }
}

fn check_icmp(pseudo: Sum16BitWords, bytes: &[u8]) {
    assert_eq!(pseudo.add_slice(bytes).ones_complement(), 0, "ICMP checksum");
}

/// The IP packet of a frame.
pub fn ip_packet(frame: &[u8]) -> &[u8] {
    &frame[14..]
}
