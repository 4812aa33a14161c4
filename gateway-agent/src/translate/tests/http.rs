//! HTTP routing tables: hostnames, precedence, rules that cannot be served.

use serde_json::{Value, json};

use super::scenario::{Request, http_route, route, run};
use crate::api::Object;
use crate::store::testing::{aged, backend, gateway};
use crate::translate::Translation;

fn listeners(hostnames: &[&str]) -> Object {
    let listener = |(index, hostname): (usize, &&str)| json!({"name": format!("l{index}"), "protocol": "HTTP", "port": 80, "hostname": hostname});
    gateway("gw", Value::Array(hostnames.iter().enumerate().map(listener).collect()))
}

/// Backends `b1` to `b4` at 10.0.0.1 to 10.0.0.4.
fn with_backends(mut objects: Vec<Object>) -> Translation {
    for index in 1..=4 {
        objects.extend(backend(&format!("b{index}"), &[&format!("10.0.0.{index}")]));
    }
    run(&objects)
}

/// The backend of a request: `b1` to `b4`, or what is answered instead.
fn to(answer: &str) -> &str {
    match answer {
        "10.0.0.1:8080 x1" => "b1",
        "10.0.0.2:8080 x1" => "b2",
        "10.0.0.3:8080 x1" => "b3",
        "10.0.0.4:8080 x1" => "b4",
        other => other,
    }
}

#[test]
fn rules_are_known_by_their_names_else_by_their_positions() {
    let named = json!({"name": "api", "matches": [path("PathPrefix", "/api")]});
    let plain = json!({"matches": [path("PathPrefix", "/")]});
    let done =
        run(&[listeners(&["*.example.com"]), route("HTTPRoute", "r", json!({"rules": [named, plain]}))]);
    let listener = done.http("tcp/*:80").listeners.lookup("a.example.com").unwrap().clone();
    for (path, name) in [("/api/x", "api"), ("/x", "1")] {
        let request = Request { path, method: "GET", headers: &[] };
        assert_eq!(&*listener.find("a.example.com", &request).unwrap().name, name);
    }
}

fn rule(matches: Value, service: &str) -> Value {
    json!({"matches": matches, "backendRefs": [{"name": service, "port": 80}]})
}

fn path(kind: &str, value: &str) -> Value {
    json!({"path": {"type": kind, "value": value}})
}

#[test]
fn route_without_rules_or_backends_answers_500() {
    let done = with_backends(vec![listeners(&[""]), route("HTTPRoute", "r", json!({}))]);
    assert_eq!(done.get("any.example", "/x"), "500");
}

#[test]
fn no_listener_and_no_route_for_the_host_is_404() {
    let done = with_backends(vec![listeners(&["*.example"]), http_route("r", &["a.example"], &["b1"])]);
    assert_eq!(to(&done.get("a.example", "/")), "b1");
    assert_eq!(done.get("b.example", "/"), "404");
    assert_eq!(done.get("example", "/"), "404");
}

// O46
#[test]
fn wildcard_listener_takes_one_or_more_labels_and_never_the_apex() {
    let done = with_backends(vec![listeners(&["*.bar.com"]), http_route("r", &[], &["b1"])]);
    assert_eq!(to(&done.get("baz.bar.com", "/")), "b1");
    assert_eq!(to(&done.get("multiple.prefixes.bar.com", "/")), "b1");
    assert_eq!(done.get("bar.com", "/"), "404");
    assert_eq!(done.get("xbar.com", "/"), "404");
}

#[test]
fn hostnames_that_do_not_intersect_are_ignored() {
    let done = with_backends(vec![
        listeners(&["a.example"]),
        http_route("r", &["a.example", "b.example", "c.other"], &["b1"]),
    ]);
    assert_eq!(to(&done.get("a.example", "/")), "b1");
    assert_eq!(done.get("b.example", "/"), "404");
}

