//! Validity, distinctness and conflicts of listeners, within a Gateway and between Gateways.

use serde_json::{Value, json};

use super::scenario::{http_route, run};
use crate::store::testing::{aged, backend, gateway};

fn http(name: &str, port: u16, hostname: &str) -> Value {
    json!({"name": name, "protocol": "HTTP", "port": port, "hostname": hostname})
}

fn tls(name: &str, port: u16, mode: &str, hostname: &str) -> Value {
    json!({"name": name, "protocol": "TLS", "port": port, "hostname": hostname, "tls": {"mode": mode}})
}

fn plain(name: &str, protocol: &str, port: u16) -> Value {
    json!({"name": name, "protocol": protocol, "port": port})
}

#[test]
fn protocols_without_a_data_path_are_refused_and_the_others_serve() {
    let done = run(&[gateway(
        "gw",
        json!([
            plain("http", "HTTP", 80),
            plain("https", "HTTPS", 443),
            tls("end", 8443, "Terminate", ""),
            plain("odd", "example.com/QUIC", 1111),
        ]),
    )]);
    assert_eq!(done.listener("gw", "http", "Accepted"), "True/Accepted");
    // Without a certificate; see the tests of HTTPS.
    assert_eq!(done.listener("gw", "https", "Accepted"), "True/Accepted");
    assert_eq!(done.listener("gw", "https", "ResolvedRefs"), "False/InvalidCertificateRef");
    assert_eq!(done.listener("gw", "end", "Accepted"), "True/Accepted");
    assert_eq!(done.listener("gw", "end", "ResolvedRefs"), "False/InvalidCertificateRef");
    assert_eq!(done.listener("gw", "odd", "Accepted"), "False/UnsupportedProtocol");
    assert_eq!(done.gateway("gw", "Accepted"), "True/ListenersNotValid");
    assert_eq!(done.keys(), ["tcp/*:80"]);
    assert!(done.kinds("gw", "odd").is_empty());
    assert_eq!(done.kinds("gw", "end"), ["TLSRoute"]);
}

#[test]
fn gateway_without_a_valid_listener_is_not_accepted() {
    let done = run(&[gateway("gw", json!([plain("odd", "INVALID", 1111)]))]);
    assert_eq!(done.gateway("gw", "Accepted"), "False/ListenersNotValid");
    assert!(done.keys().is_empty());
}

#[test]
fn tls_mode_defaults_to_terminate() {
    let done = run(&[gateway("gw", json!([plain("tls", "TLS", 443)]))]);
    assert_eq!(done.listener("gw", "tls", "ResolvedRefs"), "False/InvalidCertificateRef");
}

#[test]
fn listeners_of_one_gateway_conflict_without_a_winner() {
    let tables: &[(&str, Value, &str)] = &[
        (
            "same hostname",
            json!([http("a", 80, "x.example"), http("b", 80, "X.example")]),
            "HostnameConflict",
        ),
        ("no hostname twice", json!([http("a", 80, ""), plain("b", "HTTP", 80)]), "HostnameConflict"),
        ("tcp twice", json!([plain("a", "TCP", 80), plain("b", "TCP", 80)]), "HostnameConflict"),
        ("http and tcp", json!([http("a", 80, "x.example"), plain("b", "TCP", 80)]), "ProtocolConflict"),
        ("http and https", json!([http("a", 80, "x.example"), plain("b", "HTTPS", 80)]), "ProtocolConflict"),
        (
            "tls and tcp",
            json!([tls("a", 443, "Passthrough", "x.example"), plain("b", "TCP", 443)]),
            "ProtocolConflict",
        ),
    ];
    for (case, listeners, reason) in tables {
        let done = run(&[gateway("gw", listeners.clone())]);
        for section in ["a", "b"] {
            assert_eq!(done.listener("gw", section, "Conflicted"), format!("True/{reason}"), "{case}");
            assert_eq!(done.listener("gw", section, "Accepted"), format!("False/{reason}"), "{case}");
        }
        assert_eq!(done.gateway("gw", "Accepted"), "False/ListenersNotValid", "{case}");
        assert!(done.keys().is_empty(), "{case}");
    }
}

#[test]
fn distinct_listeners_of_one_gateway_do_not_conflict() {
    let tables: &[(&str, Value)] = &[
        ("hostnames", json!([http("a", 80, "x.example"), http("b", 80, "*.example"), http("c", 80, "")])),
        ("ports", json!([http("a", 80, ""), http("b", 81, "")])),
        ("tcp and udp", json!([plain("a", "TCP", 53), plain("b", "UDP", 53)])),
        (
            "modes of tls",
            json!([tls("a", 443, "Passthrough", "x.example"), tls("b", 443, "Terminate", "y.example")]),
        ),
        (
            "https and modes of tls",
            json!([tls("a", 443, "Terminate", "x.example"), plain("b", "HTTPS", 443)]),
        ),
        (
            "server names",
            json!([tls("a", 443, "Passthrough", "x.example"), tls("b", 443, "Passthrough", "")]),
        ),
    ];
    for (case, listeners) in tables {
        let done = run(&[gateway("gw", listeners.clone())]);
        for section in ["a", "b"] {
            assert_eq!(done.listener("gw", section, "Conflicted"), "False/NoConflicts", "{case}");
            assert_eq!(done.listener("gw", section, "Accepted"), "True/Accepted", "{case}");
        }
    }
}

