//! Gateways: class, parameters, names.

use serde_json::{Value, json};

use super::scenario::{config, http_route, run, run_with};
use crate::api::Object;
use crate::snapshot::{ForwardedStyle, Provenance};
use crate::store::testing::{gateway, object, with_spec};

fn http() -> Value {
    json!([{"name": "http", "protocol": "HTTP", "port": 80}])
}

#[test]
fn gateways_of_other_classes_are_untouched() {
    let foreign = with_spec("Gateway", "gw", json!({"gatewayClassName": "other", "listeners": http()}));
    let done = run(&[foreign, http_route("r", &[], &[])]);
    assert!(done.listeners.is_empty());
    assert!(done.statuses.iter().all(|status| status.kind != "Gateway"));
}

#[test]
fn several_class_names_can_be_ours() {
    let of = |name: &str, class: &str, port: u16| {
        let listeners = json!([{"name": "http", "protocol": "HTTP", "port": port}]);
        with_spec("Gateway", name, json!({"gatewayClassName": class, "listeners": listeners}))
    };
    let config =
        crate::translate::Config { gateway_class_names: vec!["one".into(), "two".into()], ..config() };
    let done = run_with(&[of("a", "one", 1), of("b", "two", 2), of("c", "gateway-agent", 3)], &config);
    assert_eq!(done.keys(), ["tcp/*:1", "tcp/*:2"]);
}

// 253 characters fit no label and no Service name.
#[test]
fn name_of_maximal_length_is_served() {
    let name = "a".repeat(253);
    let done = run(&[gateway(&name, http())]);
    assert_eq!(done.gateway(&name, "Accepted"), "True/Accepted");
}

fn with_parameters(reference: Value, others: Vec<Object>) -> String {
    let spec = json!({"gatewayClassName": "gateway-agent", "listeners": http(),
        "infrastructure": {"parametersRef": reference}});
    let mut objects = vec![with_spec("Gateway", "gw", spec)];
    objects.extend(others);
    let done = run(&objects);
    let outcome = done.gateway("gw", "Accepted");
    assert_eq!(done.listeners.is_empty(), outcome.starts_with("False"));
    format!("{outcome} {}", done.complaint("Gateway", "gw"))
}

#[test]
fn parameters_must_be_an_existing_config_map_with_known_keys() {
    let map = |data: Value| {
        object(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "p", "namespace": "default"}, "data": data}))
    };
    let reference = json!({"group": "", "kind": "ConfigMap", "name": "p"});
    assert_eq!(with_parameters(reference.clone(), vec![map(json!({}))]), "True/Accepted ");
    let unknown = with_parameters(reference.clone(), vec![map(json!({"colour": "blue"}))]);
    assert!(
        unknown.starts_with("False/InvalidParameters") && unknown.contains("unknown key colour"),
        "{unknown}"
    );
    let absent = with_parameters(reference, Vec::new());
    assert!(absent.starts_with("False/InvalidParameters") && absent.contains("does not exist"), "{absent}");
    let kind = json!({"group": "example.com", "kind": "Tuning", "name": "p"});
    assert!(with_parameters(kind, Vec::new()).starts_with("False/InvalidParameters"));
}

#[test]
fn whom_a_gateway_trusts_holds_for_its_listeners_and_no_others() {
    let map = object(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p", "namespace": "default"},
        "data": {"trustedClients": "10.0.0.0/8", "forwardedHeaders": "Both"}}),
    );
    let spec = json!({"gatewayClassName": "gateway-agent", "listeners": http(),
        "infrastructure": {"parametersRef": {"group": "", "kind": "ConfigMap", "name": "p"}}});
    let other = gateway("other", json!([{"name": "http", "protocol": "HTTP", "port": 81}]));
    let done = run(&[with_spec("Gateway", "gw", spec), other, map]);
    let provenance = |entry: &str| done.http(entry).listeners.lookup("a").unwrap().provenance.clone();
    let own = provenance("tcp/*:80");
    assert!(own.trusts("10.1.1.1".parse().unwrap()) && own.style == ForwardedStyle::Both);
    assert_eq!(*provenance("tcp/*:81"), Provenance::default());
}

#[test]
fn fields_without_effect_are_named() {
    let spec = json!({"gatewayClassName": "gateway-agent", "listeners": http(),
        "infrastructure": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
    let done = run(&[with_spec("Gateway", "gw", spec)]);
    let accepted = done.status("Gateway", "gw").scopes[0].condition("Accepted").unwrap().clone();
    assert_eq!(accepted.reason, "Accepted");
    assert!(
        accepted.message.contains("spec.infrastructure.labels, spec.infrastructure.annotations"),
        "{}",
        accepted.message
    );
}
