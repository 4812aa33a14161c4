//! The objects that every candidate gets alike: its namespace, two backends, one Gateway, and routes.

use serde_json::{Value, json};

pub(super) const GATEWAY: &str = "gw";

/// A route's backends, by the names of their Services, which are also what they answer.
pub(super) const BACKENDS: [&str; 2] = ["a", "b"];

const GROUP: &str = "gateway.networking.k8s.io/v1";

pub(super) fn routes_path(namespace: &str) -> String {
    format!("/apis/{GROUP}/namespaces/{namespace}/httproutes")
}

pub(super) fn route_path(namespace: &str, name: &str) -> String {
    format!("{}/{name}", routes_path(namespace))
}

pub(super) fn host(route: &str) -> String {
    format!("{route}.bench.example")
}

/// Each route has a hostname of its own, as routes of different teams have.
pub(super) fn route(namespace: &str, name: &str, backend: &str) -> Value {
    json!({
        "apiVersion": GROUP,
        "kind": "HTTPRoute",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "parentRefs": [{ "name": GATEWAY }],
            "hostnames": [host(name)],
            "rules": [rule(backend)],
        },
    })
}

pub(super) fn backend_patch(backend: &str) -> Value {
    json!({ "spec": { "rules": [rule(backend)] } })
}

fn rule(backend: &str) -> Value {
    json!({
        "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
        "backendRefs": [{ "name": backend, "port": 80 }],
    })
}

pub(super) fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

pub(super) fn gateway(namespace: &str, class: &str, port: u16) -> Value {
    json!({
        "apiVersion": GROUP,
        "kind": "Gateway",
        "metadata": { "name": GATEWAY, "namespace": namespace },
        "spec": {
            "gatewayClassName": class,
            "listeners": [{ "name": "http", "protocol": "HTTP", "port": port }],
        },
    })
}

/// A Service without a selector, and its one endpoint: outside of the nodes, at this program.
pub(super) fn backend(namespace: &str, name: &str, address: &str, port: u16) -> [Value; 2] {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "ports": [{ "name": "http", "port": 80, "targetPort": port }] },
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{name}-outside"),
            "namespace": namespace,
            "labels": { "kubernetes.io/service-name": name },
        },
        "addressType": "IPv4",
        "ports": [{ "name": "http", "port": port, "protocol": "TCP" }],
        "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
    });
    [service, slice]
}
