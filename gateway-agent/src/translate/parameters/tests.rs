use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use expect_test::expect_file;

use super::provenance::PROVENANCE;
use super::{Parameters, SERVICE, read_map, tables};
use crate::provision::service::ServiceSettings;
use crate::provision::{AddressProvider, ServiceDefaults};
use crate::snapshot::{ForwardedStyle, Provenance};
use crate::store::objects::{ConfigMap, ServiceType};

fn read(data: &[(&str, &str)]) -> Result<ServiceSettings, String> {
    read_for(data, &AddressProvider::Service(ServiceDefaults::default())).map(|read| read.service)
}

fn read_for(data: &[(&str, &str)], provider: &AddressProvider) -> Result<Parameters, String> {
    let data: BTreeMap<Arc<str>, Arc<str>> =
        data.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    read_map(&ConfigMap { data }, provider)
}

fn port(port: u16) -> NonZeroU16 {
    NonZeroU16::new(port).unwrap()
}

const PROXY_PROTOCOL: &str = "\
## The PROXY protocol

**From a load balancer.** The source that is believed is the address that the agent sees: where a Service hides it
(`externalTrafficPolicy: Cluster`), those of the nodes. A connection of any other address, one without a header (also
where 5 seconds pass before it is whole) and one with a header that is not as it should be are reset and counted by reason
in `gateway_agent_listener_proxy_header_failures_total`. A connection that ends without a byte is taken for a health
check. A header without addresses (`UNKNOWN`, `LOCAL`, of Unix sockets) leaves the connection what it looks like. A
checksum is verified where there is one; what else version 2 can say is passed over. Listeners of several Gateways that
share a port have to agree, or the younger is in conflict. A TCP listener with it is served by the proxy, not by eBPF.

**To backends.** The annotation `gateway-agent.dev/proxy-protocol` of a Service says what its endpoints expect: `v1` or
`v2` for every TCP port of it, or a list of ports by name or number such as `https=v2, 25=v1`. TCPRoutes and TLSRoutes
then begin every connection with a header, before anything else, TLS included; version 2 also tells the server name that
the client asked for. With what cannot be had the reference is not resolved and nothing is sent: HTTPRoutes and
GRPCRoutes, whose connections to backends are shared by clients (there are header fields), and ports of UDP in the list.
";

const WHERE_FROM: &str = "\
Nothing that a client says of where its request comes from is believed, unless it is trusted. By default `X-Forwarded-For`,
`-Proto`, `-Host` and `-Port` say what the agent saw itself, in the place of all that the client said: any other
`X-Forwarded-*`, `Forwarded` and `X-Real-IP` are removed, and routes do not match them. What a trusted client says is added
to (`X-Forwarded-For`, `Forwarded`) or passed on; of a style that is not chosen nothing is ever passed on. Filters of routes
come behind and may change all of it.

`X-Request-Id` is that of a trusted client (up to 128 letters, digits and `-._~+/=:@`), else a new one of 32 hexadecimal
digits; servers get it, and the access log has it. `traceparent` and `tracestate` are passed on as they came: the agent makes
no spans. One that is not as the W3C's Recommendation of 2021 has it is removed, with its `tracestate`, as are those of
clients that are not trusted.
";

