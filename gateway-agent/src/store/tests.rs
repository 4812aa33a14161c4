use std::sync::Arc;

use serde_json::json;

use super::objects::{
    Age, LabelRequirement, ListenerProtocol, ListenerSetFilter, NamespaceFilter, ServiceIngress, ServiceType,
};
use super::testing::{aged, backend, gateway, object, service, slice, with_spec};
use super::{Kind, ObjectId, Store};
use crate::snapshot::{ObjectName, SubjectName};

fn name(text: &str) -> ObjectName {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    ObjectName::new(namespace, name)
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
fn what_routes_have_alike_is_one_allocation() {
    let mut store = Store::default();
    for name in ["a", "b"] {
        store.apply(&with_spec("HTTPRoute", name, json!({"parentRefs": [{"name": "gw"}]})));
    }
    let routes: Vec<_> = store.http_routes().values().map(|entry| &entry.object).collect();
    let [one, other] = routes[..] else { panic!("two routes") };
    assert!(Arc::ptr_eq(&one.parents, &other.parents));
    assert!(Arc::ptr_eq(&one.meta.name.namespace, &other.meta.name.namespace));
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

#[test]
fn listener_set_and_its_gateway_say_who_may_join() {
    let mut store = Store::default();
    let spec = json!({"gatewayClassName": "c", "listeners": [],
        "allowedListeners": {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"a": "1"}}}}});
    store.apply(&with_spec("Gateway", "g", spec));
    let ListenerSetFilter::Some(NamespaceFilter::Selector(selector)) =
        &store.gateways()[&name("g")].object.allowed_listeners
    else {
        panic!("no selector");
    };
    assert_eq!(selector.requirements, [LabelRequirement::In("a".into(), vec!["1".into()])]);
    store.apply(&gateway("closed", json!([])));
    assert_eq!(store.gateways()[&name("closed")].object.allowed_listeners, ListenerSetFilter::None);

    let listeners = json!([{"name": "l", "protocol": "TLS", "port": 443, "hostname": "A.example",
        "tls": {"mode": "Passthrough"}, "allowedRoutes": {"namespaces": {"from": "All"}}}]);
    store.apply(&with_spec(
        "ListenerSet",
        "s",
        json!({"parentRef": {"name": "g", "namespace": "infra"}, "listeners": listeners}),
    ));
    let set = &store.listener_sets()[&name("s")].object;
    assert_eq!((&*set.parent.kind, set.parent.namespace.as_deref()), ("Gateway", Some("infra")));
    let listener = &set.listeners[0];
    assert_eq!(listener.protocol, ListenerProtocol::TlsPassthrough);
    assert_eq!(
        (listener.hostname.as_deref(), &listener.namespaces),
        (Some("a.example"), &NamespaceFilter::All)
    );
}

#[test]
fn service_keeps_what_provisioning_reads() {
    let mut store = Store::default();
    store.apply(&object(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "s", "namespace": "default",
            "labels": {"gateway.networking.k8s.io/gateway-name": "g", "team": "blue"}},
        "spec": {"type": "LoadBalancer", "clusterIP": "10.1.1.1", "clusterIPs": ["10.1.1.1", "fd00::1"],
            "ports": [{"name": "a", "port": 80, "targetPort": 30_080, "nodePort": 31_000},
                      {"name": "b", "port": 81, "targetPort": "web"}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}, {"hostname": "lb.example"}]}},
    })));
    let service = store.service(&name("s")).unwrap();
    assert_eq!(service.kind, ServiceType::LoadBalancer);
    assert_eq!(service.managed, None, "not made by an agent");
    assert_eq!(service.cluster_addresses.len(), 2);
    let target = |port: usize| service.ports[port].target_port.map(std::num::NonZeroU16::get);
    assert_eq!((target(0), target(1)), (Some(30_080), None));
    assert_eq!(service.ports[0].node_port.map(std::num::NonZeroU16::get), Some(31_000));
    let expected = [
        ServiceIngress::Address("192.0.2.7".parse().unwrap()),
        ServiceIngress::Hostname("lb.example".into()),
    ];
    assert_eq!(service.ingress, expected);
}

#[test]
fn headless_service_has_no_address() {
    let mut store = Store::default();
    let spec = json!({"clusterIP": "None", "clusterIPs": ["None"], "ports": [{"port": 80}]});
    store.apply(&with_spec("Service", "s", spec));
    let service = store.service(&name("s")).unwrap();
    assert_eq!((service.kind, service.cluster_addresses.len()), (ServiceType::ClusterIp, 0));
}

#[test]
fn references_of_routes_and_policies_are_kept() {
    let mut store = Store::default();
    let mirror = json!({"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "m", "port": 1}}});
    let extension =
        json!({"type": "ExtensionRef", "extensionRef": {"group": "example.com", "kind": "X", "name": "x"}});
    let rules = json!([{"filters": [mirror],
        "backendRefs": [{"name": "b", "port": 1, "filters": [extension]}]}]);
    store.apply(&with_spec("GRPCRoute", "r", json!({"hostnames": ["A.example"], "rules": rules})));
    let route = &store.grpc_routes()[&name("r")].object;
    let rule = &route.rules[0];
    assert_eq!((&*rule.backends[0].name, &*rule.terms.filters.mirrors[0].backend.name), ("b", "m"));
    assert_eq!(rule.terms.backend_filters[0].extensions, ["example.com/X x"]);
    assert_eq!(&*route.hostnames[0], "a.example");

    store.apply(&with_spec(
        "BackendTLSPolicy",
        "p",
        json!({"targetRefs": [{"group": "", "kind": "Service", "name": "s", "sectionName": "https"}],
            "validation": {"hostname": "b.example", "subjectAltNames": [{"type": "URI", "uri": "spiffe://x"}],
                "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}}),
    ));
    let policy = &store.backend_tls_policies()[&name("p")].object;
    assert_eq!(policy.targets[0].section.as_deref(), Some("https"));
    assert_eq!(policy.alternative_names, [SubjectName::Uri("spiffe://x".into())]);
    assert_eq!(&*policy.authorities[0].name, "ca");
}
