//! ListenerSets: who may join a Gateway, in which order, and what routes and users see of it.

use serde_json::{Value, json};

use super::scenario::{certificate, run};
use crate::api::Object;
use crate::status::Scope;
use crate::store::testing::{aged, backend, object, with_spec};
use crate::translate::Translation;

fn http(name: &str, hostname: &str) -> Value {
    json!({"name": name, "protocol": "HTTP", "port": 80, "hostname": hostname})
}

fn gateway(from: &str, listeners: Value) -> Object {
    let allowed = json!({"namespaces": {"from": from}});
    let spec =
        json!({"gatewayClassName": "gateway-agent", "allowedListeners": allowed, "listeners": listeners});
    with_spec("Gateway", "gw", spec)
}

/// A ListenerSet of the Gateway `default/gw`.
fn set(name: &str, age: u32, listeners: Value) -> Object {
    let parent = json!({"name": "gw", "namespace": "default"});
    aged("ListenerSet", name, age, json!({"parentRef": parent, "listeners": listeners}))
}

/// A route with one parentRef, `KIND NAME` or `KIND NAME SECTION`.
fn route(name: &str, parent: &str) -> Object {
    let words: Vec<&str> = parent.split(' ').collect();
    let (namespace, parent) = words[1].split_once('/').unwrap_or(("default", words[1]));
    let mut reference = json!({"group": "gateway.networking.k8s.io", "kind": words[0], "name": parent,
        "namespace": namespace});
    if let Some(section) = words.get(2) {
        reference["sectionName"] = json!(section);
    }
    let rules = json!([{"backendRefs": [{"name": "s", "port": 80}]}]);
    with_spec("HTTPRoute", name, json!({"parentRefs": [reference], "rules": rules}))
}

fn sets(done: &Translation, name: &str) -> [String; 2] {
    ["Accepted", "Programmed"].map(|condition| done.set(name, "", condition))
}

fn attached_sets(done: &Translation) -> Option<usize> {
    done.status("Gateway", "gw").attached_listener_sets()
}

#[test]
fn gateway_says_where_its_sets_may_be() {
    let namespace = |labels: Value| {
        object(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "other", "labels": labels}}))
    };
    let selector = json!({"from": "Selector", "selector": {"matchLabels": {"team": "blue"}}});
    for (allowed, name, expected) in [
        (json!(null), "set", "False/NotAllowed"),
        (json!({"from": "None"}), "set", "False/NotAllowed"),
        (json!({"from": "Same"}), "set", "True/Accepted"),
        (json!({"from": "Same"}), "other/set", "False/NotAllowed"),
        (json!({"from": "All"}), "other/set", "True/Accepted"),
        (selector.clone(), "other/set", "True/Accepted"),
        (selector, "set", "False/NotAllowed"),
    ] {
        let mut spec = json!({"gatewayClassName": "gateway-agent", "listeners": [http("own", "gw.example")]});
        if !allowed.is_null() {
            spec["allowedListeners"] = json!({ "namespaces": allowed });
        }
        let done = run(&[
            with_spec("Gateway", "gw", spec),
            namespace(json!({"team": "blue"})),
            set(name, 1, json!([http("l", "set.example")])),
        ]);
        assert_eq!(done.set(name, "", "Accepted"), expected, "{allowed} {name}");
        let is_accepted = expected.starts_with("True");
        let programmed = if is_accepted { "absent" } else { "False/NotAllowed" };
        assert_eq!(done.set(name, "", "Programmed"), programmed);
        assert_eq!(attached_sets(&done), Some(usize::from(is_accepted)));
        assert_eq!(done.listeners[0].names.len(), 1 + usize::from(is_accepted));
        assert_eq!(done.gateway("gw", "Accepted"), "True/Accepted");
    }
}

