use serde_json::json;

use super::objects::{Age, LabelRequirement, NamespaceFilter};
use super::testing::{aged, backend, gateway, object, service, slice, with_spec};
use super::{Kind, ObjectId, Store};
use crate::snapshot::ObjectName;

fn name(text: &str) -> ObjectName {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    ObjectName { namespace: namespace.into(), name: name.into() }
}

fn id(kind: Kind, text: &str) -> ObjectId {
    ObjectId { kind, name: name(text) }
}

fn empty_gateway(name: &str) -> crate::api::Object {
    gateway(name, json!([]))
}

#[test]
fn equal_objects_are_no_change() {
    let mut store = Store::default();
    let objects = backend("web", &["10.0.0.1"]);
    assert!(store.replace_all(&objects));
    let version = store.version();
    assert!(!store.replace_all(&objects));
    assert!(!store.apply(&objects[0]));
    assert_eq!(store.version(), version);
}

#[test]
fn change_is_listed_once_with_a_new_version_and_only_for_what_changed() {
    let mut store = Store::default();
    store.replace_all(&[empty_gateway("a"), service("s", 80)]);
    assert_eq!(
        store.take_dirty().into_iter().collect::<Vec<_>>(),
        [id(Kind::Gateway, "a"), id(Kind::Service, "s"),]
    );
    let before = store.gateways()[&name("a")].version;
    assert!(store.replace_all(&[empty_gateway("a"), service("s", 81), service("t", 80)]));
    assert_eq!(store.gateways()[&name("a")].version, before);
    let dirty: Vec<ObjectId> = store.take_dirty().into_iter().collect();
    assert_eq!(dirty, [id(Kind::Service, "s"), id(Kind::Service, "t")]);
    assert!(store.take_dirty().is_empty());
}

#[test]
fn objects_that_are_not_named_again_are_gone() {
    let mut store = Store::default();
    store.replace_all(&[empty_gateway("a"), service("s", 80)]);
    store.take_dirty();
    assert!(store.replace_all(&[service("s", 80)]));
    assert!(store.gateways().is_empty());
    assert_eq!(store.take_dirty().into_iter().collect::<Vec<_>>(), [id(Kind::Gateway, "a")]);
    assert!(!store.delete(&id(Kind::Gateway, "a")));
    assert!(store.delete(&id(Kind::Service, "s")));
}

#[test]
fn age_is_the_creation_time_else_the_order() {
    let mut store = Store::default();
    let spec = json!({"gatewayClassName": "gateway-agent", "listeners": []});
    store.replace_all(&[
        empty_gateway("first"),
        empty_gateway("second"),
        aged("Gateway", "late", 9, spec.clone()),
        aged("Gateway", "early", 1, spec),
    ]);
    let mut gateways: Vec<_> = store.gateways().values().map(|entry| entry.object.clone()).collect();
    gateways.sort_by(|one, other| one.meta.seniority().cmp(&other.meta.seniority()));
    let names: Vec<String> = gateways.iter().map(|gateway| gateway.meta.name.name.to_string()).collect();
    assert_eq!(names, ["early", "late", "first", "second"]);
}

#[test]
fn object_that_is_applied_again_keeps_its_age() {
    let mut store = Store::default();
    store.apply(&empty_gateway("a"));
    store.apply(&empty_gateway("b"));
    store.apply(&gateway("a", json!([{"name": "l", "protocol": "TCP", "port": 1}])));
    assert_eq!(store.gateways()[&name("a")].object.meta.age, Age::Order(0));
    assert_eq!(store.gateways()[&name("a")].object.listeners.len(), 1);
}

#[test]
fn slice_follows_its_label_and_namespace() {
    let mut store = Store::default();
    let endpoints = json!([{"addresses": ["10.0.0.1"]}]);
    let count = |store: &Store, service: &str| store.slices(&name(service)).count();
    store.apply(&slice("s", "web", endpoints.clone()));
    store.apply(&slice("other/s", "web", endpoints.clone()));
    assert_eq!((count(&store, "web"), count(&store, "other/web")), (1, 1));
    store.apply(&slice("s", "api", endpoints));
    assert_eq!((count(&store, "web"), count(&store, "api")), (0, 1));
    store.delete(&id(Kind::EndpointSlice, "s"));
    assert_eq!((count(&store, "api"), count(&store, "other/web")), (0, 1));
}

#[test]
fn namespace_name_is_a_label_without_the_namespace_being_read() {
    let mut store = Store::default();
    assert_eq!(store.namespace_label("apps", "kubernetes.io/metadata.name"), Some("apps"));
    assert_eq!(store.namespace_label("apps", "team"), None);
    store.apply(&object(json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "apps", "labels": {"team": "blue"}},
    })));
    assert_eq!(store.namespace_label("apps", "team"), Some("blue"));
}

#[test]
fn secret_takes_string_data_over_data_and_shows_no_value() {
    let mut store = Store::default();
    store.apply(&object(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "s", "namespace": "default"},
        "data": {"tls.crt": "b2xk", "tls.key": "a2V5"}, "stringData": {"tls.crt": "new"},
    })));
    let secret = store.secret(&name("s")).unwrap();
    assert_eq!(&*secret.data["tls.crt"], b"new");
    assert_eq!(&*secret.data["tls.key"], b"key");
    let shown = format!("{secret:?}");
    assert!(shown.contains("tls.crt") && !shown.contains("110"), "{shown}");
}

#[test]
fn missing_namespace_is_default() {
    let mut store = Store::default();
    store.apply(&object(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"},
    })));
    assert!(store.config_map(&name("c")).is_some());
}

#[test]
fn values_out_of_range_become_harmless() {
    let mut store = Store::default();
    store.apply(&gateway("g", json!([{"name": "l", "protocol": "TCP", "port": 70_000}])));
    assert_eq!(store.gateways()[&name("g")].object.listeners[0].port, None);
    let rules = json!([{"backendRefs": [{"name": "s", "port": -1, "weight": -5}]}]);
    store.apply(&with_spec("TCPRoute", "r", json!({ "rules": rules })));
    let backend = &store.tcp_routes()[&name("r")].object.backends[0];
    assert_eq!((backend.port, backend.weight), (None, 0));
}

#[test]
fn selector_keeps_labels_and_expressions() {
    let mut store = Store::default();
    store.apply(&gateway(
        "g",
        json!([{"name": "l", "protocol": "TCP", "port": 1, "allowedRoutes": {"namespaces": {
            "from": "Selector", "selector": {
                "matchLabels": {"a": "1"},
                "matchExpressions": [{"key": "b", "operator": "Exists"}, {"key": "c", "operator": "Gt"}],
            },
        }}}]),
    ));
    let NamespaceFilter::Selector(selector) = &store.gateways()[&name("g")].object.listeners[0].namespaces
    else {
        panic!("no selector");
    };
    assert_eq!(
        selector.requirements,
        [
            LabelRequirement::In("a".into(), vec!["1".into()]),
            LabelRequirement::Exists("b".into()),
            LabelRequirement::Unknown("Gt".into()),
        ]
    );
}
