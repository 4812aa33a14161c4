//! Gateways that are reached by a Service: what is wanted of the API, what of it counts, and what users are told.

use serde_json::{Value, json};

use super::scenario::{config, run_with};
use crate::api::Object;
use crate::provision::{AddressProvider, Change, Manifest, ServiceDefaults};
use crate::status::Address;
use crate::store::testing::{aged, object, with_spec};
use crate::translate::{Config, PodIdentity, Translation};

pub(super) fn in_namespace(namespace: &str) -> Config {
    let defaults = ServiceDefaults {
        node_addresses: vec!["198.51.100.1".parse().unwrap()],
        ..ServiceDefaults::default()
    };
    let own_pod = PodIdentity {
        namespace: namespace.into(),
        ips: vec!["10.1.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        node: Some("n1".into()),
        service: "gateway-agent".into(),
    };
    Config { provider: AddressProvider::Service(defaults), own_pod, ..config() }
}

fn at_home() -> Config {
    in_namespace("default")
}

fn listeners() -> Value {
    json!([
        {"name": "http", "protocol": "HTTP", "port": 80},
        {"name": "other", "protocol": "HTTP", "port": 80, "hostname": "other.example"},
        {"name": "dns", "protocol": "UDP", "port": 53},
    ])
}

fn named(name: &str, spec: Value) -> Object {
    let mut spec = spec;
    spec["gatewayClassName"] = "gateway-agent".into();
    if spec.get("listeners").is_none() {
        spec["listeners"] = listeners();
    }
    object(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"namespace": "default", "name": name, "generation": 1, "uid": format!("uid-of-{name}")},
        "spec": spec,
    }))
}

fn gateway(spec: Value) -> Object {
    named("gw", spec)
}

fn parameters(data: Value) -> [Object; 2] {
    let map = object(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "p"}, "data": data,
    }));
    let infrastructure = json!({"parametersRef": {"group": "", "kind": "ConfigMap", "name": "p"}});
    [gateway(json!({"infrastructure": infrastructure})), map]
}

fn manifests(done: &Translation) -> Vec<&Manifest> {
    let wanted = done.provisions.iter().filter_map(|wanted| match &wanted.change {
        Change::Create(manifest) | Change::Apply { manifest, .. } => Some(manifest),
        Change::Delete { .. } => None,
    });
    wanted.collect()
}

/// The API server: what is wanted is done. `status`: what the load balancer says.
fn obey(objects: &mut Vec<Object>, done: &Translation, status: &Value) {
    for wanted in &done.provisions {
        let name = wanted.change.name();
        objects.retain(|object| {
            let id = object.id();
            id.kind.as_str() != wanted.change.kind().as_str() || id.name != *name
        });
        if let Change::Create(manifest) | Change::Apply { manifest, .. } = &wanted.change {
            let mut body = manifest.body.clone();
            body["metadata"]["uid"] = format!("uid-{}", name.name).into();
            if body["kind"] == "Service" {
                body["status"] = status.clone();
                body["spec"]["clusterIP"] = "10.96.0.7".into();
                body["spec"]["clusterIPs"] = json!(["10.96.0.7", "2001:db8:96::7"]);
            }
            objects.push(object(body));
        }
    }
}

fn balanced(ingress: Value) -> Value {
    json!({"loadBalancer": {"ingress": ingress}})
}

/// Lets the API server do what is wanted until nothing is.
fn settled(mut objects: Vec<Object>, config: &Config, status: &Value) -> (Vec<Object>, Translation) {
    for _ in 0..4 {
        let done = run_with(&objects, config);
        if done.provisions.is_empty() {
            return (objects, done);
        }
        obey(&mut objects, &done, status);
    }
    panic!("still wanted: {:#?}", run_with(&objects, config).provisions);
}

fn listed(done: &Translation) -> Vec<String> {
    done.status("Gateway", "gw").addresses().iter().map(Address::to_string).collect()
}

fn verbs(done: &Translation) -> Vec<String> {
    let text = |change: &Change| format!("{} {}", change.verb(), change.name().name);
    done.provisions.iter().map(|wanted| text(&wanted.change)).collect()
}

