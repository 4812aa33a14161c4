//! One Gateway with each protocol.

use serde_json::json;

use super::scenario::{http_route, route, run};
use crate::api::Object;
use crate::store::testing::{backend, gateway};

fn everything() -> Vec<Object> {
    let mut objects = vec![
        gateway(
            "gw",
            json!([
                {"name": "http", "protocol": "HTTP", "port": 80},
                {"name": "tls", "protocol": "TLS", "port": 443, "tls": {"mode": "Passthrough"}},
                {"name": "tcp", "protocol": "TCP", "port": 5432},
                {"name": "udp", "protocol": "UDP", "port": 53},
            ]),
        ),
        http_route("web", &["web.example.com"], &["web"]),
        route(
            "TLSRoute",
            "mail",
            json!({"hostnames": ["*.mail.example.com"],
                "rules": [{"backendRefs": [{"name": "mail", "port": 80}]}]}),
        ),
        route("TCPRoute", "db", json!({"rules": [{"backendRefs": [{"name": "db", "port": 80}]}]})),
        route("UDPRoute", "dns", json!({"rules": [{"backendRefs": [{"name": "dns", "port": 80}]}]})),
    ];
    objects.extend(backend("web", &["10.0.0.1", "10.0.0.2"]));
    objects.extend(backend("mail", &["10.0.1.1"]));
    objects.extend(backend("db", &["10.0.2.1"]));
    objects.extend(backend("dns", &["10.0.3.1"]));
    objects
}

#[test]
fn each_protocol_reaches_its_backends() {
    let done = run(&everything());
    assert_eq!(done.keys(), ["tcp/*:80", "tcp/*:443", "tcp/*:5432", "udp/*:53"]);
    assert_eq!(done.get("web.example.com", "/"), "10.0.0.1:8080+10.0.0.2:8080 x1");
    assert_eq!(done.get("other.example.com", "/"), "404");
    assert_eq!(done.server_name("tcp/*:443", "a.mail.example.com"), "10.0.1.1:8080 x1");
    assert_eq!(done.server_name("tcp/*:443", "mail.example.com"), "closed");
    for (entry, backend) in [("tcp/*:5432", "10.0.2.1:8080"), ("udp/*:53", "10.0.3.1:8080")] {
        for table in [&done.l4(entry).v4, &done.l4(entry).v6] {
            assert_eq!(table.pick(7), Some(backend.parse().unwrap()), "{entry}");
        }
    }
    for (kind, name) in [("HTTPRoute", "web"), ("TLSRoute", "mail"), ("TCPRoute", "db"), ("UDPRoute", "dns")]
    {
        assert_eq!(done.parent(kind, name, 0, "Accepted"), "True/Accepted");
        assert_eq!(done.parent(kind, name, 0, "ResolvedRefs"), "True/ResolvedRefs");
    }
    for section in ["http", "tls", "tcp", "udp"] {
        assert_eq!(done.attached("gw", section), 1);
        assert_eq!(done.listener("gw", section, "Accepted"), "True/Accepted");
        assert_eq!(done.listener("gw", section, "Conflicted"), "False/NoConflicts");
    }
    assert_eq!(done.gateway("gw", "Accepted"), "True/Accepted");
}

#[test]
fn equal_objects_give_equal_translations() {
    assert_eq!(run(&everything()), run(&everything()));
}
