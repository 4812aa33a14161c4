//! TCP and UDP: the serving route and its Maglev tables.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::scenario::{route, run};
use crate::api::Object;
use crate::snapshot::{L4Service, Maglev};
use crate::store::testing::{aged, backend, gateway, service, slice};

fn tcp_gateway() -> Object {
    gateway("gw", json!([{"name": "tcp", "protocol": "TCP", "port": 90}]))
}

fn served(backends: Value, services: Vec<Object>) -> L4Service {
    let mut objects =
        vec![tcp_gateway(), route("TCPRoute", "r", json!({"rules": [{ "backendRefs": backends }]}))];
    objects.extend(services);
    run(&objects).l4("tcp/*:90").clone()
}

/// Each target's share of the slots, in per cent.
fn shares(table: &Maglev) -> BTreeMap<Option<SocketAddr>, usize> {
    let mut slots: BTreeMap<Option<SocketAddr>, usize> = BTreeMap::new();
    for slot in table.slots.iter() {
        *slots.entry(table.targets[usize::from(*slot)]).or_default() += 1;
    }
    slots.values_mut().for_each(|n| *n = (*n * 100 + table.slots.len() / 2) / table.slots.len());
    slots
}

fn address(text: &str) -> Option<SocketAddr> {
    Some(text.parse().unwrap())
}

#[test]
fn all_routes_count_and_the_oldest_serves() {
    let spec = |service: &str| json!({"parentRefs": [{"name": "gw"}], "rules": [{"backendRefs": [{"name": service, "port": 80}]}]});
    let mut objects = vec![
        tcp_gateway(),
        aged("TCPRoute", "a", 2, spec("younger")),
        aged("TCPRoute", "b", 1, spec("older")),
    ];
    objects.extend(backend("younger", &["10.0.0.1"]));
    objects.extend(backend("older", &["10.0.0.2"]));
    let done = run(&objects);
    assert_eq!(done.attached("gw", "tcp"), 2);
    let service = done.l4("tcp/*:90");
    assert_eq!(&*service.route.as_ref().unwrap().object.name, "b");
    assert_eq!(service.v4.pick(1), address("10.0.0.2:8080"));
    for name in ["a", "b"] {
        assert_eq!(done.parent("TCPRoute", name, 0, "Accepted"), "True/Accepted");
    }
}

#[test]
fn listener_without_a_route_is_there_and_refuses() {
    let done = run(&[tcp_gateway()]);
    let service = done.l4("tcp/*:90");
    assert_eq!(service.route, None);
    assert!(service.v4.slots.is_empty() && service.v6.slots.is_empty());
}

#[test]
fn weight_of_a_backend_is_spread_over_its_endpoints() {
    let mut services = backend("a", &["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    services.extend(backend("b", &["10.0.1.1"]));
    let backends = json!([{"name": "a", "port": 80, "weight": 60}, {"name": "b", "port": 80, "weight": 40}]);
    let table = shares(&served(backends, services).v4);
    let expected = [
        (address("10.0.0.1:8080"), 20),
        (address("10.0.0.2:8080"), 20),
        (address("10.0.0.3:8080"), 20),
        (address("10.0.1.1:8080"), 40),
    ];
    assert_eq!(table, BTreeMap::from(expected));
}

// O44, on TCPRoute
#[test]
fn share_of_invalid_and_empty_backends_is_refused() {
    let mut services = backend("a", &["10.0.0.1"]);
    services.push(service("empty", 80));
    let three = json!([
        {"name": "a", "port": 80, "weight": 50}, {"name": "absent", "port": 80, "weight": 25},
        {"name": "empty", "port": 80, "weight": 25},
    ]);
    let table = shares(&served(three, services.clone()).v4);
    assert_eq!(table, BTreeMap::from([(None, 50), (address("10.0.0.1:8080"), 50)]));

    let none_left = json!([{"name": "absent", "port": 80}, {"name": "empty", "port": 80}]);
    assert_eq!(*served(none_left, services.clone()).v4, Maglev::default());
    let no_weight = json!([{"name": "a", "port": 80, "weight": 0}]);
    assert_eq!(*served(no_weight, services.clone()).v4, Maglev::default());
    let zero_beside = json!([{"name": "a", "port": 80}, {"name": "absent", "port": 80, "weight": 0}]);
    assert_eq!(shares(&served(zero_beside, services).v4), BTreeMap::from([(address("10.0.0.1:8080"), 100)]));
}

#[test]
fn clients_get_endpoints_of_their_own_family_else_of_the_other() {
    let both = vec![
        service("a", 80),
        slice("v4", "a", json!([{"addresses": ["10.0.0.1"]}])),
        slice("v6", "a", json!([{"addresses": ["2001:db8::5"]}])),
    ];
    let backends = json!([{"name": "a", "port": 80}]);
    let done = served(backends.clone(), both.clone());
    assert_eq!(shares(&done.v4), BTreeMap::from([(address("10.0.0.1:8080"), 100)]));
    assert_eq!(shares(&done.v6), BTreeMap::from([(address("[2001:db8::5]:8080"), 100)]));
    let done = served(backends, both[..2].to_vec());
    assert_eq!(shares(&done.v6), BTreeMap::from([(address("10.0.0.1:8080"), 100)]));
}

#[test]
fn endpoint_behind_two_backends_is_one_target() {
    let mut services = backend("a", &["10.0.0.1"]);
    services.extend(backend("b", &["10.0.0.1", "10.0.0.2"]));
    let backends = json!([{"name": "a", "port": 80}, {"name": "b", "port": 80}]);
    let done = served(backends, services);
    let expected = [(address("10.0.0.1:8080"), 75), (address("10.0.0.2:8080"), 25)];
    assert_eq!(shares(&done.v4), BTreeMap::from(expected));
}

#[test]
fn table_does_not_depend_on_the_order_of_backends() {
    let mut services = backend("a", &["10.0.0.1", "10.0.0.2"]);
    services.extend(backend("b", &["10.0.1.1"]));
    let one = served(json!([{"name": "a", "port": 80}, {"name": "b", "port": 80}]), services.clone());
    let other = served(json!([{"name": "b", "port": 80}, {"name": "a", "port": 80}]), services);
    assert_eq!(one, other);
}

#[test]
fn more_endpoints_than_a_table_takes_are_said_and_the_first_serve() {
    let endpoints: Value = (0..8_200)
        .map(|index| json!({"addresses": [format!("10.1.{}.{}", index / 250, index % 250)]}))
        .collect();
    let mut objects = vec![tcp_gateway(), service("a", 80), slice("s", "a", endpoints)];
    objects.push(route("TCPRoute", "r", json!({"rules": [{"backendRefs": [{"name": "a", "port": 80}]}]})));
    let done = run(&objects);
    let service = done.l4("tcp/*:90");
    assert_eq!(service.v4.targets.len(), 8_192);
    assert!(!service.v4.slots.is_empty());
    let accepted = done.status("TCPRoute", "r").scopes[0].condition("Accepted").unwrap();
    assert!(accepted.message.contains("only 8192 of 8200 endpoints"), "{}", accepted.message);
}
