//! What is wanted against what the API has.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::managed::{Managed, Owner};
use super::names::Marker;
use super::service::{ServicePlan, ServiceSettings, manifest};
use super::slices::{AgentEndpoint, manifests};
use super::targets::PortKey;
use super::{Change, Manifest};
use crate::snapshot::{ObjectName, Transport};
use crate::store::objects::ServiceType;

type Strings = BTreeMap<Arc<str>, Arc<str>>;

struct World {
    name: ObjectName,
    marker: Marker,
    labels: Strings,
    annotations: Strings,
    settings: ServiceSettings,
    ports: BTreeMap<PortKey, NonZeroU16>,
    selector: Option<Strings>,
    asked: Option<IpAddr>,
}

fn strings(pairs: &[(&str, &str)]) -> Strings {
    pairs.iter().map(|(key, value)| (Arc::from(*key), Arc::from(*value))).collect()
}

fn port(transport: Transport, port: u16, target: u16) -> (PortKey, NonZeroU16) {
    ((transport, NonZeroU16::new(port).unwrap()), NonZeroU16::new(target).unwrap())
}

fn world() -> World {
    World {
        name: ObjectName::new("team", "edge-c"),
        marker: Marker { controller: "example.com/agent".into(), class: "c".into(), gateway: "edge".into() },
        labels: strings(&[("team", "a")]),
        annotations: strings(&[("note", "b")]),
        settings: ServiceSettings::default(),
        ports: BTreeMap::from([port(Transport::Tcp, 80, 61_080), port(Transport::Udp, 53, 61_053)]),
        selector: Some(strings(&[("app", "gateway-agent")])),
        asked: None,
    }
}

impl World {
    fn owner(&self) -> Owner<'_> {
        Owner {
            marker: &self.marker,
            gateway_uid: "uid-1",
            labels: &self.labels,
            annotations: &self.annotations,
        }
    }

    fn service(&self) -> Manifest {
        manifest(&ServicePlan {
            name: &self.name,
            owner: self.owner(),
            settings: &self.settings,
            ports: &self.ports,
            selector: self.selector.as_ref(),
            asked: self.asked,
        })
    }
}

/// As the API server stores it: with a UID and what it and others fill in.
fn stored(manifest: &Manifest) -> Value {
    let mut body = manifest.body.clone();
    body["metadata"]["uid"] = "uid-2".into();
    body["metadata"]["annotations"]["cloud.example/id"] = "x".into();
    body["spec"]["clusterIP"] = "10.0.0.1".into();
    body["spec"]["internalTrafficPolicy"] = "Cluster".into();
    for port in body["spec"]["ports"].as_array_mut().unwrap() {
        port["nodePort"] = 30_000.into();
    }
    body
}

fn managed(body: &Value) -> Managed {
    let service: Service = serde_json::from_value(body.clone()).unwrap();
    Managed::service(&service).expect("an object of ours")
}

fn is_apply(change: Option<Change>) -> bool {
    matches!(change, Some(Change::Apply { uid, .. }) if &*uid == "uid-2")
}

#[test]
fn service_says_whose_it_is() {
    let body = world().service().body;
    let metadata = &body["metadata"];
    assert_eq!(metadata["labels"]["gateway.networking.k8s.io/gateway-name"], "edge");
    assert_eq!(metadata["labels"]["gateway.networking.k8s.io/gateway-class-name"], "c");
    assert_eq!(metadata["labels"]["team"], "a");
    assert_eq!(metadata["annotations"]["note"], "b");
    assert_eq!(metadata["ownerReferences"][0]["uid"], "uid-1");
    let marker = managed(&stored(&world().service())).marker;
    assert_eq!(marker, world().marker);
}

#[test]
fn labels_of_the_user_do_not_hide_ours() {
    let labels = strings(&[
        ("gateway.networking.k8s.io/gateway-name", "other"),
        ("app.kubernetes.io/managed-by", "other"),
    ]);
    let annotations = strings(&[("gateway-agent.dev/gateway-name", "other")]);
    let body = World { labels, annotations, ..world() }.service().body;
    assert_eq!(body["metadata"]["labels"]["gateway.networking.k8s.io/gateway-name"], "edge");
    assert_eq!(managed(&stored(&World { ..world() }.service())).marker, world().marker);
    assert_eq!(body["metadata"]["annotations"]["gateway-agent.dev/gateway-name"], "edge");
}

#[test]
fn service_has_the_ports_of_both_transports() {
    let body = world().service().body;
    let expected = json!([
        {"name": "tcp-80", "protocol": "TCP", "port": 80, "targetPort": 61080},
        {"name": "udp-53", "protocol": "UDP", "port": 53, "targetPort": 61053},
    ]);
    assert_eq!(body["spec"]["ports"], expected);
}

#[test]
fn fields_of_other_types_are_left_out() {
    let settings = ServiceSettings {
        kind: ServiceType::ClusterIp,
        is_traffic_local: true,
        load_balancer_class: Some("x".into()),
        source_ranges: vec!["192.0.2.0/24".into()],
        without_node_ports: true,
        ..ServiceSettings::default()
    };
    let asked = Some([192, 0, 2, 1].into());
    let spec = World { settings: settings.clone(), asked, ..world() }.service().body["spec"].clone();
    for field in [
        "externalTrafficPolicy",
        "loadBalancerClass",
        "loadBalancerSourceRanges",
        "loadBalancerIP",
        "allocateLoadBalancerNodePorts",
    ] {
        assert!(spec.get(field).is_none(), "{field}");
    }
    let settings = ServiceSettings { kind: ServiceType::LoadBalancer, ..settings };
    let spec = World { settings, asked, ..world() }.service().body["spec"].clone();
    assert_eq!(spec["externalTrafficPolicy"], "Local");
    assert_eq!(spec["loadBalancerClass"], "x");
    assert_eq!(spec["loadBalancerSourceRanges"], json!(["192.0.2.0/24"]));
    assert_eq!(spec["loadBalancerIP"], "192.0.2.1");
    assert_eq!(spec["allocateLoadBalancerNodePorts"], false);
}

