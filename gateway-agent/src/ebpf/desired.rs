//! What the kernel should serve, of all that the snapshot asks for: a pure decision per listener and client family.
//!
//! **Invariant:** no I/O, no clock, no aya. What was found out about the machine (interfaces, routes, where programs are
//! attached, what the proxy has opened) is an argument.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::addresses::{Interfaces, Route};
use crate::snapshot::{L4Service, Listener, ListenerKey, Maglev, Protocol, Snapshot};
use crate::status::{Applied, Served};

/// An endpoint and the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    /// Our own address towards it.
    pub(super) source: IpAddr,
    pub(super) interface: u32,
}

/// The Maglev table of one client family, with routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Index into `targets`.
    pub(super) slots: Arc<[u16]>,
    /// `None`: a refused share, left to the stack.
    pub(super) targets: Arc<[Option<Target>]>,
}

/// A listener as the kernel serves it: for each of its addresses the table of that family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) addresses: BTreeMap<IpAddr, Table>,
}

/// By the snapshot's key; only such as have any address.
pub(super) type Desired = BTreeMap<ListenerKey, Service>;

/// What is known of the machine.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) interfaces: &'a Interfaces,
    /// For every endpoint of the snapshot; absent where there is no route.
    pub(super) routes: &'a HashMap<IpAddr, Route>,
    /// Interfaces whose packets meet the program.
    pub(super) attached: &'a BTreeSet<u32>,
    /// What the proxy has opened.
    pub(super) proxy: &'a Applied,
    /// What the kernel serves now: it stays so while the proxy has not spoken of this revision yet.
    pub(super) serving: &'a BTreeSet<ListenerKey>,
}

/// What becomes of one listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Serve(Service),
    /// Left to the proxy, for the reason given.
    Leave(String),
    /// Decided when the proxy has acknowledged the revision.
    Wait,
}

/// The TCP and UDP listeners of the snapshot; those of other protocols are the proxy's alone and are not in it.
pub(super) fn verdicts(
    snapshot: &Snapshot,
    surroundings: &Surroundings<'_>,
) -> BTreeMap<ListenerKey, Verdict> {
    snapshot
        .listeners
        .iter()
        .filter_map(|listener| {
            let service = l4_service(listener)?;
            let verdict = needs_proxy(listener, service)
                .map(|reason| Verdict::Leave(reason.into()))
                .or_else(|| proxy_objection(snapshot, listener.key, surroundings))
                .unwrap_or_else(|| verdict(listener.key, service, surroundings));
            Some((listener.key, verdict))
        })
        .collect()
}

/// Every endpoint that a route is needed to.
pub(super) fn endpoints(snapshot: &Snapshot) -> BTreeSet<IpAddr> {
    let services = snapshot.listeners.iter().filter_map(|listener| l4_service(listener));
    services
        .flat_map(|service| service.v4.targets.iter().chain(service.v6.targets.iter()))
        .flatten()
        .map(SocketAddr::ip)
        .collect()
}

fn l4_service(listener: &Listener) -> Option<&L4Service> {
    match &listener.protocol {
        Protocol::Tcp(service) | Protocol::Udp(service) => Some(service),
        Protocol::Http(_) | Protocol::Tls(_) => None,
    }
}

/// Why the kernel cannot serve a listener wherever it is: it passes on streams as they are.
fn needs_proxy(listener: &Listener, service: &L4Service) -> Option<&'static str> {
    if listener.proxy_sources.is_some() {
        Some("clients are told by the PROXY protocol")
    } else if !service.announced.is_empty() {
        Some("endpoints are told of clients by the PROXY protocol")
    } else {
        None
    }
}

/// The relay stands behind every listener that the kernel serves; where it does not, the kernel does not either.
fn proxy_objection(
    snapshot: &Snapshot,
    key: ListenerKey,
    surroundings: &Surroundings<'_>,
) -> Option<Verdict> {
    if surroundings.proxy.revision < snapshot.revision {
        return if surroundings.serving.contains(&key) { None } else { Some(Verdict::Wait) };
    }
    match surroundings.proxy.listeners.get(&key) {
        Some(Served::By(_)) => None,
        Some(Served::Left(reason)) => Some(Verdict::Leave(format!("the relay does not serve it: {reason}"))),
        Some(Served::Failed { message, .. }) => {
            Some(Verdict::Leave(format!("the relay cannot serve it: {message}")))
        }
        None => Some(Verdict::Leave("the relay has not opened it".into())),
    }
}

fn verdict(key: ListenerKey, service: &L4Service, surroundings: &Surroundings<'_>) -> Verdict {
    let addresses = match key.address {
        Some(address) if address.is_loopback() => {
            return Verdict::Leave("loopback clients are served by the relay".into());
        }
        Some(address) => vec![address],
        None => surroundings.interfaces.external(),
    };
    let v4 = table(&service.v4, true, surroundings);
    let v6 = table(&service.v6, false, surroundings);
    let mut served = Service::default();
    let mut reasons = BTreeSet::new();
    for address in addresses {
        let (table, family) = if address.is_ipv4() { (&v4, "IPv4") } else { (&v6, "IPv6") };
        match table {
            Ok(table) => drop(served.addresses.insert(address, table.clone())),
            Err(reason) => drop(reasons.insert(format!("{family}: {reason}"))),
        }
    }
    if !served.addresses.is_empty() {
        return Verdict::Serve(served);
    }
    if reasons.is_empty() {
        return Verdict::Leave("the network namespace has no address but loopback".into());
    }
    Verdict::Leave(reasons.into_iter().collect::<Vec<_>>().join("; "))
}

fn table(maglev: &Maglev, is_v4: bool, surroundings: &Surroundings<'_>) -> Result<Table, String> {
    let refuse_all = maglev.slots.is_empty() || maglev.targets.iter().all(Option::is_none);
    if refuse_all {
        return Err("no usable endpoint".into());
    }
    let targets: Result<Arc<[Option<Target>]>, String> = maglev
        .targets
        .iter()
        .map(|target| target.map(|address| route(address, is_v4, surroundings)).transpose())
        .collect();
    Ok(Table { slots: maglev.slots.clone(), targets: targets? })
}

fn route(address: SocketAddr, is_v4: bool, surroundings: &Surroundings<'_>) -> Result<Target, String> {
    if address.is_ipv4() != is_v4 {
        return Err(format!("endpoint {address} is of the other family"));
    }
    let Some(route) = surroundings.routes.get(&address.ip()) else {
        return Err(format!("no route to endpoint {address}"));
    };
    if route.is_local {
        return Err(format!("endpoint {address} is in this network namespace"));
    }
    if route.source.is_ipv4() != is_v4 {
        return Err(format!("no address of the family to reach endpoint {address} from"));
    }
    if !surroundings.attached.contains(&route.interface) {
        let interface = surroundings.interfaces.0.iter().find(|each| each.index == route.interface);
        let name = interface.map_or("unknown", |each| each.name.as_str());
        return Err(format!("interface {name}, towards endpoint {address}, has no program attached"));
    }
    Ok(Target { address, source: route.source, interface: route.interface })
}

#[cfg(test)]
mod tests;
