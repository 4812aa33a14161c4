//! Table tests; what holds of every status is in [`properties`].

mod properties;

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::snapshot::ObjectName;
use crate::status::names::{kind, reason};
use crate::status::{ConditionStatus, GatewayFacts, ListenerFacts, ParentKind};

const OURS: &str = "example.com/agent";
const THEN: &str = "2026-01-01T00:00:00Z";
const NOW: &str = "2026-02-02T00:00:00Z";

fn name(name: &str) -> ObjectName {
    ObjectName::new("default", name)
}

fn accepted(is_true: bool) -> Condition {
    let reason = if is_true { reason::ACCEPTED } else { reason::NO_MATCHING_PARENT };
    Condition::new(kind::ACCEPTED, is_true, reason, "why")
}

/// One that is stored.
fn stored(kind: &str, status: &str, reason: &str, message: &str, generation: i64) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": THEN, "observedGeneration": generation})
}

fn stored_accepted(generation: i64) -> Value {
    stored("Accepted", "True", "Accepted", "why", generation)
}

fn parent(index: usize, gateway: &str, conditions: Vec<Condition>) -> ScopeStatus {
    let parent = Parent { kind: ParentKind::Gateway, name: name(gateway) };
    ScopeStatus::new(Scope::Parent { index, parent, section: None, port: None }, conditions)
}

fn route_status(generation: i64, scopes: Vec<ScopeStatus>) -> ObjectStatus {
    ObjectStatus::new("HTTPRoute", name("r"), generation, scopes)
}

fn route(generation: i64, parent_refs: Value, parents: Value) -> Value {
    json!({"metadata": {"generation": generation, "resourceVersion": "7"},
        "spec": {"parentRefs": parent_refs}, "status": {"parents": parents}})
}

fn entry(controller: &str, parent_ref: Value, conditions: Value) -> Value {
    json!({"parentRef": parent_ref, "controllerName": controller, "conditions": conditions})
}

/// `ours*` is ours, `gone*` does not exist, the rest belongs to others.
fn standing(parent: &Parent) -> Standing {
    match &*parent.name.name {
        ours if ours.starts_with("ours") => Standing::Ours,
        gone if gone.starts_with("gone") => Standing::Gone,
        _ => Standing::Foreign,
    }
}

const CONTEXT: Context<'static> = Context { controller_name: OURS, now: NOW, standing: &standing };

/// The status that is to be written.
fn written(current: &Value, desired: &ObjectStatus) -> Value {
    let plan = plan(current, desired, &CONTEXT);
    assert_eq!(plan.unplaced, 0);
    match plan.outcome {
        Outcome::Write(status) => {
            check_digest(current, desired, &status);
            status
        }
        other => panic!("{other:?}"),
    }
}

/// The digest of what was written tells that it need not be written again; that of what was there, that it must.
fn check_digest(current: &Value, desired: &ObjectStatus, status: &Value) {
    let digest = |object: &Value| Digest::new(desired.kind, &desired.name, object, OURS);
    let mut after = current.clone();
    after["status"] = status.clone();
    assert!(is_settled(&digest(&after), desired, &standing), "{after}");
    assert!(!is_settled(&digest(current), desired, &standing), "{current}");
    assert_eq!(plan(&after, desired, &CONTEXT).outcome, Outcome::Same);
}

fn is_same_as_wanted(current: &Value, desired: &ObjectStatus) -> bool {
    plan(current, desired, &CONTEXT) == Plan { outcome: Outcome::Same, unplaced: 0 }
}

#[test]
fn a_first_entry_echoes_the_reference_as_it_is_stored() {
    let full = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "ours", "namespace": "default",
        "sectionName": "s", "port": 80});
    let bare = json!({"name": "ours-2"});
    let mut current = route(3, json!([full, {"name": "theirs"}, bare]), json!([]));
    let desired = route_status(
        3,
        vec![parent(0, "ours", vec![accepted(true)]), parent(2, "ours-2", vec![accepted(false)])],
    );
    let expected = json!({"parents": [
        entry(OURS, full, json!([{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "why",
            "lastTransitionTime": NOW, "observedGeneration": 3}])),
        entry(OURS, bare, json!([{"type": "Accepted", "status": "False", "reason": "NoMatchingParent", "message": "why",
            "lastTransitionTime": NOW, "observedGeneration": 3}])),
    ]});
    assert_eq!(written(&current, &desired), expected);
    current.as_object_mut().expect("an object").remove("status");
    assert_eq!(written(&current, &desired), expected);
}

