//! ICMP errors about packets of our flows, in both directions and families.

use aya_ebpf::bindings::BPF_F_PSEUDO_HDR;
use gateway_common::abi::{Counter, FlowValue};
use gateway_common::icmp::{self, CHECKSUM_OFFSET, QUOTE_OFFSET, QuoteV4, QuoteV6};
use gateway_common::parse::{Packet, Part};
use gateway_common::rewrite;

use crate::counters::count;
use crate::flows;
use crate::packet::Frame;
use crate::send::{HalfWritten, drop_half_written, redirect};

/// Translates an error that quotes a packet of ours and sends it to whom the packet came from; `None`: not one.
#[inline(always)]
pub(crate) fn v4(frame: Frame, packet: &Packet) -> Option<i32> {
    let [icmp_type, ..] = frame.load::<[u8; 4]>(packet.l4_offset)?;
    if packet.part != Part::Whole || !icmp::is_error_v4(icmp_type) {
        return None;
    }
    let mut quote = quote::<QuoteV4>(frame, packet)?;
    let value = flows::peek(&icmp::key_v4(&quote)?)?;
    let difference = icmp::translate_v4(&mut quote, &value);
    Some(finish(&value, store(frame, packet, &value, &quote, difference)))
}

/// As [`v4`].
#[inline(always)]
pub(crate) fn v6(frame: Frame, packet: &Packet) -> Option<i32> {
    let [icmp_type, ..] = frame.load::<[u8; 4]>(packet.l4_offset)?;
    if packet.part != Part::Whole || !icmp::is_error_v6(icmp_type) {
        return None;
    }
    let mut quote = quote::<QuoteV6>(frame, packet)?;
    let value = flows::peek(&icmp::key_v6(&quote)?)?;
    let difference = icmp::translate_v6(&mut quote, &value);
    // ICMPv6's checksum covers the addresses.
    let pseudo = rewrite::pseudo_difference(&packet.key, value.source, value.destination);
    let checksum = packet.l4_offset + CHECKSUM_OFFSET;
    let written = frame
        .change_checksum(checksum, pseudo, u64::from(BPF_F_PSEUDO_HDR))
        .and_then(|()| store(frame, packet, &value, &quote, difference));
    Some(finish(&value, written))
}

/// The quoted packet, if the message holds as much of it as is needed.
#[inline(always)]
fn quote<T: Copy>(frame: Frame, packet: &Packet) -> Option<T> {
    if packet.l4_length < QUOTE_OFFSET + size_of::<T>() as u32 {
        return None;
    }
    frame.load::<T>(packet.l4_offset + QUOTE_OFFSET)
}

#[inline(always)]
fn store<T>(
    frame: Frame,
    packet: &Packet,
    value: &FlowValue,
    quote: &T,
    difference: u32,
) -> Result<(), HalfWritten> {
    frame.change_checksum(packet.l4_offset + CHECKSUM_OFFSET, difference, 0)?;
    frame.store(packet.l4_offset + QUOTE_OFFSET, quote, 0)?;
    // The error's sender may be a router on the way: its address would tell the client nothing but our inside.
    frame.store_addresses(packet, value.source, value.destination)
}

#[inline(always)]
fn finish(value: &FlowValue, written: Result<(), HalfWritten>) -> i32 {
    if written.is_err() {
        return drop_half_written();
    }
    count(Counter::IcmpErrors);
    redirect(value.ifindex)
}
