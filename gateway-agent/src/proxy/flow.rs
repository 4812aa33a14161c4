//! Which backend a TCP or UDP flow goes to.
//!
//! **Invariant:** pure. The hash and the tables are those of the kernel path, so both choose the same backend for the
//! same flow.

use std::net::{IpAddr, SocketAddr};

use gateway_common::abi;
use gateway_common::address::Address;

use crate::snapshot::{L4Service, Maglev, Transport};

/// The addresses of a flow as the client sees them, IPv4 in its own form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FlowKey {
    pub client: SocketAddr,
    /// The address and port that the client connected to.
    pub local: SocketAddr,
}

impl FlowKey {
    /// Takes v4-mapped addresses of dual-stack sockets apart.
    pub(super) fn new(client: SocketAddr, local: SocketAddr) -> Self {
        Self { client: canonical(client), local: canonical(local) }
    }

    pub(super) fn hash(&self, transport: Transport) -> u32 {
        let proto = match transport {
            Transport::Tcp => abi::TCP,
            Transport::Udp => abi::UDP,
        };
        let (client, local) = (Address::from_ip(self.client.ip()), Address::from_ip(self.local.ip()));
        gateway_common::hash::flow(&client, self.client.port(), &local, self.local.port(), proto)
    }
}

/// `address` in IPv4 form where it is v4-mapped.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(IpAddr::V4(v4), v6.port()),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

/// The table for clients of `client`'s family.
pub(super) fn table(service: &L4Service, client: IpAddr) -> &Maglev {
    match client {
        IpAddr::V4(_) => &service.v4,
        IpAddr::V6(_) => &service.v6,
    }
}

/// Whether any client can be served at all.
pub(super) fn is_usable(service: &L4Service) -> bool {
    [&service.v4, &service.v6]
        .iter()
        .any(|table| !table.slots.is_empty() && table.targets.iter().any(Option::is_some))
}

/// Whether `target` still is one of the service's.
pub(super) fn has_target(table: &Maglev, target: SocketAddr) -> bool {
    table.targets.contains(&Some(target))
}

/// Another target for a flow whose first choice failed: none of `tried`. The hash decides where the search begins, so
/// the flows of a dead endpoint spread over the others. `None`: all were tried.
pub(super) fn alternative(table: &Maglev, hash: u32, tried: &[SocketAddr]) -> Option<SocketAddr> {
    let n = table.targets.len();
    if n == 0 {
        return None;
    }
    // A rotation, so that the start does not follow from the slot, which took the hash modulo another number.
    let start = hash.rotate_left(16) as usize % n;
    let (after, before) = (table.targets.iter().skip(start), table.targets.iter().take(start));
    after.chain(before).flatten().copied().find(|target| !tried.contains(target))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use super::{FlowKey, alternative, has_target, is_usable};
    use crate::snapshot::{L4Service, Maglev};

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("address")
    }

    fn maglev(slots: &[u16], targets: &[Option<&str>]) -> Maglev {
        Maglev { slots: slots.into(), targets: targets.iter().map(|target| target.map(address)).collect() }
    }

    #[test]
    fn mapped_addresses_become_ipv4() {
        let key = FlowKey::new(address("[::ffff:192.0.2.1]:5"), address("[2001:db8::1]:80"));
        assert_eq!(key, FlowKey { client: address("192.0.2.1:5"), local: address("[2001:db8::1]:80") });
    }

    #[test]
    fn alternatives_are_distinct_and_end() {
        let table = maglev(&[0, 1, 2, 3], &[Some("1.1.1.1:1"), None, Some("1.1.1.2:1"), Some("1.1.1.3:1")]);
        for hash in [0, 1, 0xffff_ffff, 0x1234_5678] {
            let mut tried = Vec::new();
            while let Some(target) = alternative(&table, hash, &tried) {
                tried.push(target);
            }
            tried.sort();
            assert_eq!(tried, ["1.1.1.1:1", "1.1.1.2:1", "1.1.1.3:1"].map(address));
        }
        assert_eq!(alternative(&Maglev::default(), 1, &[]), None);
    }

    #[test]
    fn service_of_refused_shares_only_is_not_usable() {
        let refused = Arc::new(maglev(&[0, 0], &[None]));
        let mixed = Arc::new(maglev(&[0, 1], &[None, Some("[::1]:1")]));
        let service = |v4: &Arc<Maglev>| L4Service { v4: v4.clone(), ..L4Service::default() };
        assert!(!is_usable(&L4Service::default()));
        assert!(!is_usable(&service(&refused)));
        assert!(is_usable(&service(&mixed)));
        assert!(has_target(&mixed, address("[::1]:1")));
        assert!(!has_target(&mixed, address("[::1]:2")));
    }
}
