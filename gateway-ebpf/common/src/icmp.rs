//! ICMP errors about packets of our flows. An error quotes the packet that caused it, as far as we or a router after us
//! had sent it: at least its IP header and 8 bytes (RFC 792), which hold the ports. Whoever receives the error must
//! find its own packet in it, so the quote is translated back, and the error's own addresses with it.
//!
//! **Not here:** errors that quote IPv4 options, IPv6 extension headers or later fragments: left to the stack.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::{FlowKey, FlowValue, TCP, UDP};
use crate::address::Address;
use crate::checksum;
use crate::parse::{Ipv4Header, Ipv6Header};
use crate::rewrite::port_word;

/// Offset of the checksum in the ICMP header, both families.
pub const CHECKSUM_OFFSET: u32 = 2;
/// Offset of the quoted packet in the ICMP message, both families.
pub const QUOTE_OFFSET: u32 = 8;

/// The first 8 bytes of the quoted TCP or UDP header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct QuotedPorts {
    pub source_port_be: u16,
    pub destination_port_be: u16,
    /// UDP: length. TCP: half of the sequence number.
    pub third: u16,
    /// UDP: checksum. TCP: half of the sequence number.
    pub fourth: u16,
}

/// Quoted IPv4 packet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct QuoteV4 {
    pub ip: Ipv4Header,
    pub ports: QuotedPorts,
}

/// Quoted IPv6 packet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct QuoteV6 {
    pub ip: Ipv6Header,
    pub ports: QuotedPorts,
}

/// Whether an ICMP type is an error that quotes a packet: destination unreachable (with "fragmentation needed"), time
/// exceeded, parameter problem.
#[inline(always)]
pub const fn is_error_v4(icmp_type: u8) -> bool {
    matches!(icmp_type, 3 | 11 | 12)
}

/// The same for ICMPv6: destination unreachable, packet too big, time exceeded, parameter problem.
#[inline(always)]
pub const fn is_error_v6(icmp_type: u8) -> bool {
    matches!(icmp_type, 1..=4)
}

/// The key of the packets that go the other way than the quoted one: the entry that tells what the quoted one was.
#[inline(always)]
pub fn key_v4(quote: &QuoteV4) -> Option<FlowKey> {
    const OFFSET: u16 = 0x1fff;
    let [_, proto, _, _] = quote.ip.hop_word.to_ne_bytes();
    if quote.ip.version_length != 0x45 || u16::from_be(quote.ip.fragment_be) & OFFSET != 0 {
        return None;
    }
    let source = Address::from_v4_word(quote.ip.destination_be);
    let destination = Address::from_v4_word(quote.ip.source_be);
    key(source, destination, &quote.ports, proto)
}

/// As [`key_v4`].
#[inline(always)]
pub fn key_v6(quote: &QuoteV6) -> Option<FlowKey> {
    let [version, ..] = quote.ip.version_class_label.to_ne_bytes();
    let [_, _, proto, _] = quote.ip.hop_word.to_ne_bytes();
    if version >> 4 != 6 {
        return None;
    }
    key(quote.ip.destination, quote.ip.source, &quote.ports, proto)
}

#[inline(always)]
fn key(source: Address, destination: Address, ports: &QuotedPorts, proto: u8) -> Option<FlowKey> {
    if proto != TCP && proto != UDP {
        return None;
    }
    Some(FlowKey {
        source,
        destination,
        source_port_be: ports.destination_port_be,
        destination_port_be: ports.source_port_be,
        proto,
        reserved: [0; 3],
    })
}

/// Turns the quote into what the receiver of the error had sent, and returns the difference that this makes to the ICMP
/// checksum. `value` is the entry of [`key_v4`].
#[inline(always)]
pub fn translate_v4(quote: &mut QuoteV4, value: &FlowValue) -> u32 {
    let [.., source] = value.destination.words();
    let [.., destination] = value.source.words();
    let addresses =
        checksum::difference([quote.ip.source_be, quote.ip.destination_be], [source, destination]);
    quote.ip.source_be = source;
    quote.ip.destination_be = destination;
    let [hops, proto, high, low] = quote.ip.hop_word.to_ne_bytes();
    let old_checksum = u16::from_ne_bytes([high, low]);
    let new_checksum = checksum::apply(old_checksum, addresses);
    let [high, low] = new_checksum.to_ne_bytes();
    quote.ip.hop_word = u32::from_ne_bytes([hops, proto, high, low]);
    let header =
        checksum::difference([checksum::half_word(old_checksum)], [checksum::half_word(new_checksum)]);
    checksum::combine(checksum::combine(addresses, header), ports(&mut quote.ports, proto, value, addresses))
}

/// As [`translate_v4`].
#[inline(always)]
pub fn translate_v6(quote: &mut QuoteV6, value: &FlowValue) -> u32 {
    let addresses = checksum::combine(
        checksum::difference(quote.ip.source.words(), value.destination.words()),
        checksum::difference(quote.ip.destination.words(), value.source.words()),
    );
    quote.ip.source = value.destination;
    quote.ip.destination = value.source;
    let [_, _, proto, _] = quote.ip.hop_word.to_ne_bytes();
    checksum::combine(addresses, ports(&mut quote.ports, proto, value, addresses))
}

#[inline(always)]
fn ports(quoted: &mut QuotedPorts, proto: u8, value: &FlowValue, addresses: u32) -> u32 {
    let difference = checksum::difference(
        [port_word(quoted.source_port_be, quoted.destination_port_be)],
        [port_word(value.destination_port_be, value.source_port_be)],
    );
    quoted.source_port_be = value.destination_port_be;
    quoted.destination_port_be = value.source_port_be;
    // TCP's checksum is past the 8 bytes that an error must quote; nobody checks that of a cut packet.
    if proto != UDP || quoted.fourth == 0 {
        return difference;
    }
    let old = quoted.fourth;
    quoted.fourth = match checksum::apply(old, checksum::combine(addresses, difference)) {
        // 0 would mean that there is none.
        0 => 0xffff,
        new => new,
    };
    checksum::combine(
        difference,
        checksum::difference([checksum::half_word(old)], [checksum::half_word(quoted.fourth)]),
    )
}

#[cfg(test)]
mod tests;
