//! Has the kernel take in what is sent to the pool's addresses that are served: a local route for each.
//!
//! A local route is all that it takes: no interface has the address, nothing answers ARP or neighbour solicitations for
//! it, so the network must route it to this pod. Needs CAP_NET_ADMIN; without it, what could not be done is told and
//! the listeners are bound all the same, for somebody else may deliver the addresses.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use tokio::sync::watch;

use super::message::{LocalRoute, Message, local_route_request, own_routes_request};
use super::netlink::{AddressError, SEQUENCE, ask_all};
use super::{Interfaces, route_to};
use crate::provision::IpRange;
use crate::snapshot::{Reader, Snapshot};

/// A failed change is tried again: the capability will not come, but memory and a missing loopback device may.
const RETRY: Duration = Duration::from_secs(5);

/// What [`deliver`] works with.
#[derive(Debug)]
pub struct Delivery {
    pub ranges: Vec<IpRange>,
    pub reader: Reader,
    pub interfaces: watch::Receiver<Arc<Interfaces>>,
    /// Told which addresses do not arrive, and why.
    pub missing: watch::Sender<Arc<Missing>>,
}

/// Addresses that are served and that the kernel does not take in, with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    pub addresses: BTreeSet<IpAddr>,
    pub reason: String,
}

/// Follows the snapshots until `stop` resolves, then takes all routes back.
pub async fn deliver(delivery: Delivery, stop: impl Future<Output = ()>) {
    let Delivery { ranges, mut reader, mut interfaces, missing } = delivery;
    let mut routes = LocalRoutes::adopt();
    let mut stop = std::pin::pin!(stop);
    // What an earlier run left is judged by the first snapshot that says anything, not by the empty one at the start.
    let mut snapshot = tokio::select! {
        snapshot = reader.changed() => snapshot,
        () = &mut stop => None,
    };
    while let Some(current) = snapshot.clone() {
        let now = routes.set(wanted(&current, &ranges), &interfaces.borrow_and_update().clone());
        let failed = !now.addresses.is_empty();
        missing.send_if_modified(|before| {
            let is_news = **before != now;
            if is_news {
                if failed {
                    tracing::warn!(addresses = ?now.addresses, reason = now.reason, "addresses of the pool do not arrive");
                }
                *before = Arc::new(now);
            }
            is_news
        });
        tokio::select! {
            changed = reader.changed() => snapshot = changed,
            Ok(()) = interfaces.changed() => {}
            () = tokio::time::sleep(RETRY), if failed => {}
            () = &mut stop => snapshot = None,
        }
    }
    routes.clear();
}

/// The addresses of the pool that any listener is on.
fn wanted(snapshot: &Snapshot, ranges: &[IpRange]) -> BTreeSet<IpAddr> {
    let addresses = snapshot.listeners.iter().filter_map(|listener| listener.key.address);
    addresses.filter(|address| ranges.iter().any(|range| range.contains(*address))).collect()
}

/// Our routes in the kernel.
#[derive(Debug, Default)]
struct LocalRoutes {
    held: BTreeSet<IpAddr>,
}

impl LocalRoutes {
    /// With those that an earlier run of this network namespace left.
    fn adopt() -> Self {
        let held = own_routes().unwrap_or_else(|error| {
            tracing::warn!(%error, "local routes of an earlier run cannot be read");
            BTreeSet::new()
        });
        Self { held }
    }

    /// Makes the routes those to `wanted`, but for addresses that an interface has. Says what does not arrive.
    fn set(&mut self, wanted: BTreeSet<IpAddr>, interfaces: &Interfaces) -> Missing {
        let assigned = interfaces.all();
        let wanted: BTreeSet<IpAddr> =
            wanted.into_iter().filter(|address| assigned.binary_search(address).is_err()).collect();
        for address in self.held.difference(&wanted).copied().collect::<Vec<_>>() {
            self.delete(address);
        }
        let loopback = interfaces.0.iter().find(|interface| interface.is_loopback);
        let mut missing = Missing::default();
        for address in wanted.difference(&self.held).copied().collect::<Vec<_>>() {
            let added = match loopback {
                Some(loopback) => change(LocalRoute::Add, address, loopback.index),
                None => Err(io::Error::new(io::ErrorKind::NotFound, "no loopback interface")),
            };
            match added {
                Ok(()) => {
                    tracing::info!(%address, "address of the pool is taken in");
                    self.held.insert(address);
                }
                // Somebody else's route does the same, such as one of an init container.
                Err(_) if is_local(address) => {}
                Err(error) => {
                    missing.addresses.insert(address);
                    missing.reason = reason(&error);
                }
            }
        }
        missing
    }

    fn clear(&mut self) {
        for address in self.held.iter().copied().collect::<Vec<_>>() {
            self.delete(address);
        }
    }

