//! backendRefs, grants, and which endpoints of a Service are used.

use serde_json::{Value, json};

use super::scenario::{config, http_route, route, run, run_with};
use crate::api::Object;
use crate::store::testing::{backend, gateway, object, service, slice, with_spec};
use crate::translate::{Config, PodIdentity, Translation};

fn http_gateway() -> Object {
    gateway("gw", json!([{"name": "http", "protocol": "HTTP", "port": 80}]))
}

fn to_backends(backends: Value) -> Object {
    route("HTTPRoute", "r", json!({"rules": [{ "backendRefs": backends }]}))
}

/// The answer to a request and the route's ResolvedRefs.
fn outcome(done: &Translation) -> (String, String) {
    (done.get("any", "/"), done.parent("HTTPRoute", "r", 0, "ResolvedRefs"))
}

#[test]
fn invalid_references_have_the_reason_of_the_spec() {
    let external = json!({"type": "ExternalName", "externalName": "example.com",
        "ports": [{"name": "main", "port": 80}]});
    let https = json!({"ports": [{"name": "main", "port": 80, "appProtocol": "https"}]});
    for (backend_ref, reason) in [
        (json!({"name": "absent", "port": 80}), "BackendNotFound"),
        (json!({"name": "web", "port": 81}), "BackendNotFound"),
        (json!({"name": "web"}), "BackendNotFound"),
        (json!({"name": "web", "port": 80, "kind": "Pod"}), "InvalidKind"),
        (json!({"name": "web", "port": 80, "group": "example.com"}), "InvalidKind"),
        (json!({"name": "external", "port": 80}), "InvalidKind"),
        (json!({"name": "https", "port": 80}), "UnsupportedProtocol"),
        (json!({"name": "web", "port": 80, "namespace": "elsewhere"}), "RefNotPermitted"),
    ] {
        let mut objects = vec![
            http_gateway(),
            to_backends(json!([backend_ref.clone(), {"name": "web", "port": 80}])),
            with_spec("Service", "external", external.clone()),
            with_spec("Service", "https", https.clone()),
        ];
        objects.extend(backend("web", &["10.0.0.1"]));
        let expected = ("invalid x1, 10.0.0.1:8080 x1".into(), format!("False/{reason}"));
        assert_eq!(outcome(&run(&objects)), expected, "{backend_ref}");
        assert_eq!(run(&objects).parent("HTTPRoute", "r", 0, "Accepted"), "True/Accepted");
    }
}

#[test]
fn transport_of_the_service_port_must_be_the_routes() {
    let udp_only = json!({"ports": [{"name": "main", "port": 80, "protocol": "UDP"}]});
    let done = run(&[http_gateway(), http_route("r", &[], &["web"]), with_spec("Service", "web", udp_only)]);
    assert_eq!(outcome(&done).1, "False/BackendNotFound");
    assert!(done.complaint("HTTPRoute", "r").contains("no TCP port 80"));
}

#[test]
fn app_protocols_of_http_in_clear_are_served() {
    for app_protocol in ["http", "HTTP", "kubernetes.io/ws", "kubernetes.io/h2c"] {
        let ports = json!({"ports": [{"name": "main", "port": 80, "appProtocol": app_protocol}]});
        let done = run(&[http_gateway(), http_route("r", &[], &["web"]), with_spec("Service", "web", ports)]);
        assert_eq!(outcome(&done), ("empty x1".into(), "True/ResolvedRefs".into()), "{app_protocol}");
    }
}

fn grant(spec: Value) -> Object {
    with_spec("ReferenceGrant", "b/grant", spec)
}

// O49
#[test]
fn reference_grant_permits_and_its_removal_revokes() {
    let from = json!([{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "default"}]);
    let mut objects =
        vec![http_gateway(), to_backends(json!([{"name": "web", "namespace": "b", "port": 80}]))];
    objects.extend(backend("b/web", &["10.0.0.1"]));
    let refused = ("invalid x1".to_owned(), "False/RefNotPermitted".to_owned());
    let served = ("10.0.0.1:8080 x1".to_owned(), "True/ResolvedRefs".to_owned());
    assert_eq!(outcome(&run(&objects)), refused);
    for (to, expected) in [
        (json!([{"group": "", "kind": "Service"}]), &served),
        (json!([{"group": "", "kind": "Service", "name": ""}]), &served),
        (json!([{"group": "", "kind": "Service", "name": "web"}]), &served),
        (json!([{"group": "", "kind": "Service", "name": "other"}]), &refused),
        (json!([{"group": "", "kind": "Secret"}]), &refused),
    ] {
        objects.push(grant(json!({"from": from, "to": to})));
        assert_eq!(outcome(&run(&objects)), *expected, "{to}");
        objects.pop();
    }
    for (field, value) in [("kind", "TCPRoute"), ("namespace", "other"), ("group", "")] {
        let mut from = from.clone();
        from[0][field] = json!(value);
        objects.push(grant(json!({"from": from, "to": [{"group": "", "kind": "Service"}]})));
        assert_eq!(outcome(&run(&objects)), refused, "{from}");
        objects.pop();
    }
    assert_eq!(outcome(&run(&objects)), refused);
}

