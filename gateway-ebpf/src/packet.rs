//! Loading headers from a packet. Through the helper, not by direct access: it also reads what is not in the linear part,
//! and into aligned memory.

use core::mem::MaybeUninit;

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::helpers::generated::bpf_skb_load_bytes;
use aya_ebpf::programs::TcContext;
use gateway_common::parse::{
    self, ETHERNET_LENGTH, ETHERTYPE_IPV4, ETHERTYPE_IPV6, FragmentHeader, Ipv4Header, Ipv6Header, Packet,
};

/// The packet, as the helpers take it.
#[derive(Clone, Copy)]
pub(crate) struct Frame(pub(crate) *mut __sk_buff);

impl Frame {
    #[inline(always)]
    pub(crate) fn new(ctx: &TcContext) -> Self {
        Self(ctx.as_ptr().cast())
    }

    #[inline(always)]
    pub(crate) fn length(self) -> u32 {
        // SAFETY: the context outlives the program's run.
        unsafe { (*self.0).len }
    }

    #[inline(always)]
    pub(crate) fn ifindex(self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.0).ifindex }
    }

    /// Whether the packet came for us and without a VLAN tag beside it.
    #[inline(always)]
    fn is_ours(self) -> bool {
        const PACKET_HOST: u32 = 0;
        // SAFETY: as above.
        unsafe { (*self.0).pkt_type == PACKET_HOST && (*self.0).vlan_present == 0 }
    }

    #[inline(always)]
    fn ethertype(self) -> u16 {
        // SAFETY: as above.
        u16::from_be(unsafe { (*self.0).protocol } as u16)
    }

    /// `T` at `offset`; `None` past the end. `T` must be valid for every bit pattern.
    #[inline(always)]
    pub(crate) fn load<T: Copy>(self, offset: u32) -> Option<T> {
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: `value` is as large as the length says, and the helper fills all of it or fails.
        unsafe {
            match bpf_skb_load_bytes(self.0.cast(), offset, value.as_mut_ptr().cast(), size_of::<T>() as u32)
            {
                0 => Some(value.assume_init()),
                _ => None,
            }
        }
    }

    /// What the IP header says; `None` for all that is left to the stack unseen.
    #[inline(always)]
    pub(crate) fn parse(self) -> Option<Packet> {
        if !self.is_ours() {
            return None;
        }
        match self.ethertype() {
            ETHERTYPE_IPV4 => parse::ipv4(&self.load::<Ipv4Header>(ETHERNET_LENGTH)?, self.length()),
            ETHERTYPE_IPV6 => {
                let header = self.load::<Ipv6Header>(ETHERNET_LENGTH)?;
                if parse::has_fragment_header(&header) {
                    let fragment =
                        self.load::<FragmentHeader>(ETHERNET_LENGTH + size_of::<Ipv6Header>() as u32)?;
                    parse::ipv6(&header, Some(&fragment), self.length())
                } else {
                    parse::ipv6(&header, None, self.length())
                }
            }
            _ => None,
        }
    }
}