#[test]
fn gateway_without_a_service_serves_nothing_and_wants_one() {
    let done = run_with(&[gateway(json!({}))], &at_home());
    assert_eq!(done.keys(), Vec::<String>::new());
    assert_eq!(verbs(&done), ["create gw-gateway-agent"]);
    assert_eq!(done.gateway("gw", "Accepted"), "True/Accepted");
    assert_eq!(done.gateway("gw", "Programmed"), "False/AddressNotAssigned");
    assert_eq!(done.listener("gw", "http", "Programmed"), "False/Pending");
    let spec = &manifests(&done)[0].body["spec"];
    let names: Vec<&Value> = spec["ports"].as_array().unwrap().iter().map(|port| &port["name"]).collect();
    assert_eq!(names, ["tcp-80", "udp-53"], "listeners of one port share it");
    assert_eq!(spec["selector"]["app.kubernetes.io/name"], "gateway-agent");
    assert_eq!(spec["type"], "LoadBalancer");
}

#[test]
fn ports_of_the_stored_service_are_served_and_its_addresses_listed() {
    let ingress = balanced(json!([{"ip": "203.0.113.9"}, {"ip": "2001:db8::9"}, {"hostname": "lb.example"}]));
    let (objects, done) = settled(vec![gateway(json!({}))], &at_home(), &ingress);
    let service = objects.iter().find_map(|object| match object {
        Object::Service(service) => service.spec.clone(),
        _ => None,
    });
    let mut expected: Vec<String> = service
        .unwrap()
        .ports
        .unwrap()
        .iter()
        .map(|port| {
            let transport = port.protocol.as_deref().unwrap().to_ascii_lowercase();
            let Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(target)) =
                port.target_port
            else {
                panic!("a number")
            };
            format!("{transport}/*:{target}")
        })
        .collect();
    expected.sort();
    assert_eq!(done.keys(), expected);
    assert_eq!(listed(&done), ["203.0.113.9", "2001:db8::9", "lb.example"]);
    assert_eq!(done.gateway("gw", "Programmed"), "absent", "the data path decides");
}

#[test]
fn service_without_an_address_serves_and_is_not_assigned() {
    let (_, done) = settled(vec![gateway(json!({}))], &at_home(), &json!({}));
    assert_eq!(done.keys().len(), 2);
    assert_eq!(done.gateway("gw", "Programmed"), "False/AddressNotAssigned");
}

#[test]
fn types_other_than_load_balancer_have_addresses_of_their_own() {
    for (kind, expected) in
        [("ClusterIP", ["10.96.0.7", "2001:db8:96::7"].as_slice()), ("NodePort", &["198.51.100.1"])]
    {
        let (_, done) = settled(parameters(json!({"serviceType": kind})).into(), &at_home(), &json!({}));
        assert_eq!(listed(&done), expected, "{kind}");
        assert_eq!(done.gateway("gw", "Programmed"), "absent", "{kind}");
    }
    let data = json!({"serviceType": "NodePort", "nodeAddresses": "203.0.113.1, 203.0.113.2"});
    let (_, done) = settled(parameters(data).into(), &at_home(), &json!({}));
    assert_eq!(listed(&done), ["203.0.113.1", "203.0.113.2"]);
}

#[test]
fn foreign_service_of_the_name_is_never_touched() {
    let foreign =
        with_spec("Service", "gw-gateway-agent", json!({"ports": [{"port": 80, "targetPort": 61_000}]}));
    let done = run_with(&[gateway(json!({})), foreign], &at_home());
    assert!(done.provisions.is_empty() && done.keys().is_empty());
    assert_eq!(done.gateway("gw", "Programmed"), "False/AddressNotAssigned");
    let message = done.complaint("Gateway", "gw");
    assert!(message.contains("default/gw-gateway-agent exists and is not this agent's"), "{message}");
}

#[test]
fn gateways_whose_names_meet_have_services_of_their_own() {
    let spec = |class: &str| json!({"gatewayClassName": class, "listeners": listeners()});
    let gateway = |name: &str, class: &str| {
        let mut object = named(name, json!({}));
        if let Object::Gateway(gateway) = &mut object {
            gateway.spec = serde_json::from_value(spec(class)).unwrap();
        }
        object
    };
    let config = Config { gateway_class_names: vec!["b-c".into(), "c".into()], ..at_home() };
    let (objects, done) = settled(vec![gateway("a", "b-c"), gateway("a-b", "c")], &config, &json!({}));
    assert_eq!(objects.iter().filter(|object| matches!(object, Object::Service(_))).count(), 2);
    assert_eq!(done.keys().len(), 4);
}

