//! HTTPS listeners: certificates, by what they refer to; what shares their port; spec.tls.

use serde_json::{Value, json};

use super::scenario::{authority, certificate, http_route, run, secret};
use crate::api::Object;
use crate::snapshot::{Protocol, TlsTerms};
use crate::store::testing::{backend, gateway, with_spec};
use crate::translate::Translation;

fn https(name: &str, hostname: &str, certificates: Value) -> Value {
    json!({"name": name, "protocol": "HTTPS", "port": 443, "hostname": hostname,
        "tls": {"certificateRefs": certificates}})
}

fn passthrough(name: &str, hostname: &str) -> Value {
    json!({"name": name, "protocol": "TLS", "port": 443, "hostname": hostname, "tls": {"mode": "Passthrough"}})
}

/// Names in the certificates of the listener that serves `server_name` on port 443, in order.
fn presented(done: &Translation, server_name: &str) -> Vec<String> {
    let listener = done.tls("tcp/*:443").listeners.lookup(server_name).expect("a listener");
    match listener.mode.terms() {
        Some(TlsTerms { certificates, .. }) => {
            let names = certificates.iter().flat_map(|certificate| certificate.names());
            names.map(|name| name.to_string()).collect()
        }
        None => panic!("{server_name} is passed through"),
    }
}

fn verdict(done: &Translation, section: &str) -> [String; 3] {
    ["Accepted", "ResolvedRefs", "Programmed"].map(|condition| done.listener("gw", section, condition))
}

#[test]
fn https_is_terminated_and_routed_like_http() {
    let mut objects = vec![
        gateway("gw", json!([https("web", "", json!([{"name": "a"}, {"name": "b"}]))])),
        certificate("a", "a.example"),
        certificate("b", "b.example"),
        http_route("r", &["a.example"], &["s"]),
    ];
    objects.extend(backend("s", &["10.0.0.1"]));
    let done = run(&objects);
    assert_eq!(verdict(&done, "web"), ["True/Accepted", "True/ResolvedRefs", "absent"]);
    // The first is the default.
    assert_eq!(presented(&done, "any.example"), ["a.example", "b.example"]);
    assert_eq!(done.request("tcp/*:443", "GET", "a.example", "/", &[]), "10.0.0.1:8080 x1");
    assert_eq!(done.request("tcp/*:443", "GET", "b.example", "/", &[]), "404");
    assert_eq!((done.attached("gw", "web"), done.kinds("gw", "web")), (1, vec!["HTTPRoute", "GRPCRoute"]));
}

// O38: one bad certificate of several.
#[test]
fn good_certificates_are_served_beside_bad_ones() {
    let listener = https("web", "", json!([{"name": "absent"}, {"name": "bad"}, {"name": "good"}]));
    let objects =
        [gateway("gw", json!([listener])), certificate("good", "good.example"), secret("bad", "x", "y")];
    let done = run(&objects);
    assert_eq!(verdict(&done, "web"), ["True/Accepted", "False/InvalidCertificateRef", "absent"]);
    assert!(done.complaint("Gateway", "gw").contains("Secret default/absent does not exist"));
    assert_eq!(presented(&done, "any"), ["good.example"]);
}

#[test]
fn listener_without_a_usable_certificate_is_not_programmed_and_others_are() {
    let bad = https("bad", "bad.example", json!([{"name": "absent"}]));
    let good = https("good", "", json!([{"name": "c"}]));
    let done = run(&[gateway("gw", json!([bad, good])), certificate("c", "c.example")]);
    assert_eq!(verdict(&done, "bad"), ["True/Accepted", "False/InvalidCertificateRef", "False/Invalid"]);
    assert_eq!(verdict(&done, "good"), ["True/Accepted", "True/ResolvedRefs", "absent"]);
    // Its names do not fall to the other.
    assert!(presented(&done, "bad.example").is_empty());
    assert_eq!(presented(&done, "other.example"), ["c.example"]);
    assert_eq!(done.gateway("gw", "Accepted"), "True/Accepted");
}

