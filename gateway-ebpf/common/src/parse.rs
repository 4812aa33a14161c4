//! Headers, and what is read out of them before anything is decided. Only what the programs can translate is parsed; all
//! else is [`None`] and left to the stack: IPv4 options, IPv6 extension headers but for a fragment header, lengths that do
//! not fit together.
//!
//! Header types are loaded whole into aligned memory, so that fields are read without a bounds check each.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::{FlowKey, TCP, UDP};
use crate::address::Address;

pub const ETHERNET_LENGTH: u32 = 14;
pub const ETHERTYPE_IPV4: u16 = 0x0800;
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
pub const ICMP: u8 = 1;
pub const ICMPV6: u8 = 58;
const IPV6_FRAGMENT: u8 = 44;

/// Largest length that an IP header can state; a coalesced packet above it states 0.
const LENGTH_MAX: u32 = u16::MAX as u32;

/// An IPv4 header without options, addresses and all in network byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Ipv4Header {
    pub version_length: u8,
    pub service: u8,
    pub total_length_be: u16,
    pub identification_be: u16,
    pub fragment_be: u16,
    /// Time to live, protocol, header checksum.
    pub hop_word: u32,
    pub source_be: u32,
    pub destination_be: u32,
}

/// An IPv6 header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Ipv6Header {
    pub version_class_label: u32,
    /// Payload length, next header, hop limit.
    pub hop_word: u32,
    pub source: Address,
    pub destination: Address,
}

/// IPv6's fragment header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FragmentHeader {
    pub next_header: u8,
    pub reserved: u8,
    pub offset_be: u16,
    pub identification: u32,
}

/// A TCP header without options.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct TcpHeader {
    pub source_port_be: u16,
    pub destination_port_be: u16,
    pub sequence_be: u32,
    pub acknowledgment_be: u32,
    /// Upper half: length of the header in words.
    pub data_offset: u8,
    /// Bits of [`TcpFlags`].
    pub flags: u8,
    pub window_be: u16,
    pub checksum: u16,
    pub urgent_be: u16,
}

/// A UDP header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct UdpHeader {
    pub source_port_be: u16,
    pub destination_port_be: u16,
    pub length_be: u16,
    pub checksum: u16,
}

/// Bits of [`TcpHeader::flags`].
pub struct TcpFlags;

impl TcpFlags {
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 2;
    pub const RST: u8 = 4;
    pub const ACK: u8 = 16;
}

/// Whether and which part of a datagram a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Whole,
    /// Has the ports.
    First,
    /// Has none.
    Later,
}

/// What is known of a packet from its IP header. `key` has no ports yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub key: FlowKey,
    pub is_v4: bool,
    /// IPv4: time to live, protocol, checksum. IPv6: payload length, next header, hop limit.
    pub hop_word: u32,
    /// Where the transport header starts, from the start of the frame.
    pub l4_offset: u32,
    /// Bytes of the IP payload from there on; the frame may be padded beyond them.
    pub l4_length: u32,
    pub part: Part,
    pub identification: u32,
}

impl Packet {
    /// Hops left, this one included.
    #[inline(always)]
    pub fn hop_limit(&self) -> u8 {
        let [first, _, _, last] = self.hop_word.to_ne_bytes();
        if self.is_v4 { first } else { last }
    }
}

#[inline(always)]
const fn key(source: Address, destination: Address, proto: u8) -> FlowKey {
    FlowKey { source, destination, source_port_be: 0, destination_port_be: 0, proto, reserved: [0; 3] }
}

