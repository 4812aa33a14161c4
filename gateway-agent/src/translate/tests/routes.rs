//! Attachment: parentRefs, allowed kinds and namespaces, hostnames, counts.

use serde_json::{Value, json};

use super::scenario::{http_route, route, run};
use crate::api::Object;
use crate::store::testing::{gateway, object, with_spec};

fn two_listeners() -> Object {
    gateway(
        "gw",
        json!([
            {"name": "a", "protocol": "HTTP", "port": 80, "hostname": "a.example"},
            {"name": "b", "protocol": "HTTP", "port": 81},
        ]),
    )
}

fn with_parent(parent: Value, hostnames: &[&str]) -> Object {
    route("HTTPRoute", "r", json!({"parentRefs": [parent], "hostnames": hostnames}))
}

#[test]
fn section_and_port_select_listeners_and_both_must_match() {
    for (parent, expected, attached) in [
        (json!({"name": "gw"}), "True/Accepted", (1, 1)),
        (json!({"name": "gw", "sectionName": "a"}), "True/Accepted", (1, 0)),
        (json!({"name": "gw", "port": 81}), "True/Accepted", (0, 1)),
        (json!({"name": "gw", "sectionName": "b", "port": 81}), "True/Accepted", (0, 1)),
        (json!({"name": "gw", "sectionName": "a", "port": 81}), "False/NoMatchingParent", (0, 0)),
        (json!({"name": "gw", "sectionName": "absent"}), "False/NoMatchingParent", (0, 0)),
        (json!({"name": "gw", "port": 90_000}), "False/NoMatchingParent", (0, 0)),
    ] {
        let done = run(&[two_listeners(), with_parent(parent.clone(), &[])]);
        assert_eq!(done.parent("HTTPRoute", "r", 0, "Accepted"), expected, "{parent}");
        assert_eq!((done.attached("gw", "a"), done.attached("gw", "b")), attached, "{parent}");
    }
}

#[test]
fn parents_that_are_not_ours_get_no_status() {
    for parent in [
        json!({"name": "absent"}),
        json!({"name": "gw", "namespace": "elsewhere"}),
        json!({"name": "gw", "kind": "Service", "group": ""}),
        json!({"name": "gw", "group": "example.com"}),
        json!({"name": "foreign"}),
    ] {
        let foreign = with_spec(
            "Gateway",
            "foreign",
            json!({"gatewayClassName": "other", "listeners": [{"name": "l", "protocol": "HTTP", "port": 80}]}),
        );
        let done = run(&[two_listeners(), foreign, with_parent(parent.clone(), &[])]);
        assert!(done.status("HTTPRoute", "r").scopes.is_empty(), "{parent}");
    }
}

#[test]
fn each_declared_parent_has_one_entry_in_its_position() {
    let parents = json!([
        {"name": "absent"}, {"name": "gw", "sectionName": "a"}, {"name": "gw", "sectionName": "none"},
    ]);
    let done = run(&[two_listeners(), route("HTTPRoute", "r", json!({ "parentRefs": parents }))]);
    assert_eq!(done.status("HTTPRoute", "r").scopes.len(), 2);
    assert_eq!(done.parent("HTTPRoute", "r", 1, "Accepted"), "True/Accepted");
    assert_eq!(done.parent("HTTPRoute", "r", 2, "Accepted"), "False/NoMatchingParent");
}

#[test]
fn route_that_names_a_listener_twice_counts_once() {
    let parents = json!([{"name": "gw"}, {"name": "gw", "sectionName": "a"}]);
    let done = run(&[two_listeners(), route("HTTPRoute", "r", json!({ "parentRefs": parents }))]);
    assert_eq!(done.attached("gw", "a"), 1);
}

#[test]
fn hostnames_must_intersect() {
    let only_a = || json!({"name": "gw", "sectionName": "a"});
    for (hostnames, expected) in [
        (&["a.example"][..], "True/Accepted"),
        (&["*.example"], "True/Accepted"),
        (&["b.example", "A.Example"], "True/Accepted"),
        (&["b.example"], "False/NoMatchingListenerHostname"),
    ] {
        let done = run(&[two_listeners(), with_parent(only_a(), hostnames)]);
        assert_eq!(done.parent("HTTPRoute", "r", 0, "Accepted"), expected, "{hostnames:?}");
    }
}

#[test]
fn kind_that_the_protocol_does_not_take_is_not_allowed() {
    let listeners = json!([
        {"name": "http", "protocol": "HTTP", "port": 80},
        {"name": "tcp", "protocol": "TCP", "port": 81},
        {"name": "udp", "protocol": "UDP", "port": 82},
        {"name": "tls", "protocol": "TLS", "port": 443, "tls": {"mode": "Passthrough"}},
    ]);
    for (kind, own) in [("HTTPRoute", "http"), ("TCPRoute", "tcp"), ("UDPRoute", "udp"), ("TLSRoute", "tls")]
    {
        for section in ["http", "tcp", "udp", "tls"] {
            let spec = json!({
                "parentRefs": [{"name": "gw", "sectionName": section}], "hostnames": ["a.example"],
                "rules": [{"backendRefs": []}],
            });
            let done = run(&[gateway("gw", listeners.clone()), route(kind, "r", spec)]);
            let expected = if section == own { "True/Accepted" } else { "False/NotAllowedByListeners" };
            assert_eq!(done.parent(kind, "r", 0, "Accepted"), expected, "{kind} at {section}");
            assert_eq!(done.attached("gw", section), usize::from(section == own));
        }
    }
}