#[test]
fn port_that_no_listener_has_a_certificate_for_is_closed() {
    let done = run(&[gateway("gw", json!([https("web", "", json!([{"name": "absent"}]))]))]);
    assert!(done.keys().is_empty());
}

#[test]
fn references_to_certificates_have_the_reasons_of_the_spec() {
    let grant = |kind: &str| {
        let from = json!([{"group": "gateway.networking.k8s.io", "kind": kind, "namespace": "default"}]);
        let to = json!([{"group": "", "kind": "Secret"}]);
        with_spec("ReferenceGrant", "other/g", json!({"from": from, "to": to}))
    };
    let opaque =
        crate::store::testing::object(json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "opaque", "namespace": "default"}}));
    let elsewhere = json!({"name": "c", "namespace": "other"});
    let tables: &[(Value, Vec<Object>, &str)] = &[
        (json!({"name": "c", "kind": "ConfigMap"}), vec![], "InvalidCertificateRef"),
        (json!({"name": "c", "group": "example.com"}), vec![], "InvalidCertificateRef"),
        (json!({"name": "absent"}), vec![], "InvalidCertificateRef"),
        (json!({"name": "opaque"}), vec![opaque], "InvalidCertificateRef"),
        (json!({"name": "bad"}), vec![secret("bad", "", "")], "InvalidCertificateRef"),
        // Permission is decided before existence.
        (elsewhere.clone(), vec![], "RefNotPermitted"),
        (elsewhere.clone(), vec![certificate("other/c", "c.example")], "RefNotPermitted"),
        (elsewhere.clone(), vec![certificate("other/c", "c.example"), grant("HTTPRoute")], "RefNotPermitted"),
        (elsewhere.clone(), vec![grant("Gateway")], "InvalidCertificateRef"),
    ];
    for (reference, others, reason) in tables {
        let mut objects = vec![gateway("gw", json!([https("web", "", json!([reference]))]))];
        objects.extend(others.iter().cloned());
        let done = run(&objects);
        assert_eq!(done.listener("gw", "web", "ResolvedRefs"), format!("False/{reason}"), "{reference}");
        assert_eq!(done.listener("gw", "web", "Accepted"), "True/Accepted", "{reference}");
    }
    let permitted = [
        gateway("gw", json!([https("web", "", json!([elsewhere]))])),
        certificate("other/c", "c.example"),
        grant("Gateway"),
    ];
    assert_eq!(verdict(&run(&permitted), "web"), ["True/Accepted", "True/ResolvedRefs", "absent"]);
}

#[test]
fn https_and_passthrough_share_a_port_by_server_name() {
    let listeners = json!([https("web", "web.example", json!([{"name": "c"}])), passthrough("raw", "")]);
    let mut objects = vec![gateway("gw", listeners), certificate("c", "web.example")];
    let parent = json!([{"name": "gw", "sectionName": "raw"}]);
    let rules = json!([{"backendRefs": [{"name": "s", "port": 80}]}]);
    let spec = json!({"parentRefs": parent, "hostnames": ["raw.example"], "rules": rules});
    objects.push(with_spec("TLSRoute", "r", spec));
    objects.extend(backend("s", &["10.0.0.1"]));
    let done = run(&objects);
    assert_eq!(presented(&done, "web.example"), ["web.example"]);
    assert_eq!(done.server_name("tcp/*:443", "raw.example"), "10.0.0.1:8080 x1");
    assert_eq!(done.server_name("tcp/*:443", "else.example"), "closed");

    // The name of both.
    let listeners =
        json!([https("web", "x.example", json!([{"name": "c"}])), passthrough("raw", "x.example")]);
    let done = run(&[gateway("gw", listeners), certificate("c", "x.example")]);
    for section in ["web", "raw"] {
        assert_eq!(done.listener("gw", section, "Conflicted"), "True/HostnameConflict");
    }
}

