//! Keys and values of the maps. Fields that end in `_be` are in network byte order, all else in the host's.
//!
//! `IntoBytes` is derived only for types without padding, so every byte that the kernel compares or that userspace reads
//! is written. No `bool`, `Option` or enum: what the other side wrote is checked by whoever reads it.
//!
//! **Not here:** what the values lead to; see [`crate::flow`] and [`crate::maglev`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::address::Address;

/// `proto` of TCP.
pub const TCP: u8 = 6;
/// `proto` of UDP.
pub const UDP: u8 = 17;

/// What a client connects to; key of [`crate::maps::LISTENERS`] (TC) and of [`crate::maps::STEERED`] (`sk_lookup`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ListenerKey {
    pub address: Address,
    pub port_be: u16,
    /// [`TCP`] or [`UDP`].
    pub proto: u8,
    /// Always 0.
    pub reserved: u8,
}

/// A listener that TC serves, and where its Maglev table lies in [`crate::maps::SLOTS`]. Replaced as a whole, so
/// writing it is the atomic switch from one table to the next.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ListenerValue {
    /// First element of the table in [`crate::maps::SLOTS`].
    pub first_chunk: u32,
    /// Number of slots of the table; one of [`crate::maglev::SIZES`].
    pub n_slots: u32,
    /// Index into [`crate::maps::SERVICE_COUNTERS`], and the mark by which the agent finds the listener's flows.
    pub service: u32,
    /// Always 0.
    pub reserved: u32,
}

/// Slots in one element of [`crate::maps::SLOTS`]: array elements are rounded up to 8 bytes, and fewer, larger elements
/// are fewer system calls. All table sizes fill a power of two of chunks but for a few slots, which suits a buddy
/// allocator.
pub const SLOTS_PER_CHUNK: u32 = 16;

/// Slot of a refused share: the packet is left to the stack, where the relay refuses it.
pub const NO_BACKEND: u32 = 0;

/// An element of [`crate::maps::SLOTS`]: backend ids. Slot `i` of a table is at element `first_chunk + i / 16`,
/// position `i % 16`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SlotChunk {
    pub backends: [u32; SLOTS_PER_CHUNK as usize],
}

/// Where a backend is and how to get there; value of [`crate::maps::BACKENDS`], by backend id. An id belongs to one
/// address and port for as long as a flow may hold it; route and source address may change in place.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct BackendValue {
    pub address: Address,
    /// Our own address towards it, of the same family.
    pub source: Address,
    /// Interface towards it.
    pub ifindex: u32,
    pub port_be: u16,
    /// Always 0.
    pub reserved: u16,
}

/// A packet's addresses and ports as it arrives; key of [`crate::maps::FLOWS`] and [`crate::maps::HALF_OPEN`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FlowKey {
    pub source: Address,
    pub destination: Address,
    pub source_port_be: u16,
    pub destination_port_be: u16,
    /// [`TCP`] or [`UDP`].
    pub proto: u8,
    /// Always 0.
    pub reserved: [u8; 3],
}

/// What becomes of a packet of a flow. Each flow has two entries, one per direction, and each holds all that is needed
/// to make the other ([`crate::flow::mirror`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FlowValue {
    /// Addresses and ports that the packet leaves with.
    pub source: Address,
    pub destination: Address,
    pub source_port_be: u16,
    pub destination_port_be: u16,
    /// Interface that the packet leaves by.
    pub ifindex: u32,
    /// Interface that packets of the other direction leave by.
    pub reverse_ifindex: u32,
    pub backend: u32,
    pub service: u32,
    /// Bits of [`crate::flow::Flags`].
    pub flags: u32,
    /// When a packet of this direction was last seen: seconds of `CLOCK_MONOTONIC`.
    pub last_seen_s: u32,
    /// TCP, half-open, towards the backend: sequence number of the backend's SYN, once
    /// [`crate::flow::Flags::ANSWERED`] is set.
    pub answer_sequence: u32,
}

/// A fragmented datagram or segment of a backend; key of [`crate::maps::FRAGMENTS`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FragmentKey {
    pub source: Address,
    pub destination: Address,
    /// The identification field as it stands in the packet: 16 bits for IPv4, 32 for IPv6.
    pub identification: u32,
    pub proto: u8,
    /// Always 0.
    pub reserved: [u8; 3],
}

/// Addresses and interface that the fragments leave with.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FragmentValue {
    pub source: Address,
    pub destination: Address,
    pub ifindex: u32,
    pub last_seen_s: u32,
}

/// The only element of [`crate::maps::CONFIG`]. A `source_port_count` of 0 makes TC open no new flow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Config {
    pub source_port_first: u32,
    pub source_port_count: u32,
}