#[test]
fn two_gateways_never_share_a_target_port() {
    let objects = (0..20).map(|index| named(&format!("gw{index}"), json!({}))).collect();
    let (_, done) = settled(objects, &at_home(), &json!({}));
    assert_eq!(done.keys().len(), 40);
}

#[test]
fn listener_that_comes_waits_for_its_port_while_the_others_serve() {
    let (mut objects, before) =
        settled(vec![gateway(json!({}))], &at_home(), &balanced(json!([{"ip": "203.0.113.9"}])));
    let mut more = listeners();
    more.as_array_mut().unwrap().push(json!({"name": "new", "protocol": "TCP", "port": 9901}));
    objects[0] = gateway(json!({"listeners": more}));
    let done = run_with(&objects, &at_home());
    assert_eq!(done.keys(), before.keys());
    assert_eq!(verbs(&done), ["apply gw-gateway-agent"]);
    assert_eq!(
        done.listener("gw", "new", "Accepted"),
        "True/Accepted",
        "the admin server's port is not its pods'"
    );
    assert_eq!(done.listener("gw", "new", "Programmed"), "False/Pending");
    let (_, done) = settled(objects, &at_home(), &balanced(json!([{"ip": "203.0.113.9"}])));
    assert_eq!(done.keys().len(), 3);
    assert!(before.keys().iter().all(|key| done.keys().contains(key)));
}

#[test]
fn listener_that_goes_takes_its_port_along() {
    let (mut objects, _) = settled(vec![gateway(json!({}))], &at_home(), &json!({}));
    objects[0] = gateway(json!({"listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}));
    let done = run_with(&objects, &at_home());
    assert_eq!(done.keys().len(), 1);
    assert_eq!(manifests(&done)[0].body["spec"]["ports"].as_array().unwrap().len(), 1);
}

#[test]
fn gateway_without_a_valid_port_keeps_its_service() {
    let (mut objects, _) = settled(vec![gateway(json!({}))], &at_home(), &json!({}));
    objects[0] = gateway(json!({"listeners": [{"name": "x", "protocol": "example.com/x", "port": 80}]}));
    assert!(run_with(&objects, &at_home()).provisions.is_empty());
}

#[test]
fn infrastructure_labels_and_annotations_are_on_what_is_made() {
    let infrastructure = json!({"labels": {"team": "a"}, "annotations": {"note": "b"}});
    for config in [at_home(), in_namespace("elsewhere")] {
        let done = run_with(&[gateway(json!({"infrastructure": infrastructure}))], &config);
        for manifest in manifests(&done) {
            assert_eq!(manifest.body["metadata"]["labels"]["team"], "a");
            assert_eq!(manifest.body["metadata"]["annotations"]["note"], "b");
        }
    }
}

#[test]
fn agent_of_another_namespace_is_reached_by_endpoint_slices() {
    let config = in_namespace("agents");
    let (objects, done) = settled(vec![gateway(json!({}))], &config, &json!({}));
    assert_eq!(done.keys().len(), 2);
    let slices: Vec<_> = objects
        .iter()
        .filter_map(|object| match object {
            Object::EndpointSlice(slice) => Some((slice.address_type.as_str(), slice.endpoints.clone()?)),
            _ => None,
        })
        .collect();
    assert_eq!(slices.len(), 2, "without a word of its replicas an agent knows itself");
    assert_eq!(slices[0].1[0].addresses, ["10.1.0.1"]);
    assert_eq!(slices[0].1[0].node_name.as_deref(), Some("n1"));
    assert_eq!(slices[1].0, "IPv6");
}

#[test]
fn replicas_come_from_the_slices_of_the_agents_own_service() {
    let config = in_namespace("agents");
    let replicas = |addresses: &[&str]| {
        let endpoints: Vec<Value> =
            addresses.iter().map(|address| json!({"addresses": [address], "nodeName": "n2"})).collect();
        crate::store::testing::slice("agents/gateway-agent-x", "gateway-agent", Value::Array(endpoints))
    };
    let (mut objects, _) = settled(vec![gateway(json!({})), replicas(&["10.1.0.1"])], &config, &json!({}));
    objects[1] = replicas(&["10.1.0.1", "10.1.0.2"]);
    let done = run_with(&objects, &config);
    assert_eq!(verbs(&done), ["apply gw-gateway-agent-ipv4-0"]);
    let (objects, _) = settled(objects, &config, &json!({}));
    let addresses = objects.iter().find_map(|object| match object {
        Object::EndpointSlice(slice) if slice.metadata.name.as_deref() == Some("gw-gateway-agent-ipv4-0") => {
            Some(
                slice
                    .endpoints
                    .iter()
                    .flatten()
                    .map(|endpoint| endpoint.addresses[0].clone())
                    .collect::<Vec<_>>(),
            )
        }
        _ => None,
    });
    assert_eq!(addresses.unwrap(), ["10.1.0.1", "10.1.0.2"]);
}

#[test]
fn service_changes_hands_between_agents_of_two_namespaces() {
    let (mut objects, _) = settled(vec![gateway(json!({}))], &at_home(), &json!({}));
    // What Kubernetes' controller made while there was a selector, and leaves behind.
    objects.push(object(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "default", "name": "gw-gateway-agent-abcde", "labels": {
            "kubernetes.io/service-name": "gw-gateway-agent",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }},
        "endpoints": [{"addresses": ["10.9.9.9"]}], "ports": [],
    })));
    let other = in_namespace("agents");
    let keys = run_with(&objects, &other).keys();
    let done = run_with(&objects, &other);
    let expected = [
        "apply gw-gateway-agent",
        "create gw-gateway-agent-ipv4-0",
        "create gw-gateway-agent-ipv6-0",
        "delete gw-gateway-agent-abcde",
    ];
    assert_eq!(verbs(&done), expected);
    let (objects, done) = settled(objects, &other, &json!({}));
    assert_eq!(done.keys(), keys, "the ports stay");
    let done = run_with(&objects, &at_home());
    let expected =
        ["apply gw-gateway-agent", "delete gw-gateway-agent-ipv4-0", "delete gw-gateway-agent-ipv6-0"];
    assert_eq!(verbs(&done), expected);
}

