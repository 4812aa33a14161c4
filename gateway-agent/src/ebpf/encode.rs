//! Between what the agent thinks in and what the maps hold.
//!
//! **Invariant:** pure. What is read from a map may be anything: what makes no sense decodes to nothing.

use std::net::SocketAddr;

use gateway_common::abi::{self, BackendValue, SLOTS_PER_CHUNK, SlotChunk};
use gateway_common::address::Address;

use super::desired::Target;
use super::plan::Vip;
use crate::snapshot::Transport;

pub(super) const fn proto(transport: Transport) -> u8 {
    match transport {
        Transport::Tcp => abi::TCP,
        Transport::Udp => abi::UDP,
    }
}

pub(super) fn listener_key(vip: &Vip) -> abi::ListenerKey {
    abi::ListenerKey {
        address: Address::from_ip(vip.address),
        port_be: vip.port.to_be(),
        proto: proto(vip.transport),
        reserved: 0,
    }
}

pub(super) fn vip(key: &abi::ListenerKey) -> Option<Vip> {
    let transport = match key.proto {
        abi::TCP => Transport::Tcp,
        abi::UDP => Transport::Udp,
        _ => return None,
    };
    Some(Vip { transport, address: key.address.to_ip(), port: u16::from_be(key.port_be) })
}

pub(super) fn backend(target: &Target) -> BackendValue {
    BackendValue {
        address: Address::from_ip(target.address.ip()),
        source: Address::from_ip(target.source),
        ifindex: target.interface,
        port_be: target.address.port().to_be(),
        reserved: 0,
    }
}

pub(super) fn target(value: &BackendValue) -> Target {
    Target {
        address: SocketAddr::new(value.address.to_ip(), u16::from_be(value.port_be)),
        source: value.source.to_ip(),
        interface: value.ifindex,
    }
}

/// A table's ids as elements of the slot array; the last is filled up with [`abi::NO_BACKEND`].
pub(super) fn chunks(ids: &[u32]) -> impl Iterator<Item = SlotChunk> + '_ {
    ids.chunks(SLOTS_PER_CHUNK as usize).map(|ids| {
        let mut backends = [abi::NO_BACKEND; SLOTS_PER_CHUNK as usize];
        for (slot, id) in backends.iter_mut().zip(ids) {
            *slot = *id;
        }
        SlotChunk { backends }
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::{backend, chunks, listener_key, target, vip};
    use crate::ebpf::desired::Target;
    use crate::ebpf::plan::Vip;
    use crate::snapshot::Transport;

    /// A v4-mapped address is the one thing that does not come back: the kernel takes it for IPv4, too.
    fn address() -> impl Strategy<Value = IpAddr> {
        any::<IpAddr>().prop_map(|address| address.to_canonical())
    }

    proptest! {
        #[test]
        fn what_was_encoded_comes_back(
            one in address(), other in address(), port in any::<u16>(), interface in any::<u32>(), tcp in any::<bool>(),
        ) {
            let transport = if tcp { Transport::Tcp } else { Transport::Udp };
            let listener = Vip { transport, address: one, port };
            prop_assert_eq!(vip(&listener_key(&listener)), Some(listener));
            let to = Target { address: (one, port).into(), source: other, interface };
            prop_assert_eq!(target(&backend(&to)), to);
        }

        #[test]
        fn table_is_cut_into_whole_chunks(ids in proptest::collection::vec(1u32.., 1..100)) {
            let all: Vec<u32> = chunks(&ids).flat_map(|chunk| chunk.backends).collect();
            prop_assert_eq!(&all[..ids.len()], &ids[..]);
            prop_assert!(all[ids.len()..].iter().all(|id| *id == 0));
            prop_assert_eq!(all.len(), ids.len().next_multiple_of(16));
        }
    }
}