#[test]
fn parent_without_section_attaches_to_every_compatible_listener() {
    let listeners = json!([
        {"name": "one", "protocol": "TCP", "port": 81},
        {"name": "two", "protocol": "TCP", "port": 82},
        {"name": "other", "protocol": "UDP", "port": 82},
    ]);
    let tcp = route("TCPRoute", "r", json!({"rules": [{"backendRefs": []}]}));
    let done = run(&[gateway("gw", listeners), tcp]);
    assert_eq!(
        (done.attached("gw", "one"), done.attached("gw", "two"), done.attached("gw", "other")),
        (1, 1, 0)
    );
}

fn namespaced(allowed: Value, labels: Value) -> String {
    let gateway = gateway(
        "infra/gw",
        json!([{"name": "l", "protocol": "HTTP", "port": 80, "allowedRoutes": {"namespaces": allowed}}]),
    );
    let namespace = object(json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "apps", "labels": labels},
    }));
    let spec = json!({"parentRefs": [{"name": "gw", "namespace": "infra"}]});
    run(&[gateway, namespace, with_spec("HTTPRoute", "apps/r", spec)]).parent(
        "HTTPRoute",
        "apps/r",
        0,
        "Accepted",
    )
}

#[test]
fn namespaces_are_allowed_by_same_all_or_selector() {
    let labels = json!({"team": "blue"});
    let no = "False/NotAllowedByListeners";
    let yes = "True/Accepted";
    let expression = |key: &str, operator: &str, values: Value| {
        json!({"from": "Selector", "selector": {"matchExpressions": [
            {"key": key, "operator": operator, "values": values},
        ]}})
    };
    for (allowed, expected) in [
        (json!({}), no),
        (json!({"from": "Same"}), no),
        (json!({"from": "All"}), yes),
        (json!({"from": "Selector", "selector": {"matchLabels": {"team": "blue"}}}), yes),
        (json!({"from": "Selector", "selector": {"matchLabels": {"team": "red"}}}), no),
        (
            json!({"from": "Selector", "selector": {"matchLabels": {"kubernetes.io/metadata.name": "apps"}}}),
            yes,
        ),
        (json!({"from": "Selector", "selector": {"matchLabels": {"team": "blue", "tier": "1"}}}), no),
        (json!({"from": "Selector", "selector": {}}), yes),
        (expression("team", "In", json!(["red", "blue"])), yes),
        (expression("team", "NotIn", json!(["red"])), yes),
        (expression("absent", "NotIn", json!(["red"])), yes),
        (expression("team", "NotIn", json!(["blue"])), no),
        (expression("team", "Exists", json!([])), yes),
        (expression("team", "DoesNotExist", json!([])), no),
        (expression("absent", "DoesNotExist", json!([])), yes),
        (expression("team", "Near", json!([])), no),
    ] {
        assert_eq!(namespaced(allowed.clone(), labels.clone()), expected, "{allowed}");
    }
}

#[test]
fn routes_are_counted_also_where_the_listener_is_not_accepted() {
    let conflicting = json!([
        {"name": "a", "protocol": "HTTP", "port": 80},
        {"name": "b", "protocol": "HTTP", "port": 80},
    ]);
    let done = run(&[gateway("gw", conflicting), http_route("r", &[], &["absent"])]);
    assert_eq!(done.parent("HTTPRoute", "r", 0, "Accepted"), "True/Accepted");
    assert_eq!((done.attached("gw", "a"), done.attached("gw", "b")), (1, 1));
}

#[test]
fn unresolved_backend_leaves_the_route_accepted() {
    let done = run(&[two_listeners(), http_route("r", &[], &["absent"])]);
    assert_eq!(done.parent("HTTPRoute", "r", 0, "Accepted"), "True/Accepted");
    assert_eq!(done.parent("HTTPRoute", "r", 0, "ResolvedRefs"), "False/BackendNotFound");
    assert_eq!(done.attached("gw", "a"), 1);
}

#[test]
fn generation_is_observed() {
    let done = run(&[two_listeners(), http_route("r", &[], &[])]);
    assert_eq!(done.status("HTTPRoute", "r").observed_generation, 1);
    assert_eq!(done.status("Gateway", "gw").observed_generation, 1);
}

// O50: a route that cannot be served changes its own status and no other's.
#[test]
fn bad_route_leaves_the_others_alone() {
    let mut objects = vec![two_listeners()];
    objects.extend((0..10).map(|index| http_route(&format!("good-{index}"), &[], &[])));
    let before = run(&objects);
    let rules = json!([{"matches": [{"path": {"type": "RegularExpression", "value": "("}}]}]);
    objects.push(route("HTTPRoute", "bad", json!({ "rules": rules })));
    let after = run(&objects);
    assert_eq!(after.parent("HTTPRoute", "bad", 0, "Accepted"), "False/UnsupportedValue");
    assert_eq!(before.listeners, after.listeners);
    for index in 0..10 {
        let name = format!("good-{index}");
        assert_eq!(before.status("HTTPRoute", &name), after.status("HTTPRoute", &name));
    }
}
