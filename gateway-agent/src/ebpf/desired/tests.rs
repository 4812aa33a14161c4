use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;

use super::{Surroundings, Target, Verdict, endpoints, verdicts};
use crate::addresses::{Interface, Interfaces, Route};
use crate::snapshot::{
    L4Service, Listener, ListenerKey, Maglev, Protocol, ProxySources, ProxyVersion, Revision, Snapshot,
    Transport,
};
use crate::status::{Applied, Served};

const GATEWAY_V4: [u8; 4] = [192, 0, 2, 1];

fn key(address: Option<&str>) -> ListenerKey {
    ListenerKey {
        transport: Transport::Tcp,
        address: address.map(|text| text.parse().unwrap()),
        port: NonZeroU16::new(80).unwrap(),
    }
}

fn maglev(targets: &[Option<&str>]) -> Arc<Maglev> {
    let targets: Arc<[Option<SocketAddr>]> =
        targets.iter().map(|target| target.map(|text| text.parse().unwrap())).collect();
    let slots = if targets.is_empty() { Arc::default() } else { (0..251).map(|_| 0).collect() };
    Arc::new(Maglev { slots, targets })
}

fn snapshot(key: ListenerKey, v4: &[Option<&str>], v6: &[Option<&str>]) -> Snapshot {
    let service = Arc::new(L4Service { v4: maglev(v4), v6: maglev(v6), ..L4Service::default() });
    let protocol = Protocol::Tcp(service);
    let listener = Listener { key, names: Arc::default(), protocol, proxy_sources: None };
    Snapshot { revision: Revision(7), listeners: [Arc::new(listener)].into() }
}

struct World {
    interfaces: Interfaces,
    routes: HashMap<IpAddr, Route>,
    attached: BTreeSet<u32>,
    proxy: Applied,
    serving: BTreeSet<ListenerKey>,
}

/// Loopback is interface 1; eth0 is 2, with two addresses, and leads to 10.0.0.0/8 and 2001:db8:b::/48.
fn world(key: ListenerKey) -> World {
    let gateway_v6: IpAddr = "2001:db8::1".parse().unwrap();
    let link_local: IpAddr = "fe80::1".parse().unwrap();
    let interface = |index, addresses: Vec<IpAddr>| Interface {
        name: if index == 1 { "lo".into() } else { "eth0".into() },
        index,
        is_loopback: index == 1,
        is_ethernet: index != 1,
        is_up: true,
        addresses,
    };
    let interfaces = Interfaces(vec![
        interface(1, vec![[127, 0, 0, 1].into()]),
        interface(2, vec![GATEWAY_V4.into(), gateway_v6, link_local]),
    ]);
    let out = |source| Route { source, interface: 2, is_local: false };
    let routes = HashMap::from([
        ([10, 0, 0, 1].into(), out(GATEWAY_V4.into())),
        ([10, 0, 0, 2].into(), out(GATEWAY_V4.into())),
        ("2001:db8:b::1".parse().unwrap(), out(gateway_v6)),
        (GATEWAY_V4.into(), Route { source: GATEWAY_V4.into(), interface: 1, is_local: true }),
    ]);
    let proxy = Applied { revision: Revision(7), listeners: BTreeMap::from([(key, Served::By("bind"))]) };
    World { interfaces, routes, attached: BTreeSet::from([2]), proxy, serving: BTreeSet::new() }
}

impl World {
    fn verdict(&self, snapshot: &Snapshot) -> Verdict {
        let surroundings = Surroundings {
            interfaces: &self.interfaces,
            routes: &self.routes,
            attached: &self.attached,
            proxy: &self.proxy,
            serving: &self.serving,
        };
        verdicts(snapshot, &surroundings).into_values().next().unwrap()
    }

    fn served_addresses(&self, snapshot: &Snapshot) -> Vec<String> {
        match self.verdict(snapshot) {
            Verdict::Serve(service) => service.addresses.keys().map(ToString::to_string).collect(),
            other => vec![format!("{other:?}")],
        }
    }