#[test]
fn nothing_is_written_where_nothing_differs() {
    let own = entry(OURS, json!({"name": "ours"}), json!([stored_accepted(3)]));
    let current = route(3, json!([{"name": "ours"}]), json!([own]));
    assert!(is_same_as_wanted(&current, &route_status(3, vec![parent(0, "ours", vec![accepted(true)])])));
    let unattached = route(3, json!([{"name": "theirs"}]), json!([]));
    assert!(is_same_as_wanted(&unattached, &route_status(3, Vec::new())));
    let none = json!({"metadata": {"generation": 3}, "spec": {}});
    assert!(is_same_as_wanted(&none, &route_status(3, Vec::new())));
}

// O47
#[test]
fn the_transition_time_moves_only_with_the_status() {
    let current = |condition| {
        let own = entry(OURS, json!({"name": "ours"}), json!([condition]));
        route(4, json!([{"name": "ours"}]), json!([own]))
    };
    let desired = route_status(4, vec![parent(0, "ours", vec![accepted(true)])]);
    let time = |status: &Value| status.pointer("/parents/0/conditions/0/lastTransitionTime").cloned();
    let same = [
        stored_accepted(3),
        stored("Accepted", "True", "Accepted", "other", 4),
        stored("Accepted", "True", "Odd", "why", 4),
    ];
    for condition in same {
        assert_eq!(time(&written(&current(condition), &desired)), Some(THEN.into()));
    }
    for status in ["False", "Unknown"] {
        let condition = stored("Accepted", status, "Accepted", "why", 4);
        assert_eq!(time(&written(&current(condition), &desired)), Some(NOW.into()));
    }
}

#[test]
fn entries_of_others_keep_their_value_and_place() {
    let foreign = |controller, parent| {
        let mut foreign =
            entry(controller, json!({"name": parent}), json!([stored("Accepted", "True", "X", "", 1)]));
        foreign["unknown"] = json!({"b": 1, "a": [null]});
        foreign
    };
    let before = foreign("other.example/x", "ours");
    // Another agent of the same controllerName has this Gateway.
    let between = foreign(OURS, "theirs");
    let after = foreign("other.example/x", "gone");
    let own = entry(OURS, json!({"name": "ours"}), json!([stored_accepted(1)]));
    let current = route(2, json!([{"name": "ours"}]), json!([before, own, between, after]));
    let status = written(&current, &route_status(2, vec![parent(0, "ours", vec![accepted(true)])]));
    let own = entry(OURS, json!({"name": "ours"}), json!([stored_accepted(2)]));
    assert_eq!(status.to_string(), json!({"parents": [before, own, between, after]}).to_string());
}

#[test]
fn our_stale_entries_go() {
    let own = |parent| entry(OURS, json!({"name": parent}), json!([stored_accepted(2)]));
    let other_section = entry(OURS, json!({"name": "ours", "sectionName": "s"}), json!([stored_accepted(2)]));
    let of_service =
        entry(OURS, json!({"group": "", "kind": "Service", "name": "ours"}), json!([stored_accepted(2)]));
    let parents = json!([
        own("ours-2"),
        own("ours"),
        own("gone"),
        own("ours"),
        other_section,
        own("theirs"),
        of_service
    ]);
    let current = route(2, json!([{"name": "ours"}]), parents);
    let status = written(&current, &route_status(2, vec![parent(0, "ours", vec![accepted(true)])]));
    assert_eq!(status, json!({"parents": [own("ours"), own("theirs"), of_service]}));
}

#[test]
fn an_entry_in_other_words_is_put_right_in_place() {
    let full = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "ours", "namespace": "default"});
    let current =
        route(2, json!([{"name": "ours"}]), json!([entry(OURS, full, json!([stored_accepted(2)]))]));
    let status = written(&current, &route_status(2, vec![parent(0, "ours", vec![accepted(true)])]));
    assert_eq!(
        status,
        json!({"parents": [entry(OURS, json!({"name": "ours"}), json!([stored_accepted(2)]))]})
    );
}

#[test]
fn what_cannot_be_written_for_want_of_room_is_counted() {
    let foreign: Vec<Value> = (0..31)
        .map(|n| entry("other.example/x", json!({"name": format!("g{n}")}), json!([stored_accepted(1)])))
        .collect();
    let current = route(1, json!([{"name": "ours-a"}, {"name": "ours-b"}]), foreign.clone().into());
    let desired = route_status(
        1,
        vec![parent(0, "ours-a", vec![accepted(true)]), parent(1, "ours-b", vec![accepted(true)])],
    );
    let plan = plan(&current, &desired, &CONTEXT);
    assert_eq!(plan.unplaced, 1);
    let Outcome::Write(status) = plan.outcome else { panic!("{:?}", plan.outcome) };
    let parents = status["parents"].as_array().expect("a list");
    assert_eq!(parents[..31], foreign[..]);
    assert_eq!(parents[31]["parentRef"], json!({"name": "ours-a"}));
    assert_eq!(parents.len(), 32);
}

