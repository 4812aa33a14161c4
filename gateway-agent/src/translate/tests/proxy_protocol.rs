//! Where the PROXY protocol is expected, and towards whom it is spoken.

use serde_json::{Value, json};

use super::scenario::{http_route, key, route, run};
use crate::api::Object;
use crate::snapshot::{Backend, ProxyVersion, TlsMode};
use crate::store::testing::{aged, object, slice};
use crate::translate::Translation;

fn parameters(data: &Value) -> Object {
    object(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "p"}, "data": data,
    }))
}

fn expecting(ports: &str) -> Object {
    parameters(&json!({"proxyProtocolPorts": ports, "proxyProtocolSources": "192.0.2.0/24"}))
}

/// Age is the second of the day.
fn gateway(name: &str, age: u32, has_parameters: bool, listeners: &Value) -> Object {
    let mut spec = json!({"gatewayClassName": "gateway-agent", "listeners": listeners});
    if has_parameters {
        spec["infrastructure"] = json!({"parametersRef": {"group": "", "kind": "ConfigMap", "name": "p"}});
    }
    aged("Gateway", name, age, spec)
}

fn expects(done: &Translation, entry: &str) -> bool {
    let listener = done.listeners.iter().find(|listener| listener.key == key(entry)).expect("an entry");
    listener.proxy_sources.is_some()
}

#[test]
fn header_is_expected_at_the_ports_of_the_parameters() {
    let listeners = json!([
        {"name": "http", "protocol": "HTTP", "port": 80},
        {"name": "other", "protocol": "HTTP", "port": 8080},
        {"name": "tcp", "protocol": "TCP", "port": 53},
        {"name": "udp", "protocol": "UDP", "port": 53},
    ]);
    let done = run(&[gateway("gw", 1, true, &listeners), expecting("80, 53")]);
    assert_eq!(done.gateway("gw", "Accepted"), "True/Accepted");
    let entries = ["tcp/*:80", "tcp/*:8080", "tcp/*:53", "udp/*:53"];
    assert_eq!(entries.map(|entry| expects(&done, entry)), [true, false, true, false]);
}

#[test]
fn port_of_udp_alone_is_refused() {
    let listeners = json!([{"name": "udp", "protocol": "UDP", "port": 53}]);
    let done = run(&[gateway("gw", 1, true, &listeners), expecting("53")]);
    assert_eq!(done.gateway("gw", "Accepted"), "False/InvalidParameters");
    let complaint = done.complaint("Gateway", "gw");
    assert!(complaint.contains("key proxyProtocolPorts: port 53 is of a UDP listener"), "{complaint}");
    assert!(done.listeners.is_empty(), "what cannot be followed is not served otherwise");
}

#[test]
fn listeners_of_a_port_agree_or_the_younger_gateway_is_in_conflict() {
    let listener =
        |hostname: &str| json!([{"name": "http", "protocol": "HTTP", "port": 80, "hostname": hostname}]);
    let objects = |younger_agrees: bool| {
        [
            gateway("older", 1, true, &listener("a.example")),
            gateway("younger", 2, younger_agrees, &listener("b.example")),
            expecting("80"),
        ]
    };
    let done = run(&objects(true));
    assert_eq!(done.listener("younger", "http", "Conflicted"), "False/NoConflicts");
    assert!(expects(&done, "tcp/*:80"));
    let done = run(&objects(false));
    assert_eq!(done.listener("older", "http", "Conflicted"), "False/NoConflicts");
    assert_eq!(done.listener("younger", "http", "Conflicted"), "True/ProtocolConflict");
    let complaint = done.complaint("Gateway", "younger");
    assert!(!complaint.is_empty(), "it is said");
    assert!(expects(&done, "tcp/*:80"));
    assert_eq!(done.listeners[0].names.len(), 1);
}

/// A Service with two TCP ports and one of UDP, annotated so.
fn announced(annotation: &str) -> [Object; 2] {
    let service = object(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "default", "name": "svc", "annotations": {"gateway-agent.dev/proxy-protocol": annotation}},
        "spec": {"ports": [
            {"name": "main", "port": 80, "targetPort": 8080},
            {"name": "other", "port": 81, "targetPort": 8080},
            {"name": "datagrams", "port": 80, "protocol": "UDP"},
        ]},
    }));
    [service, slice("svc", "svc", json!([{"addresses": ["10.0.0.1"]}]))]
}

