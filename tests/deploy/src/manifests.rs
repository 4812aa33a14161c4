//! What a team applies beside the agent: backends, Gateways, routes. Backends are admitted under `restricted`.

use serde_json::{Value, json};

/// The conformance suite's own server, which `cargo xtask cluster load --conformance` brings onto the nodes.
pub const ECHO: &str = "registry.k8s.io/gateway-api/conformance/echo-basic:v0.1.0";

/// The class that the agent takes by default.
pub const CLASS: &str = "gateway-agent";

/// What a backend speaks; each answers with the name of its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    Http,
    /// Lines; it greets first.
    Tcp,
    Udp,
}

/// A Deployment `name` and a Service `name` on port 8080.
pub fn backend(name: &str, speaks: Speaks, replicas: u32) -> String {
    let (mode, port_variable, protocol, port) = match speaks {
        Speaks::Http => (None, "HTTP_PORT", "TCP", 3000),
        Speaks::Tcp => (Some("TCP_ECHO_SERVER"), "TCP_PORT", "TCP", 3000),
        Speaks::Udp => (Some("UDP_ECHO_SERVER"), "UDP_PORT", "UDP", 8080),
    };
    let field = |path: &str| json!({ "fieldRef": { "fieldPath": path } });
    let mut env = vec![
        json!({ "name": "POD_NAME", "valueFrom": field("metadata.name") }),
        json!({ "name": "NAMESPACE", "valueFrom": field("metadata.namespace") }),
        json!({ "name": "SERVICE_NAME", "value": name }),
        json!({ "name": port_variable, "value": port.to_string() }),
    ];
    env.extend(mode.map(|mode| json!({ "name": mode, "value": "1" })));
    let probe = match speaks {
        Speaks::Http | Speaks::Tcp => json!({ "tcpSocket": { "port": port }, "periodSeconds": 1 }),
        Speaks::Udp => Value::Null,
    };
    let labels = json!({ "app": name });
    list(&[
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": name },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "seccompProfile": { "type": "RuntimeDefault" },
                    },
                    "containers": [{
                        "name": "echo",
                        "image": ECHO,
                        "env": env,
                        "readinessProbe": probe,
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "capabilities": { "drop": ["ALL"] },
                        },
                    }],
                }},
            },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": name },
            "spec": {
                "selector": labels,
                "ports": [{ "port": 8080, "protocol": protocol, "targetPort": port }],
            },
        }),
    ])
}

/// A Gateway with listeners `(name, protocol, port)`.
pub fn gateway(name: &str, listeners: &[(&str, &str, u16)]) -> String {
    let listeners: Vec<_> = listeners
        .iter()
        .map(|(name, protocol, port)| json!({ "name": name, "protocol": protocol, "port": port }))
        .collect();
    api("Gateway", name, &json!({ "gatewayClassName": CLASS, "listeners": listeners }))
}

/// A route of `kind` from a Gateway's listener to a backend of the same name as the route.
pub fn route(kind: &str, name: &str, gateway: &str, listener: &str) -> String {
    api(
        kind,
        name,
        &json!({
            "parentRefs": [{ "name": gateway, "sectionName": listener }],
            "rules": [{ "backendRefs": [{ "name": name, "port": 8080 }] }],
        }),
    )
}

fn api(kind: &str, name: &str, spec: &Value) -> String {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": kind,
        "metadata": { "name": name },
        "spec": spec,
    })
    .to_string()
}

fn list(items: &[Value]) -> String {
    json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()
}