#[test]
fn passthrough_may_share_a_port_with_https() {
    let done =
        run(&[gateway("gw", json!([tls("a", 443, "Passthrough", "x.example"), plain("b", "HTTPS", 443)]))]);
    assert_eq!(done.listener("gw", "a", "Accepted"), "True/Accepted");
    assert_eq!(done.listener("gw", "b", "Accepted"), "True/Accepted");
    assert_eq!(done.listener("gw", "b", "Conflicted"), "False/NoConflicts");
}

#[test]
fn listeners_of_several_gateways_merge_on_a_port() {
    let mut objects = vec![
        gateway("one", json!([http("web", 80, "one.example")])),
        gateway("two", json!([http("web", 80, "two.example")])),
        http_route("r1", &[], &["b1"]),
        http_route("r2", &[], &["b2"]),
    ];
    for (index, name) in [(2, "one"), (3, "two")] {
        let parent = json!([{"name": name}]);
        let service = format!("b{}", index - 1);
        let spec = json!({"parentRefs": parent, "rules": [{"backendRefs": [{"name": service, "port": 80}]}]});
        objects[index] = crate::store::testing::with_spec("HTTPRoute", &format!("r{}", index - 1), spec);
    }
    objects.extend(backend("b1", &["10.0.0.1"]));
    objects.extend(backend("b2", &["10.0.0.2"]));
    let done = run(&objects);
    assert_eq!(done.keys(), ["tcp/*:80"]);
    assert_eq!(done.listeners[0].names.len(), 2);
    assert_eq!(done.get("one.example", "/"), "10.0.0.1:8080 x1");
    assert_eq!(done.get("two.example", "/"), "10.0.0.2:8080 x1");
}

#[test]
fn of_conflicting_gateways_the_older_wins() {
    let spec = |listener: Value| json!({"gatewayClassName": "gateway-agent", "listeners": [listener]});
    for (younger, reason) in [
        (http("l", 80, ""), "HostnameConflict"),
        (plain("l", "TCP", 80), "ProtocolConflict"),
        (tls("l", 80, "Passthrough", ""), "ProtocolConflict"),
    ] {
        let done = run(&[
            aged("Gateway", "a-younger", 2, spec(younger)),
            aged("Gateway", "b-older", 1, spec(http("l", 80, ""))),
        ]);
        assert_eq!(done.gateway("b-older", "Accepted"), "True/Accepted");
        assert_eq!(done.listener("b-older", "l", "Conflicted"), "False/NoConflicts");
        assert_eq!(done.listener("a-younger", "l", "Conflicted"), format!("True/{reason}"));
        assert_eq!(done.gateway("a-younger", "Accepted"), "False/ListenersNotValid");
        assert_eq!(&*done.listeners[0].names[0].gateway.name, "b-older");
    }
}

#[test]
fn gateways_of_equal_age_win_by_name() {
    let spec = json!({"gatewayClassName": "gateway-agent", "listeners": [plain("l", "TCP", 80)]});
    let done = run(&[aged("Gateway", "b", 1, spec.clone()), aged("Gateway", "a", 1, spec)]);
    assert_eq!(done.gateway("a", "Accepted"), "True/Accepted");
    assert_eq!(done.gateway("b", "Accepted"), "False/ListenersNotValid");
}

#[test]
fn port_of_the_admin_server_is_unavailable_to_tcp_only() {
    let done = run(&[gateway("gw", json!([plain("tcp", "HTTP", 9901), plain("udp", "UDP", 9901)]))]);
    assert_eq!(done.listener("gw", "tcp", "Accepted"), "False/PortUnavailable");
    assert_eq!(done.listener("gw", "udp", "Accepted"), "True/Accepted");
    assert!(done.complaint("Gateway", "gw").contains("--admin-address"));
}

#[test]
fn supported_kinds_follow_protocol_and_allowed_kinds() {
    let allowed = |kinds: Value| json!({"kinds": kinds});
    let done = run(&[gateway(
        "gw",
        json!([
            {"name": "http", "protocol": "HTTP", "port": 80},
            {"name": "tls", "protocol": "TLS", "port": 443, "tls": {"mode": "Passthrough"}},
            {"name": "mixed", "protocol": "HTTP", "port": 81,
                "allowedRoutes": allowed(json!([{"kind": "HTTPRoute"}, {"kind": "TCPRoute"}]))},
            {"name": "none", "protocol": "HTTP", "port": 82,
                "allowedRoutes": allowed(json!([{"kind": "HTTPRoute", "group": "example.com"}]))},
        ]),
    )]);
    assert_eq!(done.kinds("gw", "http"), ["HTTPRoute", "GRPCRoute"]);
    assert_eq!(done.kinds("gw", "tls"), ["TLSRoute"]);
    assert_eq!(done.kinds("gw", "mixed"), ["HTTPRoute"]);
    assert!(done.kinds("gw", "none").is_empty());
    assert_eq!(done.listener("gw", "http", "ResolvedRefs"), "True/ResolvedRefs");
    for section in ["mixed", "none"] {
        assert_eq!(done.listener("gw", section, "ResolvedRefs"), "False/InvalidRouteKinds");
    }
}

#[test]
fn status_lists_exactly_the_listeners_of_the_spec() {
    let done = run(&[gateway("gw", json!([plain("b", "UDP", 53), plain("a", "INVALID", 1)]))]);
    let scopes: Vec<String> =
        done.status("Gateway", "gw").scopes.iter().map(|scope| format!("{:?}", scope.scope)).collect();
    assert_eq!(scopes, ["Object", "Listener(\"b\")", "Listener(\"a\")"]);
}