/// How the endpoints of `svc:80` are told by a route of this kind, or the complaint.
fn told(kind: &str, annotation: &str) -> Result<Option<ProxyVersion>, String> {
    let listeners = json!([
        {"name": "tcp", "protocol": "TCP", "port": 90},
        {"name": "udp", "protocol": "UDP", "port": 90},
        {"name": "tls", "protocol": "TLS", "port": 443, "tls": {"mode": "Passthrough"}},
        {"name": "http", "protocol": "HTTP", "port": 80},
    ]);
    let backends = json!({"rules": [{"backendRefs": [{"name": "svc", "port": 80}]}]});
    let by = match kind {
        "HTTPRoute" => http_route("r", &[], &["svc"]),
        "TLSRoute" => {
            let mut spec = backends;
            spec["hostnames"] = json!(["a.example"]);
            route(kind, "r", spec)
        }
        _ => route(kind, "r", backends),
    };
    let [service, slice] = announced(annotation);
    let done = run(&[gateway("gw", 1, false, &listeners), by, service, slice]);
    if done.parent(kind, "r", 0, "ResolvedRefs") != "True/ResolvedRefs" {
        assert_eq!(done.parent(kind, "r", 0, "ResolvedRefs"), "False/UnsupportedProtocol");
        return Err(done.complaint(kind, "r"));
    }
    Ok(match kind {
        "TCPRoute" => done.l4("tcp/*:90").proxy_version("10.0.0.1:8080".parse().unwrap()),
        "UDPRoute" => done.l4("udp/*:90").proxy_version("10.0.0.1:8080".parse().unwrap()),
        "TLSRoute" => {
            let listener = done.tls("tcp/*:443").listeners.lookup("a.example").unwrap();
            let TlsMode::Passthrough(hosts) = &listener.mode else { panic!("{listener:?}") };
            let share = hosts.lookup("a.example").unwrap().split.pick(0).unwrap();
            let Backend::Endpoints(set) = &share.backend else { panic!("{share:?}") };
            set.proxy_version
        }
        _ => None,
    })
}

#[test]
fn annotation_of_the_service_says_how_endpoints_are_told() {
    for kind in ["TCPRoute", "TLSRoute"] {
        for (annotation, expected) in [
            ("v1", Some(ProxyVersion::V1)),
            (" v2\n", Some(ProxyVersion::V2)),
            ("80=v1", Some(ProxyVersion::V1)),
            ("other=v1, main=v2", Some(ProxyVersion::V2)),
            ("other=v2", None),
        ] {
            assert_eq!(told(kind, annotation), Ok(expected), "{kind} {annotation:?}");
        }
    }
    // They are for streams.
    assert_eq!(told("UDPRoute", "v2"), Ok(None));
    assert_eq!(told("UDPRoute", "80=v2"), Ok(None));
    assert_eq!(told("HTTPRoute", "other=v2"), Ok(None));
}

#[test]
fn annotation_that_cannot_be_followed_is_a_reference_that_does_not_resolve() {
    for (kind, annotation, expected) in [
        ("TCPRoute", "", "it is empty"),
        ("TCPRoute", "v3", "\"v3\" is neither v1 nor v2"),
        ("TCPRoute", "V2", "\"V2\" is neither v1 nor v2"),
        ("TCPRoute", "main=v3", "\"main=v3\" is neither"),
        ("TLSRoute", "main=v2, none=v1", "the Service has no port none"),
        ("TLSRoute", "=v1", "the Service has no port "),
        ("TCPRoute", "main=v2, 80=v2", "port 80 is there twice"),
        ("UDPRoute", "datagrams=v2", "port datagrams is not of TCP"),
        ("HTTPRoute", "v2", "HTTP connections to backends are of many clients"),
    ] {
        let complaint = told(kind, annotation).expect_err(annotation);
        assert!(complaint.contains(expected), "{kind} {annotation:?}: {complaint}");
        assert!(complaint.contains("annotation gateway-agent.dev/proxy-protocol"), "{complaint}");
    }
}
