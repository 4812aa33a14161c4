//! The core kinds: what the API server refuses in them and fills in, as far as it bears on what the agent reads.
//!
//! **Invariant:** pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::names;
use super::path::FieldPath;
use super::report::Report;

/// What the API server allows the values of one Secret or ConfigMap.
const MAX_DATA_BYTES: usize = 1 << 20;
/// What the API server allows in one EndpointSlice.
const MAX_ENDPOINTS: usize = 1000;
const MAX_ENDPOINT_ADDRESSES: usize = 100;
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

pub(super) fn service(service: &mut Service, report: &mut Report<'_>) {
    let path = FieldPath::from("spec");
    let Some(spec) = &mut service.spec else { return report.error(&path, "required, but missing") };
    let kind = spec.type_.get_or_insert_with(|| "ClusterIP".into()).clone();
    if !["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"].contains(&kind.as_str()) {
        report.error(
            &path.field("type"),
            format!("{kind:?} is none of ClusterIP, ExternalName, LoadBalancer and NodePort"),
        );
    }
    if kind == "ExternalName" && spec.external_name.as_ref().is_none_or(String::is_empty) {
        report.error(&path.field("externalName"), "required, but missing");
    }
    service_ports(spec, &kind, &path.field("ports"), report);
}

fn service_ports(spec: &mut ServiceSpec, kind: &str, path: &FieldPath, report: &mut Report<'_>) {
    let is_headless = spec.cluster_ip.as_deref() == Some("None");
    let ports = spec.ports.get_or_insert_default();
    if ports.is_empty() && !is_headless && kind != "ExternalName" {
        report.error(path, "at least one port is required");
    }
    let several = ports.len() > 1;
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for (index, port) in ports.iter_mut().enumerate() {
        let path = path.index(index);
        let ServicePort { name, port: number, protocol, target_port, .. } = port;
        check_port(*number, &path.field("port"), report);
        let protocol = check_protocol(protocol, &path, report);
        if !numbers.insert((*number, protocol.clone())) {
            report.error(&path, format!("port {number} of {protocol} is there twice"));
        }
        match name.as_deref() {
            None | Some("") if several => {
                report.error(&path.field("name"), "required where a Service has several ports");
            }
            None | Some("") => {}
            Some(name) => check_port_name(name, &mut names, &path.field("name"), report),
        }
        match target_port {
            None => *target_port = Some(IntOrString::Int(*number)),
            Some(IntOrString::Int(0)) => *target_port = Some(IntOrString::Int(*number)),
            Some(IntOrString::Int(number)) => check_port(*number, &path.field("targetPort"), report),
            Some(IntOrString::String(name)) => {
                if let Err(message) = names::port(name) {
                    report.error(&path.field("targetPort"), message);
                }
            }
        }
    }
}

pub(super) fn endpoint_slice(slice: &mut EndpointSlice, report: &mut Report<'_>) {
    let labels = slice.metadata.labels.as_ref();
    if labels.and_then(|labels| labels.get(SERVICE_LABEL)).is_none_or(String::is_empty) {
        report.warning(
            &FieldPath::from("metadata.labels"),
            format!("without the label {SERVICE_LABEL} it belongs to no Service"),
        );
    }
    let family = slice.address_type.as_str();
    match family {
        "IPv4" | "IPv6" | "FQDN" => {}
        "" => report.error(&FieldPath::from("addressType"), "required, but missing"),
        other => {
            report.error(&FieldPath::from("addressType"), format!("{other:?} is none of FQDN, IPv4 and IPv6"))
        }
    }
    let path = FieldPath::from("endpoints");
    let endpoints = slice.endpoints.as_deref().unwrap_or_default();
    if endpoints.len() > MAX_ENDPOINTS {
        report.error(&path, format!("{} endpoints, at most {MAX_ENDPOINTS} are allowed", endpoints.len()));
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        endpoint_addresses(endpoint, family, &path.index(index).field("addresses"), report);
    }
    let path = FieldPath::from("ports");
    let mut names = BTreeSet::new();
    for (index, EndpointPort { name, port, protocol, .. }) in slice.ports.iter_mut().flatten().enumerate() {
        let path = path.index(index);
        if let Some(port) = port {
            check_port(*port, &path.field("port"), report);
        }
        check_protocol(protocol, &path, report);
        let name = name.get_or_insert_default();
        if name.is_empty() {
            if !names.insert(String::new()) {
                report.error(&path.field("name"), "only one port may be without a name");
            }
        } else {
            check_port_name(name, &mut names, &path.field("name"), report);
        }
    }
}

