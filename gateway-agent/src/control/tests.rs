//! What is published when, of what the API tells.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use super::Control;
use crate::api::{Kind, Object, ObjectId};
use crate::cluster::{Change, SyncGate, WatchKey};
use crate::metrics::Metrics;
use crate::snapshot::{ObjectName, Publisher, Revision};
use crate::store::testing::{gateway, service};
use crate::translate::{Config, Watched};

fn control() -> Control {
    let config = Config { addresses: vec!["192.0.2.1".parse().expect("an address")], ..Config::default() };
    Control::new(config, Publisher::default(), Arc::new(Metrics::default()))
}

/// One that waits for Gateways and Services.
fn waiting(restored: &[Object]) -> Control {
    let mut control = control();
    let gate = SyncGate::new([key(Kind::Gateway), key(Kind::Service)]);
    control.await_sync(Watched::All, gate, restored);
    control
}

fn edge() -> Object {
    gateway("edge", json!([{"name": "http", "protocol": "HTTP", "port": 80}]))
}

fn key(kind: Kind) -> WatchKey {
    WatchKey { kind: kind.as_str(), namespace: Some("default".into()) }
}

fn applied(object: Object) -> Change {
    Change::Applied(object.id(), object)
}

fn listed(kind: Kind, names: &[&str]) -> Change {
    let name = |name: &&str| ObjectName::new("default", *name);
    Change::Listed { kind, namespace: Some("default".into()), names: names.iter().map(name).collect() }
}

#[test]
fn nothing_is_published_before_everything_was_seen() {
    let mut control = waiting(&[]);
    assert!(!control.objects(vec![applied(edge()), listed(Kind::Gateway, &["edge"])]));
    assert_eq!(control.revision(), Revision(0));
    assert_eq!(control.unseen().collect::<Vec<_>>(), [&key(Kind::Service)]);
    let why = "no right to list".into();
    let namespace = Some("default".into());
    assert!(control.objects(vec![Change::Unavailable { kind: Kind::Service, namespace, why }]));
    assert_eq!(control.listeners().len(), 1);
}

#[test]
fn an_empty_namespace_is_a_snapshot_too() {
    let mut control = waiting(&[]);
    assert!(control.objects(vec![listed(Kind::Gateway, &[]), listed(Kind::Service, &[])]));
    assert_eq!(control.revision(), Revision(1));
}

#[test]
fn what_was_restored_is_served_until_everything_was_seen() {
    let mut control = waiting(&[edge(), service("web", 80)]);
    assert_eq!((control.revision(), control.listeners().len()), (Revision(1), 1));
    assert_eq!(control.desired().revision, Revision(0), "nothing may be written yet");
    // The Gateway was deleted meanwhile, and the addresses change before the Services have been told.
    assert!(!control.objects(vec![listed(Kind::Gateway, &[])]));
    assert!(!control.local_addresses(vec!["192.0.2.2".parse().expect("an address")]));
    assert_eq!(control.listeners().len(), 1);
    assert!(control.objects(vec![listed(Kind::Service, &["web"])]));
    assert_eq!((control.revision(), control.listeners().len()), (Revision(2), 0));
    assert_eq!(control.desired().revision, Revision(2));
}

// O47: a status that is written comes back as an object that is the same to us.
#[test]
fn an_object_that_says_the_same_publishes_nothing() {
    let mut control = control();
    assert!(control.objects(vec![applied(edge())]));
    assert!(!control.objects(vec![applied(edge())]));
    let name = ObjectName::new("default", "edge");
    let id = ObjectId { kind: Kind::Gateway, name };
    assert!(control.objects(vec![Change::Deleted(id.clone())]));
    assert!(!control.objects(vec![Change::Deleted(id)]));
}

#[test]
fn classes_of_another_controller_are_not_ours_while_they_are() {
    let mut control = control();
    assert!(control.objects(vec![applied(edge())]));
    let foreign = BTreeSet::from(["gateway-agent".into()]);
    assert!(control.objects(vec![Change::ForeignClasses(foreign)]));
    assert!(control.listeners().is_empty());
    assert!(control.objects(vec![Change::ForeignClasses(BTreeSet::new())]));
    assert_eq!(control.listeners().len(), 1);
}
