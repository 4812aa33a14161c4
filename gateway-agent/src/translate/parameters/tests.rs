use std::collections::BTreeMap;
use std::sync::Arc;

use expect_test::expect_file;

use super::{PARAMETERS, settings, table};
use crate::provision::service::ServiceSettings;
use crate::provision::{AddressProvider, ServiceDefaults};
use crate::store::objects::{ConfigMap, ServiceType};

fn read(data: &[(&str, &str)]) -> Result<ServiceSettings, String> {
    let data: BTreeMap<Arc<str>, Arc<str>> =
        data.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    settings(&ConfigMap { data }, &AddressProvider::Service(ServiceDefaults::default()))
}

#[test]
fn page_for_users_has_the_table() {
    let page = format!(
        "<!-- Made from the table in gateway-agent/src/translate/parameters.rs by its test. -->\n\
         # Parameters of a Gateway\n\n\
         `spec.infrastructure.parametersRef` names a ConfigMap in the Gateway's namespace. Its keys say what Service is made for\n\
         the Gateway, so they act with `--address-provider service`. An unknown key, a value that a key cannot have and a\n\
         ConfigMap that does not exist make the Gateway `Accepted=False` for the reason `InvalidParameters`; the message names\n\
         the key. A Service that exists is left as it is until the parameters are valid again.\n\n{}",
        table()
    );
    expect_file!["../../../../deploy/parameters.md"].assert_eq(&page);
}

#[test]
fn empty_map_gives_the_defaults() {
    assert_eq!(read(&[]), Ok(ServiceSettings::default()));
    assert_eq!(ServiceSettings::default().kind, ServiceType::LoadBalancer);
}

#[test]
fn keys_are_in_order_and_their_examples_are_read() {
    let examples = [
        ("allocateLoadBalancerNodePorts", "false"),
        ("externalTrafficPolicy", "Local"),
        ("ipFamilies", "IPv6, IPv4"),
        ("ipFamilyPolicy", "RequireDualStack"),
        ("loadBalancerClass", "example.com/internal"),
        ("loadBalancerSourceRanges", "192.0.2.0/24, 2001:db8::/32"),
        ("nodeAddresses", "192.0.2.1 2001:db8::1"),
        ("serviceAnnotations", "example.com/a=b=c\n\nplain = x y\n"),
        ("serviceType", "NodePort"),
        ("sessionAffinity", "ClientIP"),
    ];
    let keys: Vec<&str> = PARAMETERS.iter().map(|parameter| parameter.key).collect();
    assert_eq!(keys, examples.map(|(key, _)| key));
    let settings = read(&examples).unwrap();
    assert!(settings.without_node_ports && settings.is_traffic_local && settings.has_client_affinity);
    assert_eq!(settings.ip_families, ["IPv6", "IPv4"]);
    assert_eq!(settings.ip_family_policy, Some("RequireDualStack"));
    assert_eq!(settings.source_ranges.len(), 2);
    assert_eq!(settings.node_addresses.len(), 2);
    assert_eq!(settings.annotations.get("example.com/a").map(|value| &**value), Some("b=c"));
    assert_eq!(settings.annotations.get("plain").map(|value| &**value), Some("x y"));
    assert_eq!(settings.kind, ServiceType::NodePort);
}

#[test]
fn bad_value_is_refused_with_its_key() {
    for (key, value) in [
        ("allocateLoadBalancerNodePorts", "yes"),
        ("externalTrafficPolicy", "local"),
        ("ipFamilies", "IPv4,IPv4"),
        ("ipFamilies", ""),
        ("ipFamilyPolicy", ""),
        ("loadBalancerClass", "a b"),
        ("loadBalancerSourceRanges", "192.0.2.0"),
        ("nodeAddresses", "node-1"),
        ("serviceAnnotations", "no equals sign"),
        ("serviceAnnotations", "bad key!=x"),
        ("serviceType", "ExternalName"),
        ("sessionAffinity", "true"),
    ] {
        let error = read(&[(key, value)]).unwrap_err();
        assert!(error.starts_with(&format!("key {key}: {value:?} is not valid: ")), "{error}");
    }
}

#[test]
fn unknown_key_is_refused() {
    assert_eq!(read(&[("replicas", "3")]), Err("unknown key replicas".into()));
    assert_eq!(read(&[("servicetype", "ClusterIP")]), Err("unknown key servicetype".into()));
}

#[test]
fn key_that_cannot_act_is_refused() {
    let error = read(&[("nodeAddresses", "192.0.2.1")]).unwrap_err();
    assert!(error.contains("serviceType NodePort only"), "{error}");
    let map = ConfigMap { data: [("serviceType".into(), "ClusterIP".into())].into() };
    let error = settings(&map, &AddressProvider::Host).unwrap_err();
    assert!(error.contains("--address-provider host"), "{error}");
}

#[test]
fn prefix_is_written_as_the_api_wants_it() {
    let settings = read(&[("loadBalancerSourceRanges", "192.0.2.7/24")]).unwrap();
    assert_eq!(settings.source_ranges.iter().map(|range| &**range).collect::<Vec<_>>(), ["192.0.2.0/24"]);
}