#[test]
fn a_view_that_is_behind_writes_nothing() {
    let current = route(3, json!([{"name": "ours"}]), json!([]));
    let of = |generation| route_status(generation, vec![parent(0, "ours", vec![accepted(true)])]);
    assert_eq!(plan(&current, &of(2), &CONTEXT).outcome, Outcome::Outdated);
    assert_eq!(plan(&current, &of(4), &CONTEXT).outcome, Outcome::StaleRead);
}

#[test]
fn conditions_of_others_stay_and_ours_that_no_longer_hold_go() {
    let foreign = stored("example.org/Stale", "True", "Odd", "", 1);
    let partial = stored("PartiallyInvalid", "True", "UnsupportedValue", "Dropped Rule", 1);
    let own = entry(OURS, json!({"name": "ours"}), json!([partial, foreign, stored_accepted(1)]));
    let current = route(2, json!([{"name": "ours"}]), json!([own]));
    let resolved = Condition::new(kind::RESOLVED_REFS, true, reason::RESOLVED_REFS, "");
    let status = written(&current, &route_status(2, vec![parent(0, "ours", vec![resolved, accepted(true)])]));
    let mut expected = stored("ResolvedRefs", "True", "ResolvedRefs", "", 2);
    expected["lastTransitionTime"] = NOW.into();
    assert_eq!(status["parents"][0]["conditions"], json!([foreign, stored_accepted(2), expected]));
}

#[test]
fn conditions_and_messages_are_bounded() {
    let foreign: Vec<Value> =
        (0..7).map(|n| stored(&format!("example.org/C{n}"), "True", "R", "", 1)).collect();
    let own = entry(OURS, json!({"name": "ours"}), foreign.into());
    let current = route(1, json!([{"name": "ours"}]), json!([own]));
    let long = Condition { message: "ü".repeat(40_000), ..accepted(true) };
    let resolved = Condition::new(kind::RESOLVED_REFS, true, reason::RESOLVED_REFS, "");
    let plan = plan(&current, &route_status(1, vec![parent(0, "ours", vec![long, resolved])]), &CONTEXT);
    let Outcome::Write(status) = plan.outcome else { panic!("{:?}", plan.outcome) };
    assert_eq!(plan.unplaced, 1);
    let conditions = status["parents"][0]["conditions"].as_array().expect("a list");
    assert_eq!(conditions.len(), 8);
    assert_eq!(conditions[7]["message"].as_str().map(|message| message.chars().count()), Some(32_768));
}

fn gateway_status(generation: i64, listeners: Vec<ScopeStatus>) -> ObjectStatus {
    let object = ScopeStatus::new(Scope::Object, vec![accepted(true)]);
    ObjectStatus {
        kind: "Gateway",
        name: name("ours"),
        observed_generation: generation,
        gateway: Some(Box::new(GatewayFacts {
            addresses: ["192.0.2.1", "2001:db8::1"]
                .map(|address| Address::Ip(address.parse().expect("an address")))
                .into(),
            attached_listener_sets: 0,
        })),
        scopes: std::iter::once(object).chain(listeners).collect(),
    }
}

fn listener(name: &str, attached_routes: usize) -> ScopeStatus {
    let facts = ListenerFacts {
        attached_routes,
        supported_kinds: vec!["HTTPRoute"],
        is_valid: true,
        keys: Vec::new(),
    };
    ScopeStatus::of_listener(name.into(), vec![accepted(true)], facts)
}

fn stored_listener(name: &str, attached_routes: usize, generation: i64) -> Value {
    json!({"name": name, "attachedRoutes": attached_routes, "conditions": [stored_accepted(generation)],
        "supportedKinds": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}]})
}

fn gateway(generation: i64, status: Value) -> Value {
    json!({"metadata": {"generation": generation}, "spec": {}, "status": status})
}

