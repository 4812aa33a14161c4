//! TCP and UDP listeners: the one route that serves, and its endpoints as Maglev tables.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use gateway_common::address::Address;
use gateway_common::{hash, maglev};

use super::backend::{Share, Shares};
use crate::snapshot::{EndpointSet, L4Service, Maglev, ProxyVersion, RouteName};

/// Endpoints in one table. The largest table has 65,521 slots, so each still gets eight: shares are off by at most an
/// eighth. Of more, the first in order of address take part.
const MAX_TARGETS: usize = 8_192;

pub(super) fn service(route: &RouteName, shares: &Shares) -> L4Service {
    L4Service {
        route: Some(route.clone()),
        v4: Arc::new(table(shares, SocketAddr::is_ipv4)),
        v6: Arc::new(table(shares, SocketAddr::is_ipv6)),
        announced: announced(shares),
    }
}

/// An address that several of the Services have is spoken to as the first of them wants it.
fn announced(shares: &Shares) -> Arc<[(SocketAddr, ProxyVersion)]> {
    let mut versions: BTreeMap<SocketAddr, Option<ProxyVersion>> = BTreeMap::new();
    for set in shares.shares.iter().filter_map(|share| share.endpoints.as_ref()) {
        for address in set.addresses.iter() {
            versions.entry(*address).or_insert(set.proxy_version);
        }
    }
    versions.into_iter().filter_map(|(address, version)| Some((address, version?))).collect()
}

/// What to say where a table cannot hold all endpoints.
pub(super) fn overflow(shares: &Shares) -> Option<String> {
    let n_endpoints: usize = shares
        .shares
        .iter()
        .filter_map(|share| share.endpoints.as_ref())
        .map(|set| set.addresses.len())
        .sum();
    (n_endpoints > MAX_TARGETS)
        .then(|| format!("only {MAX_TARGETS} of {n_endpoints} endpoints of each address family take part"))
}

/// The table for clients of the family that `is_family` tells.
fn table(shares: &Shares, is_family: fn(&SocketAddr) -> bool) -> Maglev {
    let mut weights: BTreeMap<Option<SocketAddr>, u64> = BTreeMap::new();
    let mut add = |target: Option<SocketAddr>, weight: u64| {
        if weights.len() < MAX_TARGETS || weights.contains_key(&target) {
            let sum = weights.entry(target).or_default();
            *sum = sum.saturating_add(weight);
        }
    };
    for Share { weight, endpoints } in &shares.shares {
        let addresses = endpoints.as_deref().map(|set| of_family(set, is_family)).unwrap_or_default();
        if addresses.is_empty() {
            // An invalid reference or a Service without endpoints: its share is refused, not given to the others.
            add(None, maglev::endpoint_weight(*weight, 1));
        }
        for address in &addresses {
            add(Some(*address), maglev::endpoint_weight(*weight, addresses.len()));
        }
    }
    weights.retain(|_, weight| *weight > 0);
    if weights.keys().all(Option::is_none) {
        return Maglev::default();
    }
    let targets: Vec<maglev::Target> = weights
        .iter()
        .map(|(target, weight)| maglev::Target { identity: identity(*target), weight: *weight })
        .collect();
    Maglev {
        slots: maglev::build(&targets, maglev::size_for(&targets)).into(),
        targets: weights.into_keys().collect(),
    }
}

/// Endpoints of the client's own family, else those of the other, which the relay can reach.
fn of_family(set: &EndpointSet, is_family: fn(&SocketAddr) -> bool) -> Vec<SocketAddr> {
    let own: Vec<SocketAddr> = set.addresses.iter().filter(|address| is_family(address)).copied().collect();
    if own.is_empty() { set.addresses.to_vec() } else { own }
}

fn identity(target: Option<SocketAddr>) -> u64 {
    match target {
        Some(address) => hash::endpoint(&Address::from_ip(address.ip()), address.port()),
        None => hash::name(b"refused"),
    }
}