#[test]
fn overlapping_hostnames_of_https_listeners_are_told_to_both() {
    let certificates = || json!([{"name": "c"}]);
    let listeners = json!([
        https("wide", "*.example.com", certificates()),
        https("narrow", "a.example.com", certificates()),
        https("apart", "example.org", certificates()),
    ]);
    let done = run(&[gateway("gw", listeners), certificate("c", "c.example")]);
    for (section, expected) in
        [("wide", "True/OverlappingHostnames"), ("narrow", "True/OverlappingHostnames"), ("apart", "absent")]
    {
        assert_eq!(done.listener("gw", section, "OverlappingTLSConfig"), expected, "{section}");
        assert_eq!(done.listener("gw", section, "Accepted"), "True/Accepted");
    }
}

#[test]
fn certificate_that_is_good_for_another_listener_is_told_to_both() {
    let listeners = json!([
        https("one", "a.example.com", json!([{"name": "wide"}])),
        https("two", "b.example.com", json!([{"name": "narrow"}])),
        https("three", "c.b.example.com", json!([{"name": "narrow"}])),
        https("own", "d.example.org", json!([{"name": "own"}])),
    ]);
    let done = run(&[
        gateway("gw", listeners),
        certificate("wide", "*.example.com"),
        certificate("narrow", "b.example.com"),
        certificate("own", "d.example.org"),
    ]);
    for (section, expected) in [
        ("one", "True/OverlappingCertificates"),
        ("two", "True/OverlappingCertificates"),
        // Its certificate is that of another.
        ("three", "True/OverlappingCertificates"),
        ("own", "absent"),
    ] {
        assert_eq!(done.listener("gw", section, "OverlappingTLSConfig"), expected, "{section}");
    }
}

fn with_tls(tls: Value, others: Vec<Object>) -> Translation {
    let listeners = json!([https("web", "", json!([{"name": "c"}])),
        {"name": "http", "protocol": "HTTP", "port": 80}]);
    let spec = json!({"gatewayClassName": "gateway-agent", "listeners": listeners, "tls": tls});
    let mut objects = vec![with_spec("Gateway", "gw", spec), certificate("c", "c.example")];
    objects.extend(others);
    run(&objects)
}

#[test]
fn validation_of_clients_is_judged_and_never_left_out() {
    let validation = |reference: Value| json!({"validation": {"caCertificateRefs": [reference]}});
    let map = |name: &str| json!({"group": "", "kind": "ConfigMap", "name": name});
    for (reference, accepted, resolved) in [
        (map("bad"), "False/NoValidCACertificate", "False/InvalidCACertificateRef"),
        (map("absent"), "False/NoValidCACertificate", "False/InvalidCACertificateRef"),
        (
            json!({"group": "", "kind": "Secret", "name": "good"}),
            "False/NoValidCACertificate",
            "False/InvalidCACertificateKind",
        ),
        (
            json!({"group": "", "kind": "ConfigMap", "name": "good", "namespace": "other"}),
            "False/NoValidCACertificate",
            "False/RefNotPermitted",
        ),
    ] {
        let frontend = json!({"frontend": {"default": validation(reference.clone())}});
        let done = with_tls(frontend, vec![authority("good", true), authority("bad", false)]);
        assert_eq!(done.listener("gw", "web", "Accepted"), accepted, "{reference}");
        assert_eq!(done.listener("gw", "web", "ResolvedRefs"), resolved, "{reference}");
        // It is none of the cleartext listener's business.
        assert_eq!(done.listener("gw", "http", "Accepted"), "True/Accepted");
        assert_eq!(done.listener("gw", "http", "ResolvedRefs"), "True/ResolvedRefs");
        assert_eq!(done.keys(), ["tcp/*:80"]);
    }
    let clients = |done: &Translation| {
        let listener = done.tls("tcp/*:443").listeners.lookup("any").expect("a listener");
        listener.mode.terms().expect("it terminates").clients.clone()
    };
    // Of several, those that are good are in force.
    let references = json!([map("good"), map("also"), map("bad")]);
    let default = json!({"validation": {"caCertificateRefs": references}});
    let others = || vec![authority("good", true), authority("also", true), authority("bad", false)];
    let done = with_tls(json!({"frontend": {"default": default}}), others());
    assert_eq!(verdict(&done, "web"), ["True/Accepted", "False/InvalidCACertificateRef", "absent"]);
    let trust = clients(&done).expect("clients are asked");
    assert_eq!((trust.authorities.len(), trust.allows_insecure_fallback), (2, false));
    assert_eq!(done.listener("gw", "http", "ResolvedRefs"), "True/ResolvedRefs");
    // A port of its own takes the default's place, also by asking for nothing.
    let per_port = json!([{"port": 443, "tls": {}}]);
    let frontend = json!({"frontend": {"default": validation(map("absent")), "perPort": per_port}});
    let done = with_tls(frontend, vec![]);
    assert_eq!(done.listener("gw", "web", "Accepted"), "True/Accepted");
    assert_eq!(clients(&done), None);
    let fallback =
        json!({"validation": {"mode": "AllowInsecureFallback", "caCertificateRefs": [map("good")]}});
    let per_port = json!([{"port": 443, "tls": fallback}]);
    let frontend = json!({"frontend": {"default": validation(map("absent")), "perPort": per_port}});
    let done = with_tls(frontend, others());
    assert!(clients(&done).is_some_and(|trust| trust.allows_insecure_fallback));
}

