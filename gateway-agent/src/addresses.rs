//! The addresses, interfaces and routes of the network namespace, now and as they change.
//!
//! Everything is read over rtnetlink, which needs no capability. **Invariant:** changes nothing but local routes of our
//! own, which [`mod@deliver`] makes for the addresses of a pool: no address, other route or interface is ever written here.

mod deliver;
mod message;
mod netlink;
mod watch;

use std::net::IpAddr;

pub use deliver::{Delivery, Missing, deliver};
pub use netlink::{AddressError, Route, read, route_to};
pub use watch::{WatchTask, watch};

/// An interface of the network namespace and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub index: u32,
    pub is_loopback: bool,
    /// Its frames have an Ethernet header, as those of veth, bridges and network cards; tunnels have none.
    pub is_ethernet: bool,
    pub is_up: bool,
    pub addresses: Vec<IpAddr>,
}

/// All interfaces, in index order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interfaces(pub Vec<Interface>);

impl Interfaces {
    /// Every address, loopback and IPv6 link-local excluded, sorted, none twice.
    pub fn external(&self) -> Vec<IpAddr> {
        let mut addresses: Vec<IpAddr> = self
            .0
            .iter()
            .filter(|interface| !interface.is_loopback)
            .flat_map(|interface| interface.addresses.iter().copied())
            .filter(|address| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()))
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// Every address, loopback included, sorted, none twice.
    pub fn all(&self) -> Vec<IpAddr> {
        let mut addresses: Vec<IpAddr> =
            self.0.iter().flat_map(|interface| interface.addresses.iter().copied()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}