// Listener isolation: no fall-through to a less specific listener.
#[test]
fn only_the_most_specific_listener_is_looked_at() {
    let mut specific = json!({"parentRefs": [{"name": "gw", "sectionName": "l1"}]});
    specific["rules"] = json!([rule(json!([path("Exact", "/only")]), "b2")]);
    let mut general = json!({"parentRefs": [{"name": "gw", "sectionName": "l0"}]});
    general["rules"] = json!([rule(json!([path("PathPrefix", "/")]), "b1")]);
    let done = with_backends(vec![
        listeners(&["", "*.example"]),
        route("HTTPRoute", "specific", specific),
        route("HTTPRoute", "general", general),
    ]);
    assert_eq!(to(&done.get("a.example", "/only")), "b2");
    assert_eq!(done.get("a.example", "/other"), "404");
    assert_eq!(to(&done.get("a.other", "/other")), "b1");
}

// O45
#[test]
fn exact_path_of_a_younger_route_beats_an_older_prefix() {
    let spec = |matches: Value, service: &str| json!({"parentRefs": [{"name": "gw"}], "rules": [rule(matches, service)]});
    let done = with_backends(vec![
        listeners(&[""]),
        aged("HTTPRoute", "older", 1, spec(json!([path("PathPrefix", "/")]), "b1")),
        aged(
            "HTTPRoute",
            "younger",
            2,
            spec(json!([path("Exact", "/.well-known/acme-challenge/tok")]), "b2"),
        ),
    ]);
    assert_eq!(to(&done.get("a.example", "/.well-known/acme-challenge/tok")), "b2");
    assert_eq!(to(&done.get("a.example", "/.well-known/acme-challenge/tok/")), "b1");
}

#[test]
fn precedence_is_path_then_method_then_headers() {
    let header = |n: usize| -> Value {
        (0..n).map(|index| json!({"name": format!("X-{index}"), "value": "1"})).collect()
    };
    let done = with_backends(vec![
        listeners(&[""]),
        route(
            "HTTPRoute",
            "r",
            json!({"rules": [
                rule(json!([{"headers": header(2)}]), "b1"),
                rule(json!([{"method": "GET"}]), "b2"),
                rule(json!([{"path": {"type": "PathPrefix", "value": "/long/"}}]), "b3"),
                rule(json!([{"path": {"type": "Exact", "value": "/long"}}]), "b4"),
            ]}),
        ),
    ]);
    let headers = [("x-0", "1"), ("x-1", "1")];
    let ask = |method: &str, path: &str| done.request("tcp/*:80", method, "a", path, &headers);
    assert_eq!(to(&ask("GET", "/long")), "b4");
    assert_eq!(to(&ask("GET", "/long/x")), "b3");
    assert_eq!(to(&ask("GET", "/longer")), "b2");
    assert_eq!(to(&ask("HEAD", "/longer")), "b1", "GET does not match HEAD");
    assert_eq!(done.request("tcp/*:80", "POST", "a", "/", &[]), "404");
}

#[test]
fn ties_go_to_the_older_route_then_the_name_then_the_first_rule() {
    let spec = |services: [&str; 2]| {
        let every = json!([path("PathPrefix", "/")]);
        json!({"parentRefs": [{"name": "gw"}],
            "rules": [rule(every.clone(), services[0]), rule(every, services[1])]})
    };
    let younger_first = with_backends(vec![
        listeners(&[""]),
        aged("HTTPRoute", "a", 2, spec(["b1", "b2"])),
        aged("HTTPRoute", "b", 1, spec(["b3", "b4"])),
    ]);
    assert_eq!(to(&younger_first.get("x", "/")), "b3");
    let by_name = with_backends(vec![
        listeners(&[""]),
        aged("HTTPRoute", "b", 1, spec(["b3", "b4"])),
        aged("HTTPRoute", "a", 1, spec(["b1", "b2"])),
    ]);
    assert_eq!(to(&by_name.get("x", "/")), "b1");
    let by_order_of_documents = with_backends(vec![
        listeners(&[""]),
        route("HTTPRoute", "b", spec(["b3", "b4"])),
        route("HTTPRoute", "a", spec(["b1", "b2"])),
    ]);
    assert_eq!(to(&by_order_of_documents.get("x", "/")), "b3");
}

