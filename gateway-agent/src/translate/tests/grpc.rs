//! GRPCRoute: what calls it serves, and what it is told.

use serde_json::json;

use super::scenario::{Request, route, run};
use crate::api::Object;
use crate::snapshot::{Backend, BackendProtocol, HttpAction, HttpRule, HttpVirtualListener};
use crate::store::testing::{backend, gateway, with_spec};
use crate::translate::Translation;

/// A call as the proxy sees it.
fn call<'a>(path: &'a str, headers: &'a [(&'a str, &'a str)]) -> Request<'a> {
    Request { path, method: "POST", headers }
}

fn web() -> Object {
    gateway("gw", json!([{"name": "http", "protocol": "HTTP", "port": 80}]))
}

fn listener<'a>(done: &'a Translation, host: &str) -> &'a HttpVirtualListener {
    done.http("tcp/*:80").listeners.lookup(host).unwrap()
}

/// `NAME:RULE` of what serves the call.
fn served(done: &Translation, host: &str, path: &str, headers: &[(&str, &str)]) -> Option<String> {
    let rule = listener(done, host).find_call(host, &call(path, headers))?;
    Some(format!("{}:{}", rule.route.object.name, rule.index))
}

#[test]
fn service_and_method_are_matched_and_the_longer_service_comes_first() {
    let rules = json!([
        {"backendRefs": [{"name": "s", "port": 80}]},
        {"matches": [{"method": {"method": "Echo"}}]},
        {"matches": [{"method": {"service": "a.B"}}]},
        {"matches": [{"method": {"service": "a.B", "method": "Echo"}}]},
        {"matches": [{"method": {"service": "a.B", "method": "Echo"}, "headers": [{"name": "X-V", "value": "2"}]}]},
    ]);
    let done = run(&[web(), route("GRPCRoute", "r", json!({ "rules": rules }))]);
    for (path, headers, rule) in [
        ("/a.B/Echo", &[][..], 3),
        ("/a.B/Echo", &[("x-v", "2")], 4),
        ("/a.B/echo", &[], 2),
        ("/a.B/Other", &[], 2),
        ("/a.Bc/Echo", &[], 1),
        ("/x/y/Echo", &[], 0),
        ("/x/y", &[], 0),
    ] {
        assert_eq!(served(&done, "any", path, headers), Some(format!("r:{rule}")), "{path}");
    }
    assert_eq!(done.parent("GRPCRoute", "r", 0, "Accepted"), "True/Accepted");
    assert_eq!((done.attached("gw", "http"), done.kinds("gw", "http")), (1, vec!["HTTPRoute", "GRPCRoute"]));
}

#[test]
fn hostname_outranks_the_match_and_falls_through() {
    let rule = |method: &str| json!([{"matches": [{"method": {"service": "a", "method": method}}]}]);
    let done = run(&[
        web(),
        route("GRPCRoute", "wide", json!({"hostnames": ["*.example"], "rules": rule("M")})),
        route(
            "GRPCRoute",
            "exact",
            json!({"hostnames": ["a.example"], "rules": [{"matches": [{"method": {"service": "a"}}]}]}),
        ),
        route("GRPCRoute", "other", json!({"hostnames": ["*.example"], "rules": rule("N")})),
    ]);
    assert_eq!(served(&done, "a.example", "/a/M", &[]).as_deref(), Some("exact:0"));
    assert_eq!(served(&done, "b.example", "/a/M", &[]).as_deref(), Some("wide:0"));
    assert_eq!(served(&done, "b.example", "/a/N", &[]).as_deref(), Some("other:0"));
    assert_eq!(served(&done, "b.example", "/a/O", &[]), None);
    assert_eq!(served(&done, "example", "/a/M", &[]), None);
}

#[test]
fn rules_of_both_kinds_of_one_hostname_are_kept_apart() {
    let done = run(&[
        web(),
        route("GRPCRoute", "r", json!({"rules": [{"matches": [{"method": {"service": "a"}}]}]})),
        route("HTTPRoute", "r", json!({"rules": [{"backendRefs": []}]})),
    ]);
    assert_eq!(served(&done, "any", "/a/M", &[]).as_deref(), Some("r:0"));
    assert_eq!(served(&done, "any", "/b/M", &[]), None);
    assert_eq!(done.get("any", "/a/M"), "500");
    for kind in ["GRPCRoute", "HTTPRoute"] {
        assert_eq!(done.parent(kind, "r", 0, "Accepted"), "True/Accepted");
    }
}