#[test]
fn page_for_users_has_the_tables() {
    let [service, serving, provenance] = tables();
    let page = format!(
        "<!-- Made from the tables in gateway-agent/src/translate/parameters.rs by its test. -->\n\
         # Parameters of a Gateway\n\n\
         `spec.infrastructure.parametersRef` names a ConfigMap in the Gateway's namespace. An unknown key, a value that a key\n\
         cannot have and a ConfigMap that does not exist make the Gateway `Accepted=False` for the reason\n\
         `InvalidParameters`; the message names the key.\n\n\
         ## The Service\n\n\
         These say what Service is made for the Gateway, so they act with `--address-provider service`. A Service that exists\n\
         is left as it is until the parameters are valid again.\n\n{service}\n\
         ## Serving\n\n\
         These act whoever gives the Gateway its addresses. A Gateway whose parameters are not valid is not served.\n\n{serving}\n{PROXY_PROTOCOL}\n\
         ## Where requests come from\n\n\
         These act whoever gives the Gateway its addresses, at its HTTP and HTTPS listeners.\n\n{provenance}\n{WHERE_FROM}",
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
    let keys: Vec<&str> = SERVICE.iter().map(|parameter| parameter.key).collect();
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
    let error = read_for(&[("serviceType", "ClusterIP")], &AddressProvider::Host).unwrap_err();
    assert!(error.contains("--address-provider host"), "{error}");
}

#[test]
fn prefix_is_written_as_the_api_wants_it() {
    let settings = read(&[("loadBalancerSourceRanges", "192.0.2.7/24")]).unwrap();
    assert_eq!(settings.source_ranges.iter().map(|range| &**range).collect::<Vec<_>>(), ["192.0.2.0/24"]);
}

#[test]
fn proxy_protocol_is_expected_at_the_ports_named_and_of_the_sources_named() {
    let data = [("proxyProtocolPorts", "80, 443"), ("proxyProtocolSources", "192.0.2.7/24\n2001:db8::/32")];
    for provider in [AddressProvider::Host, AddressProvider::Service(ServiceDefaults::default())] {
        let serving = read_for(&data, &provider).unwrap().serving;
        let sources = serving.proxy_sources(port(443)).unwrap();
        for (address, is_believed) in
            [("192.0.2.200", true), ("192.0.3.1", false), ("2001:db8::1", true), ("2001:db9::1", false)]
        {
            assert_eq!(sources.contains(address.parse().unwrap()), is_believed, "{address}");
        }
        assert_eq!(serving.proxy_sources(port(80)), Some(sources));
        assert_eq!(serving.proxy_sources(port(81)), None);
    }
}

#[test]
fn bad_value_of_the_proxy_protocol_is_refused_with_its_key() {
    for (key, value) in [
        ("proxyProtocolPorts", ""),
        ("proxyProtocolPorts", "0"),
        ("proxyProtocolPorts", "65536"),
        ("proxyProtocolPorts", "https"),
        ("proxyProtocolPorts", "80, 80"),
        ("proxyProtocolSources", ""),
        ("proxyProtocolSources", "192.0.2.1"),
        ("proxyProtocolSources", "all"),
    ] {
        let error = read_for(&[(key, value)], &AddressProvider::Host).unwrap_err();
        assert!(error.starts_with(&format!("key {key}: {value:?} is not valid: ")), "{error}");
    }
}

#[test]
fn what_is_believed_and_said_of_where_requests_come_from_is_read_whoever_gives_the_addresses() {
    let examples = [
        ("forwardedHeaders", "Both"),
        ("requestIdInAnswers", "true"),
        ("traceContext", "AllClients"),
        ("trustedClients", "10.1.2.3/8, 2001:db8::/32 192.0.2.1"),
    ];
    let keys: Vec<&str> = PROVENANCE.iter().map(|parameter| parameter.key).collect();
    assert_eq!(keys, examples.map(|(key, _)| key));
    let read = read_for(&examples, &AddressProvider::Host).unwrap().provenance;
    let trusted: Vec<String> = read.trusted.iter().map(ToString::to_string).collect();
    assert_eq!(trusted, ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32"]);
    assert_eq!(read.style, ForwardedStyle::Both);
    assert!(read.tells_request_id && read.keeps_all_traces);
    assert!(read.trusts("10.9.9.9".parse().unwrap()) && !read.trusts("192.0.2.2".parse().unwrap()));
    let nobody = read_for(&[], &AddressProvider::Host).unwrap().provenance;
    assert_eq!(nobody, Provenance::default());
    assert!(!nobody.trusts("127.0.0.1".parse().unwrap()) && nobody.style == ForwardedStyle::XForwarded);
}

#[test]
fn bad_value_of_where_requests_come_from_is_refused_with_its_key() {
    for (key, value) in [
        ("forwardedHeaders", "x-forwarded"),
        ("requestIdInAnswers", "yes"),
        ("traceContext", ""),
        ("trustedClients", "10.0.0.0/33"),
        ("trustedClients", "example.com"),
        ("trustedClients", ""),
    ] {
        let error = read_for(&[(key, value)], &AddressProvider::Host).unwrap_err();
        assert!(error.starts_with(&format!("key {key}: {value:?} is not valid: ")), "{error}");
    }
}

#[test]
fn neither_key_of_the_proxy_protocol_acts_without_the_other() {
    for (one, value, other) in [
        ("proxyProtocolPorts", "80", "proxyProtocolSources"),
        ("proxyProtocolSources", "0.0.0.0/0", "proxyProtocolPorts"),
    ] {
        let error = read_for(&[(one, value)], &AddressProvider::Host).unwrap_err();
        assert!(error.contains(&format!("{one} needs {other}")), "{error}");
    }
}