/// `frame_length` is that of the whole frame, coalesced segments included.
#[inline(always)]
pub fn ipv4(header: &Ipv4Header, frame_length: u32) -> Option<Packet> {
    const HEADER: u32 = size_of::<Ipv4Header>() as u32;
    const MORE_FRAGMENTS: u16 = 0x2000;
    const OFFSET: u16 = 0x1fff;
    if header.version_length != 0x45 {
        return None;
    }
    let available = frame_length.checked_sub(ETHERNET_LENGTH)?;
    let mut length = u32::from(u16::from_be(header.total_length_be));
    if length == 0 && available > LENGTH_MAX {
        length = available;
    }
    if length < HEADER || length > available {
        return None;
    }
    let fragment = u16::from_be(header.fragment_be);
    let part = match (fragment & OFFSET, fragment & MORE_FRAGMENTS) {
        (0, 0) => Part::Whole,
        (0, _) => Part::First,
        _ => Part::Later,
    };
    let [_, proto, _, _] = header.hop_word.to_ne_bytes();
    Some(Packet {
        key: key(
            Address::from_v4_word(header.source_be),
            Address::from_v4_word(header.destination_be),
            proto,
        ),
        is_v4: true,
        hop_word: header.hop_word,
        l4_offset: ETHERNET_LENGTH + HEADER,
        l4_length: length - HEADER,
        part,
        identification: u32::from(header.identification_be),
    })
}

/// Whether a fragment header follows and [`ipv6`] is to be given it.
#[inline(always)]
pub fn has_fragment_header(header: &Ipv6Header) -> bool {
    let [_, _, next_header, _] = header.hop_word.to_ne_bytes();
    next_header == IPV6_FRAGMENT
}

/// `frame_length` is that of the whole frame, coalesced segments included.
#[inline(always)]
pub fn ipv6(header: &Ipv6Header, fragment: Option<&FragmentHeader>, frame_length: u32) -> Option<Packet> {
    const HEADER: u32 = size_of::<Ipv6Header>() as u32;
    const FRAGMENT_HEADER: u32 = size_of::<FragmentHeader>() as u32;
    let [version, ..] = header.version_class_label.to_ne_bytes();
    if version >> 4 != 6 {
        return None;
    }
    let available = frame_length.checked_sub(ETHERNET_LENGTH + HEADER)?;
    let [high, low, next_header, _] = header.hop_word.to_ne_bytes();
    let mut length = u32::from(u16::from_be_bytes([high, low]));
    if length == 0 && available > LENGTH_MAX {
        length = available;
    }
    if length > available {
        return None;
    }
    let mut packet = Packet {
        key: key(header.source, header.destination, next_header),
        is_v4: false,
        hop_word: header.hop_word,
        l4_offset: ETHERNET_LENGTH + HEADER,
        l4_length: length,
        part: Part::Whole,
        identification: 0,
    };
    if let Some(fragment) = fragment {
        let offset_flags = u16::from_be(fragment.offset_be);
        packet.part = match (offset_flags >> 3, offset_flags & 1) {
            (0, 0) => Part::Whole,
            (0, _) => Part::First,
            _ => Part::Later,
        };
        packet.key.proto = fragment.next_header;
        packet.identification = fragment.identification;
        packet.l4_offset += FRAGMENT_HEADER;
        packet.l4_length = length.checked_sub(FRAGMENT_HEADER)?;
    }
    Some(packet)
}

/// Whether the TCP header fits the packet. A first fragment may hold less than the segment, but not less than its header.
#[inline(always)]
pub fn tcp_is_sound(header: &TcpHeader, packet: &Packet) -> bool {
    let length = u32::from(header.data_offset >> 4) * 4;
    packet.key.proto == TCP && length >= size_of::<TcpHeader>() as u32 && length <= packet.l4_length
}

/// Whether the UDP header fits the packet; a first fragment holds less than the datagram.
#[inline(always)]
pub fn udp_is_sound(header: &UdpHeader, packet: &Packet) -> bool {
    let header_length = size_of::<UdpHeader>() as u32;
    let length = u32::from(u16::from_be(header.length_be));
    // A coalesced packet states the length of one of its datagrams.
    packet.key.proto == UDP
        && packet.l4_length >= header_length
        && length >= header_length
        && (length <= packet.l4_length || matches!(packet.part, Part::First))
}

#[cfg(test)]
mod tests;
