//! A change costs what it changed, and comes to what everything made anew would have come to.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::scenario::{authority, certificate, config, secret};
use super::service::in_namespace;
use crate::api::{Kind, Object, ObjectId};
use crate::provision::Change;
use crate::snapshot::ObjectName;
use crate::store::Store;
use crate::store::testing::{aged, backend, gateway, object, service, slice, with_spec};
use crate::translate::{Config, Translation, Translator, Work, translate};

/// A store and the translator that follows it.
struct World {
    store: Store,
    translator: Translator,
    config: Config,
}

impl World {
    fn new(objects: &[Object]) -> Self {
        let mut world = Self { store: Store::default(), translator: Translator::default(), config: config() };
        world.apply(objects);
        world
    }

    /// Applies `objects` and returns what it cost.
    fn apply(&mut self, objects: &[Object]) -> Work {
        for object in objects {
            self.store.apply(object);
        }
        self.update()
    }

    fn delete(&mut self, kind: Kind, name: &str) -> Work {
        let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
        let name = ObjectName::new(namespace, name);
        self.store.delete(&ObjectId { kind, name });
        self.update()
    }

    fn update(&mut self) -> Work {
        let before = self.translator.work();
        let dirty = self.store.take_dirty();
        self.translator.update(&self.store, &dirty, &self.config);
        let after = self.translator.work();
        Work {
            topologies_planned: after.topologies_planned - before.topologies_planned,
            policies_planned: after.policies_planned - before.policies_planned,
            routes_compiled: after.routes_compiled - before.routes_compiled,
            routes_attached: after.routes_attached - before.routes_attached,
            hosts_made: after.hosts_made - before.hosts_made,
            entries_made: after.entries_made - before.entries_made,
            statuses_changed: after.statuses_changed - before.statuses_changed,
        }
    }

    fn translation(&self) -> Translation {
        self.translator.translation().clone()
    }
}

const N_ROUTES: usize = 3_000;

fn host(index: usize) -> String {
    format!("host-{index}.example.com")
}

fn route(index: usize, path: &str, service: &str) -> Object {
    let matches = json!([{"path": {"type": "PathPrefix", "value": path}}]);
    let rule = json!({"matches": matches, "backendRefs": [{"name": service, "port": 80}]});
    let spec = json!({"parentRefs": [{"name": "gw"}], "hostnames": [host(index)], "rules": [rule]});
    with_spec("HTTPRoute", &format!("r{index}"), spec)
}

/// One Gateway, 3,000 routes with a hostname each, ten Services.
fn large() -> World {
    let listeners = json!([{"name": "http", "protocol": "HTTP", "port": 80}]);
    let mut objects = vec![gateway("gw", listeners)];
    for index in 0..10 {
        objects.extend(backend(&format!("s{index}"), &["10.0.0.1"]));
    }
    objects.extend((0..N_ROUTES).map(|index| route(index, "/", &format!("s{}", index % 10))));
    World::new(&objects)
}

/// How many of the hosts of the only entry are not the same allocation as before.
fn n_new_hosts(before: &Translation, after: &Translation) -> usize {
    let hosts = |translation: &Translation, index: usize| {
        let listener = translation.http("tcp/*:80").listeners.lookup("any").cloned();
        listener.and_then(|listener| listener.hosts.at(Some(&host(index))).cloned())
    };
    let is_same = |index: usize| match (hosts(before, index), hosts(after, index)) {
        (Some(one), Some(other)) => Arc::ptr_eq(&one, &other),
        (one, other) => one.is_none() && other.is_none(),
    };
    (0..=N_ROUTES).filter(|index| !is_same(*index)).count()
}

