//! Life of a flow: what its flags mean, its mirror image, and when it has ended.
//!
//! A flow is two entries, keyed by what arrives from the client and by what arrives from the backend. Each is written by
//! packets of its own direction only, and each can be made from the other, so neither is ever needed alone:
//!
//! ```text
//!   SYN ──> HALF_OPEN (both entries) ──client answers──> FLOWS (both entries) ──swept by the agent──> gone
//! ```
//!
//! RST marks and does not delete: who forges an RST without knowing the sequence numbers must not end a flow. The
//! next packet of the same direction takes the mark away; else the sweep removes the flow after [`CLOSING_S`].
//!
//! **Not here:** reading or writing maps, and time: `now_s` is an argument, in seconds of `CLOCK_MONOTONIC`.

use crate::abi::{FlowKey, FlowValue, TCP};
use crate::parse::TcpFlags;

/// Bits of [`FlowValue::flags`].
pub struct Flags;

impl Flags {
    /// The entry is keyed by what the backend sends.
    pub const REVERSE: u32 = 1;
    /// A FIN was seen in this direction.
    pub const FIN: u32 = 1 << 1;
    /// An RST was seen in this direction and nothing since.
    pub const RESET: u32 = 1 << 2;
    /// The client sent a SYN on the established flow, and nothing else since.
    pub const SYN_AGAIN: u32 = 1 << 3;
    /// Half-open, client's entry: the backend's SYN was seen, [`FlowValue::answer_sequence`] holds its number.
    pub const ANSWERED: u32 = 1 << 4;
}

/// An established connection may be silent for as long as RFC 5382 (REQ-5: 2 hours 4 minutes) asks of a NAT, so that
/// keepalives at their default of 2 hours still find it.
pub const TCP_IDLE_S: u32 = 7_440;
/// Datagram flows: the agent's default; RFC 4787 asks for more of a NAT that clients sit behind, where only they can open
/// the way again. Here any datagram of the client does.
pub const UDP_IDLE_S: u32 = 60;
/// After FIN both ways or RST: retransmitted FINs and late ACKs still pass.
pub const CLOSING_S: u32 = 10;
/// A handshake that takes longer is given up; SYN retransmissions within it meet the same backend.
pub const HALF_OPEN_S: u32 = 60;

/// The other entry's key.
#[inline(always)]
pub const fn mirror_key(key: &FlowKey, value: &FlowValue) -> FlowKey {
    FlowKey {
        source: value.destination,
        destination: value.source,
        source_port_be: value.destination_port_be,
        destination_port_be: value.source_port_be,
        proto: key.proto,
        reserved: [0; 3],
    }
}

/// The other entry, as if nothing of its direction had been seen yet.
#[inline(always)]
pub const fn mirror(key: &FlowKey, value: &FlowValue) -> FlowValue {
    FlowValue {
        source: key.destination,
        destination: key.source,
        source_port_be: key.destination_port_be,
        destination_port_be: key.source_port_be,
        ifindex: value.reverse_ifindex,
        reverse_ifindex: value.ifindex,
        backend: value.backend,
        service: value.service,
        flags: (value.flags ^ Flags::REVERSE) & Flags::REVERSE,
        last_seen_s: value.last_seen_s,
        answer_sequence: 0,
    }
}

/// Whether `later` is at or after `earlier`, also across the wrap of the counter.
#[inline(always)]
pub const fn seconds_since(now_s: u32, then_s: u32) -> u32 {
    let age = now_s.wrapping_sub(then_s);
    // Another CPU may have written a moment later than this one read its clock.
    if age > u32::MAX / 2 { 0 } else { age }
}

/// Whether the connection has ended: RST in any direction, or FIN in both.
#[inline(always)]
pub const fn is_closing(one: u32, other: u32) -> bool {
    (one | other) & Flags::RESET != 0 || one & other & Flags::FIN != 0
}

/// The flags of a direction after a segment with these TCP flags.
#[inline(always)]
pub const fn after_segment(flags: u32, tcp_flags: u8) -> u32 {
    let mut flags = flags & !(Flags::RESET | Flags::SYN_AGAIN);
    if tcp_flags & TcpFlags::RST != 0 {
        flags |= Flags::RESET;
    }
    if tcp_flags & TcpFlags::FIN != 0 {
        flags |= Flags::FIN;
    }
    if opens(tcp_flags) && flags & Flags::REVERSE == 0 {
        flags |= Flags::SYN_AGAIN;
    }
    flags
}

/// Whether a segment asks for a new connection.
#[inline(always)]
pub const fn opens(tcp_flags: u8) -> bool {
    tcp_flags & (TcpFlags::SYN | TcpFlags::ACK | TcpFlags::RST | TcpFlags::FIN) == TcpFlags::SYN
}

/// Whether a segment of the backend is its answer to a SYN.
#[inline(always)]
pub const fn answers(tcp_flags: u8) -> bool {
    const MASK: u8 = TcpFlags::SYN | TcpFlags::ACK | TcpFlags::RST;
    tcp_flags & MASK == TcpFlags::SYN | TcpFlags::ACK
}

/// Whether a client's SYN that meets an established flow starts anew, with a backend chosen afresh. It does when the
/// old connection has ended, or when an earlier SYN was given to its backend and nothing came back: the backend is gone. In
/// between the SYN is the backend's to judge (RFC 9293, 3.10.7.4: it answers a challenge ACK, and the client resets).
#[inline(always)]
pub const fn restarts(client: &FlowValue, backend: &FlowValue) -> bool {
    is_closing(client.flags, backend.flags)
        || client.flags & Flags::SYN_AGAIN != 0 && is_before(backend.last_seen_s, client.last_seen_s)
}

const fn is_before(one_s: u32, other_s: u32) -> bool {
    seconds_since(other_s, one_s) > 0
}

/// Whether a half-open entry still counts: its packets meet the same backend, and its source port is taken.
#[inline(always)]
pub const fn is_live_half_open(value: &FlowValue, now_s: u32) -> bool {
    seconds_since(now_s, value.last_seen_s) < HALF_OPEN_S && value.flags & Flags::RESET == 0
}

/// How far a client's first acknowledgment may be past the backend's SYN: the data that a backend sends ahead in its
/// initial window, with room. A guess hits it once in 65,536.
const ANSWER_WINDOW: u32 = 65_536;

/// Whether a client's segment proves that it got the backend's answer. Without proof a flow stays half-open, so that
/// spoofed SYNs, each followed by a spoofed ACK, cannot fill the established table.
#[inline(always)]
pub const fn completes_handshake(client: &FlowValue, tcp_flags: u8, acknowledgment: u32) -> bool {
    const MASK: u8 = TcpFlags::ACK | TcpFlags::RST;
    client.flags & Flags::ANSWERED != 0
        && tcp_flags & MASK == TcpFlags::ACK
        && acknowledgment.wrapping_sub(client.answer_sequence).wrapping_sub(1) < ANSWER_WINDOW
}

/// Whether the sweep removes an established flow; `other` is the second entry, where it is there.
pub fn has_expired(key: &FlowKey, value: &FlowValue, other: Option<&FlowValue>, now_s: u32) -> bool {
    let other_flags = other.map_or(0, |other| other.flags);
    let other_age = other.map_or(u32::MAX, |other| seconds_since(now_s, other.last_seen_s));
    let age = seconds_since(now_s, value.last_seen_s).min(other_age);
    let limit = match key.proto {
        TCP if is_closing(value.flags, other_flags) => CLOSING_S,
        TCP => TCP_IDLE_S,
        _ => UDP_IDLE_S,
    };
    age >= limit
}

#[cfg(test)]
mod tests;