#[test]
fn service_goes_when_the_gateway_is_another_class_now() {
    let (mut objects, _) = settled(vec![gateway(json!({}))], &at_home(), &json!({}));
    let spec = json!({"gatewayClassName": "other", "listeners": listeners()});
    objects[0] = with_spec("Gateway", "gw", spec);
    let done = run_with(&objects, &at_home());
    assert_eq!(verbs(&done), ["delete gw-gateway-agent"]);
    assert!(matches!(&done.provisions[0].change, Change::Delete { uid: Some(_), .. }));
    // Not another agent's, whatever it is called.
    for config in [
        Config { controller_name: "example.com/other".into(), ..at_home() },
        Config { gateway_class_names: vec!["third".into()], ..at_home() },
        Config { foreign_classes: ["gateway-agent".into()].into(), ..at_home() },
    ] {
        assert!(run_with(&objects, &config).provisions.is_empty());
    }
}

#[test]
fn service_of_a_gateway_that_is_gone_is_left_to_the_garbage_collector() {
    let (mut objects, _) = settled(vec![gateway(json!({}))], &at_home(), &json!({}));
    objects.remove(0);
    assert!(run_with(&objects, &at_home()).provisions.is_empty());
}

#[test]
fn service_goes_with_another_address_provider() {
    let (objects, _) = settled(vec![gateway(json!({}))], &at_home(), &json!({}));
    let done = run_with(&objects, &Config { own_pod: at_home().own_pod, ..config() });
    assert_eq!(verbs(&done), ["delete gw-gateway-agent"]);
    assert_eq!(done.keys(), ["tcp/*:80", "udp/*:53"]);
}

#[test]
fn refused_gateway_keeps_its_service_and_serves_nothing() {
    let (mut objects, _) = settled(parameters(json!({})).into(), &at_home(), &json!({}));
    objects.retain(|object| !matches!(object, Object::ConfigMap(_)));
    let done = run_with(&objects, &at_home());
    assert_eq!(done.gateway("gw", "Accepted"), "False/InvalidParameters");
    assert!(done.provisions.is_empty() && done.keys().is_empty() && listed(&done).is_empty());
}

