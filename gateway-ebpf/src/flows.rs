//! Finding, making and moving the two entries of a flow.

use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use gateway_common::abi::{
    BackendValue, Counter, FlowKey, FlowValue, ListenerKey, NO_BACKEND, SLOTS_PER_CHUNK, TCP,
};
use gateway_common::flow::{self, Flags};
use gateway_common::parse::{Packet, Part};
use gateway_common::{hash, maglev, port};

use crate::counters::{count, flow_opened};
use crate::packet::Frame;
use crate::tables::{BACKENDS, CONFIG, FLOWS, HALF_OPEN, LISTENERS, SLOTS};

/// What a flow's state depends on. All 0 for UDP.
#[derive(Clone, Copy, Default)]
pub(crate) struct Segment {
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
}

#[inline(always)]
pub(crate) fn now_s() -> u32 {
    const NANOSECONDS: u64 = 1_000_000_000;
    // SAFETY: a helper without arguments. The clock is CLOCK_MONOTONIC.
    (unsafe { bpf_ktime_get_ns() } / NANOSECONDS) as u32
}

/// The entry by which `packet` is translated, its state brought up to date, or a new one; `None`: not ours.
#[inline(always)]
pub(crate) fn entry(frame: Frame, packet: &Packet, segment: &Segment) -> Option<FlowValue> {
    let now_s = now_s();
    if let Some(found) = FLOWS.get_ptr_mut(&packet.key) {
        // SAFETY: the kernel keeps the element's memory while the program runs; racing CPUs write whole words.
        if let Some(value) = established(&packet.key, unsafe { &mut *found }, segment, now_s) {
            return Some(value);
        }
    } else if let Some(found) = HALF_OPEN.get_ptr_mut(&packet.key) {
        // SAFETY: as above.
        if let Some(value) = half_open(&packet.key, unsafe { &mut *found }, segment, now_s) {
            return Some(value);
        }
    }
    if packet.part == Part::Whole { open(frame, &packet.key, segment, now_s) } else { None }
}

/// An entry as it is, for packets that do not change it.
#[inline(always)]
pub(crate) fn peek(key: &FlowKey) -> Option<FlowValue> {
    let found = match FLOWS.get_ptr(key) {
        Some(found) => found,
        None => HALF_OPEN.get_ptr(key)?,
    };
    // SAFETY: the kernel keeps the element's memory while the program runs.
    Some(unsafe { *found })
}

/// `None`: the flow has ended and the packet starts a new one.
#[inline(always)]
fn established(key: &FlowKey, value: &mut FlowValue, segment: &Segment, now_s: u32) -> Option<FlowValue> {
    if key.proto == TCP {
        if flow::opens(segment.flags) && value.flags & Flags::REVERSE == 0 {
            let other_key = flow::mirror_key(key, value);
            // SAFETY: as in `entry`.
            let lives =
                FLOWS.get_ptr(&other_key).is_some_and(|other| !flow::restarts(value, unsafe { &*other }));
            if !lives {
                remove_established(key, &other_key);
                return None;
            }
        }
        let flags = flow::after_segment(value.flags, segment.flags);
        if flags != value.flags {
            value.flags = flags;
        }
    }
    // Written once a second only, so that busy flows do not move the cache line between CPUs.
    if value.last_seen_s != now_s {
        value.last_seen_s = now_s;
    }
    Some(*value)
}

#[inline(always)]
fn remove_established(key: &FlowKey, other_key: &FlowKey) {
    // Absent already is as well.
    _ = FLOWS.remove(key);
    _ = FLOWS.remove(other_key);
}

#[inline(always)]
fn remove_half_open(key: &FlowKey, other_key: &FlowKey) {
    // Absent already is as well.
    _ = HALF_OPEN.remove(key);
    _ = HALF_OPEN.remove(other_key);
}

