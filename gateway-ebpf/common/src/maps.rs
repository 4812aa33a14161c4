//! Names and sizes of maps and programs, one constant each, used on both sides.
//!
//! Why these types:
//! - The Maglev tables share one flat array, and a listener's value says where its table lies. The value is replaced
//!   under RCU, so one write switches tables; a map of maps would cost an RCU grace period (milliseconds) in the
//!   system call of every switch, and a map of its own for each of thousands of services.
//! - Established flows are not LRU: the kernel must not choose which connection to break. They are allocated as they
//!   come, so an idle agent does not pay for the largest table. Half-open flows are LRU: a flood evicts its own kind.
//! - All types and flags exist since 5.10.

/// HASH [`crate::abi::ListenerKey`] -> [`crate::abi::ListenerValue`].
pub const LISTENERS: &str = "LISTENERS";
/// ARRAY of [`crate::abi::SlotChunk`].
pub const SLOTS: &str = "SLOTS";
/// HASH backend id (`u32`, never [`crate::abi::NO_BACKEND`]) -> [`crate::abi::BackendValue`].
pub const BACKENDS: &str = "BACKENDS";
/// HASH [`crate::abi::FlowKey`] -> [`crate::abi::FlowValue`]: established flows, two entries each.
pub const FLOWS: &str = "FLOWS";
/// LRU_HASH [`crate::abi::FlowKey`] -> [`crate::abi::FlowValue`]: flows whose client has not answered yet, two
/// entries each.
pub const HALF_OPEN: &str = "HALF_OPEN";
/// LRU_HASH [`crate::abi::FragmentKey`] -> [`crate::abi::FragmentValue`].
pub const FRAGMENTS: &str = "FRAGMENTS";
/// ARRAY of one [`crate::abi::Config`].
pub const CONFIG: &str = "CONFIG";
/// ARRAY of one [`crate::abi::Meta`].
pub const META: &str = "META";
/// PERCPU_ARRAY of `u64` by [`crate::abi::Counter`].
pub const COUNTERS: &str = "COUNTERS";
/// PERCPU_ARRAY of [`crate::abi::ServiceCounters`] by service id; ids past its end are not counted.
pub const SERVICE_COUNTERS: &str = "SERVICE_COUNTERS";
/// HASH [`crate::abi::ListenerKey`] -> [`crate::abi::SteerValue`]: what `sk_lookup` steers. Other keys are not touched.
pub const STEERED: &str = "STEERED";
/// SOCKMAP of listening sockets.
pub const SOCKETS: &str = "SOCKETS";

/// TC classifier for the ingress of every Ethernet interface of the network namespace.
pub const L4_INGRESS: &str = "l4_ingress";
/// `sk_lookup` program for the network namespace.
pub const STEER: &str = "steer";

/// 16 addresses times 1,024 listeners.
pub const MAX_LISTENERS: u32 = 16_384;
/// A million slots in 4 MiB: 1,024 services of 1,021 slots, or 16 of the largest.
pub const MAX_SLOT_CHUNKS: u32 = 65_536;
/// As many as the largest table can name.
pub const MAX_BACKENDS: u32 = 65_536;
/// Two entries a flow; the agent sets it to twice `--max-flows`.
pub const MAX_FLOW_ENTRIES: u32 = 262_144;
/// 16,384 handshakes under way in about 5 MiB: 10,000 new connections a second at 1.6 s of round trip.
pub const MAX_HALF_OPEN_ENTRIES: u32 = 32_768;
/// Datagrams whose fragments are under way at one time.
pub const MAX_FRAGMENTS: u32 = 4_096;
/// Listeners that are counted each on its own.
pub const MAX_SERVICES: u32 = 4_096;
/// Listening sockets: one per family and steered listener.
pub const MAX_SOCKETS: u32 = 2_048;
