//! Where a Gateway's listeners are, and what its status says of it.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::scenario::{config, run, run_with};
use crate::api::Object;
use crate::status::Address;
use crate::store::testing::{aged, gateway, with_spec};
use crate::translate::{Config, PodIdentity, Translation};

fn with_addresses(addresses: Value) -> Object {
    let listeners = json!([{"name": "http", "protocol": "HTTP", "port": 80}]);
    with_spec(
        "Gateway",
        "gw",
        json!({"gatewayClassName": "gateway-agent", "listeners": listeners, "addresses": addresses}),
    )
}

fn listed(done: &Translation) -> Vec<String> {
    done.status("Gateway", "gw").addresses().iter().map(Address::to_string).collect()
}

#[test]
fn without_wishes_every_address_is_used_and_the_local_ones_are_listed() {
    let done = run(&[with_addresses(json!([]))]);
    assert_eq!(done.keys(), ["tcp/*:80"]);
    assert_eq!(listed(&done), ["192.0.2.1", "2001:db8::1"]);
}

#[test]
fn configured_addresses_confine_the_listeners() {
    let config =
        Config { addresses: vec!["192.0.2.1".parse().unwrap(), "127.0.0.1".parse().unwrap()], ..config() };
    let done = run_with(&[with_addresses(json!([]))], &config);
    assert_eq!(done.keys(), ["tcp/127.0.0.1:80", "tcp/192.0.2.1:80"]);
    assert_eq!(listed(&done), ["192.0.2.1", "127.0.0.1"]);
    let other = with_addresses(json!([{"value": "2001:db8::1"}]));
    assert_eq!(run_with(&[other], &config).gateway("gw", "Programmed"), "False/AddressNotUsable");
}

#[test]
fn local_address_that_is_wished_for_is_used() {
    for address in ["192.0.2.1", "2001:db8::1", "127.0.0.1"] {
        let done = run(&[with_addresses(json!([{"type": "IPAddress", "value": address}]))]);
        assert_eq!(done.listeners.len(), 1, "{address}");
        assert_eq!(listed(&done), [address]);
        assert_eq!(done.gateway("gw", "Accepted"), "True/Accepted");
    }
}

#[test]
fn type_without_value_asks_for_any_address() {
    assert_eq!(run(&[with_addresses(json!([{"type": "IPAddress"}]))]).keys(), ["tcp/*:80"]);
}

#[test]
fn address_of_another_machine_is_not_usable() {
    let done = run(&[with_addresses(json!([{"value": "198.51.100.7"}]))]);
    assert_eq!(done.gateway("gw", "Accepted"), "True/Accepted");
    assert_eq!(done.gateway("gw", "Programmed"), "False/AddressNotUsable");
    assert!(done.listeners.is_empty() && listed(&done).is_empty());
}

#[test]
fn usable_address_serves_beside_one_that_is_not() {
    let done = run(&[with_addresses(json!([{"value": "198.51.100.7"}, {"value": "192.0.2.1"}]))]);
    assert_eq!(done.gateway("gw", "Programmed"), "False/AddressNotUsable");
    assert_eq!(done.keys(), ["tcp/192.0.2.1:80"]);
}

#[test]
fn other_types_are_unsupported() {
    for kind in ["Hostname", "example.com/Pool"] {
        let done = run(&[with_addresses(json!([{"type": kind, "value": "x"}, {"value": "192.0.2.1"}]))]);
        assert_eq!(done.gateway("gw", "Accepted"), "False/UnsupportedAddress");
        assert!(done.listeners.is_empty() && listed(&done).is_empty());
    }
}

#[test]
fn more_than_16_addresses_are_served_and_the_first_16_listed() {
    let local: Vec<IpAddr> = (1..=20).map(|index| IpAddr::from([192, 0, 2, index])).collect();
    let done = run_with(&[with_addresses(json!([]))], &Config { local_addresses: local, ..config() });
    assert_eq!(listed(&done).len(), 16);
    let accepted = done.status("Gateway", "gw").scopes[0].condition("Accepted").unwrap().clone();
    assert!(accepted.message.contains("the first 16 of 20"), "{}", accepted.message);
}

#[test]
fn addresses_of_all_replicas_are_listed() {
    let own_pod = PodIdentity {
        namespace: "default".into(),
        ips: vec!["192.0.2.1".parse().unwrap()],
        service: "agents".into(),
        ..PodIdentity::default()
    };
    let config = Config { own_pod, ..config() };
    let endpoints =
        json!([{"addresses": ["192.0.2.7"]}, {"addresses": ["192.0.2.8"], "conditions": {"ready": false}}]);
    let replicas = crate::store::testing::slice("agents-x", "agents", endpoints);
    let done = run_with(&[with_addresses(json!([])), replicas], &config);
    assert_eq!(listed(&done), ["192.0.2.1", "192.0.2.7", "2001:db8::1"]);
    assert_eq!(done.keys(), ["tcp/*:80"]);
}

#[test]
fn gateway_on_every_address_is_also_behind_an_address_that_another_names() {
    let http = |hostname: &str| json!([{"name": "l", "protocol": "HTTP", "port": 80, "hostname": hostname}]);
    let named = with_spec(
        "Gateway",
        "named",
        json!({"gatewayClassName": "gateway-agent", "listeners": http("b.example"),
            "addresses": [{"value": "192.0.2.1"}]}),
    );
    let done = run(&[gateway("gw", http("a.example")), named]);
    assert_eq!(done.keys(), ["tcp/*:80", "tcp/192.0.2.1:80"]);
    assert_eq!(done.listeners[0].names.len(), 1);
    assert_eq!(done.listeners[1].names.len(), 2);
    let keys =
        |gateway: &str| done.status("Gateway", gateway).scopes[1].listener().expect("a listener").keys.len();
    assert_eq!((keys("gw"), keys("named")), (2, 1));
}

#[test]
fn gateways_on_different_addresses_do_not_conflict() {
    let spec = |address: &str| {
        json!({"gatewayClassName": "gateway-agent", "addresses": [{"value": address}],
            "listeners": [{"name": "l", "protocol": "TCP", "port": 80}]})
    };
    let done =
        run(&[aged("Gateway", "a", 1, spec("192.0.2.1")), aged("Gateway", "b", 2, spec("2001:db8::1"))]);
    assert_eq!(done.listener("b", "l", "Accepted"), "True/Accepted");
    assert_eq!(done.keys().len(), 2);
}
