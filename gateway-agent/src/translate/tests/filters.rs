//! Filters, timeouts and retries as the proxy serves them. And paths, which are matched in normal form.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::scenario::{Request, route, run};
use crate::api::Object;
use crate::snapshot::{
    HttpAction, HttpRule, HttpTimeouts, MessageHeaders, PathChange, Rewrite, Scheme, VirtualHost,
};
use crate::store::testing::{backend, gateway};
use crate::translate::Translation;
use crate::translate::hostname::ancestors;

fn translated(rules: Value) -> Translation {
    let mut objects: Vec<Object> =
        vec![gateway("gw", json!([{"name": "l", "protocol": "HTTP", "port": 8080}]))];
    objects.push(route("HTTPRoute", "r", json!({ "rules": rules })));
    objects.extend(backend("b1", &["10.0.0.1"]));
    run(&objects)
}

fn rule(done: &Translation, path: &str) -> Arc<HttpRule> {
    let listener = done.http("tcp/*:8080").listeners.lookup("a").expect("a listener");
    let request = Request { path, method: "GET", headers: &[] };
    listener.find("a", &request).expect("a rule").clone()
}

/// As `name keeps values`.
fn shown(headers: &MessageHeaders) -> (Vec<String>, Vec<String>) {
    let show = |change: &crate::snapshot::HeaderChange| {
        let sign = if change.keeps { '+' } else { '=' };
        format!("{}{sign}{}", change.name, change.values.join(","))
    };
    (headers.request.iter().map(show).collect(), headers.response.iter().map(show).collect())
}

#[test]
fn header_modifiers_of_rule_and_backend_are_joined() {
    let rule_filters = json!([
        {"type": "RequestHeaderModifier", "requestHeaderModifier": {
            "set": [{"name": "X-Set", "value": "1"}], "add": [{"name": "X-Add", "value": "2"}], "remove": ["X-Gone"]}},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"remove": ["Server"]}},
    ]);
    let own = json!([{"type": "RequestHeaderModifier", "requestHeaderModifier": {
        "add": [{"name": "x-set", "value": "3"}], "remove": ["x-add"]}}]);
    let backends = json!([{"name": "b1", "port": 80}, {"name": "b1", "port": 80, "filters": own}]);
    let done = translated(json!([{"filters": rule_filters, "backendRefs": backends}]));
    assert_eq!(done.parent("HTTPRoute", "r", 0, "Accepted"), "True/Accepted");
    assert_eq!(done.parent("HTTPRoute", "r", 0, "PartiallyInvalid"), "absent");
    let rule = rule(&done, "/");
    let response = vec!["server=".to_owned()];
    let request = ["x-gone=", "x-set=1", "x-add+2"].map(str::to_owned).to_vec();
    assert_eq!(shown(&rule.filters.headers), (request, response.clone()));
    let HttpAction::Forward(split) = &rule.action else { panic!("{rule:?}") };
    assert_eq!(split.backends[0].filters, None);
    let request = ["x-gone=", "x-set=1,3", "x-add="].map(str::to_owned).to_vec();
    assert_eq!(shown(&split.backends[1].filters.as_ref().expect("its own").headers), (request, response));
}

#[test]
fn rewrites_of_rule_and_backend_are_in_normal_form() {
    let rewrite = |spec: Value| json!([{"type": "URLRewrite", "urlRewrite": spec}]);
    let of_rule = rewrite(json!({"hostname": "One.Example.org",
        "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new/./%61/"}}));
    let own = rewrite(json!({"path": {"type": "ReplaceFullPath", "replaceFullPath": "/a b"}}));
    let backends = json!([{"name": "b1", "port": 80}, {"name": "b1", "port": 80, "filters": own}]);
    let matches = json!([{"path": {"type": "PathPrefix", "value": "/old/"}}]);
    let done = translated(json!([{"matches": matches, "filters": of_rule, "backendRefs": backends}]));
    assert_eq!(done.parent("HTTPRoute", "r", 0, "Accepted"), "True/Accepted");
    let rule = rule(&done, "/old/x");
    let path = PathChange::Prefix { matched: "/old".into(), replacement: "/new/a".into() };
    let hostname = Some("one.example.org".into());
    assert_eq!(rule.filters.rewrite, Rewrite { hostname: hostname.clone(), path: Some(path) });
    let HttpAction::Forward(split) = &rule.action else { panic!("{rule:?}") };
    let own = split.backends[1].filters.as_ref().expect("its own");
    assert_eq!(own.rewrite, Rewrite { hostname, path: Some(PathChange::Full("/a%20b".into())) });
}

