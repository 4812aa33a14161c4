//! What this agent sees and owns: namespaces, classes, one Gateway.

use serde_json::json;

use super::scenario::{config, http_route, route, run_with};
use crate::store::testing::{backend, gateway, with_spec};
use crate::translate::{Config, Watched};

fn watching(namespaces: &[&str]) -> Config {
    let namespaces = namespaces.iter().map(|namespace| (*namespace).into()).collect();
    Config { watched: Watched::Namespaces(namespaces), ..config() }
}

fn listeners() -> serde_json::Value {
    json!([{"name": "http", "protocol": "HTTP", "port": 80}])
}

#[test]
fn gateways_outside_the_watched_namespaces_are_left_alone() {
    let to_both = json!({"parentRefs": [{"name": "gw"}, {"name": "gw", "namespace": "other"}]});
    let objects =
        [gateway("gw", listeners()), gateway("other/gw", listeners()), with_spec("HTTPRoute", "r", to_both)];
    let done = run_with(&objects, &watching(&["default"]));
    let gateways = done.statuses.iter().filter(|status| status.kind == "Gateway");
    assert_eq!(gateways.count(), 1);
    assert_eq!(done.status("HTTPRoute", "r").scopes.len(), 1);
}

#[test]
fn reference_out_of_the_watched_namespaces_is_not_permitted_and_names_the_namespace() {
    let rules = json!([{"backendRefs": [{"name": "s", "namespace": "other", "port": 80}]}]);
    let grant = with_spec(
        "ReferenceGrant",
        "other/g",
        json!({
            "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "default"}],
            "to": [{"group": "", "kind": "Service"}],
        }),
    );
    let mut objects =
        vec![gateway("gw", listeners()), route("HTTPRoute", "r", json!({ "rules": rules })), grant];
    objects.extend(backend("other/s", &["10.0.0.1"]));
    let done = run_with(&objects, &watching(&["default", "other"]));
    assert_eq!(done.get("any", "/"), "10.0.0.1:8080 x1");
    let done = run_with(&objects, &watching(&["default"]));
    assert_eq!(done.parent("HTTPRoute", "r", 0, "ResolvedRefs"), "False/RefNotPermitted");
    assert!(done.complaint("HTTPRoute", "r").contains("namespace other is not watched"));
    assert_eq!(done.get("any", "/"), "invalid x1");
}

#[test]
fn one_gateway_may_be_all_that_is_served() {
    let objects = [gateway("one", listeners()), gateway("two", json!([]))];
    let only = crate::snapshot::ObjectName::new("default", "one");
    let done = run_with(&objects, &Config { gateway: Some(only), ..config() });
    assert_eq!(done.statuses.iter().count(), 1);
    assert_eq!(done.gateway("one", "Accepted"), "True/Accepted");
}

#[test]
fn classes_of_another_controller_are_left_alone() {
    let objects = [gateway("gw", listeners()), http_route("r", &[], &[])];
    let config = Config { foreign_classes: ["gateway-agent".to_owned()].into(), ..config() };
    let done = run_with(&objects, &config);
    assert!(done.keys().is_empty());
    assert!(done.status("HTTPRoute", "r").scopes.is_empty());
}