// The route's own hostname outranks path length and age, and what its route does not match falls through.
#[test]
fn more_specific_hostname_comes_first_and_falls_through_to_the_less_specific() {
    let hosts = |name: &str, hostname: &str, matches: Value, service: &str| {
        route("HTTPRoute", name, json!({"hostnames": [hostname], "rules": [rule(matches, service)]}))
    };
    for listener in ["", "*.example", "a.example"] {
        let done = with_backends(vec![
            listeners(&[listener]),
            hosts(
                "wild",
                "*.example",
                json!([path("PathPrefix", "/very/long/path"), path("PathPrefix", "/")]),
                "b1",
            ),
            hosts("exact", "a.example", json!([path("PathPrefix", "/very")]), "b2"),
        ]);
        assert_eq!(to(&done.get("a.example", "/very/long/path")), "b2", "{listener}");
        assert_eq!(to(&done.get("a.example", "/other")), "b1", "{listener}");
    }
}

#[test]
fn route_without_hostnames_is_the_least_specific() {
    let done = with_backends(vec![
        listeners(&["a.example"]),
        http_route("any", &[], &["b1"]),
        http_route("named", &["a.example"], &["b2"]),
    ]);
    assert_eq!(to(&done.get("a.example", "/")), "b2");
}

#[test]
fn route_with_several_hostnames_ranks_by_the_one_that_matches_best() {
    let done = with_backends(vec![
        listeners(&["a.example"]),
        http_route("older", &["*.example"], &["b1"]),
        http_route("younger", &["*.example", "a.example"], &["b2"]),
    ]);
    assert_eq!(to(&done.get("a.example", "/")), "b2");
}

#[test]
fn of_matches_with_one_header_name_the_first_counts() {
    let headers = json!([{"name": "X-A", "value": "1"}, {"name": "x-a", "value": "2"}]);
    let done = with_backends(vec![
        listeners(&[""]),
        route("HTTPRoute", "r", json!({"rules": [rule(json!([{ "headers": headers }]), "b1")]})),
    ]);
    assert_eq!(to(&done.request("tcp/*:80", "GET", "a", "/", &[("x-a", "1")])), "b1");
    assert_eq!(done.request("tcp/*:80", "GET", "a", "/", &[("x-a", "2")]), "404");
}

#[test]
fn rule_with_a_bad_regular_expression_is_dropped_and_the_others_serve() {
    for (bad, named) in [
        (
            json!({"path": {"type": "RegularExpression", "value": "/(x"}}),
            "matches[0].path (RegularExpression \"/(x\": unclosed group)",
        ),
        (
            json!({"headers": [{"name": "x", "type": "RegularExpression", "value": "(a{1,1000}){1,1000}"}]}),
            "matches[0].headers[0] (RegularExpression \"(a{1,1000}){1,1000}\": too large)",
        ),
        (
            json!({"queryParams": [{"name": "x", "type": "RegularExpression", "value": "(?=a)"}]}),
            "matches[0].queryParams[0] (RegularExpression",
        ),
    ] {
        let rules = json!([
            rule(json!([bad, path("Exact", "/y")]), "b1"),
            rule(json!([path("PathPrefix", "/z")]), "b2")
        ]);
        let done = with_backends(vec![listeners(&[""]), route("HTTPRoute", "r", json!({ "rules": rules }))]);
        assert_eq!(done.parent("HTTPRoute", "r", 0, "Accepted"), "True/Accepted");
        assert_eq!(done.parent("HTTPRoute", "r", 0, "PartiallyInvalid"), "True/UnsupportedValue");
        let message = done.complaint("HTTPRoute", "r");
        assert!(message.starts_with("Dropped Rule"), "{message}");
        assert!(message.contains(named), "{message}");
        assert_eq!(done.get("a", "/y"), "404");
        assert_eq!(to(&done.get("a", "/z")), "b2");
    }
}

#[test]
fn regular_expressions_stand_between_exact_paths_and_prefixes() {
    let rules = json!([
        rule(json!([path("PathPrefix", "/long/prefix")]), "b1"),
        rule(json!([path("RegularExpression", "/.*x")]), "b2"),
        rule(json!([path("Exact", "/long/prefix/x")]), "b3"),
    ]);
    let done = with_backends(vec![listeners(&[""]), route("HTTPRoute", "r", json!({ "rules": rules }))]);
    assert_eq!(done.parent("HTTPRoute", "r", 0, "PartiallyInvalid"), "absent");
    for (path, backend) in
        [("/long/prefix/x", "b3"), ("/long/prefix/y/x", "b2"), ("/long/prefix/y", "b1"), ("/x", "b2")]
    {
        assert_eq!(to(&done.get("a", path)), backend, "{path}");
    }
    assert_eq!(done.get("a", "/y"), "404");
}