#[test]
fn timeouts_and_retries_are_read_as_the_api_writes_them() {
    let to_b1 = json!([{"name": "b1", "port": 80}]);
    let done = translated(json!([
        {"backendRefs": to_b1, "timeouts": {"request": "1m30s", "backendRequest": "500ms"},
         "retry": {"codes": [503, 500, 503], "attempts": 3, "backoff": "100ms"}},
        {"matches": [{"path": {"value": "/zero"}}], "backendRefs": to_b1,
         "timeouts": {"request": "0s", "backendRequest": "5s"}, "retry": {"attempts": 0}},
        {"matches": [{"path": {"value": "/default"}}], "backendRefs": to_b1, "retry": {}},
    ]));
    assert_eq!(done.parent("HTTPRoute", "r", 0, "PartiallyInvalid"), "absent");
    let millis = |millis| Some(Duration::from_millis(millis));
    let first = rule(&done, "/");
    assert_eq!(first.timeouts, HttpTimeouts { request: millis(90_000), backend_request: millis(500) });
    let retry = first.retry.as_ref().expect("retries");
    assert_eq!((retry.attempts, &*retry.codes, Some(retry.backoff)), (3, &[500, 503][..], millis(100)));
    let zero = rule(&done, "/zero");
    assert_eq!(zero.timeouts, HttpTimeouts { request: None, backend_request: millis(5000) });
    assert_eq!(zero.retry.as_ref().map(|retry| retry.attempts), Some(0));
    let default = rule(&done, "/default");
    assert_eq!(default.retry.as_ref().map(|retry| (retry.attempts, retry.codes.len())), Some((1, 0)));
    assert_eq!(default.timeouts, HttpTimeouts::default());
}

#[test]
fn mirrors_are_resolved_and_bad_ones_told_while_traffic_flows() {
    let mirror = |name: &str, part: Value| {
        let mut spec = json!({"backendRef": {"name": name, "port": 80}});
        spec.as_object_mut().expect("an object").extend(part.as_object().cloned().unwrap_or_default());
        json!({"type": "RequestMirror", "requestMirror": spec})
    };
    let to_b1 = json!([{"name": "b1", "port": 80}]);
    let filters = json!([
        mirror("b1", json!({})),
        mirror("b1", json!({"percent": 20})),
        mirror("b1", json!({"percent": 0})),
        mirror("b1", json!({"fraction": {"numerator": 1, "denominator": 3}})),
        mirror("absent", json!({})),
    ]);
    let done = translated(json!([{"filters": filters, "backendRefs": to_b1}]));
    assert_eq!(done.parent("HTTPRoute", "r", 0, "Accepted"), "True/Accepted");
    assert_eq!(done.parent("HTTPRoute", "r", 0, "ResolvedRefs"), "False/BackendNotFound");
    assert!(done.complaint("HTTPRoute", "r").starts_with("RequestMirror: Service default/absent"));
    assert_eq!(done.request("tcp/*:8080", "GET", "a", "/", &[]), "10.0.0.1:8080 x1");
    let rule = rule(&done, "/");
    let parts: Vec<_> =
        rule.filters.mirrors.iter().map(|mirror| (mirror.numerator, mirror.denominator)).collect();
    assert_eq!(parts, [(1, 1), (20, 100), (1, 3)]);
}

#[test]
fn cors_is_the_backends_own_before_the_rules() {
    let cors = |origin: &str| json!([{"type": "CORS", "cors": {"allowOrigins": [origin], "maxAge": 60}}]);
    let own = cors("https://b.example");
    let backends = json!([{"name": "b1", "port": 80}, {"name": "b1", "port": 80, "filters": own}]);
    let done = translated(json!([{"filters": cors("https://a.example"), "backendRefs": backends}]));
    assert_eq!(done.parent("HTTPRoute", "r", 0, "PartiallyInvalid"), "absent");
    let rule = rule(&done, "/");
    let HttpAction::Forward(split) = &rule.action else { panic!("{rule:?}") };
    let own = split.backends[1].filters.as_ref().expect("its own");
    assert!(rule.filters.cors.is_some() && own.cors.is_some() && own.cors != rule.filters.cors);
}