#[test]
fn insecure_validation_of_clients_is_told_on_the_gateway() {
    let validation = json!({"mode": "AllowInsecureFallback",
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]});
    let done = with_tls(json!({"frontend": {"default": {"validation": validation}}}), vec![]);
    assert_eq!(done.gateway("gw", "InsecureFrontendValidationMode"), "True/ConfigurationChanged");
    assert_eq!(with_tls(json!({}), vec![]).gateway("gw", "InsecureFrontendValidationMode"), "absent");
}

#[test]
fn client_certificate_of_the_gateway_is_resolved() {
    let of = |reference: Value| json!({"backend": {"clientCertificateRef": reference}});
    for (reference, resolved) in [
        (json!({"name": "c"}), "True/ResolvedRefs"),
        (json!({"name": "absent"}), "False/InvalidClientCertificateRef"),
        (json!({"name": "bad"}), "False/InvalidClientCertificateRef"),
        (json!({"name": "c", "kind": "ConfigMap"}), "False/InvalidClientCertificateRef"),
        (json!({"name": "c", "namespace": "other"}), "False/RefNotPermitted"),
    ] {
        let done = with_tls(of(reference.clone()), vec![secret("bad", "", "")]);
        assert_eq!(done.gateway("gw", "ResolvedRefs"), resolved, "{reference}");
        assert_eq!(done.gateway("gw", "Accepted"), "True/Accepted");
        // Backends are shown it, whatever clients speak.
        let Protocol::Http(table) = done.protocol("tcp/*:80") else { panic!("{reference}") };
        let listener = table.listeners.lookup("any").expect("a listener");
        assert_eq!(listener.client_certificate.is_some(), resolved == "True/ResolvedRefs");
    }
    assert_eq!(with_tls(json!({}), vec![]).gateway("gw", "ResolvedRefs"), "absent");
}

#[test]
fn entry_of_a_port_with_tls_is_one_whatever_it_mixes() {
    let listeners = json!([https("web", "web.example", json!([{"name": "c"}])), passthrough("raw", "")]);
    let done = run(&[gateway("gw", listeners), certificate("c", "web.example")]);
    assert_eq!(done.keys(), ["tcp/*:443"]);
    assert!(matches!(done.protocol("tcp/*:443"), Protocol::Tls(_)));
    assert_eq!(done.listeners[0].names.len(), 2);
}