#[test]
fn set_of_no_gateway_of_ours_is_left_alone() {
    let other = with_spec("Gateway", "gw", json!({"gatewayClassName": "foreign", "listeners": []}));
    for objects in
        [vec![set("s", 1, json!([http("l", "")]))], vec![other, set("s", 1, json!([http("l", "")]))]]
    {
        assert!(run(&objects).statuses.iter().next().is_none());
    }
    let kind = json!({"parentRef": {"name": "gw", "kind": "Service"}, "listeners": [http("l", "")]});
    let done = run(&[gateway("All", json!([http("own", "")])), with_spec("ListenerSet", "s", kind)]);
    assert_eq!(done.statuses.iter().count(), 1);
}

#[test]
fn of_conflicting_entries_the_gateways_then_the_oldest_sets_win() {
    let done = run(&[
        gateway("All", json!([http("own", "gw.example")])),
        set("a-young", 3, json!([http("x", "set.example"), http("y", "young.example")])),
        set("b-old", 2, json!([http("x", "set.example"), http("y", "gw.example")])),
        set("c-lost", 4, json!([{"name": "tcp", "protocol": "TCP", "port": 80}])),
    ]);
    assert_eq!(done.listener("gw", "own", "Accepted"), "True/Accepted");
    assert_eq!(done.set("b-old", "x", "Accepted"), "True/Accepted");
    for (name, section, reason) in [
        ("a-young", "x", "HostnameConflict"),
        ("b-old", "y", "HostnameConflict"),
        ("c-lost", "tcp", "ProtocolConflict"),
    ] {
        assert_eq!(done.set(name, section, "Accepted"), format!("False/{reason}"));
        assert_eq!(done.set(name, section, "Conflicted"), format!("True/{reason}"));
    }
    // One entry is enough.
    assert_eq!(sets(&done, "a-young"), ["True/ListenersNotValid", "absent"]);
    assert_eq!(sets(&done, "b-old"), ["True/ListenersNotValid", "absent"]);
    assert_eq!(sets(&done, "c-lost"), ["False/ListenersNotValid", "absent"]);
    assert_eq!(attached_sets(&done), Some(2));
    // The refused entry takes nothing from those that come after.
    assert_eq!(done.set("a-young", "y", "Accepted"), "True/Accepted");
}

#[test]
fn of_sets_of_one_age_the_first_by_name_wins() {
    let listeners = || json!([http("l", "x.example")]);
    let done =
        run(&[gateway("All", json!([http("own", "")])), set("b", 1, listeners()), set("a", 1, listeners())]);
    assert_eq!(done.set("a", "l", "Accepted"), "True/Accepted");
    assert_eq!(done.set("b", "l", "Accepted"), "False/HostnameConflict");
}

#[test]
fn no_set_takes_the_place_of_listeners_that_conflict_with_each_other() {
    let own = json!([http("one", "x.example"), http("two", "x.example")]);
    let done = run(&[gateway("All", own), set("s", 1, json!([http("l", "x.example")]))]);
    for section in ["one", "two"] {
        assert_eq!(done.listener("gw", section, "Conflicted"), "True/HostnameConflict");
    }
    assert_eq!(done.set("s", "l", "Conflicted"), "True/HostnameConflict");
    assert!(done.keys().is_empty());
}

#[test]
fn routes_name_the_set_and_the_gateway_apart() {
    let mut objects = vec![
        gateway("All", json!([http("own", "gw.example")])),
        set("set", 1, json!([http("own", "set.example"), http("more", "more.example")])),
        route("to-gateway", "Gateway gw"),
        route("to-set", "ListenerSet set more"),
        route("to-section-of-the-set", "Gateway gw more"),
        route("to-nothing", "ListenerSet set absent"),
    ];
    objects.extend(backend("s", &["10.0.0.1"]));
    let done = run(&objects);
    assert_eq!(done.parent("HTTPRoute", "to-gateway", 0, "Accepted"), "True/Accepted");
    assert_eq!(done.parent("HTTPRoute", "to-set", 0, "Accepted"), "True/Accepted");
    for name in ["to-section-of-the-set", "to-nothing"] {
        assert_eq!(done.parent("HTTPRoute", name, 0, "Accepted"), "False/NoMatchingParent");
    }
    assert_eq!(done.get("gw.example", "/"), "10.0.0.1:8080 x1");
    assert_eq!(done.get("more.example", "/"), "10.0.0.1:8080 x1");
    assert_eq!(done.get("set.example", "/"), "404");
    assert_eq!(done.attached("gw", "own"), 1);
    let scope =
        |section: &str| done.status("ListenerSet", "set").scope(&Scope::Listener(section.into())).cloned();
    assert_eq!(scope("own").and_then(|scope| Some(scope.listener()?.attached_routes)), Some(0));
    let more = scope("more").and_then(|scope| scope.listener().cloned()).expect("an entry");
    assert_eq!((more.attached_routes, more.supported_kinds), (1, vec!["HTTPRoute", "GRPCRoute"]));
}