#[test]
fn a_gateway_status_is_written_whole() {
    // As the CRD's default has it.
    let pending = |kind| {
        json!({"type": kind, "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
        "lastTransitionTime": "1970-01-01T00:00:00Z"})
    };
    let current = gateway(1, json!({"conditions": [pending("Accepted"), pending("Programmed")]}));
    let mut desired = gateway_status(1, vec![listener("a", 2)]);
    Arc::make_mut(&mut desired.scopes)[0].conditions.push(Condition {
        kind: kind::PROGRAMMED,
        status: ConditionStatus::Unknown,
        reason: reason::PENDING,
        message: String::new(),
    });
    let status = written(&current, &desired);
    assert_eq!(status["conditions"][0]["lastTransitionTime"], json!(NOW));
    assert_eq!(status["conditions"][1]["lastTransitionTime"], json!("1970-01-01T00:00:00Z"));
    assert_eq!(status["conditions"][1]["observedGeneration"], json!(1));
    assert_eq!(
        status["addresses"],
        json!([
            {"type": "IPAddress", "value": "192.0.2.1"}, {"type": "IPAddress", "value": "2001:db8::1"},
        ])
    );
    let mut expected = stored_listener("a", 2, 1);
    expected["conditions"][0]["lastTransitionTime"] = NOW.into();
    assert_eq!(status["listeners"], json!([expected]));
}