#[test]
fn one_route_of_3000_costs_one_route() {
    let mut world = large();
    let before = world.translation();

    let one =
        Work { routes_compiled: 1, routes_attached: 1, hosts_made: 1, entries_made: 1, ..Work::default() };
    // The route's conditions are what they were.
    assert_eq!(world.apply(&[route(7, "/other", "s7")]), one);
    let after = world.translation();
    assert_eq!(n_new_hosts(&before, &after), 1);
    assert!(after.statuses.is_same(&before.statuses));

    // The Gateway counts it, and it has a status of its own.
    let two_statuses = Work { statuses_changed: 2, ..one };
    assert_eq!(world.apply(&[route(N_ROUTES, "/", "s0")]), two_statuses);
    assert_eq!(n_new_hosts(&after, &world.translation()), 1);
    let gone = Work { routes_compiled: 0, routes_attached: 0, ..two_statuses };
    assert_eq!(world.delete(Kind::HttpRoute, &format!("r{N_ROUTES}")), gone);
    assert_eq!(world.translation(), after);
}

#[test]
fn endpoints_cost_the_routes_that_lead_to_them() {
    let mut world = large();
    let before = world.translation();
    let work = world.apply(&[slice("s3", "s3", json!([{"addresses": ["10.0.0.2"]}]))]);
    assert_eq!((work.routes_compiled, work.hosts_made, work.statuses_changed), (300, 300, 0));
    assert_eq!(n_new_hosts(&before, &world.translation()), 300);
}

#[test]
fn what_no_route_or_listener_reads_costs_nothing() {
    let mut world = large();
    let before = world.translation();
    let secret = object(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}));
    let map = object(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}));
    let work = world.apply(&[secret, map, service("unused", 80)]);
    assert_eq!(work, Work::default());
    let after = world.translation();
    assert!(Arc::ptr_eq(&before.listeners, &after.listeners));
}

#[test]
fn listener_that_is_added_leaves_the_routes_of_others_alone() {
    let mut world = large();
    let before = world.translation();
    let work = world.apply(&[gateway("other", json!([{"name": "http", "protocol": "HTTP", "port": 81}]))]);
    assert_eq!((work.topologies_planned, work.routes_compiled, work.routes_attached), (1, 0, 0));
    assert_eq!(n_new_hosts(&before, &world.translation()), 0);
}

#[test]
fn route_that_goes_or_is_attached_nowhere_is_told_once() {
    let mut world = large();
    assert!(world.translator.take_gone().routes.is_empty());
    world.delete(Kind::HttpRoute, "r1");
    let nowhere = json!({"parentRefs": [{"name": "gw", "sectionName": "absent"}]});
    world.apply(&[with_spec("HTTPRoute", "r2", nowhere)]);
    let gone = world.translator.take_gone();
    let names: Vec<&str> = gone.routes.iter().map(|route| &*route.object.name).collect();
    assert_eq!(names, ["r1", "r2"]);
    world.delete(Kind::Gateway, "gw");
    assert_eq!(world.translator.take_gone().listeners.len(), 1);
    assert!(world.translator.take_gone().listeners.is_empty());
}

/// An object, or the absence of one, out of a small world in which all that can refer to each other does.
#[derive(Clone, Debug)]
enum Step {
    Apply(Box<Object>),
    Delete(Kind, &'static str),
    Addresses(u8),
    /// What is wanted for Gateways is done.
    Obey,
}

fn names() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "other/a"])
}

fn hostname() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "x.example", "*.example", "y.x.example", "*.x.example"])
}

fn namespaces() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"from": "Same"})),
        Just(json!({"from": "All"})),
        Just(json!({"from": "Selector", "selector": {"matchLabels": {"team": "blue"}}})),
    ]
}

fn listener() -> impl Strategy<Value = Value> {
    let protocol = prop::sample::select(vec!["HTTP", "HTTP", "HTTPS", "TLS", "TCP", "UDP", "ODD"]);
    let port = prop::sample::select(vec![80, 443]);
    let secret = prop::sample::select(vec!["a", "b", "absent"]);
    (protocol, port, hostname(), namespaces(), secret, any::<bool>()).prop_map(
        |(protocol, port, hostname, namespaces, secret, elsewhere)| {
            let mut listener = json!({"protocol": protocol, "port": port, "hostname": hostname,
                "allowedRoutes": {"namespaces": namespaces}});
            if protocol == "HTTPS" {
                let mut reference = json!({"name": secret});
                if elsewhere {
                    reference["namespace"] = json!("other");
                }
                listener["tls"] = json!({"certificateRefs": [reference]});
            }
            if protocol == "TLS" {
                listener["tls"] = json!({"mode": "Passthrough"});
            }
            listener
        },
    )
}