#[test]
fn what_the_api_and_others_add_is_no_difference() {
    let manifest = world().service();
    assert_eq!(managed(&stored(&manifest)).change(manifest), None);
}

#[test]
fn what_somebody_changed_is_a_difference() {
    let manifest = world().service();
    let changes: [fn(&mut Value); 5] = [
        |body| body["spec"]["ports"][0]["targetPort"] = 80.into(),
        |body| body["spec"]["selector"] = json!({"app": "other"}),
        |body| body["spec"]["type"] = "ClusterIP".into(),
        |body| body["metadata"]["labels"]["team"] = "z".into(),
        |body| body["metadata"]["ownerReferences"] = json!([]),
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut body = stored(&manifest);
        change(&mut body);
        assert!(is_apply(managed(&body).change(manifest.clone())), "{index}");
    }
}

#[test]
fn ports_that_others_added_are_theirs() {
    let manifest = world().service();
    let mut body = stored(&manifest);
    let other = json!({"name": "x", "protocol": "TCP", "port": 1, "targetPort": 1});
    body["spec"]["ports"].as_array_mut().unwrap().insert(0, other);
    assert_eq!(managed(&body).change(manifest), None);
}

#[test]
fn what_is_no_longer_wanted_is_a_difference() {
    let before = stored(&world().service());
    let narrower = [
        World { labels: Strings::new(), ..world() },
        World { selector: None, ..world() },
        World { ports: BTreeMap::from([port(Transport::Tcp, 80, 61_080)]), ..world() },
    ];
    for world in narrower {
        assert!(is_apply(managed(&before).change(world.service())));
    }
}

#[test]
fn object_without_the_marker_is_foreign() {
    let body = stored(&world().service());
    for key in ["gateway-agent.dev/controller-name", "gateway-agent.dev/gateway-class-name"] {
        let mut body = body.clone();
        body["metadata"]["annotations"].as_object_mut().unwrap().remove(key);
        assert_eq!(Managed::service(&serde_json::from_value(body).unwrap()), None, "{key}");
    }
    let mut body = body;
    body["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm".into();
    assert_eq!(Managed::service(&serde_json::from_value(body).unwrap()), None);
}

fn endpoint(address: &str) -> AgentEndpoint {
    AgentEndpoint {
        address: address.parse().unwrap(),
        ready: true,
        serving: true,
        terminating: false,
        node: Some("n1".into()),
    }
}

#[test]
fn slices_are_by_family_and_in_bounds() {
    let world = world();
    let endpoints: Vec<AgentEndpoint> = (0..=100u8)
        .map(|index| endpoint(&format!("10.0.0.{index}")))
        .chain([endpoint("2001:db8::1"), endpoint("2001:db8::1")])
        .collect();
    let ports: BTreeMap<PortKey, NonZeroU16> =
        (1..=101).map(|number| port(Transport::Tcp, number, 61_000 + number)).collect();
    let slices = manifests(&world.name, &world.owner(), &ports, &endpoints);
    let shape: Vec<(String, usize, usize)> = slices
        .iter()
        .map(|slice| {
            let length = |field: &str| slice.body[field].as_array().unwrap().len();
            (slice.name.name.to_string(), length("endpoints"), length("ports"))
        })
        .collect();
    let expected = [
        ("edge-c-ipv4-0", 100, 100),
        ("edge-c-ipv4-1", 100, 1),
        ("edge-c-ipv4-2", 1, 100),
        ("edge-c-ipv4-3", 1, 1),
        ("edge-c-ipv6-0", 1, 100),
        ("edge-c-ipv6-1", 1, 1),
    ];
    assert_eq!(shape, expected.map(|(name, endpoints, ports)| (name.to_owned(), endpoints, ports)));
    assert_eq!(slices[0].body["metadata"]["labels"]["kubernetes.io/service-name"], "edge-c");
    assert_eq!(slices[0].body["metadata"]["labels"]["gateway.networking.k8s.io/gateway-name"], "edge");
    assert_eq!(slices[0].body["endpoints"][0]["nodeName"], "n1");
}

#[test]
fn slice_with_another_endpoint_differs() {
    let world = world();
    let slices = |endpoints: &[AgentEndpoint]| {
        manifests(&world.name, &world.owner(), &world.ports, endpoints).remove(0)
    };
    let (one, two) = (endpoint("10.0.0.1"), endpoint("10.0.0.2"));
    let manifest = slices(&[one.clone(), two.clone()]);
    let mut body = manifest.body.clone();
    body["metadata"]["uid"] = "uid-2".into();
    let parse = |body: &Value| {
        let slice: EndpointSlice = serde_json::from_value(body.clone()).unwrap();
        Managed::slice(&slice).unwrap()
    };
    assert_eq!(parse(&body).change(slices(&[two.clone(), one.clone()])), None);
    assert!(is_apply(parse(&body).change(slices(std::slice::from_ref(&one)))));
    let gone = AgentEndpoint { ready: false, terminating: true, ..two };
    assert!(is_apply(parse(&body).change(slices(&[one, gone]))));
    body["endpoints"].as_array_mut().unwrap().pop();
    assert!(is_apply(parse(&body).change(manifest)));
}