#[test]
fn load_balancer_is_asked_for_the_address_of_the_spec() {
    let asked = |value: &str| gateway(json!({"addresses": [{"type": "IPAddress", "value": value}]}));
    let done = run_with(&[asked("203.0.113.7")], &at_home());
    assert_eq!(manifests(&done)[0].body["spec"]["loadBalancerIP"], "203.0.113.7");
    let both = balanced(json!([{"ip": "203.0.113.7"}, {"ip": "2001:db8::9"}]));
    let (_, done) = settled(vec![asked("203.0.113.7")], &at_home(), &both);
    assert_eq!(listed(&done), ["203.0.113.7"], "exactly what was asked for");
    assert_eq!(done.gateway("gw", "Programmed"), "absent");
    let other = balanced(json!([{"ip": "203.0.113.8"}]));
    let (_, done) = settled(vec![asked("203.0.113.7")], &at_home(), &other);
    assert_eq!(done.gateway("gw", "Programmed"), "False/AddressNotUsable");
    assert!(listed(&done).is_empty());
}

#[test]
fn address_outside_of_the_configured_set_is_not_asked_for() {
    let mut config = at_home();
    if let AddressProvider::Service(defaults) = &mut config.provider {
        defaults.askable = vec!["203.0.113.0/24".parse().unwrap()];
    }
    let asked = |values: &[&str]| {
        let addresses: Vec<Value> = values.iter().map(|value| json!({"value": value})).collect();
        gateway(json!({"addresses": addresses}))
    };
    let done = run_with(&[asked(&["192.0.2.1"])], &config);
    assert_eq!(done.gateway("gw", "Accepted"), "True/Accepted");
    assert_eq!(done.gateway("gw", "Programmed"), "False/AddressNotUsable");
    assert!(done.provisions.is_empty());
    let done = run_with(&[asked(&["192.0.2.1", "203.0.113.7"])], &config);
    assert_eq!(done.gateway("gw", "Programmed"), "False/AddressNotUsable");
    assert_eq!(manifests(&done)[0].body["spec"]["loadBalancerIP"], "203.0.113.7");
    let done = run_with(&[asked(&["203.0.113.7", "203.0.113.8"])], &config);
    assert_eq!(done.gateway("gw", "Programmed"), "False/AddressNotUsable");
    let message = done.complaint("Gateway", "gw");
    assert!(message.contains("203.0.113.7 is it; not: 203.0.113.8"), "{message}");
}

#[test]
fn unsupported_type_of_address_is_not_accepted_and_writes_nothing() {
    let done = run_with(&[gateway(json!({"addresses": [{"type": "test/fake", "value": "x"}]}))], &at_home());
    assert_eq!(done.gateway("gw", "Accepted"), "False/UnsupportedAddress");
    assert!(done.provisions.is_empty());
}

#[test]
fn type_without_value_is_any_address() {
    let object = gateway(json!({"addresses": [{"type": "IPAddress"}]}));
    let (_, done) = settled(vec![object], &at_home(), &balanced(json!([{"ip": "203.0.113.9"}])));
    assert_eq!(listed(&done), ["203.0.113.9"]);
}

#[test]
fn nothing_is_made_for_a_gateway_that_is_being_deleted() {
    let mut object = gateway(json!({}));
    if let Object::Gateway(gateway) = &mut object {
        let time = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        gateway.metadata.deletion_timestamp = Some(time);
    }
    assert!(run_with(&[object], &at_home()).provisions.is_empty());
}

#[test]
fn gateway_with_the_longest_name_has_a_service() {
    let name = "x".repeat(253);
    let (objects, done) = settled(vec![named(&name, json!({}))], &at_home(), &json!({}));
    assert_eq!(objects.len(), 2);
    assert_eq!(done.keys().len(), 2);
}

#[test]
fn older_gateway_is_the_first_when_the_ports_run_out() {
    let mut config = at_home();
    if let AddressProvider::Service(defaults) = &mut config.provider {
        defaults.target_ports = 61_000..=61_000;
    }
    let gateway = |name: &str, second: u32| {
        let spec = json!({"gatewayClassName": "gateway-agent",
            "listeners": [{"name": "l", "protocol": "HTTP", "port": 80}]});
        let mut object = aged("Gateway", name, second, spec);
        if let Object::Gateway(gateway) = &mut object {
            gateway.metadata.uid = Some(name.into());
        }
        object
    };
    let (_, done) = settled(vec![gateway("a", 2), gateway("b", 1)], &config, &json!({}));
    assert_eq!(done.keys(), ["tcp/*:61000"]);
    assert_eq!(done.listeners[0].names[0].gateway.name.to_string(), "b");
    let message = done.complaint("Gateway", "a");
    assert!(message.contains("does not exist yet"), "{message}");
}