    fn reason(&self, snapshot: &Snapshot) -> String {
        match self.verdict(snapshot) {
            Verdict::Leave(reason) => reason,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn each_family_of_addresses_gets_the_table_of_that_family() {
    let key = key(None);
    let snapshot = snapshot(key, &[Some("10.0.0.1:8080"), None], &[Some("[2001:db8:b::1]:8080")]);
    let Verdict::Serve(service) = world(key).verdict(&snapshot) else { panic!("not served") };
    let target = |address: &str| {
        let table = service.addresses.get(&address.parse::<IpAddr>().unwrap()).unwrap();
        table.targets.to_vec()
    };
    let expected = |address: &str, source: &str| {
        Some(Target { address: address.parse().unwrap(), source: source.parse().unwrap(), interface: 2 })
    };
    assert_eq!(target("192.0.2.1"), [expected("10.0.0.1:8080", "192.0.2.1"), None]);
    assert_eq!(target("2001:db8::1"), [expected("[2001:db8:b::1]:8080", "2001:db8::1")]);
    assert_eq!(service.addresses.len(), 2, "neither loopback nor link-local addresses");
    assert_eq!(endpoints(&snapshot).len(), 2);
}

#[test]
fn family_with_an_endpoint_of_the_other_is_left_to_the_relay() {
    let key = key(None);
    let endpoints = [Some("10.0.0.1:8080")];
    // Clients over IPv6 have endpoints of IPv4 only.
    assert_eq!(world(key).served_addresses(&snapshot(key, &endpoints, &endpoints)), ["192.0.2.1"]);
    let mixed = [Some("10.0.0.1:8080"), Some("[2001:db8:b::1]:8080")];
    let reason = world(key).reason(&snapshot(key, &mixed, &[]));
    assert!(reason.contains("IPv4: endpoint [2001:db8:b::1]:8080 is of the other family"), "{reason}");
    assert!(reason.contains("IPv6: no usable endpoint"), "{reason}");
}

#[test]
fn endpoint_in_the_same_namespace_is_left_to_the_relay() {
    let key = key(None);
    let reason = world(key).reason(&snapshot(key, &[Some("10.0.0.1:80"), Some("192.0.2.1:81")], &[]));
    assert!(reason.contains("endpoint 192.0.2.1:81 is in this network namespace"), "{reason}");
}

#[test]
fn endpoint_without_route_or_program_is_left_to_the_relay() {
    let key = key(None);
    let mut world = world(key);
    let reason = world.reason(&snapshot(key, &[Some("10.9.9.9:80")], &[]));
    assert!(reason.contains("no route to endpoint 10.9.9.9:80"), "{reason}");
    world.attached.clear();
    let reason = world.reason(&snapshot(key, &[Some("10.0.0.1:80")], &[]));
    assert!(reason.contains("interface eth0, towards endpoint 10.0.0.1:80, has no program"), "{reason}");
}

// O08: the stack answers with RST or ICMP.
#[test]
fn listener_without_endpoints_is_left_to_the_stack() {
    let key = key(None);
    assert!(world(key).reason(&snapshot(key, &[], &[])).contains("no usable endpoint"));
    assert!(world(key).reason(&snapshot(key, &[None], &[None])).contains("no usable endpoint"));
}

#[test]
fn listener_of_one_address_is_served_there_alone() {
    let endpoints = [Some("10.0.0.1:8080")];
    let one = key(Some("192.0.2.1"));
    assert_eq!(world(one).served_addresses(&snapshot(one, &endpoints, &[])), ["192.0.2.1"]);
    let loopback = key(Some("127.0.0.1"));
    assert!(world(loopback).reason(&snapshot(loopback, &endpoints, &[])).contains("loopback"));
}

#[test]
fn new_listener_waits_for_the_proxy_and_a_served_one_does_not() {
    let key = key(None);
    let snapshot = snapshot(key, &[Some("10.0.0.1:8080")], &[]);
    let mut world = world(key);
    world.proxy.revision = Revision(6);
    assert_eq!(world.verdict(&snapshot), Verdict::Wait);
    world.serving.insert(key);
    assert!(matches!(world.verdict(&snapshot), Verdict::Serve(_)));
}

#[test]
fn listener_that_the_proxy_failed_is_not_served() {
    let key = key(None);
    let snapshot = snapshot(key, &[Some("10.0.0.1:8080")], &[]);
    let mut world = world(key);
    world.serving.insert(key);
    let failed = Served::Failed { reason: "PortUnavailable", message: "port 80 is taken".into() };
    world.proxy.listeners.insert(key, failed);
    assert!(world.reason(&snapshot).contains("port 80 is taken"));
    world.proxy.listeners.clear();
    assert!(world.reason(&snapshot).contains("not opened"));
}

#[test]
fn listener_with_the_proxy_protocol_on_either_side_is_left_whatever_the_proxy_has_said() {
    let key = key(None);
    let mut world = world(key);
    // As the kernel serves it already and the proxy is behind.
    world.proxy.revision = Revision(6);
    world.serving.insert(key);
    let changed = |change: &dyn Fn(&mut Listener)| {
        let mut snapshot = snapshot(key, &[Some("10.0.0.1:8080")], &[]);
        let mut listener = (*snapshot.listeners[0]).clone();
        change(&mut listener);
        snapshot.listeners = [Arc::new(listener)].into();
        snapshot
    };
    assert!(matches!(world.verdict(&changed(&|_| {})), Verdict::Serve(_)));
    let expecting = changed(&|listener| listener.proxy_sources = Some(ProxySources::new(&[])));
    assert_eq!(world.reason(&expecting), "clients are told by the PROXY protocol");
    let telling = changed(&|listener| {
        let Protocol::Tcp(service) = &mut listener.protocol else { panic!("{listener:?}") };
        Arc::make_mut(service).announced = [("10.0.0.1:8080".parse().unwrap(), ProxyVersion::V2)].into();
    });
    assert_eq!(world.reason(&telling), "endpoints are told of clients by the PROXY protocol");
}