#[test]
fn redirect_needs_no_backend_and_takes_the_match_for_its_prefix() {
    let redirect = |spec: Value| json!([{"type": "RequestRedirect", "requestRedirect": spec}]);
    let path = |kind: &str, value: &str| json!([{"path": {"type": kind, "value": value}}]);
    let full = json!({"scheme": "https", "hostname": "B.example", "port": 8443, "statusCode": 301,
        "path": {"type": "ReplaceFullPath", "replaceFullPath": "/a b"}});
    let prefix = json!({"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new/"}});
    let done = translated(json!([
        {"matches": path("PathPrefix", "/%66ull/"), "filters": redirect(full)},
        {"matches": path("PathPrefix", "/prefix/"), "filters": redirect(prefix.clone())},
        {"matches": path("Exact", "/exact"), "filters": redirect(prefix)},
        {"matches": path("PathPrefix", "/plain"), "filters": redirect(json!({}))},
    ]));
    let of = |path: &str| match &rule(&done, path).action {
        HttpAction::Redirect(redirect) => Some(redirect.clone()),
        _ => None,
    };
    let found = of("/full/x").expect("a redirect");
    assert_eq!((found.status, found.scheme, found.port), (301, Some(Scheme::Https), Some(8443)));
    assert_eq!(found.hostname.as_deref(), Some("b.example"));
    assert_eq!(found.path, Some(PathChange::Full("/a%20b".into())));
    let (matched, replacement) = ("/prefix".into(), "/new".into());
    assert_eq!(of("/prefix").expect("a redirect").path, Some(PathChange::Prefix { matched, replacement }));
    let plain = of("/plain").expect("a redirect");
    assert_eq!((plain.status, plain.scheme, plain.port, &plain.path), (302, None, None, &None));
    assert_eq!(rule(&done, "/exact").action, HttpAction::Respond(500));
    assert!(
        done.complaint("HTTPRoute", "r")
            .contains("rules[2]: filters[0] (RequestRedirect: replacePrefixMatch")
    );
    let listener = done.http("tcp/*:8080").listeners.lookup("a").expect("a listener");
    assert_eq!((listener.port, listener.scheme), (8080, Scheme::Http));
}

#[test]
fn paths_of_routes_are_matched_in_the_normal_form_of_requests() {
    let to_b1 = json!([{"name": "b1", "port": 80}]);
    for (kind, value, matching, other) in [
        ("Exact", "/%61%2Fb", "/a%2Fb", "/a/b"),
        ("Exact", "/%7Euser", "/~user", "/%7Euser"),
        ("PathPrefix", "/caf\u{e9}/", "/caf%C3%A9/x", "/caf"),
        ("PathPrefix", "/%61", "/a", "/ab"),
    ] {
        let matches = json!([{"path": {"type": kind, "value": value}}]);
        let done = translated(json!([{"matches": matches, "backendRefs": to_b1}]));
        let ask = |path: &str| done.request("tcp/*:8080", "GET", "a", path, &[]);
        assert_eq!(ask(matching), "10.0.0.1:8080 x1", "{value}");
        assert_eq!(ask(other), "404", "{value}");
    }
}

fn hostname() -> impl Strategy<Value = String> {
    prop_oneof!["[ab](\\.[ab]){0,2}", "\\*\\.[ab](\\.[ab]){0,1}"]
}

/// A route's hostnames and the paths of its rules.
fn any_route() -> impl Strategy<Value = (Vec<String>, Vec<String>)> {
    (prop::collection::vec(hostname(), 0..3), prop::collection::vec("/[xy]?(/[xy])?", 1..3))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // What a lookup falls through must be what a list of all less specific hosts behind each other gives.
    #[test]
    fn falling_through_is_as_good_as_a_copy_of_all_wider_hosts(
        listener in prop::option::of(hostname()),
        routes in prop::collection::vec(any_route(), 1..6),
        host in "[ab](\\.[ab]){0,3}",
        path in "/[xy]?(/[xy]){0,2}",
    ) {
        let hostname = listener.unwrap_or_default();
        let listeners = json!([{"name": "l", "protocol": "HTTP", "port": 80, "hostname": hostname}]);
        let mut objects: Vec<Object> = vec![gateway("gw", listeners)];
        for (index, (hostnames, paths)) in routes.iter().enumerate() {
            let rules: Vec<Value> = paths
                .iter()
                .map(|path| json!({"matches": [{"path": {"type": "PathPrefix", "value": path}}]}))
                .collect();
            objects.push(route("HTTPRoute", &format!("r{index}"), json!({"hostnames": hostnames, "rules": rules})));
        }
        let done = run(&objects);
        let table = &done.http("tcp/*:80").listeners;
        let Some(listener) = table.lookup(&host) else { return Ok(()) };
        let request = Request { path: &path, method: "GET", headers: &[] };
        // The most specific pattern is that whose value a lookup gives.
        let own = listener.hosts.lookup(&host);
        let pattern = listener.hosts.iter().find(|(_, candidate)| own.is_some_and(|own| std::ptr::eq(own, *candidate)));
        let mut copied = own.map(|own| own.matches()).unwrap_or_default();
        let hosts: std::collections::HashMap<_, _> = listener.hosts.iter().collect();
        for wider in pattern.map(|(pattern, _)| ancestors(&pattern.map(Into::into))).unwrap_or_default() {
            let wider = wider.as_deref().map(str::to_owned);
            copied.extend(hosts.get(&wider).into_iter().flat_map(|host| host.matches()));
        }
        let copied = VirtualHost::new(copied.into_iter().cloned().collect());
        prop_assert_eq!(listener.find(&host, &request), copied.find(&request));
    }
}