#[test]
fn grant_in_another_namespace_than_the_target_permits_nothing() {
    let spec = json!({
        "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "default"}],
        "to": [{"group": "", "kind": "Service"}],
    });
    let mut objects = vec![
        http_gateway(),
        to_backends(json!([{"name": "web", "namespace": "b", "port": 80}])),
        with_spec("ReferenceGrant", "default/grant", spec.clone()),
        with_spec("ReferenceGrant", "bb/grant", spec),
    ];
    objects.extend(backend("b/web", &["10.0.0.1"]));
    assert_eq!(outcome(&run(&objects)).1, "False/RefNotPermitted");
}

#[test]
fn permission_is_decided_before_existence() {
    let mut objects =
        vec![http_gateway(), to_backends(json!([{"name": "absent", "namespace": "b", "port": 80}]))];
    assert_eq!(outcome(&run(&objects)).1, "False/RefNotPermitted");
    objects.push(grant(json!({
        "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "default"}],
        "to": [{"group": "", "kind": "Service"}],
    })));
    assert_eq!(outcome(&run(&objects)).1, "False/BackendNotFound");
}

// O44
#[test]
fn weights_split_and_zero_gets_nothing() {
    let mut services = backend("a", &["10.0.0.1"]);
    services.extend(backend("b", &["10.0.0.2"]));
    services.push(service("empty", 80));
    for (backends, expected) in [
        (json!([{"name": "a", "port": 80}]), "10.0.0.1:8080 x1"),
        (
            json!([{"name": "a", "port": 80, "weight": 0}, {"name": "b", "port": 80, "weight": 7}]),
            "10.0.0.1:8080 x0, 10.0.0.2:8080 x7",
        ),
        (json!([{"name": "a", "port": 80, "weight": 0}, {"name": "b", "port": 80, "weight": 0}]), "500"),
        (
            json!([{"name": "a", "port": 80, "weight": 50}, {"name": "absent", "port": 80, "weight": 50}]),
            "10.0.0.1:8080 x50, invalid x50",
        ),
        (
            json!([{"name": "a", "port": 80, "weight": 50}, {"name": "empty", "port": 80, "weight": 50}]),
            "10.0.0.1:8080 x50, empty x50",
        ),
        (json!([{"name": "empty", "port": 80}]), "empty x1"),
        (json!([{"name": "absent", "port": 80}]), "invalid x1"),
        (json!([]), "500"),
    ] {
        let mut objects = vec![http_gateway(), to_backends(backends.clone())];
        objects.extend(services.iter().cloned());
        assert_eq!(run(&objects).get("any", "/"), expected, "{backends}");
    }
}

fn endpoints_of(slices: Vec<Object>) -> String {
    let mut objects = vec![http_gateway(), http_route("r", &[], &["web"]), service("web", 80)];
    objects.extend(slices);
    run(&objects).get("any", "/")
}

fn endpoint(address: &str, ready: Option<bool>, serving: Option<bool>, terminating: Option<bool>) -> Value {
    json!({"addresses": [address],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating}})
}

// O41
#[test]
fn terminating_endpoints_serve_only_where_none_is_ready() {
    let (yes, no) = (Some(true), Some(false));
    let other = || endpoint("10.0.0.9", yes, yes, no);
    for (leaving, alone, beside) in [
        (endpoint("10.0.0.1", yes, yes, no), "10.0.0.1:8080 x1", "10.0.0.1:8080+10.0.0.9:8080 x1"),
        (endpoint("10.0.0.1", no, yes, yes), "10.0.0.1:8080 x1", "10.0.0.9:8080 x1"),
        (endpoint("10.0.0.1", no, no, yes), "empty x1", "10.0.0.9:8080 x1"),
        (endpoint("10.0.0.1", no, no, no), "empty x1", "10.0.0.9:8080 x1"),
        (endpoint("10.0.0.1", None, None, None), "10.0.0.1:8080 x1", "10.0.0.1:8080+10.0.0.9:8080 x1"),
    ] {
        assert_eq!(endpoints_of(vec![slice("s", "web", json!([leaving.clone()]))]), alone, "{leaving}");
        assert_eq!(
            endpoints_of(vec![slice("s", "web", json!([leaving.clone(), other()]))]),
            beside,
            "{leaving}"
        );
        let two = vec![slice("s", "web", json!([leaving.clone()])), slice("t", "web", json!([other()]))];
        assert_eq!(endpoints_of(two), beside, "{leaving}");
    }
}