/// `None`: what the entry stood for is over and the packet may start a new flow.
#[inline(always)]
fn half_open(key: &FlowKey, value: &mut FlowValue, segment: &Segment, now_s: u32) -> Option<FlowValue> {
    let other_key = flow::mirror_key(key, value);
    if value.flags & Flags::REVERSE != 0 {
        return Some(backend_answers(key, value, &other_key, segment, now_s));
    }
    if key.proto == TCP && !flow::opens(segment.flags) {
        value.flags = flow::after_segment(value.flags, segment.flags);
        value.last_seen_s = now_s;
        let entry = *value;
        if flow::completes_handshake(&entry, segment.flags, segment.acknowledgment) {
            return promote(key, entry, &other_key);
        }
        return Some(entry);
    }
    // A SYN again, or a datagram.
    if !flow::is_live_half_open(value, now_s) || BACKENDS.get_ptr(&value.backend).is_none() {
        remove_half_open(key, &other_key);
        return None;
    }
    value.last_seen_s = now_s;
    let entry = *value;
    if key.proto == TCP {
        // The other entry may have been evicted.
        if HALF_OPEN.get_ptr(&other_key).is_none() {
            _ = HALF_OPEN.insert(&other_key, &flow::mirror(key, &entry), u64::from(BPF_ANY));
        }
        return Some(entry);
    }
    promote(key, entry, &other_key)
}

/// A packet of the backend: keeps the client's entry alive, or makes it again if it was evicted.
#[inline(always)]
fn backend_answers(
    key: &FlowKey,
    value: &mut FlowValue,
    other_key: &FlowKey,
    segment: &Segment,
    now_s: u32,
) -> FlowValue {
    value.flags = flow::after_segment(value.flags, segment.flags);
    value.last_seen_s = now_s;
    let entry = *value;
    if HALF_OPEN.get_ptr(other_key).is_none() {
        _ = HALF_OPEN.insert(other_key, &flow::mirror(key, &entry), u64::from(BPF_ANY));
    }
    if let Some(other) = HALF_OPEN.get_ptr_mut(other_key) {
        // SAFETY: as in `entry`.
        let other = unsafe { &mut *other };
        other.last_seen_s = now_s;
        if value.flags & Flags::RESET != 0 {
            // Refused: the client's next SYN is a new flow.
            other.flags |= Flags::RESET;
        }
        if flow::answers(segment.flags) {
            other.answer_sequence = segment.sequence;
            other.flags |= Flags::ANSWERED;
        }
    }
    entry
}

/// Moves both entries to the established table: first the backend's, so that the client's is never there alone. `None`:
/// another flow has taken the source port since.
#[inline(always)]
fn promote(key: &FlowKey, mut entry: FlowValue, other_key: &FlowKey) -> Option<FlowValue> {
    entry.flags &= !Flags::ANSWERED;
    entry.answer_sequence = 0;
    let mut other = flow::mirror(key, &entry);
    if let Some(half_open) = HALF_OPEN.get_ptr(other_key) {
        // SAFETY: as in `entry`.
        other.flags = unsafe { (*half_open).flags };
    }
    if FLOWS.insert(other_key, &other, u64::from(BPF_NOEXIST)).is_err() {
        let Some(holder) = FLOWS.get_ptr(other_key) else {
            count(Counter::TableFull);
            return Some(entry);
        };
        // SAFETY: as in `entry`.
        let holder = unsafe { &*holder };
        if holder.destination != key.source || holder.destination_port_be != key.source_port_be {
            remove_half_open(key, other_key);
            return None;
        }
    }
    if FLOWS.insert(key, &entry, u64::from(BPF_NOEXIST)).is_err() && FLOWS.get_ptr(key).is_none() {
        _ = FLOWS.remove(other_key);
        count(Counter::TableFull);
        return Some(entry);
    }
    remove_half_open(key, other_key);
    count(Counter::Promoted);
    Some(entry)
}