// The proxy speaks HTTP/2 to them also where the Service says nothing.
#[test]
fn its_backends_speak_h2c_unless_they_say_otherwise() {
    for (protocol, expected) in [
        (json!(null), "True/ResolvedRefs"),
        (json!("kubernetes.io/h2c"), "True/ResolvedRefs"),
        (json!("grpc"), "True/ResolvedRefs"),
        (json!("http"), "False/UnsupportedProtocol"),
        (json!("kubernetes.io/ws"), "False/UnsupportedProtocol"),
    ] {
        let ports = json!({"ports": [{"name": "main", "port": 80, "appProtocol": protocol}]});
        let rules = json!([{"backendRefs": [{"name": "s", "port": 80}]}]);
        let done = run(&[
            web(),
            route("GRPCRoute", "r", json!({ "rules": rules })),
            with_spec("Service", "s", ports),
        ]);
        assert_eq!(done.parent("GRPCRoute", "r", 0, "ResolvedRefs"), expected, "{protocol}");
    }
}

#[test]
fn one_service_may_be_spoken_to_in_two_ways() {
    let rules = json!([{"backendRefs": [{"name": "s", "port": 80}]}]);
    let mut objects = vec![
        web(),
        route("GRPCRoute", "r", json!({ "rules": rules })),
        route("HTTPRoute", "r", json!({ "rules": rules })),
    ];
    objects.extend(backend("s", &["10.0.0.1"]));
    let done = run(&objects);
    let listener = listener(&done, "any");
    let call = call("/a/b", &[]);
    assert_eq!(protocol(listener.find_call("any", &call).unwrap()), BackendProtocol::Http2);
    assert_eq!(protocol(listener.find("any", &call).unwrap()), BackendProtocol::Http1);
}

fn protocol(rule: &HttpRule) -> BackendProtocol {
    let HttpAction::Forward(split) = &rule.action else { panic!("{rule:?}") };
    let Backend::Endpoints(set) = &split.backends[0].backend else { panic!("{rule:?}") };
    set.protocol
}

#[test]
fn what_is_not_supported_is_said_and_not_passed_over() {
    let set_host = json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "host", "value": "x"}]}});
    for (rule, what, expected) in [
        (
            json!({"matches": [{"method": {"type": "RegularExpression", "service": "a)(b"}}]}),
            "matches[0].method.service",
            None,
        ),
        (
            json!({"matches": [{"headers": [{"type": "RegularExpression", "name": "a", "value": "("}]}]}),
            "matches[0].headers[0]",
            None,
        ),
        (json!({"filters": [set_host]}), "filters[0] (RequestHeaderModifier: header host", Some("r:0")),
        (
            json!({"backendRefs": [{"name": "s", "port": 80, "filters": [set_host]}]}),
            "backendRefs[0].filters[0] (RequestHeaderModifier: header host",
            Some("r:0"),
        ),
    ] {
        let mut objects = vec![web(), route("GRPCRoute", "r", json!({"rules": [rule]}))];
        objects.extend(backend("s", &["10.0.0.1"]));
        let done = run(&objects);
        assert_eq!(done.parent("GRPCRoute", "r", 0, "Accepted"), "False/UnsupportedValue", "{what}");
        assert!(done.complaint("GRPCRoute", "r").contains(what), "{}", done.complaint("GRPCRoute", "r"));
        // Not in force, for nothing of it could be.
        assert_eq!(served(&done, "any", "/a/b", &[]), None, "{what}");
        let with_good = json!({"rules": [rule, {"matches": [{"method": {"service": "good"}}]}]});
        let mut objects = vec![web(), route("GRPCRoute", "r", with_good)];
        objects.extend(backend("s", &["10.0.0.1"]));
        let done = run(&objects);
        assert_eq!(done.parent("GRPCRoute", "r", 0, "Accepted"), "True/Accepted", "{what}");
        assert_eq!(served(&done, "any", "/a/b", &[]).as_deref(), expected, "{what}");
        assert_eq!(served(&done, "any", "/good/b", &[]).as_deref(), Some("r:1"), "{what}");
    }
}