#[test]
fn a_gateway_lists_exactly_the_listeners_of_its_spec_and_keeps_what_others_said_of_them() {
    let foreign = stored("example.org/Stale", "True", "Odd", "", 1);
    let mut kept = stored_listener("b", 1, 1);
    kept["conditions"].as_array_mut().expect("a list").insert(0, foreign.clone());
    kept["unknown"] = json!(1);
    let current = gateway(
        2,
        json!({"conditions": [foreign, stored_accepted(1)], "other": true,
        "listeners": [stored_listener("gone", 1, 1), kept]}),
    );
    let status = written(&current, &gateway_status(2, vec![listener("a", 0), listener("b", 3)]));
    assert_eq!(status["other"], json!(true));
    assert_eq!(status["conditions"], json!([foreign, stored_accepted(2)]));
    assert_eq!(status["listeners"][0]["name"], json!("a"));
    let mut expected = stored_listener("b", 3, 2);
    expected["conditions"].as_array_mut().expect("a list").insert(0, foreign);
    expected["unknown"] = json!(1);
    assert_eq!(status["listeners"][1], expected);
    assert_eq!(status["listeners"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_gateway_of_others_is_left_alone() {
    let current = gateway(1, json!({}));
    let mut desired = gateway_status(1, Vec::new());
    desired.name = name("theirs");
    assert!(is_same_as_wanted(&current, &desired));
}

#[test]
fn addresses_that_are_gone_are_taken_away() {
    let desired = ObjectStatus { gateway: None, ..gateway_status(1, Vec::new()) };
    let stored = json!({"conditions": [stored_accepted(1)], "addresses": [{"type": "IPAddress", "value": "192.0.2.1"}]});
    assert_eq!(written(&gateway(1, stored), &desired)["addresses"], json!([]));
    assert!(is_same_as_wanted(&gateway(1, json!({"conditions": [stored_accepted(1)]})), &desired));
}

#[test]
fn a_policy_has_an_entry_of_the_gateways_full_name_for_each_of_ours() {
    let full = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "default", "name": "ours"});
    let ancestor = |controller: &str, reference: &Value| json!({"ancestorRef": reference, "controllerName": controller, "conditions": [stored_accepted(1)]});
    let foreign = ancestor("other.example/x", &full);
    let gone = ancestor(OURS, &json!({"name": "gone"}));
    let theirs = ancestor(OURS, &json!({"name": "theirs"}));
    let current = json!({"metadata": {"generation": 1}, "status": {"ancestors": [foreign, gone, theirs]}});
    let scope = |gateway| ScopeStatus::new(Scope::Ancestor { gateway: name(gateway) }, vec![accepted(true)]);
    let desired = |scopes| ObjectStatus { kind: "BackendTLSPolicy", ..route_status(1, scopes) };
    let status = written(&current, &desired(vec![scope("ours")]));
    let mut own = ancestor(OURS, &full);
    own["conditions"][0]["lastTransitionTime"] = NOW.into();
    assert_eq!(status, json!({"ancestors": [foreign, theirs, own]}));
    // With room for one more.
    let full_list: Vec<Value> = vec![foreign; 15];
    let current = json!({"metadata": {"generation": 1}, "status": {"ancestors": full_list}});
    assert_eq!(plan(&current, &desired(vec![scope("ours"), scope("ours-2")]), &CONTEXT).unplaced, 1);
}

#[test]
fn a_listener_set_is_written_like_a_gateway_without_addresses() {
    let desired =
        ObjectStatus { kind: "ListenerSet", gateway: None, ..gateway_status(1, vec![listener("a", 1)]) };
    let status = written(&gateway(1, json!({})), &desired);
    let fields: Vec<&String> = status.as_object().expect("an object").keys().collect();
    assert_eq!(fields, ["conditions", "listeners"]);
}

#[test]
fn the_number_of_listener_sets_is_told_once_there_is_one() {
    let with = |attached_listener_sets| {
        let facts = GatewayFacts { addresses: Vec::new(), attached_listener_sets };
        ObjectStatus { gateway: Some(Box::new(facts)), ..gateway_status(1, Vec::new()) }
    };
    let desired = with(0);
    let stored =
        |sets: Value| gateway(1, json!({"conditions": [stored_accepted(1)], "attachedListenerSets": sets}));
    assert!(is_same_as_wanted(&gateway(1, json!({"conditions": [stored_accepted(1)]})), &desired));
    assert_eq!(written(&stored(json!(2)), &desired)["attachedListenerSets"], json!(0));
    assert_eq!(written(&stored(json!(2)), &with(3))["attachedListenerSets"], json!(3));
}

mod standing {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::name;
    use crate::snapshot::ObjectName;
    use crate::status::write::{Leading, Parents, Standing};
    use crate::status::{Parent, ParentKind};
    use crate::store::Store;
    use crate::store::testing::with_spec;
    use crate::translate::{Config, Watched};

    fn parents(config: Config) -> Parents {
        let mut store = Store::default();
        let gateway = |class: &str| -> Value { json!({"gatewayClassName": class, "listeners": []}) };
        store.apply(&with_spec("Gateway", "ours", gateway("gateway-agent")));
        store.apply(&with_spec("Gateway", "theirs", gateway("other")));
        for (set, gateway) in
            [("set-of-ours", "ours"), ("set-of-theirs", "theirs"), ("set-of-nobody", "absent")]
        {
            let spec = json!({"parentRef": {"name": gateway}, "listeners": []});
            store.apply(&with_spec("ListenerSet", set, spec));
        }
        Parents::new(&store, &config)
    }

    fn leading(namespace: &str, class: &str) -> Leading {
        Leading::Of(BTreeSet::from([(namespace.into(), class.into())]))
    }

    fn everywhere() -> Leading {
        Leading::Classes(["gateway-agent", "second"].map(Into::into).into())
    }

    fn gateway(gateway: &str) -> Parent {
        Parent { kind: ParentKind::Gateway, name: name(gateway) }
    }

    fn set(set: &str) -> Parent {
        Parent { kind: ParentKind::ListenerSet, name: name(set) }
    }

    // O55
    #[test]
    fn follows_from_the_class_the_namespace_and_the_lease() {
        let parents = parents(Config::default());
        let cases = [
            (gateway("ours"), Standing::Ours),
            (gateway("theirs"), Standing::Foreign),
            (gateway("absent"), Standing::Gone),
            (set("set-of-ours"), Standing::Ours),
            (set("set-of-theirs"), Standing::Foreign),
            (set("set-of-nobody"), Standing::Gone),
            (set("absent"), Standing::Gone),
        ];
        let others = [Leading::Nothing, leading("default", "other"), leading("elsewhere", "gateway-agent")];
        for (parent, expected) in cases {
            for own in [everywhere(), leading("default", "gateway-agent")] {
                assert_eq!(parents.standing(&parent, &own), expected, "{parent:?}");
            }
            for other in &others {
                assert_eq!(parents.standing(&parent, other), Standing::Foreign, "{parent:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_namespace_that_is_not_watched_is_never_touched() {
        let watched = Watched::Namespaces(BTreeSet::from(["elsewhere".into()]));
        let parents = parents(Config { watched, ..Config::default() });
        for parent in [gateway("ours"), gateway("absent"), set("set-of-ours"), set("absent")] {
            assert_eq!(parents.standing(&parent, &everywhere()), Standing::Foreign);
        }
    }

    #[test]
    fn beside_one_gateway_all_others_belong_to_others() {
        let only: ObjectName = name("ours");
        let parents = parents(Config { gateway: Some(only), ..Config::default() });
        assert_eq!(parents.standing(&gateway("ours"), &everywhere()), Standing::Ours);
        assert_eq!(parents.standing(&gateway("absent"), &everywhere()), Standing::Foreign);
    }

    #[test]
    fn what_was_of_one_of_several_classes_takes_all_their_leases() {
        let gateway_class_names = vec!["gateway-agent".into(), "second".into()];
        let parents = parents(Config { gateway_class_names, ..Config::default() });
        assert_eq!(parents.standing(&gateway("absent"), &leading("default", "second")), Standing::Foreign);
        assert_eq!(parents.standing(&gateway("ours"), &leading("default", "gateway-agent")), Standing::Ours);
        assert_eq!(parents.standing(&gateway("absent"), &everywhere()), Standing::Gone);
    }
}
