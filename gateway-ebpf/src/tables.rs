//! The maps. What each is for, and why it is of its type, is in `gateway_common::maps`, by the same names.

use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, SockMap};
use gateway_common::abi::{
    BackendValue, Config, Counter, FlowKey, FlowValue, FragmentKey, FragmentValue, ListenerKey,
    ListenerValue, Meta, ServiceCounters, SlotChunk, SteerValue,
};
use gateway_common::maps;
use gateway_common::parse::Packet;

#[map]
pub(crate) static LISTENERS: HashMap<ListenerKey, ListenerValue> =
    HashMap::with_max_entries(maps::MAX_LISTENERS, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static SLOTS: Array<SlotChunk> = Array::with_max_entries(maps::MAX_SLOT_CHUNKS, 0);

#[map]
pub(crate) static BACKENDS: HashMap<u32, BackendValue> =
    HashMap::with_max_entries(maps::MAX_BACKENDS, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static FLOWS: HashMap<FlowKey, FlowValue> =
    HashMap::with_max_entries(maps::MAX_FLOW_ENTRIES, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static HALF_OPEN: LruHashMap<FlowKey, FlowValue> =
    LruHashMap::with_max_entries(maps::MAX_HALF_OPEN_ENTRIES, 0);

#[map]
pub(crate) static FRAGMENTS: LruHashMap<FragmentKey, FragmentValue> =
    LruHashMap::with_max_entries(maps::MAX_FRAGMENTS, 0);

#[map]
pub(crate) static CONFIG: Array<Config> = Array::with_max_entries(1, 0);

/// For the agent alone; no program reads it.
#[map]
pub(crate) static META: Array<Meta> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Counter::ALL.len() as u32, 0);

#[map]
pub(crate) static SERVICE_COUNTERS: PerCpuArray<ServiceCounters> =
    PerCpuArray::with_max_entries(maps::MAX_SERVICES, 0);

/// The packet in hand, one per CPU: TC programs do not interrupt each other. Not on the stack, where the verifier would
/// follow each combination of family and protocol through all that comes after, as it knows what is written there.
#[map]
pub(crate) static PACKET: PerCpuArray<Packet> = PerCpuArray::with_max_entries(1, 0);

#[map]
pub(crate) static STEERED: HashMap<ListenerKey, SteerValue> =
    HashMap::with_max_entries(maps::MAX_LISTENERS, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static SOCKETS: SockMap = SockMap::with_max_entries(maps::MAX_SOCKETS, 0);
