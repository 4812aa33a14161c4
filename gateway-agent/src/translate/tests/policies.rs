//! BackendTLSPolicy: targets, conflicts, authorities, ancestors; and that nothing it covers is sent in clear.

use serde_json::{Value, json};

use super::scenario::{authority, http_route, route, run, run_with};
use crate::api::Object;
use crate::status::Scope;
use crate::store::testing::{aged, backend, gateway, with_spec};
use crate::translate::{Config, Translation, Watched};

fn policy(name: &str, age: u32, service: &str, section: Option<&str>, validation: Value) -> Object {
    let mut target = json!({"group": "", "kind": "Service", "name": service});
    if let Some(section) = section {
        target["sectionName"] = json!(section);
    }
    let mut validation = validation;
    validation["hostname"] = json!("backend.example");
    aged("BackendTLSPolicy", name, age, json!({"targetRefs": [target], "validation": validation}))
}

const BY_TLS: &str = "tls backend.example 10.0.0.1:8080 x1";

fn system() -> Value {
    json!({"wellKnownCACertificates": "System"})
}

fn by_map(kind: &str, name: &str) -> Value {
    json!({"caCertificateRefs": [{"group": "", "kind": kind, "name": name}]})
}

/// A Gateway, a route to Service `s`, whose ports are `main` and, by UDP, `datagrams`.
fn scene(policies: Vec<Object>) -> Vec<Object> {
    let mut objects = vec![
        gateway("gw", json!([{"name": "http", "protocol": "HTTP", "port": 80}])),
        http_route("r", &[], &["s"]),
        authority("good", true),
        authority("bad", false),
    ];
    objects.extend(backend("s", &["10.0.0.1"]));
    objects.extend(policies);
    objects
}

fn verdict(done: &Translation, name: &str) -> [String; 2] {
    ["Accepted", "ResolvedRefs"].map(|condition| done.ancestor(name, condition))
}

#[test]
fn policy_is_judged_by_its_authorities() {
    let partly = json!({"caCertificateRefs": [
        {"group": "", "kind": "ConfigMap", "name": "good"}, {"group": "", "kind": "ConfigMap", "name": "bad"}]});
    for (validation, accepted, resolved) in [
        (system(), "True/Accepted", "True/ResolvedRefs"),
        (by_map("ConfigMap", "good"), "True/Accepted", "True/ResolvedRefs"),
        (partly, "True/Accepted", "False/InvalidCACertificateRef"),
        (by_map("ConfigMap", "bad"), "False/NoValidCACertificate", "False/InvalidCACertificateRef"),
        (by_map("ConfigMap", "absent"), "False/NoValidCACertificate", "False/InvalidCACertificateRef"),
        (by_map("Secret", "good"), "False/NoValidCACertificate", "False/InvalidKind"),
        (json!({"wellKnownCACertificates": "Other"}), "False/Invalid", "True/ResolvedRefs"),
    ] {
        let done = run(&scene(vec![policy("p", 1, "s", None, validation.clone())]));
        assert_eq!(verdict(&done, "p"), [accepted, resolved], "{validation}");
        let backend = if accepted == "True/Accepted" { BY_TLS } else { "invalid x1" };
        assert_eq!(done.get("any", "/"), backend, "{validation}");
        // The route is not to blame.
        assert_eq!(done.parent("HTTPRoute", "r", 0, "ResolvedRefs"), "True/ResolvedRefs");
    }
}

#[test]
fn system_authorities_have_to_be_there() {
    let config = Config { system_authorities: None, ..super::scenario::config() };
    let done = run_with(&scene(vec![policy("p", 1, "s", None, system())]), &config);
    assert_eq!(verdict(&done, "p"), ["False/Invalid", "True/ResolvedRefs"]);
    assert_eq!(done.get("any", "/"), "invalid x1");
}

#[test]
fn port_follows_its_own_policy_before_that_of_the_service() {
    let bad = by_map("ConfigMap", "bad");
    for (of_service, of_port, expected) in
        [(system(), bad.clone(), "invalid x1"), (bad.clone(), system(), BY_TLS)]
    {
        let older = policy("a", 1, "s", None, of_service);
        let done = run(&scene(vec![older, policy("b", 2, "s", Some("main"), of_port)]));
        assert_eq!(done.get("any", "/"), expected);
    }
    // One that loses has no say, were it valid or not.
    let done = run(&scene(vec![policy("a", 1, "s", None, bad), policy("b", 2, "s", None, system())]));
    assert_eq!(done.get("any", "/"), "invalid x1");
}

#[test]
fn app_protocols_by_tls_need_a_policy() {
    for protocol in ["https", "HTTPS", "kubernetes.io/wss"] {
        let ports = json!({"ports": [{"name": "main", "port": 80, "appProtocol": protocol}]});
        let mut objects = vec![
            gateway("gw", json!([{"name": "http", "protocol": "HTTP", "port": 80}])),
            http_route("r", &[], &["s"]),
            with_spec("Service", "s", ports),
        ];
        let done = run(&objects);
        assert_eq!(done.parent("HTTPRoute", "r", 0, "ResolvedRefs"), "False/UnsupportedProtocol");
        assert_eq!(done.get("any", "/"), "invalid x1");
        objects.push(policy("p", 1, "s", None, system()));
        let done = run(&objects);
        assert_eq!(done.parent("HTTPRoute", "r", 0, "ResolvedRefs"), "True/ResolvedRefs");
        assert_eq!(done.get("any", "/"), "empty x1");
    }
}