fn listeners() -> impl Strategy<Value = Value> {
    prop::collection::vec(listener(), 1..3).prop_map(|mut listeners| {
        for (listener, name) in listeners.iter_mut().zip(["one", "two"]) {
            listener["name"] = json!(name);
        }
        json!(listeners)
    })
}

fn gateways() -> impl Strategy<Value = Object> {
    let class = prop::sample::select(vec!["gateway-agent", "gateway-agent", "foreign"]);
    let age = 0..3_u32;
    let authority = prop::sample::select(vec!["", "ca", "absent"]);
    (names(), listeners(), namespaces(), class, age, authority).prop_map(
        |(name, listeners, allowed, class, age, authority)| {
            let mut spec = json!({"gatewayClassName": class, "listeners": listeners,
                "allowedListeners": {"namespaces": allowed}});
            if !authority.is_empty() {
                let authorities = json!([{"group": "", "kind": "ConfigMap", "name": authority}]);
                spec["tls"] =
                    json!({"frontend": {"default": {"validation": {"caCertificateRefs": authorities}}}});
            }
            let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
            let metadata = json!({"namespace": namespace, "name": name, "generation": 1,
                "uid": format!("uid-of-{namespace}-{name}"),
                "creationTimestamp": format!("2026-01-01T00:00:0{age}Z")});
            object(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
                "metadata": metadata, "spec": spec}))
        },
    )
}

fn sets() -> impl Strategy<Value = Object> {
    (names(), names(), listeners(), 0..3_u32).prop_map(|(name, parent, listeners, age)| {
        let (namespace, parent) = parent.split_once('/').unwrap_or(("default", parent));
        let parent = json!({"name": parent, "namespace": namespace});
        aged("ListenerSet", name, age, json!({"parentRef": parent, "listeners": listeners}))
    })
}

fn routes() -> impl Strategy<Value = Object> {
    let kind = prop::sample::select(vec![
        "HTTPRoute",
        "HTTPRoute",
        "HTTPRoute",
        "GRPCRoute",
        "TLSRoute",
        "TCPRoute",
        "UDPRoute",
    ]);
    let parent = (prop::sample::select(vec!["Gateway", "Gateway", "ListenerSet"]), names(), 0..3_u8);
    let parents = prop::collection::vec(parent, 1..3);
    let path = prop::sample::select(vec!["/", "/a", "/a/b"]);
    (kind, names(), parents, hostname(), names(), path, 0..3_u32).prop_map(
        |(kind, name, parents, hostname, service, path, age)| {
            let parents: Vec<Value> = parents
                .into_iter()
                .map(|(kind, name, section)| {
                    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
                    let mut parent = json!({"kind": kind, "name": name, "namespace": namespace});
                    if section > 0 {
                        parent["sectionName"] = json!(if section == 1 { "one" } else { "two" });
                    }
                    parent
                })
                .collect();
            let (namespace, service) = service.split_once('/').unwrap_or(("default", service));
            let backends = json!([{"name": service, "namespace": namespace, "port": 80}]);
            let mut rule = json!({ "backendRefs": backends });
            if kind == "HTTPRoute" {
                rule["matches"] = json!([{"path": {"type": "PathPrefix", "value": path}}]);
            }
            let mut spec = json!({"parentRefs": parents, "rules": [rule]});
            if !hostname.is_empty() && !matches!(kind, "TCPRoute" | "UDPRoute") {
                spec["hostnames"] = json!([hostname]);
            } else if kind == "TLSRoute" {
                spec["hostnames"] = json!(["z.example"]);
            }
            aged(kind, name, age, spec)
        },
    )
}

