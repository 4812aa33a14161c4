use std::sync::Arc;

use expect_test::expect;

use super::{changed, render};
use crate::snapshot::ObjectName;
use crate::status::names::{kind, reason};
use crate::status::view::ObjectView;
use crate::status::{
    Address, Condition, GatewayFacts, ListenerFacts, ObjectStatus, Parent, ParentKind, Scope, ScopeStatus,
};

fn name(name: &str) -> ObjectName {
    ObjectName::new("default", name)
}

fn gateway() -> Arc<ObjectStatus> {
    let accepted = Condition::new(kind::ACCEPTED, true, reason::ACCEPTED, "the listener is valid");
    let programmed = Condition::new(kind::PROGRAMMED, true, reason::PROGRAMMED, "tcp/*:80 by bind");
    let calm = Condition::new(kind::CONFLICTED, false, reason::NO_CONFLICTS, "no conflicts");
    let facts = ListenerFacts {
        attached_routes: 1,
        supported_kinds: vec!["HTTPRoute"],
        is_valid: true,
        keys: Vec::new(),
    };
    let listener = ScopeStatus::of_listener("http".into(), vec![accepted, programmed, calm], facts);
    let valid = Condition::new(kind::ACCEPTED, true, reason::ACCEPTED, "the Gateway is valid");
    Arc::new(ObjectStatus {
        kind: "Gateway",
        name: name("gw"),
        observed_generation: 3,
        gateway: Some(Box::new(GatewayFacts {
            addresses: vec![Address::Ip("192.0.2.1".parse().unwrap())],
            attached_listener_sets: 2,
        })),
        scopes: [ScopeStatus::new(Scope::Object, vec![valid]), listener].into(),
    })
}

fn route(route: &str, message: &str) -> Arc<ObjectStatus> {
    let refused = Condition::new(kind::ACCEPTED, false, reason::NO_MATCHING_PARENT, message);
    let parent = Parent { kind: ParentKind::Gateway, name: name("gw") };
    let scope = Scope::Parent { index: 0, parent, section: Some("http".into()), port: Some(80) };
    let scopes = vec![ScopeStatus::new(scope, vec![refused])];
    Arc::new(ObjectStatus::new("HTTPRoute", name(route), 1, scopes))
}

#[test]
fn columns_are_aligned_and_repeated_cells_left_out() {
    let mut orphan = route("orphan", "");
    Arc::make_mut(&mut orphan).scopes = [].into();
    expect![[r#"
        KIND       NAMESPACE/NAME  SCOPE               CONDITION   STATUS  REASON            MESSAGE
        Gateway    default/gw      addresses           -           -       -                 192.0.2.1
                                   -                   Accepted    True    Accepted          the Gateway is valid
                                   http (1 route)      Accepted    True    Accepted          the listener is valid
                                                       Programmed  True    Programmed        tcp/*:80 by bind
        HTTPRoute  default/a       default/gw/http:80  Accepted    False   NoMatchingParent  no listener
        HTTPRoute  default/orphan  -                   -           -       -                 no parentRef names a Gateway of this agent
    "#]]
    .assert_eq(&render(&[gateway(), route("a", "no listener"), orphan]));
}

#[test]
fn line_breaks_in_messages_stay_in_their_row() {
    let text = render(&[route("a", "one\ntwo\u{1b}[31m")]);
    assert_eq!(text.lines().count(), 2);
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn only_what_differs_is_shown() {
    let old = [gateway(), route("a", "x"), route("b", "x")].into_iter().collect();
    let new = [gateway(), route("a", "y"), route("c", "x")].into_iter().collect();
    let changes = changed(&old, &new);
    assert_eq!(changes.updated, [route("a", "y"), route("c", "x")]);
    assert_eq!(changes.removed, [("HTTPRoute", name("b"))]);
    assert!(changes.render().ends_with("HTTPRoute default/b removed\n"));
    assert!(changed(&new, &new).is_empty());
    assert!(changed(&new, &new).render().is_empty());
}

#[test]
fn objects_of_two_lists_are_told_apart_wherever_they_stand() {
    let all = [gateway(), route("a", "x"), route("b", "x"), route("c", "x")];
    for kept in 0..16_usize {
        let kept: Vec<_> = (0..4).filter(|bit| kept >> bit & 1 == 1).map(|bit| all[bit].clone()).collect();
        let n_others = 4 - kept.len();
        let (some, all) = (kept.into_iter().collect(), all.iter().cloned().collect());
        let changes = changed(&some, &all);
        assert_eq!((changes.updated.len(), changes.removed.len()), (n_others, 0));
        let changes = changed(&all, &some);
        assert_eq!((changes.updated.len(), changes.removed.len()), (0, n_others));
    }
}

#[test]
fn json_has_the_names_of_the_kubernetes_status() {
    let view =
        serde_json::to_value([ObjectView::from(&*gateway()), ObjectView::from(&*route("a", "x"))]).unwrap();
    assert_eq!(
        view,
        serde_json::json!([
            {
                "kind": "Gateway", "namespace": "default", "name": "gw", "observedGeneration": 3,
                "addresses": ["192.0.2.1"], "attachedListenerSets": 2,
                "conditions": [
                    {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "the Gateway is valid"},
                ],
                "listeners": [{
                    "name": "http", "attachedRoutes": 1, "supportedKinds": ["HTTPRoute"], "entries": [],
                    "conditions": [
                        {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "the listener is valid"},
                        {"type": "Programmed", "status": "True", "reason": "Programmed", "message": "tcp/*:80 by bind"},
                        {"type": "Conflicted", "status": "False", "reason": "NoConflicts", "message": "no conflicts"},
                    ],
                }],
            },
            {
                "kind": "HTTPRoute", "namespace": "default", "name": "a", "observedGeneration": 1,
                "parents": [{
                    "kind": "Gateway", "namespace": "default", "name": "gw", "sectionName": "http", "port": 80,
                    "conditions": [
                        {"type": "Accepted", "status": "False", "reason": "NoMatchingParent", "message": "x"},
                    ],
                }],
            },
        ])
    );
}