fn endpoint_addresses(endpoint: &Endpoint, family: &str, path: &FieldPath, report: &mut Report<'_>) {
    let addresses = &endpoint.addresses;
    if !(1..=MAX_ENDPOINT_ADDRESSES).contains(&addresses.len()) {
        report
            .error(path, format!("{} addresses, 1 to {MAX_ENDPOINT_ADDRESSES} are allowed", addresses.len()));
    }
    for (index, address) in addresses.iter().enumerate() {
        let valid = match family {
            "IPv4" => address.parse::<Ipv4Addr>().is_ok_and(|address| !address.is_unspecified()),
            "IPv6" => address.parse::<Ipv6Addr>().is_ok_and(|address| !address.is_unspecified()),
            "FQDN" => names::subdomain(address).is_ok(),
            _ => true,
        };
        if !valid {
            report.error(&path.index(index), format!("{address:?} is not an address of type {family}"));
        }
    }
}

/// `stringData` goes into `data`, over what is there, and an absent type becomes `Opaque`.
pub(super) fn secret(secret: &mut Secret, report: &mut Report<'_>) {
    let data = secret.data.get_or_insert_default();
    for (key, value) in secret.string_data.take().into_iter().flatten() {
        check_key(&key, &FieldPath::from("stringData"), report);
        data.insert(key, ByteString(value.into_bytes()));
    }
    let path = FieldPath::from("data");
    for key in data.keys() {
        check_key(key, &path, report);
    }
    check_size(data.values().map(|value| value.0.len()).sum(), &path, report);
    if secret.type_.get_or_insert_with(|| "Opaque".into()) == "kubernetes.io/tls" {
        for key in ["tls.crt", "tls.key"] {
            if !data.contains_key(key) {
                report.error(&path.field(key), "required in a Secret of type kubernetes.io/tls, but missing");
            }
        }
    }
}

pub(super) fn config_map(map: &ConfigMap, report: &mut Report<'_>) {
    let empty = BTreeMap::new();
    let (data, binary) = (map.data.as_ref().unwrap_or(&empty), map.binary_data.iter().flatten());
    let path = FieldPath::from("data");
    for key in data.keys() {
        check_key(key, &path, report);
    }
    let mut size: usize = data.values().map(String::len).sum();
    for (key, value) in binary {
        let path = FieldPath::from("binaryData");
        check_key(key, &path, report);
        if data.contains_key(key) {
            report.error(&path.field(key), "the key is in data too");
        }
        size += value.0.len();
    }
    check_size(size, &path, report);
}

fn check_key(key: &str, path: &FieldPath, report: &mut Report<'_>) {
    if let Err(message) = names::data_key(key) {
        report.error(&path.field(key), message);
    }
}

fn check_size(size: usize, path: &FieldPath, report: &mut Report<'_>) {
    if size > MAX_DATA_BYTES {
        report.error(path, format!("{size} bytes in all, at most {MAX_DATA_BYTES} are allowed"));
    }
}

fn check_port(port: i32, path: &FieldPath, report: &mut Report<'_>) {
    if !(1..=65535).contains(&port) {
        report.error(path, format!("{port} is not a port: 1 to 65535"));
    }
}

/// Fills in TCP.
fn check_protocol(protocol: &mut Option<String>, path: &FieldPath, report: &mut Report<'_>) -> String {
    let protocol = protocol.get_or_insert_with(|| "TCP".into());
    if !PROTOCOLS.contains(&protocol.as_str()) {
        report.error(&path.field("protocol"), format!("{protocol:?} is none of TCP, UDP and SCTP"));
    }
    protocol.clone()
}

fn check_port_name(name: &str, seen: &mut BTreeSet<String>, path: &FieldPath, report: &mut Report<'_>) {
    if let Err(message) = names::label(name) {
        report.error(path, message);
    } else if !seen.insert(name.to_owned()) {
        report.error(path, format!("the name {name} is there twice"));
    }
}
