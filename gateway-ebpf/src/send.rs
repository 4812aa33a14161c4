//! Rewriting a packet and sending it on.
//!
//! Checksums go through the kernel's helpers because only they know whether the packet's checksum is whole, still to be
//! filled in by the device (then only the pseudo header counts), or summed up beside the packet by the card that received
//! it. That sum is kept right too:
//! - IPv4: the header sums to zero before and after, and the transport checksum takes the pseudo header's difference.
//!   `BPF_F_PSEUDO_HDR` subtracts that from the sum, so the addresses are stored without `BPF_F_RECOMPUTE_CSUM`.
//! - IPv6: there is no header checksum, so the addresses' difference and the transport checksum's cancel out. The
//!   addresses are stored with `BPF_F_RECOMPUTE_CSUM`, and `BPF_F_PSEUDO_HDR` takes the same off again.
//! - Ports: their difference and the checksum's cancel out, and neither flag is given.

use aya_ebpf::bindings::{BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR, BPF_F_RECOMPUTE_CSUM, TC_ACT_SHOT};
use aya_ebpf::helpers::generated::{bpf_l4_csum_replace, bpf_redirect_neigh, bpf_skb_store_bytes};
use gateway_common::abi::{Counter, FlowValue, UDP};
use gateway_common::address::Address;
use gateway_common::flow::Flags;
use gateway_common::parse::{ETHERNET_LENGTH, Packet};
use gateway_common::rewrite;

use crate::counters;
use crate::packet::Frame;

/// Part of the packet was changed and the rest could not be.
pub(crate) struct HalfWritten;

impl Frame {
    #[inline(always)]
    pub(crate) fn store<T>(self, offset: u32, value: &T, flags: u64) -> Result<(), HalfWritten> {
        let from = core::ptr::from_ref(value).cast();
        // SAFETY: `value` is as large as the length says.
        match unsafe { bpf_skb_store_bytes(self.0, offset, from, size_of::<T>() as u32, flags) } {
            0 => Ok(()),
            _ => Err(HalfWritten),
        }
    }

    #[inline(always)]
    pub(crate) fn change_checksum(self, offset: u32, difference: u32, flags: u64) -> Result<(), HalfWritten> {
        // SAFETY: a helper call with numbers only.
        match unsafe { bpf_l4_csum_replace(self.0, offset, 0, u64::from(difference), flags) } {
            0 => Ok(()),
            _ => Err(HalfWritten),
        }
    }

    /// New addresses and one hop less in the IP header.
    #[inline(always)]
    pub(crate) fn store_addresses(
        self,
        packet: &Packet,
        source: Address,
        destination: Address,
    ) -> Result<(), HalfWritten> {
        if packet.is_v4 {
            let tail = rewrite::ipv4(packet, source, destination);
            self.store(ETHERNET_LENGTH + rewrite::IPV4_OFFSET, &tail, 0)
        } else {
            let tail = rewrite::ipv6(packet, source, destination);
            self.store(ETHERNET_LENGTH + rewrite::IPV6_OFFSET, &tail, u64::from(BPF_F_RECOMPUTE_CSUM))
        }
    }

    #[inline(always)]
    fn rewrite(self, packet: &Packet, value: &FlowValue) -> Result<(), HalfWritten> {
        const TCP_CHECKSUM: u32 = 16;
        const UDP_CHECKSUM: u32 = 6;
        let key = &packet.key;
        // A UDP checksum of 0 says that there is none and stays; one that comes to 0 is written as 0xffff.
        let (checksum, flags) = if key.proto == UDP {
            (packet.l4_offset + UDP_CHECKSUM, u64::from(BPF_F_MARK_MANGLED_0))
        } else {
            (packet.l4_offset + TCP_CHECKSUM, 0)
        };
        let pseudo = rewrite::pseudo_difference(key, value.source, value.destination);
        self.change_checksum(checksum, pseudo, flags | u64::from(BPF_F_PSEUDO_HDR))?;
        self.change_checksum(checksum, rewrite::port_difference(key, value), flags)?;
        self.store(
            packet.l4_offset,
            &rewrite::port_word(value.source_port_be, value.destination_port_be),
            0,
        )?;
        self.store_addresses(packet, value.source, value.destination)
    }

    /// Translates the packet by its flow's entry and sends it on.
    #[inline(always)]
    pub(crate) fn forward(self, packet: &Packet, value: &FlowValue) -> i32 {
        let length = self.length();
        if self.rewrite(packet, value).is_err() {
            return drop_half_written();
        }
        counters::translated(value.service, value.flags & Flags::REVERSE != 0, length);
        redirect(value.ifindex)
    }
}

#[inline(always)]
pub(crate) fn drop_half_written() -> i32 {
    counters::count(Counter::Dropped);
    TC_ACT_SHOT
}

/// Out by this interface. The kernel looks up route and neighbour of the new destination: no forwarding to be enabled, and
/// no hardware address to go stale.
#[inline(always)]
pub(crate) fn redirect(ifindex: u32) -> i32 {
    // SAFETY: a null pointer with length 0 asks for the lookup.
    unsafe { bpf_redirect_neigh(ifindex, core::ptr::null_mut(), 0, 0) as i32 }
}
