//! Gateways with addresses out of a pool.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::scenario::{config, run_with};
use crate::addresses::Missing;
use crate::api::Object;
use crate::provision::{AddressProvider, Pool};
use crate::status::Address;
use crate::store::testing::object;
use crate::translate::{Config, Translation};

fn pool(ranges: &str, is_recorded: bool) -> Config {
    let ranges = ranges.split(',').map(|range| range.parse().unwrap()).collect();
    Config { provider: AddressProvider::Pool(Pool { ranges, is_recorded }), ..config() }
}

fn gateway(name: &str, addresses: Value, recorded: &[&str]) -> Object {
    let recorded: Vec<Value> =
        recorded.iter().map(|value| json!({"type": "IPAddress", "value": value})).collect();
    object(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"namespace": "default", "name": name, "generation": 1},
        "spec": {"gatewayClassName": "gateway-agent", "addresses": addresses,
            "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]},
        "status": {"addresses": recorded},
    }))
}

fn listed(done: &Translation, name: &str) -> Vec<String> {
    done.status("Gateway", name).addresses().iter().map(Address::to_string).collect()
}

#[test]
fn assignment_counts_once_it_is_recorded() {
    let config = pool("192.0.2.1-192.0.2.2,2001:db8::1", true);
    let done = run_with(&[gateway("a", json!([]), &[])], &config);
    assert_eq!(listed(&done, "a"), ["192.0.2.1", "2001:db8::1"]);
    assert!(done.keys().is_empty());
    assert_eq!(done.gateway("a", "Programmed"), "False/AddressNotAssigned");
    let done = run_with(&[gateway("a", json!([]), &["192.0.2.1", "2001:db8::1"])], &config);
    assert_eq!(done.keys(), ["tcp/192.0.2.1:80", "tcp/[2001:db8::1]:80"]);
    assert_eq!(done.gateway("a", "Programmed"), "absent");
}

#[test]
fn without_an_api_to_record_it_in_an_assignment_counts_at_once() {
    let done = run_with(&[gateway("a", json!([]), &[])], &pool("192.0.2.1", false));
    assert_eq!(done.keys(), ["tcp/192.0.2.1:80"]);
}

#[test]
fn used_up_pool_is_said() {
    let done = run_with(
        &[gateway("a", json!([]), &["192.0.2.1"]), gateway("b", json!([]), &[])],
        &pool("192.0.2.1", true),
    );
    assert_eq!(done.gateway("b", "Programmed"), "False/AddressNotAssigned");
    let message = done.complaint("Gateway", "b");
    assert!(message.contains("no IPv4 address is left in the pool 192.0.2.1"), "{message}");
    assert!(listed(&done, "b").is_empty());
}

#[test]
fn address_outside_of_the_pool_is_not_usable() {
    let config = pool("192.0.2.1-192.0.2.9", true);
    let done = run_with(&[gateway("a", json!([{"value": "198.51.100.1"}]), &[])], &config);
    assert_eq!(done.gateway("a", "Programmed"), "False/AddressNotUsable");
    assert!(listed(&done, "a").is_empty());
    let done = run_with(&[gateway("a", json!([{"value": "192.0.2.7"}]), &["192.0.2.7"])], &config);
    assert_eq!(done.keys(), ["tcp/192.0.2.7:80"]);
    assert_eq!(listed(&done, "a"), ["192.0.2.7"]);
}

#[test]
fn gateways_that_ask_for_one_address_follow_the_merge_rules() {
    let asked = json!([{"value": "192.0.2.7"}]);
    let objects = [gateway("a", asked.clone(), &["192.0.2.7"]), gateway("b", asked, &["192.0.2.7"])];
    let done = run_with(&objects, &pool("192.0.2.1-192.0.2.9", true));
    assert_eq!(done.keys(), ["tcp/192.0.2.7:80"]);
    assert_eq!(done.listener("b", "http", "Conflicted"), "True/HostnameConflict");
}

#[test]
fn address_that_does_not_arrive_is_said_and_served_all_the_same() {
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    let undelivered = Missing { addresses: [address].into(), reason: "no capability".into() };
    let config = Config { undelivered: undelivered.into(), ..pool("192.0.2.1", true) };
    let done = run_with(&[gateway("a", json!([]), &["192.0.2.1"])], &config);
    assert_eq!(done.keys(), ["tcp/192.0.2.1:80"]);
    assert_eq!(done.gateway("a", "Programmed"), "False/AddressNotUsable");
}