#[test]
fn expressions_describe_the_whole_of_service_method_and_header() {
    let method = |service: &str, method: &str| json!({"method": {"type": "RegularExpression", "service": service, "method": method}});
    let header = json!({"headers": [{"type": "RegularExpression", "name": "X-V", "value": "[0-9]+"}]});
    let rules = json!([
        {"backendRefs": [{"name": "s", "port": 80}]},
        {"matches": [method("a|b\\.c", "Get.*")]},
        {"matches": [method("", "List|Watch")]},
        {"matches": [method("d", "")]},
        // As a path beside an expression: what is exact comes first, what is of a service alone behind.
        {"matches": [{"method": {"service": "a", "method": "GetAll"}}, {"method": {"service": "b.c"}}]},
        {"matches": [header]},
    ]);
    let done = run(&[web(), route("GRPCRoute", "r", json!({ "rules": rules }))]);
    assert_eq!(done.parent("GRPCRoute", "r", 0, "Accepted"), "True/Accepted");
    for (path, headers, rule) in [
        ("/a/GetOne", &[][..], 1),
        ("/b.c/Get", &[], 1),
        ("/a/GetAll", &[], 4),
        ("/b.c/Put", &[], 4),
        ("/bxc/Get", &[], 0),
        ("/x.a/Get", &[], 0),
        ("/a/forGet", &[], 0),
        ("/x/List", &[], 2),
        ("/x/Lists", &[], 0),
        ("/d/M", &[], 3),
        ("/d/", &[], 0),
        ("/x/M", &[("x-v", "17")], 5),
        ("/x/M", &[("x-v", "17a")], 0),
    ] {
        assert_eq!(served(&done, "any", path, headers), Some(format!("r:{rule}")), "{path}");
    }
}

// O35
#[test]
fn mirrors_of_rules_and_backends_are_spoken_to_as_backends_are() {
    let mirror = json!({"type": "RequestMirror",
        "requestMirror": {"backendRef": {"name": "m", "port": 80}, "percent": 50}});
    let rules = json!([
        {"filters": [mirror], "backendRefs": [{"name": "s", "port": 80}]},
        {"matches": [{"method": {"service": "a"}}],
            "backendRefs": [{"name": "s", "port": 80, "filters": [mirror]}]},
    ]);
    let mut objects = vec![web(), route("GRPCRoute", "r", json!({ "rules": rules }))];
    objects.extend(backend("s", &["10.0.0.1"]));
    objects.extend(backend("m", &["10.0.0.2"]));
    let done = run(&objects);
    assert_eq!(done.parent("GRPCRoute", "r", 0, "Accepted"), "True/Accepted");
    let of_rule = listener(&done, "any").find_call("any", &call("/x/y", &[])).unwrap();
    let of_backend = listener(&done, "any").find_call("any", &call("/a/y", &[])).unwrap();
    let HttpAction::Forward(split) = &of_backend.action else { panic!("{of_backend:?}") };
    for filters in [&of_rule.filters, &**split.backends[0].filters.as_ref().unwrap()] {
        let [mirror] = &*filters.mirrors else { panic!("{filters:?}") };
        assert_eq!((mirror.numerator, mirror.denominator), (50, 100));
        assert_eq!(mirror.endpoints.protocol, BackendProtocol::Http2);
        assert_eq!(mirror.endpoints.addresses[0].ip().to_string(), "10.0.0.2");
    }
}

#[test]
fn why_it_cannot_attach_comes_first() {
    let listeners = json!([
        {"name": "http", "protocol": "HTTP", "port": 80, "hostname": "gw.example"},
        {"name": "tcp", "protocol": "TCP", "port": 90},
    ]);
    for (spec, expected) in [
        (json!({"parentRefs": [{"name": "gw", "sectionName": "absent"}]}), "False/NoMatchingParent"),
        (json!({"parentRefs": [{"name": "gw", "sectionName": "tcp"}]}), "False/NotAllowedByListeners"),
        (json!({"hostnames": ["other.example"]}), "False/NoMatchingListenerHostname"),
    ] {
        let done = run(&[gateway("gw", listeners.clone()), route("GRPCRoute", "r", spec)]);
        assert_eq!(done.parent("GRPCRoute", "r", 0, "Accepted"), expected);
    }
}

#[test]
fn references_of_its_filters_are_judged() {
    for (filter, expected) in [
        (
            json!({"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "absent", "port": 80}}}),
            "False/BackendNotFound",
        ),
        (
            json!({"type": "ExtensionRef",
                "extensionRef": {"group": "example.com", "kind": "X", "name": "x"}}),
            "False/InvalidKind",
        ),
    ] {
        let mut objects = vec![
            web(),
            route(
                "GRPCRoute",
                "r",
                json!({"rules": [{"filters": [filter], "backendRefs": [{"name": "s", "port": 80}]}]}),
            ),
        ];
        objects.extend(backend("s", &["10.0.0.1"]));
        assert_eq!(run(&objects).parent("GRPCRoute", "r", 0, "ResolvedRefs"), expected);
    }
}
