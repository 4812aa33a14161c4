//! Objects for tests, from JSON.

use serde_json::{Value, json};

use crate::api::Object;

/// An object as the API server would hand it out.
pub(crate) fn object(value: Value) -> Object {
    fn parse<T: serde::de::DeserializeOwned>(value: Value) -> Box<T> {
        let text = value.to_string();
        Box::new(serde_json::from_value(value).unwrap_or_else(|error| panic!("{error} in {text}")))
    }
    let kind = value["kind"].as_str().expect("an object has a kind").to_owned();
    match kind.as_str() {
        "BackendTLSPolicy" => Object::BackendTlsPolicy(parse(value)),
        "ConfigMap" => Object::ConfigMap(parse(value)),
        "EndpointSlice" => Object::EndpointSlice(parse(value)),
        "Gateway" => Object::Gateway(parse(value)),
        "GRPCRoute" => Object::GrpcRoute(parse(value)),
        "HTTPRoute" => Object::HttpRoute(parse(value)),
        "ListenerSet" => Object::ListenerSet(parse(value)),
        "Namespace" => Object::Namespace(parse(value)),
        "ReferenceGrant" => Object::ReferenceGrant(parse(value)),
        "Secret" => Object::Secret(parse(value)),
        "Service" => Object::Service(parse(value)),
        "TCPRoute" => Object::TcpRoute(parse(value)),
        "TLSRoute" => Object::TlsRoute(parse(value)),
        "UDPRoute" => Object::UdpRoute(parse(value)),
        other => panic!("no kind {other}"),
    }
}

fn api_version(kind: &str) -> &'static str {
    match kind {
        "EndpointSlice" => "discovery.k8s.io/v1",
        "ConfigMap" | "Namespace" | "Secret" | "Service" => "v1",
        _ => "gateway.networking.k8s.io/v1",
    }
}

/// `name` is `NAMESPACE/NAME`, or a name in namespace `default`.
fn metadata(name: &str) -> Value {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    json!({"namespace": namespace, "name": name, "generation": 1})
}

/// An object with a `spec`.
pub(crate) fn with_spec(kind: &str, name: &str, spec: Value) -> Object {
    object(json!({
        "apiVersion": api_version(kind), "kind": kind, "metadata": metadata(name), "spec": spec,
    }))
}

/// The same with a creation time, the second of the day.
pub(crate) fn aged(kind: &str, name: &str, second: u32, spec: Value) -> Object {
    let mut metadata = metadata(name);
    let time = format!("2026-01-01T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60);
    metadata["creationTimestamp"] = json!(time);
    object(json!({"apiVersion": api_version(kind), "kind": kind, "metadata": metadata, "spec": spec}))
}

/// A Gateway of the default class.
pub(crate) fn gateway(name: &str, listeners: Value) -> Object {
    with_spec("Gateway", name, json!({"gatewayClassName": "gateway-agent", "listeners": listeners}))
}

/// A Service with one port of each transport that is named: `http`, `tcp` or `udp`.
pub(crate) fn service(name: &str, port: u16) -> Object {
    let ports = json!([
        {"name": "main", "port": port, "targetPort": 8080},
        {"name": "datagrams", "port": port, "protocol": "UDP"},
    ]);
    with_spec("Service", name, json!({ "ports": ports }))
}

/// A slice of `service`, in its namespace, with target port 8080.
pub(crate) fn slice(name: &str, service: &str, endpoints: Value) -> Object {
    let mut metadata = metadata(name);
    metadata["labels"] = json!({"kubernetes.io/service-name": service});
    object(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4",
        "ports": [
            {"name": "main", "port": 8080, "protocol": "TCP"},
            {"name": "datagrams", "port": 8080, "protocol": "UDP"},
        ],
        "endpoints": endpoints,
    }))
}

/// A Service and its ready endpoints.
pub(crate) fn backend(name: &str, addresses: &[&str]) -> Vec<Object> {
    let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
    let service_name = name.rsplit_once('/').map_or(name, |(_, name)| name);
    vec![service(name, 80), slice(name, service_name, Value::Array(endpoints))]
}