#[test]
fn route_has_a_bounded_number_of_regular_expressions() {
    let many: Vec<Value> = (0..64).map(|n| path("RegularExpression", &format!("/{n}"))).collect();
    let more = json!([path("RegularExpression", "/more")]);
    let rules = json!([rule(json!(many), "b1"), rule(more, "b2")]);
    let done = with_backends(vec![listeners(&[""]), route("HTTPRoute", "r", json!({ "rules": rules }))]);
    assert_eq!(to(&done.get("a", "/63")), "b1");
    assert_eq!(done.get("a", "/more"), "404");
    assert!(done.complaint("HTTPRoute", "r").contains("rules[1]: matches[0].path"));
}

#[test]
fn rule_that_needs_what_is_not_supported_answers_500_and_the_others_serve() {
    for (field, value, named) in [
        (
            "filters",
            json!([{"type": "URLRewrite", "urlRewrite": {"hostname": "b c"}}]),
            "filters[0] (URLRewrite: hostname \"b c\")",
        ),
        (
            "filters",
            json!([{"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["Content-Length"]}}]),
            "filters[0] (RequestHeaderModifier: header Content-Length belongs to the proxy",
        ),
        (
            "filters",
            json!([{"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [{"name": "a", "value": "b\r\nc: d"}]}}]),
            "filters[0] (ResponseHeaderModifier: the value for header a",
        ),
        (
            "filters",
            json!([{"type": "RequestRedirect", "requestRedirect": {"statusCode": 300}}]),
            "filters[0] (RequestRedirect: statusCode 300)",
        ),
        (
            "filters",
            json!([{"type": "URLRewrite", "urlRewrite":
                {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/a/..;/b"}}}]),
            "filters[0] (URLRewrite: \"/a/..;/b\" is not a path",
        ),
        (
            "filters",
            json!([{"type": "CORS", "cors": {"allowOrigins": ["ftp://a"]}}]),
            "filters[0] (CORS: origin \"ftp://a\")",
        ),
        (
            "filters",
            json!([{"type": "RequestMirror", "requestMirror":
                {"backendRef": {"name": "b1", "port": 80}, "fraction": {"numerator": 3, "denominator": 2}}}]),
            "filters[0] (RequestMirror: 3 of 2",
        ),
        ("filters", json!([{"type": "URLRewrite"}]), "filters[0] (URLRewrite: the filter's own field"),
        ("timeouts", json!({"request": "1.5s"}), "timeouts.request (\"1.5s\" is not a duration)"),
        ("timeouts", json!({"request": "1s", "backendRequest": "2s"}), "timeouts.backendRequest (longer"),
        ("retry", json!({"codes": [200]}), "retry.codes (200)"),
        ("retry", json!({"backoff": "0s"}), "retry.backoff (must be longer than zero)"),
    ] {
        let mut bad = rule(json!([path("PathPrefix", "/x")]), "b1");
        bad[field] = value;
        let both = json!({"rules": [bad.clone(), rule(json!([path("PathPrefix", "/")]), "b2")]});
        let done = with_backends(vec![listeners(&[""]), route("HTTPRoute", "r", both)]);
        assert_eq!(done.parent("HTTPRoute", "r", 0, "Accepted"), "True/Accepted");
        assert_eq!(done.parent("HTTPRoute", "r", 0, "PartiallyInvalid"), "True/UnsupportedValue");
        assert!(done.complaint("HTTPRoute", "r").contains(named));
        assert_eq!(done.get("a", "/x"), "500");
        assert_eq!(to(&done.get("a", "/")), "b2");

        let alone = with_backends(vec![listeners(&[""]), route("HTTPRoute", "r", json!({"rules": [bad]}))]);
        assert_eq!(alone.parent("HTTPRoute", "r", 0, "Accepted"), "False/UnsupportedValue");
        assert_eq!(alone.parent("HTTPRoute", "r", 0, "PartiallyInvalid"), "absent");
        assert_eq!(alone.attached("gw", "l0"), 0);
        assert_eq!(alone.get("a", "/x"), "404");
    }
}

#[test]
fn filters_that_exclude_each_other_are_refused() {
    let redirect = json!({"type": "RequestRedirect", "requestRedirect": {"hostname": "b"}});
    let rewrite = json!({"type": "URLRewrite", "urlRewrite": {"hostname": "b"}});
    let cors = json!({"type": "CORS", "cors": {}});
    for (filters, named) in [
        (json!([redirect, rewrite]), "filters (RequestRedirect together with URLRewrite)"),
        (json!([redirect]), "filters (RequestRedirect together with backendRefs)"),
        (json!([cors, cors]), "filters[1] (CORS cannot be repeated)"),
        (json!([rewrite, cors, rewrite]), "filters[2] (URLRewrite cannot be repeated)"),
    ] {
        let mut bad = rule(json!([path("PathPrefix", "/x")]), "b1");
        bad["filters"] = filters;
        let alone = with_backends(vec![listeners(&[""]), route("HTTPRoute", "r", json!({"rules": [bad]}))]);
        assert_eq!(alone.parent("HTTPRoute", "r", 0, "Accepted"), "False/IncompatibleFilters");
        assert!(alone.complaint("HTTPRoute", "r").contains(named), "{named}");
        let both = json!({"rules": [bad, rule(json!([path("PathPrefix", "/")]), "b2")]});
        let done = with_backends(vec![listeners(&[""]), route("HTTPRoute", "r", both)]);
        assert_eq!(done.parent("HTTPRoute", "r", 0, "PartiallyInvalid"), "True/UnsupportedValue");
        assert_eq!((done.get("a", "/x").as_str(), to(&done.get("a", "/"))), ("500", "b2"));
    }
}

#[test]
fn filter_of_a_backend_is_not_skipped() {
    let bad = json!([{"type": "URLRewrite", "urlRewrite": {"hostname": "b c"}}]);
    let backends = json!([{"name": "b1", "port": 80, "filters": bad}]);
    let rules = json!([{"backendRefs": backends}, rule(json!([path("PathPrefix", "/x")]), "b2")]);
    let done = with_backends(vec![listeners(&[""]), route("HTTPRoute", "r", json!({ "rules": rules }))]);
    assert_eq!(done.get("a", "/"), "500");
    assert!(done.complaint("HTTPRoute", "r").contains("backendRefs[0].filters[0] (URLRewrite: hostname"));
    let extension = json!([{"type": "ExtensionRef",
        "extensionRef": {"group": "example.com", "kind": "Auth", "name": "basic"}}]);
    let backends = json!([{"name": "b1", "port": 80, "filters": extension}, {"name": "b2", "port": 80}]);
    let rules = json!([{"backendRefs": backends}]);
    let done = with_backends(vec![listeners(&[""]), route("HTTPRoute", "r", json!({ "rules": rules }))]);
    assert!(done.get("a", "/").starts_with("invalid x1, 10."), "{}", done.get("a", "/"));
    assert_eq!(done.parent("HTTPRoute", "r", 0, "ResolvedRefs"), "False/InvalidKind");
}

#[test]
fn unresolvable_extension_filter_answers_500() {
    let filter = json!({"type": "ExtensionRef",
        "extensionRef": {"group": "example.com", "kind": "Auth", "name": "basic"}});
    let mut with_filter = rule(json!([path("PathPrefix", "/")]), "b1");
    with_filter["filters"] = json!([filter]);
    let spec = json!({"rules": [with_filter]});
    let done = with_backends(vec![listeners(&[""]), route("HTTPRoute", "r", spec)]);
    assert_eq!(done.get("a", "/"), "500");
    assert_eq!(done.parent("HTTPRoute", "r", 0, "Accepted"), "True/Accepted");
    assert_eq!(done.parent("HTTPRoute", "r", 0, "ResolvedRefs"), "False/InvalidKind");
}
