//! What a translated packet's headers become, and by what difference its checksums change.
//!
//! **Not here:** storing them; see the programs for why the kernel's helpers are called with the flags they are.

use crate::abi::{FlowKey, FlowValue};
use crate::address::Address;
use crate::checksum;
use crate::parse::Packet;

/// Offset from the start of the IP header of what [`ipv4`] returns.
pub const IPV4_OFFSET: u32 = 8;
/// Offset from the start of the IP header of what [`ipv6`] returns.
pub const IPV6_OFFSET: u32 = 4;

/// The IPv4 header from its time to live on: with new addresses, one hop less, and the checksum that follows.
#[inline(always)]
pub fn ipv4(packet: &Packet, source: Address, destination: Address) -> [u32; 3] {
    let [.., old_source] = packet.key.source.words();
    let [.., old_destination] = packet.key.destination.words();
    let [.., source] = source.words();
    let [.., destination] = destination.words();
    let [hops, proto, high, low] = packet.hop_word.to_ne_bytes();
    let one_less = hops.saturating_sub(1);
    let difference = checksum::difference(
        [u32::from_ne_bytes([hops, proto, 0, 0]), old_source, old_destination],
        [u32::from_ne_bytes([one_less, proto, 0, 0]), source, destination],
    );
    let [high, low] = checksum::apply(u16::from_ne_bytes([high, low]), difference).to_ne_bytes();
    [u32::from_ne_bytes([one_less, proto, high, low]), source, destination]
}

/// The IPv6 header from its payload length on: with new addresses and one hop less.
#[inline(always)]
pub fn ipv6(packet: &Packet, source: Address, destination: Address) -> [u32; 9] {
    let [high, low, next_header, hops] = packet.hop_word.to_ne_bytes();
    let word = u32::from_ne_bytes([high, low, next_header, hops.saturating_sub(1)]);
    let [a, b, c, d] = source.words();
    let [e, f, g, h] = destination.words();
    [word, a, b, c, d, e, f, g, h]
}

/// Difference of the pseudo header.
#[inline(always)]
pub fn pseudo_difference(key: &FlowKey, source: Address, destination: Address) -> u32 {
    checksum::combine(
        checksum::difference(key.source.words(), source.words()),
        checksum::difference(key.destination.words(), destination.words()),
    )
}

/// The word of both ports as it lies in the packet.
#[inline(always)]
pub const fn port_word(source_port_be: u16, destination_port_be: u16) -> u32 {
    let [a, b] = source_port_be.to_ne_bytes();
    let [c, d] = destination_port_be.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

/// Difference of the ports.
#[inline(always)]
pub fn port_difference(key: &FlowKey, value: &FlowValue) -> u32 {
    checksum::difference(
        [port_word(key.source_port_be, key.destination_port_be)],
        [port_word(value.source_port_be, value.destination_port_be)],
    )
}