#[test]
fn same_namespace_is_that_of_the_set() {
    let listeners = || json!([http("l", "set.example")]);
    let done = run(&[
        gateway("All", json!([http("own", "")])),
        set("other/set", 1, listeners()),
        route("beside-the-gateway", "ListenerSet other/set"),
        route("other/beside-the-set", "ListenerSet other/set"),
    ]);
    let accepted = |name| done.parent("HTTPRoute", name, 0, "Accepted");
    assert_eq!(accepted("beside-the-gateway"), "False/NotAllowedByListeners");
    assert_eq!(accepted("other/beside-the-set"), "True/Accepted");
}

#[test]
fn set_refers_to_secrets_by_its_own_grants() {
    let https = json!([{"name": "l", "protocol": "HTTPS", "port": 443,
        "tls": {"certificateRefs": [{"name": "c", "namespace": "default"}]}}]);
    let grant = |kind: &str, namespace: &str| {
        let from = json!([{"group": "gateway.networking.k8s.io", "kind": kind, "namespace": namespace}]);
        let to = json!([{"group": "", "kind": "Secret"}]);
        with_spec("ReferenceGrant", "g", json!({"from": from, "to": to}))
    };
    for (grant, expected) in [
        (grant("Gateway", "other"), "False/RefNotPermitted"),
        (grant("ListenerSet", "elsewhere"), "False/RefNotPermitted"),
        (grant("ListenerSet", "other"), "True/ResolvedRefs"),
    ] {
        let done = run(&[
            gateway("All", json!([http("own", "")])),
            set("other/set", 1, https.clone()),
            certificate("c", "c.example"),
            grant,
        ]);
        assert_eq!(done.set("other/set", "l", "ResolvedRefs"), expected);
        let accepted = if expected.starts_with("True") { "True/Accepted" } else { "False/ListenersNotValid" };
        assert_eq!(done.set("other/set", "", "Accepted"), accepted);
    }
}

#[test]
fn set_of_a_gateway_that_is_not_accepted_waits_for_it() {
    let spec = json!({"gatewayClassName": "gateway-agent", "allowedListeners": {"namespaces": {"from": "All"}},
        "addresses": [{"type": "Hostname", "value": "x"}], "listeners": [http("own", "")]});
    let done = run(&[with_spec("Gateway", "gw", spec), set("set", 1, json!([http("l", "x.example")]))]);
    assert_eq!(done.gateway("gw", "Accepted"), "False/UnsupportedAddress");
    assert_eq!(sets(&done, "set"), ["False/ParentNotAccepted", "False/ParentNotProgrammed"]);
    assert_eq!(attached_sets(&done), Some(0));
}

#[test]
fn entry_with_kinds_that_cannot_attach_says_so() {
    let mut listener = http("l", "x.example");
    listener["allowedRoutes"] = json!({"kinds": [{"kind": "TLSRoute"}]});
    let done = run(&[gateway("All", json!([http("own", "")])), set("set", 1, json!([listener]))]);
    assert_eq!(done.set("set", "l", "ResolvedRefs"), "False/InvalidRouteKinds");
    let scope = done.status("ListenerSet", "set").scope(&Scope::Listener("l".into())).expect("an entry");
    assert!(scope.listener().expect("a listener").supported_kinds.is_empty());
}
