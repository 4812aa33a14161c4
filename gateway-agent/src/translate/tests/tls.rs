//! TLS passthrough: server names to routes.

use serde_json::{Value, json};

use super::scenario::{route, run};
use crate::api::Object;
use crate::store::testing::{aged, backend, gateway};
use crate::translate::Translation;

const ENTRY: &str = "tcp/*:443";

fn listeners(hostnames: &[&str]) -> Object {
    let listener = |(index, hostname): (usize, &&str)| {
        json!({"name": format!("l{index}"), "protocol": "TLS", "port": 443, "hostname": hostname,
            "tls": {"mode": "Passthrough"}})
    };
    gateway("gw", Value::Array(hostnames.iter().enumerate().map(listener).collect()))
}

fn spec(hostnames: &[&str], service: &str) -> Value {
    json!({"parentRefs": [{"name": "gw"}], "hostnames": hostnames,
        "rules": [{"backendRefs": [{"name": service, "port": 80}]}]})
}

fn with_backends(mut objects: Vec<Object>) -> Translation {
    objects.extend(backend("b1", &["10.0.0.1"]));
    objects.extend(backend("b2", &["10.0.0.2"]));
    run(&objects)
}

#[test]
fn most_specific_name_wins() {
    let done = with_backends(vec![
        listeners(&[""]),
        route("TLSRoute", "wild", spec(&["*.example"], "b1")),
        route("TLSRoute", "exact", spec(&["a.example"], "b2")),
    ]);
    assert_eq!(done.server_name(ENTRY, "a.example"), "10.0.0.2:8080 x1");
    assert_eq!(done.server_name(ENTRY, "b.a.example"), "10.0.0.1:8080 x1");
    assert_eq!(done.server_name(ENTRY, "example"), "closed");
}

#[test]
fn of_routes_with_one_intersection_the_own_hostname_decides_then_age() {
    let done = with_backends(vec![
        listeners(&["a.example"]),
        aged("TLSRoute", "wild", 1, spec(&["*.example"], "b1")),
        aged("TLSRoute", "exact", 2, spec(&["a.example"], "b2")),
    ]);
    assert_eq!(done.server_name(ENTRY, "a.example"), "10.0.0.2:8080 x1");
    let done = with_backends(vec![
        listeners(&["a.example"]),
        aged("TLSRoute", "a", 2, spec(&["*.example"], "b1")),
        aged("TLSRoute", "b", 1, spec(&["*.example"], "b2")),
    ]);
    assert_eq!(done.server_name(ENTRY, "a.example"), "10.0.0.2:8080 x1");
    assert_eq!(done.attached("gw", "l0"), 2);
}

#[test]
fn only_the_most_specific_listener_is_looked_at() {
    let mut narrow = spec(&["a.example"], "b2");
    narrow["parentRefs"] = json!([{"name": "gw", "sectionName": "l1"}]);
    let mut wide = spec(&["*.example"], "b1");
    wide["parentRefs"] = json!([{"name": "gw", "sectionName": "l0"}]);
    let done = with_backends(vec![
        listeners(&["", "*.example"]),
        route("TLSRoute", "narrow", narrow),
        route("TLSRoute", "wide", wide),
    ]);
    assert_eq!(done.server_name(ENTRY, "a.example"), "10.0.0.2:8080 x1");
    assert_eq!(done.server_name(ENTRY, "b.example"), "closed");
}

#[test]
fn names_are_stored_in_lower_case() {
    let done =
        with_backends(vec![listeners(&["*.Example"]), route("TLSRoute", "r", spec(&["A.EXAMPLE"], "b1"))]);
    assert_eq!(done.server_name(ENTRY, "a.example"), "10.0.0.1:8080 x1");
}

#[test]
fn invalid_backend_keeps_its_share() {
    let backends = json!([{"name": "b1", "port": 80, "weight": 3}, {"name": "absent", "port": 80}]);
    let done = with_backends(vec![
        listeners(&[""]),
        route("TLSRoute", "r", json!({"hostnames": ["a.example"], "rules": [{"backendRefs": backends}]})),
    ]);
    assert_eq!(done.server_name(ENTRY, "a.example"), "10.0.0.1:8080 x3, invalid x1");
    assert_eq!(done.parent("TLSRoute", "r", 0, "ResolvedRefs"), "False/BackendNotFound");
}