    fn delete(&mut self, address: IpAddr) {
        match change(LocalRoute::Delete, address, 0) {
            Ok(()) => tracing::info!(%address, "address of the pool is given up"),
            // Gone already: with the loopback interface, or by hand.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => tracing::warn!(%address, %error, "local route cannot be removed"),
        }
        self.held.remove(&address);
    }
}

fn is_local(address: IpAddr) -> bool {
    matches!(route_to(address), Ok(Some(route)) if route.is_local)
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "a local route takes the capability NET_ADMIN, which this pod lacks".into()
        }
        _ => format!("a local route cannot be made: {error}"),
    }
}

/// `loopback` is of no interest to a deletion.
fn change(change: LocalRoute, address: IpAddr, loopback: u32) -> io::Result<()> {
    let socket = Socket::new(NETLINK_ROUTE)?;
    let request = local_route_request(change, address, loopback, SEQUENCE);
    ask_all(&socket, "a local route", &request, drop).map_err(|error| match error {
        AddressError::Open(source) | AddressError::Ask { source, .. } => source,
        AddressError::Endless(_) => io::ErrorKind::InvalidData.into(),
    })
}

fn own_routes() -> Result<BTreeSet<IpAddr>, AddressError> {
    let mut own = BTreeSet::new();
    for is_v4 in [true, false] {
        let socket = Socket::new(NETLINK_ROUTE).map_err(AddressError::Open)?;
        // Without it (before Linux 4.20) all routes are listed, and ours are picked out all the same.
        if let Err(error) = socket.set_netlink_get_strict_chk(true) {
            tracing::debug!(%error, "the kernel does not filter routes");
        }
        ask_all(&socket, "local routes", &own_routes_request(is_v4, SEQUENCE), |message| {
            if let Message::Route(route) = message
                && route.is_ours
            {
                own.extend(route.destination);
            }
        })?;
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{IpAddr, TcpListener, TcpStream};

    use super::super::read;
    use super::super::watch::testing::{in_namespace, ip};
    use super::{LocalRoutes, Missing, change, is_local, own_routes};
    use crate::addresses::message::LocalRoute;

    fn addresses() -> [IpAddr; 2] {
        ["192.0.2.77".parse().unwrap(), "2001:db8::77".parse().unwrap()]
    }

    #[test]
    fn address_with_a_local_route_is_served_and_without_it_is_not() {
        in_namespace(async {
            let mut routes = LocalRoutes::adopt();
            let wanted = BTreeSet::from(addresses());
            assert_eq!(routes.set(wanted.clone(), &read().unwrap()), Missing::default());
            assert_eq!(own_routes().unwrap(), wanted);
            for address in addresses() {
                assert!(is_local(address), "{address}");
                let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
                let listener = TcpListener::bind((any, 0)).unwrap();
                let peer = TcpStream::connect((address, listener.local_addr().unwrap().port())).unwrap();
                assert_eq!(peer.peer_addr().unwrap().ip(), address);
                assert_eq!(listener.accept().unwrap().0.local_addr().unwrap().ip(), address);
            }
            routes.set(BTreeSet::from([addresses()[0]]), &read().unwrap());
            assert_eq!(own_routes().unwrap(), BTreeSet::from([addresses()[0]]));
            routes.clear();
            assert_eq!(own_routes().unwrap(), BTreeSet::new());
            assert!(!is_local(addresses()[0]));
        });
    }

    #[test]
    fn routes_of_an_earlier_run_are_known_again() {
        in_namespace(async {
            let interfaces = read().unwrap();
            LocalRoutes::adopt().set(BTreeSet::from(addresses()), &interfaces);
            let mut routes = LocalRoutes::adopt();
            assert_eq!(routes.held, BTreeSet::from(addresses()));
            routes.set(BTreeSet::new(), &interfaces);
            assert_eq!(own_routes().unwrap(), BTreeSet::new());
        });
    }

    #[test]
    fn routes_and_addresses_of_others_are_left_alone() {
        in_namespace(async {
            ip("route add local 192.0.2.77 dev lo");
            ip("address add 192.0.2.78/32 dev lo");
            let other: IpAddr = [192, 0, 2, 78].into();
            let mut routes = LocalRoutes::adopt();
            let wanted = BTreeSet::from([addresses()[0], other]);
            assert_eq!(routes.set(wanted, &read().unwrap()), Missing::default());
            assert_eq!(own_routes().unwrap(), BTreeSet::new());
            routes.clear();
            assert!(is_local(addresses()[0]) && is_local(other));
            // The protocol number keeps a deletion from hitting what is not ours.
            assert!(change(LocalRoute::Delete, addresses()[0], 0).is_err());
            assert!(is_local(addresses()[0]));
        });
    }
}
