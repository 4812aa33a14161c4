//! ABI between the agent and its kernel programs, and every decision that the programs take.
//!
//! The programs are glue: they read a packet, call this crate, and call the kernel's helpers. So what they decide is
//! tested here, on the host and under miri, and the relay in userspace chooses the same backend by the same code.
//!
//! | module | holds | used by |
//! |---|---|---|
//! | [`abi`] | keys and values of the maps | agent, programs |
//! | [`maps`] | names and sizes of maps, programs and globals | agent, programs |
//! | [`address`] | addresses as 16 bytes, IPv4 mapped into IPv6 | agent, programs |
//! | [`hash`] | the hash that maps a flow to a Maglev slot, identities of targets | agent, relay, programs |
//! | [`maglev`] | building tables (feature `alloc`), picking | agent, relay, programs |
//! | [`parse`] | headers, what is known of a packet | programs |
//! | [`rewrite`], [`checksum`] | headers and checksums after translation | programs |
//! | [`icmp`] | errors that quote a packet of ours | programs |
//! | [`port`] | source ports towards backends | programs |
//! | [`flow`] | life of a flow: states, ages, expiry, mirror image | agent (sweep), programs |
//!
//! **Invariant:** no I/O, no clock, no allocation but behind feature `alloc`, no kernel helper, no `unsafe` but for the
//! marker trait that aya asks of map types.
#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod abi;
pub mod address;
pub mod checksum;
pub mod flow;
pub mod hash;
pub mod icmp;
pub mod maglev;
pub mod maps;
pub mod parse;
pub mod port;
pub mod rewrite;

/// Grows with every change of a type in [`abi`], of a name or meaning in [`maps`], or of [`hash`] and [`maglev`].
/// The agent writes it to the map [`maps::META`] and refuses pinned maps that hold another.
pub const ABI_VERSION: u32 = 1;