fn others() -> impl Strategy<Value = Object> {
    let slices = (names(), names(), 1..4_u8).prop_map(|(name, service, last)| {
        let (_, service) = service.split_once('/').unwrap_or(("", service));
        slice(name, service, json!([{"addresses": [format!("10.0.0.{last}")]}]))
    });
    let ports = prop::sample::select(vec![80_u16, 81]);
    let services = (names(), ports).prop_map(|(name, port)| service(name, port));
    let policies = (names(), names(), 0..3_u32).prop_map(|(name, service, age)| {
        let (_, service) = service.split_once('/').unwrap_or(("", service));
        let targets = json!([{"group": "", "kind": "Service", "name": service}]);
        let validation = json!({"hostname": "x.example", "wellKnownCACertificates": "System"});
        aged("BackendTLSPolicy", name, age, json!({"targetRefs": targets, "validation": validation}))
    });
    let from = prop::sample::select(vec!["HTTPRoute", "TCPRoute", "Gateway", "ListenerSet"]);
    let grants = (from, any::<bool>()).prop_map(|(from, to_secret)| {
        let from = json!([{"group": "gateway.networking.k8s.io", "kind": from, "namespace": "default"}]);
        let to = json!([{"group": "", "kind": if to_secret { "Secret" } else { "Service" }}]);
        with_spec("ReferenceGrant", "other/a", json!({"from": from, "to": to}))
    });
    let labels = prop::sample::select(vec!["blue", "red"]);
    let spaces = (prop::sample::select(vec!["default", "other"]), labels).prop_map(|(name, team)| {
        object(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"team": team}}}))
    });
    let secrets = (names(), any::<bool>()).prop_map(|(name, is_good)| {
        if is_good { certificate(name, "x.example") } else { secret(name, "", "") }
    });
    let maps = any::<bool>().prop_map(|is_good| authority("ca", is_good));
    prop_oneof![slices, services, policies, grants, spaces, secrets, maps]
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop::sample::select(Kind::ALL.to_vec());
    let name = prop::sample::select(vec!["a", "b", "other/a", "ca", "a-gateway-agent"]);
    prop_oneof![
        3 => gateways().prop_map(|object| Step::Apply(Box::new(object))),
        2 => sets().prop_map(|object| Step::Apply(Box::new(object))),
        5 => routes().prop_map(|object| Step::Apply(Box::new(object))),
        5 => others().prop_map(|object| Step::Apply(Box::new(object))),
        3 => (kind, name).prop_map(|(kind, name)| Step::Delete(kind, name)),
        1 => (0..3_u8).prop_map(Step::Addresses),
        2 => Just(Step::Obey),
    ]
}

/// Does what `world` wants of the API.
fn obey(world: &mut World) {
    for wanted in world.translation().provisions {
        match wanted.change {
            Change::Create(manifest) | Change::Apply { manifest, .. } => {
                let mut body = manifest.body;
                body["metadata"]["uid"] = json!(format!("uid-{}", manifest.name.name));
                if body["kind"] == "Service" {
                    body["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.77"}]}});
                }
                world.store.apply(&object(body));
            }
            Change::Delete { kind, name, .. } => {
                let kind = Kind::ALL.into_iter().find(|known| known.as_str() == kind.as_str());
                world.store.delete(&ObjectId { kind: kind.expect("a kind"), name });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn result_is_that_of_a_translation_from_scratch(
        steps in prop::collection::vec((step(), any::<bool>()), 1..60),
        home in prop::sample::select(vec!["", "default", "other"]),
    ) {
        let mut world = World::new(&[]);
        if !home.is_empty() {
            world.config = in_namespace(home);
        }
        for (step, is_last_of_batch) in steps {
            match step {
                Step::Apply(object) => {
                    world.store.apply(&object);
                }
                Step::Delete(kind, name) => {
                    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
                    let name = if kind == Kind::Namespace {
                        ObjectName::new("", namespace)
                    } else {
                        ObjectName::new(namespace, name)
                    };
                    world.store.delete(&ObjectId { kind, name });
                }
                Step::Obey => obey(&mut world),
                Step::Addresses(last) => {
                    world.config.local_addresses = vec![format!("192.0.2.{last}").parse().unwrap()];
                }
            }
            if is_last_of_batch {
                world.update();
                let expected = translate(&world.store, &world.config);
                let found = world.translator.translation();
                prop_assert_eq!(&found.statuses, &expected.statuses);
                prop_assert_eq!(&found.listeners, &expected.listeners);
                prop_assert_eq!(&found.provisions, &expected.provisions);
            }
        }
    }
}
