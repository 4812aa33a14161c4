//! Fragments follow their first, which alone has the ports.
//!
//! A client's fragmented datagrams are left to the stack as a whole: it puts them together and the relay serves them.
//! Translating them here would lose each datagram whose fragments arrive out of order. Nobody but us can serve fragments
//! of a backend, or of an established connection.

use aya_ebpf::bindings::BPF_ANY;
use gateway_common::abi::{Counter, FlowValue, FragmentKey, FragmentValue, UDP};
use gateway_common::flow::{Flags, seconds_since};
use gateway_common::parse::Packet;

use crate::counters::count;
use crate::flows::now_s;
use crate::packet::Frame;
use crate::send::{drop_half_written, redirect};
use crate::tables::FRAGMENTS;

/// As long as Linux waits for the fragments of a datagram (`net.ipv4.ipfrag_time`).
const LIFETIME_S: u32 = 30;

#[inline(always)]
fn key(packet: &Packet) -> FragmentKey {
    FragmentKey {
        source: packet.key.source,
        destination: packet.key.destination,
        identification: packet.identification,
        proto: packet.key.proto,
        reserved: [0; 3],
    }
}

/// Prepares for the fragments after this first one. False: the datagram is left to the stack.
#[inline(always)]
pub(crate) fn admit_first(packet: &Packet, value: Option<&FlowValue>) -> bool {
    let key = key(packet);
    let Some(value) = value else {
        // An earlier datagram of ours may have had the same identification.
        _ = FRAGMENTS.remove(&key);
        return false;
    };
    if packet.key.proto == UDP && value.flags & Flags::REVERSE == 0 {
        count(Counter::LeftToStack);
        return false;
    }
    let entry = FragmentValue {
        source: value.source,
        destination: value.destination,
        ifindex: value.ifindex,
        last_seen_s: now_s(),
    };
    FRAGMENTS.insert(&key, &entry, u64::from(BPF_ANY)).is_ok()
}

/// Translates a fragment that has no ports; `None`: left to the stack.
#[inline(always)]
pub(crate) fn later(frame: Frame, packet: &Packet) -> Option<i32> {
    let Some(found) = FRAGMENTS.get_ptr(&key(packet)) else {
        count(Counter::FragmentsUnknown);
        return None;
    };
    // SAFETY: the kernel keeps the element's memory while the program runs; copied at once.
    let value = unsafe { *found };
    if seconds_since(now_s(), value.last_seen_s) >= LIFETIME_S {
        count(Counter::FragmentsUnknown);
        return None;
    }
    if frame.store_addresses(packet, value.source, value.destination).is_err() {
        return Some(drop_half_written());
    }
    count(Counter::Fragments);
    Some(redirect(value.ifindex))
}