// O42
#[test]
fn slices_are_united_without_duplicates() {
    let many = |from: usize, to: usize| -> Value {
        (from..to)
            .map(|index| json!({"addresses": [format!("10.1.{}.{}", index / 200, index % 200 + 1)]}))
            .collect()
    };
    let slices = vec![
        slice("a", "web", many(0, 100)),
        slice("b", "web", many(100, 200)),
        slice("c", "web", many(190, 240)),
    ];
    let count = |slices: Vec<Object>| endpoints_of(slices).matches(":8080").count();
    assert_eq!(count(slices.clone()), 240);
    assert_eq!(count(slices[1..].to_vec()), 140);
    assert_eq!(count(Vec::new()), 0);
}

// O42
#[test]
fn both_families_are_used() {
    let v6 = slice("v6", "web", json!([{"addresses": ["2001:db8::5"]}]));
    let v4 = slice("v4", "web", json!([{"addresses": ["10.0.0.1"]}]));
    assert_eq!(endpoints_of(vec![v6.clone(), v4]), "10.0.0.1:8080+[2001:db8::5]:8080 x1");
    assert_eq!(endpoints_of(vec![v6]), "[2001:db8::5]:8080 x1");
}

// O43
#[test]
fn port_is_the_slices_own_by_name() {
    let headless = json!({"clusterIP": "None", "ports": [
        {"name": "web", "port": 80, "targetPort": 3000}, {"name": "admin", "port": 81, "targetPort": 3001},
    ]});
    let with_ports = |name: &str, address: &str, ports: Value| {
        object(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
            "ports": ports, "endpoints": [{"addresses": [address]}],
        }))
    };
    let done = run(&[
        http_gateway(),
        http_route("r", &[], &["web"]),
        with_spec("Service", "web", headless),
        with_ports("a", "10.0.0.1", json!([{"name": "admin", "port": 3001}, {"name": "web", "port": 3000}])),
        with_ports("b", "10.0.0.2", json!([{"name": "web", "port": 4000}])),
        with_ports("c", "10.0.0.3", json!([{"name": "admin", "port": 3001}])),
        with_ports("d", "10.0.0.4", json!([{"name": "web", "port": 3000, "protocol": "UDP"}])),
        with_ports("e", "10.0.0.5", json!([{"name": "web"}])),
    ]);
    assert_eq!(done.get("any", "/"), "10.0.0.1:3000+10.0.0.2:4000 x1");
}

#[test]
fn slices_of_another_service_or_namespace_do_not_count() {
    let own = slice("a", "web", json!([{"addresses": ["10.0.0.1"]}]));
    let other = slice("b", "other", json!([{"addresses": ["10.0.0.2"]}]));
    let elsewhere = slice("elsewhere/a", "web", json!([{"addresses": ["10.0.0.3"]}]));
    assert_eq!(endpoints_of(vec![own, other, elsewhere]), "10.0.0.1:8080 x1");
}

/// A sidecar serves the workload of its own pod.
#[test]
fn local_endpoints_are_those_of_the_own_pod() {
    let own_pod = PodIdentity { ips: vec!["10.0.0.2".parse().unwrap()], ..PodIdentity::default() };
    let config = Config { local_endpoints: true, own_pod, ..config() };
    let mut objects = backend("svc", &["10.0.0.1", "10.0.0.2"]);
    objects.push(gateway("gw", json!([{"name": "l", "protocol": "HTTP", "port": 80}])));
    objects.push(http_route("r", &[], &["svc"]));
    assert_eq!(run_with(&objects, &config).get("x", "/"), "10.0.0.2:8080 x1");
    let elsewhere = Config { own_pod: PodIdentity::default(), ..config };
    assert_eq!(run_with(&objects, &elsewhere).get("x", "/"), "empty x1");
}

#[test]
fn addresses_that_cannot_be_dialled_are_left_out() {
    let endpoints = json!([
        {"addresses": ["0.0.0.0"]}, {"addresses": ["224.0.0.1"]}, {"addresses": ["web.example.com"]},
        {"addresses": []}, {"addresses": ["127.0.0.1"]},
    ]);
    assert_eq!(endpoints_of(vec![slice("s", "web", endpoints)]), "127.0.0.1:8080 x1");
}

#[test]
fn references_to_one_service_port_share_their_endpoints() {
    let mut objects =
        vec![http_gateway(), http_route("r1", &["a"], &["web"]), http_route("r2", &["b"], &["web"])];
    objects.extend(backend("web", &["10.0.0.1"]));
    let done = run(&objects);
    let set = |host: &str| {
        let table = done.http("tcp/*:80");
        let listener = table.listeners.lookup(host).unwrap();
        let rule = &listener.hosts.lookup(host).unwrap().matches()[0].rule;
        match &rule.action {
            crate::snapshot::HttpAction::Forward(split) => match &split.backends[0].backend {
                crate::snapshot::Backend::Endpoints(set) => set.clone(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    assert!(std::sync::Arc::ptr_eq(&set("a"), &set("b")));
}