// "HTTPRoute, GRPCRoute, TLSRoute with termination" (`BackendTLSPolicySpec.targetRefs`)
#[test]
fn tls_route_follows_policies_where_tls_ends() {
    for (mode, condition) in [("Terminate", "True/Accepted"), ("Passthrough", "absent")] {
        let listener = json!([{"name": "tls", "protocol": "TLS", "port": 443, "tls": {"mode": mode}}]);
        let mut objects = vec![
            gateway("gw", listener),
            route(
                "TLSRoute",
                "t",
                json!({"hostnames": ["a.example"], "rules": [{"backendRefs": [{"name": "s", "port": 80}]}]}),
            ),
            policy("p", 1, "s", None, system()),
        ];
        objects.extend(backend("s", &["10.0.0.1"]));
        let done = run(&objects);
        let scopes = &done.status("BackendTLSPolicy", "p").scopes;
        assert_eq!(scopes.is_empty(), condition == "absent", "{mode}");
    }
}

#[test]
fn what_no_policy_covers_is_served() {
    for (case, service, section) in [("another Service", "t", None), ("another port", "s", Some("else"))] {
        let done = run(&scene(vec![policy("p", 1, service, section, system())]));
        assert_eq!(done.get("any", "/"), "10.0.0.1:8080 x1", "{case}");
    }
    let done = run(&scene(vec![policy("other/p", 1, "s", None, system())]));
    assert_eq!(done.get("any", "/"), "10.0.0.1:8080 x1", "a policy of another namespace");
}

#[test]
fn target_must_exist_with_its_port() {
    for (service, section, expected) in [
        ("s", Some("main"), "True/Accepted"),
        ("s", Some("absent"), "False/TargetNotFound"),
        ("absent", None, "False/TargetNotFound"),
    ] {
        let mut objects = scene(vec![policy("p", 1, service, section, system())]);
        objects.push(http_route("r2", &["two.example"], &["absent"]));
        assert_eq!(run(&objects).ancestor("p", "Accepted"), expected, "{service} {section:?}");
    }
}

#[test]
fn of_policies_on_one_target_the_oldest_wins() {
    let done = run(&scene(vec![
        policy("a-young", 2, "s", None, system()),
        policy("b-old", 1, "s", None, system()),
        policy("c-port", 3, "s", Some("main"), system()),
        policy("d-port", 3, "s", Some("main"), system()),
    ]));
    for (name, expected) in [
        ("a-young", "False/Conflicted"),
        ("b-old", "True/Accepted"),
        // A port of the Service is a target of its own.
        ("c-port", "True/Accepted"),
        ("d-port", "False/Conflicted"),
    ] {
        assert_eq!(done.ancestor(name, "Accepted"), expected, "{name}");
    }
}

#[test]
fn ancestors_are_the_gateways_with_routes_to_the_target() {
    let mut objects = scene(vec![policy("p", 1, "s", None, system())]);
    objects.push(gateway("second", json!([{"name": "http", "protocol": "HTTP", "port": 81}])));
    objects.push(gateway("third", json!([{"name": "http", "protocol": "HTTP", "port": 82}])));
    let parents = json!([{"name": "second"}, {"name": "gw", "sectionName": "http"}]);
    let rules = json!([{"backendRefs": [{"name": "s", "port": 80}]}]);
    objects.push(route("HTTPRoute", "r3", json!({"parentRefs": parents, "rules": rules})));
    let done = run(&objects);
    let names: Vec<String> = done
        .status("BackendTLSPolicy", "p")
        .scopes
        .iter()
        .map(|scope| match &scope.scope {
            Scope::Ancestor { gateway } => gateway.name.to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names, ["gw", "second"]);
}

#[test]
fn policy_without_a_route_to_its_target_has_no_ancestor() {
    let done = run(&[policy("p", 1, "s", None, system())]);
    assert!(done.status("BackendTLSPolicy", "p").scopes.is_empty());
}

#[test]
fn tcp_is_relayed_as_it_is() {
    let mut objects = scene(vec![policy("p", 1, "s", None, system())]);
    objects.push(gateway("l4", json!([{"name": "tcp", "protocol": "TCP", "port": 90}])));
    let rules = json!([{"backendRefs": [{"name": "s", "port": 80}]}]);
    objects.push(route("TCPRoute", "t", json!({"parentRefs": [{"name": "l4"}], "rules": rules})));
    assert!(!run(&objects).l4("tcp/*:90").v4.slots.is_empty());
}

#[test]
fn other_kinds_of_targets_are_invalid() {
    let target = json!([{"group": "example.com", "kind": "Service", "name": "s"}]);
    let validation = json!({"hostname": "b.example", "wellKnownCACertificates": "System"});
    let spec = json!({"targetRefs": target, "validation": validation});
    let done = run(&scene(vec![with_spec("BackendTLSPolicy", "p", spec)]));
    assert!(done.status("BackendTLSPolicy", "p").scopes.is_empty());
    assert_eq!(done.get("any", "/"), "10.0.0.1:8080 x1");
}

#[test]
fn policies_that_are_not_watched_do_not_exist() {
    let watched = Watched::Namespaces(["default".into()].into());
    let config = Config { watched, ..super::scenario::config() };
    let done = run_with(&scene(vec![policy("other/p", 1, "s", None, system())]), &config);
    assert!(!done.statuses.iter().any(|status| status.kind == "BackendTLSPolicy"));
}