/// The only element of [`crate::maps::META`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Meta {
    /// [`crate::ABI_VERSION`] of the agent that made the maps.
    pub abi_version: u32,
    /// Free for the agent.
    pub reserved: u32,
    /// `st_dev` and `st_ino` of the network namespace that the programs are attached in.
    pub netns_device: u64,
    pub netns_inode: u64,
}

/// What one listener's flows carried; element of the per-CPU array [`crate::maps::SERVICE_COUNTERS`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ServiceCounters {
    pub flows: u64,
    /// From clients, whole frames.
    pub received_packets: u64,
    pub received_bytes: u64,
    /// To clients, whole frames.
    pub sent_packets: u64,
    pub sent_bytes: u64,
}

/// A listening socket's place in [`crate::maps::SOCKETS`]; value of [`crate::maps::STEERED`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SteerValue {
    pub socket: u32,
}

/// Indices into the per-CPU array [`crate::maps::COUNTERS`] (`u64` each).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Counter {
    /// Packets translated and sent on, both directions.
    Translated,
    /// Fragmented datagrams of clients, whose flow is ours, left to the stack and so to the relay.
    LeftToStack,
    /// Packets dropped because the kernel could not make them writable: out of memory.
    Dropped,
    /// Half-open flows made.
    Opened,
    /// Flows moved to the established table.
    Promoted,
    /// Flows that stayed half-open because the established table took no more.
    TableFull,
    /// New flows left to the stack because no source port was found.
    NoPort,
    /// New flows left to the stack because their share is refused or their backend is gone.
    Refused,
    /// Later fragments translated.
    Fragments,
    /// Later fragments whose first was not seen or is not ours, left to the stack.
    FragmentsUnknown,
    /// ICMP errors translated.
    IcmpErrors,
    /// Connections given to a listening socket by `sk_lookup`.
    Steered,
    /// Connections that `sk_lookup` refused since no socket was registered.
    SteerDropped,
}

impl Counter {
    /// In index order, with the name used in metrics.
    pub const ALL: [(Self, &'static str); 13] = [
        (Self::Translated, "translated"),
        (Self::LeftToStack, "left_to_stack"),
        (Self::Dropped, "dropped"),
        (Self::Opened, "opened"),
        (Self::Promoted, "promoted"),
        (Self::TableFull, "table_full"),
        (Self::NoPort, "no_port"),
        (Self::Refused, "refused"),
        (Self::Fragments, "fragments"),
        (Self::FragmentsUnknown, "fragments_unknown"),
        (Self::IcmpErrors, "icmp_errors"),
        (Self::Steered, "steered"),
        (Self::SteerDropped, "steer_dropped"),
    ];
}

#[cfg(feature = "user")]
mod pod {
    use super::{
        BackendValue, Config, FlowKey, FlowValue, FragmentKey, FragmentValue, ListenerKey, ListenerValue,
        Meta, ServiceCounters, SlotChunk, SteerValue,
    };

    macro_rules! pod {
        ($($type:ty),+ $(,)?) => {
            $(
                const _: fn() = || {
                    const fn every_bit_pattern_is_valid_and_none_is_padding<T>()
                    where
                        T: zerocopy::FromBytes + zerocopy::IntoBytes + Copy + 'static,
                    {
                    }
                    every_bit_pattern_is_valid_and_none_is_padding::<$type>();
                };
                // SAFETY: `repr(C)` without padding, and valid for every bit pattern: asserted just above.
                unsafe impl aya::Pod for $type {}
            )+
        };
    }

    pod!(
        BackendValue,
        Config,
        FlowKey,
        FlowValue,
        FragmentKey,
        FragmentValue,
        ListenerKey,
        ListenerValue,
        Meta,
        ServiceCounters,
        SlotChunk,
        SteerValue,
    );
}

#[cfg(test)]
mod tests {
    use core::mem::size_of;

    use super::{
        BackendValue, Counter, FlowKey, FlowValue, FragmentKey, FragmentValue, ListenerKey, ListenerValue,
        SlotChunk,
    };

    #[test]
    fn sizes_are_those_of_this_abi_version() {
        assert_eq!(size_of::<ListenerKey>(), 20);
        assert_eq!(size_of::<ListenerValue>(), 16);
        assert_eq!(size_of::<SlotChunk>(), 64);
        assert_eq!(size_of::<BackendValue>(), 40);
        assert_eq!(size_of::<FlowKey>(), 40);
        assert_eq!(size_of::<FlowValue>(), 64);
        assert_eq!(size_of::<FragmentKey>(), 40);
        assert_eq!(size_of::<FragmentValue>(), 40);
    }

    #[test]
    fn counters_are_listed_in_index_order() {
        for (index, (counter, _)) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, index);
        }
    }
}
