//! The addresses and interfaces of the network namespace, now and as they change.

use std::net::IpAddr;

/// An interface of the network namespace and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub index: u32,
    pub is_loopback: bool,
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
