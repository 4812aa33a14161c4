//! GRPCRoute: attached and resolved like any other, and told that it is not served.

use serde_json::json;

use super::scenario::{route, run};
use crate::store::testing::{backend, gateway};

#[test]
fn it_is_not_accepted_for_want_of_a_data_path_and_its_references_are_judged() {
    let rules = json!([{"backendRefs": [{"name": "s", "port": 80}, {"name": "absent", "port": 80}]}]);
    let mut objects = vec![
        gateway("gw", json!([{"name": "http", "protocol": "HTTP", "port": 80}])),
        route("GRPCRoute", "r", json!({ "rules": rules })),
    ];
    objects.extend(backend("s", &["10.0.0.1"]));
    let done = run(&objects);
    assert_eq!(done.parent("GRPCRoute", "r", 0, "Accepted"), "False/UnsupportedValue");
    assert_eq!(done.parent("GRPCRoute", "r", 0, "ResolvedRefs"), "False/BackendNotFound");
    assert!(done.complaint("GRPCRoute", "r").contains("not served by this version"));
    assert_eq!((done.attached("gw", "http"), done.kinds("gw", "http")), (0, vec!["HTTPRoute"]));
    assert_eq!(done.get("any", "/"), "404");
}

#[test]
fn why_it_cannot_attach_comes_first() {
    let listeners = json!([
        {"name": "http", "protocol": "HTTP", "port": 80, "hostname": "gw.example"},
        {"name": "tcp", "protocol": "TCP", "port": 90},
    ]);
    for (spec, expected) in [
        (json!({"parentRefs": [{"name": "gw", "sectionName": "absent"}]}), "False/NoMatchingParent"),
        (json!({"parentRefs": [{"name": "gw", "sectionName": "tcp"}]}), "False/NotAllowedByListeners"),
        (json!({"hostnames": ["other.example"]}), "False/NoMatchingListenerHostname"),
    ] {
        let done = run(&[gateway("gw", listeners.clone()), route("GRPCRoute", "r", spec)]);
        assert_eq!(done.parent("GRPCRoute", "r", 0, "Accepted"), expected);
    }
}

#[test]
fn references_of_its_filters_are_judged() {
    for (filter, expected) in [
        (
            json!({"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "absent", "port": 80}}}),
            "False/BackendNotFound",
        ),
        (
            json!({"type": "ExtensionRef",
                "extensionRef": {"group": "example.com", "kind": "X", "name": "x"}}),
            "False/InvalidKind",
        ),
    ] {
        let mut objects = vec![
            gateway("gw", json!([{"name": "http", "protocol": "HTTP", "port": 80}])),
            route(
                "GRPCRoute",
                "r",
                json!({"rules": [{"filters": [filter], "backendRefs": [{"name": "s", "port": 80}]}]}),
            ),
        ];
        objects.extend(backend("s", &["10.0.0.1"]));
        assert_eq!(run(&objects).parent("GRPCRoute", "r", 0, "ResolvedRefs"), expected);
    }
}

// The proxy speaks HTTP/1.1 only, which is the HTTPRoute's concern.
#[test]
fn its_backends_may_speak_h2c() {
    let ports = json!({"ports": [{"name": "main", "port": 80, "appProtocol": "kubernetes.io/h2c"}]});
    let rules = json!([{"backendRefs": [{"name": "s", "port": 80}]}]);
    let done = run(&[
        gateway("gw", json!([{"name": "http", "protocol": "HTTP", "port": 80}])),
        route("GRPCRoute", "r", json!({ "rules": rules })),
        crate::store::testing::with_spec("Service", "s", ports),
    ]);
    assert_eq!(done.parent("GRPCRoute", "r", 0, "ResolvedRefs"), "True/ResolvedRefs");
}