/// A new half-open flow, if the packet is the first of one and there is a listener for it.
#[inline(always)]
fn open(frame: Frame, key: &FlowKey, segment: &Segment, now_s: u32) -> Option<FlowValue> {
    if key.proto == TCP && !flow::opens(segment.flags) {
        return None;
    }
    let listener_key = ListenerKey {
        address: key.destination,
        port_be: key.destination_port_be,
        proto: key.proto,
        reserved: 0,
    };
    // SAFETY: replaced as a whole, and copied at once.
    let listener = unsafe { *LISTENERS.get_ptr(&listener_key)? };
    let client_port = u16::from_be(key.source_port_be);
    let vip_port = u16::from_be(key.destination_port_be);
    let flow_hash = hash::flow(&key.source, client_port, &key.destination, vip_port, key.proto);
    let slot = maglev::slot(flow_hash, listener.n_slots)?;
    let Some((backend_id, backend)) = backend(listener.first_chunk, slot) else {
        count(Counter::Refused);
        return None;
    };
    let mut entry = FlowValue {
        source: backend.source,
        destination: backend.address,
        source_port_be: 0,
        destination_port_be: backend.port_be,
        ifindex: backend.ifindex,
        reverse_ifindex: frame.ifindex(),
        backend: backend_id,
        service: listener.service,
        flags: 0,
        last_seen_s: now_s,
        answer_sequence: 0,
    };
    let client_hash = hash::flow(&key.source, 0, &key.destination, vip_port, key.proto);
    if !reserve_port(key, &mut entry, client_hash) {
        count(Counter::NoPort);
        return None;
    }
    flow_opened(listener.service);
    Some(entry)
}

#[inline(always)]
fn backend(first_chunk: u32, slot: u32) -> Option<(u32, BackendValue)> {
    let chunk = SLOTS.get_ptr(first_chunk.wrapping_add(slot / SLOTS_PER_CHUNK))?;
    // SAFETY: the index is below the array's length by the remainder, and elements are only ever overwritten.
    let id = unsafe { *(&raw const (*chunk).backends).cast::<u32>().add((slot % SLOTS_PER_CHUNK) as usize) };
    if id == NO_BACKEND {
        return None;
    }
    // SAFETY: replaced as a whole, and copied at once.
    Some((id, unsafe { *BACKENDS.get_ptr(&id)? }))
}

/// Finds a source port that no flow to this backend uses and enters the flow as half-open; false: none found.
#[inline(always)]
fn reserve_port(key: &FlowKey, entry: &mut FlowValue, client_hash: u32) -> bool {
    let Some(config) = CONFIG.get_ptr(0) else {
        return false;
    };
    // SAFETY: the only element of an array, overwritten in place; both numbers are checked by `candidate`.
    let (first, count) = unsafe { ((*config).source_port_first, (*config).source_port_count) };
    let client_port = u16::from_be(key.source_port_be);
    let mut other_key = flow::mirror_key(key, entry);
    // Does not hold the port: it is what the backend's packets are turned into.
    let other = flow::mirror(key, entry);
    for attempt in 0..port::TRIES {
        let Some(candidate) = port::candidate(first, count, client_port, client_hash, attempt) else {
            return false;
        };
        other_key.destination_port_be = candidate.to_be();
        if FLOWS.get_ptr(&other_key).is_some() || !free_half_open(&other_key, entry.last_seen_s) {
            continue;
        }
        if HALF_OPEN.insert(&other_key, &other, u64::from(BPF_NOEXIST)).is_ok() {
            entry.source_port_be = other_key.destination_port_be;
            if HALF_OPEN.insert(key, entry, u64::from(BPF_ANY)).is_ok() {
                return true;
            }
            _ = HALF_OPEN.remove(&other_key);
            return false;
        }
    }
    false
}

/// Whether no live half-open flow holds this backend's key; one that is over is removed.
#[inline(always)]
fn free_half_open(other_key: &FlowKey, now_s: u32) -> bool {
    let Some(holder) = HALF_OPEN.get_ptr(other_key) else {
        return true;
    };
    // SAFETY: as in `entry`.
    let holder = unsafe { *holder };
    if flow::is_live_half_open(&holder, now_s) {
        return false;
    }
    remove_half_open(other_key, &flow::mirror_key(other_key, &holder));
    true
}
