//! Service, EndpointSlice, Secret, ConfigMap, Namespace, ReferenceGrant.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    ConfigMap as ApiConfigMap, LoadBalancerIngress, Namespace as ApiNamespace, Secret as ApiSecret,
    Service as ApiService, ServicePort as ApiServicePort, ServiceSpec,
};
use k8s_openapi::api::discovery::v1::{Endpoint as ApiEndpoint, EndpointSlice as ApiSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{optional, shared};
use crate::api::ReferenceGrant as ApiGrant;
use crate::provision::managed::Managed;
use crate::provision::slices::{KUBERNETES_MANAGER, MANAGED_BY_LABEL, SERVICE_LABEL};
use crate::snapshot::Transport;
use crate::store::objects::{
    ConfigMap, Endpoint, EndpointSlice, GrantFrom, GrantTo, Namespace, PROXY_PROTOCOL_ANNOTATION,
    ReferenceGrant, Secret, Service, ServiceIngress, ServicePort, ServiceType, SlicePort,
};

/// Absent means TCP, in Services and slices alike.
fn transport(protocol: Option<&str>) -> Option<Transport> {
    match protocol {
        None | Some("TCP") => Some(Transport::Tcp),
        Some("UDP") => Some(Transport::Udp),
        Some(_) => None,
    }
}

pub(in crate::store) fn service(service: &ApiService) -> Service {
    let spec = service.spec.as_ref();
    let ports = spec.and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let ingress =
        service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_deref());
    Service {
        kind: match spec.and_then(|spec| spec.type_.as_deref()) {
            Some("ExternalName") => ServiceType::ExternalName,
            Some("LoadBalancer") => ServiceType::LoadBalancer,
            Some("NodePort") => ServiceType::NodePort,
            _ => ServiceType::ClusterIp,
        },
        managed: Managed::service(service).map(Arc::new),
        cluster_addresses: spec.map(cluster_addresses).unwrap_or_default(),
        ingress: ingress.unwrap_or_default().iter().filter_map(service_ingress).collect(),
        ports: ports.iter().filter_map(service_port).collect(),
        proxy_protocol: service
            .metadata
            .annotations
            .as_ref()
            .and_then(|annotations| optional(annotations.get(PROXY_PROTOCOL_ANNOTATION))),
    }
}

fn cluster_addresses(spec: &ServiceSpec) -> Vec<IpAddr> {
    // `clusterIPs` repeats `clusterIP`; a headless Service says `None` in both.
    let all = spec.cluster_ips.iter().flatten();
    let mut addresses: Vec<IpAddr> = all.filter_map(|address| address.parse().ok()).collect();
    if addresses.is_empty() {
        addresses.extend(spec.cluster_ip.iter().filter_map(|address| address.parse::<IpAddr>().ok()));
    }
    addresses
}

fn service_ingress(ingress: &LoadBalancerIngress) -> Option<ServiceIngress> {
    let address = ingress.ip.as_ref().and_then(|address| address.parse().ok());
    address
        .map(ServiceIngress::Address)
        .or_else(|| Some(ServiceIngress::Hostname(shared(ingress.hostname.as_ref()?))))
}

fn service_port(port: &ApiServicePort) -> Option<ServicePort> {
    let target = match &port.target_port {
        Some(IntOrString::Int(target)) => Some(*target),
        Some(IntOrString::String(_)) | None => None,
    };
    Some(ServicePort {
        name: shared(port.name.as_deref().unwrap_or_default()),
        port: u16::try_from(port.port).ok()?,
        target_port: super::port(target),
        node_port: super::port(port.node_port),
        transport: transport(port.protocol.as_deref()),
        app_protocol: optional(port.app_protocol.as_ref()),
    })
}

pub(in crate::store) fn endpoint_slice(slice: &ApiSlice) -> EndpointSlice {
    let label = |key: &str| slice.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    EndpointSlice {
        service: optional(label(SERVICE_LABEL)),
        managed: Managed::slice(slice).map(Arc::new),
        is_of_selector: label(MANAGED_BY_LABEL).is_some_and(|manager| manager == KUBERNETES_MANAGER),
        ports: slice
            .ports
            .iter()
            .flatten()
            .filter_map(|port| {
                // Without a number the consumer would have to know the port from elsewhere; a route does not.
                Some(SlicePort {
                    name: shared(port.name.as_deref().unwrap_or_default()),
                    port: u16::try_from(port.port?).ok()?,
                    transport: transport(port.protocol.as_deref()),
                })
            })
            .collect(),
        endpoints: slice.endpoints.iter().flatten().filter_map(endpoint).collect(),
    }
}

/// `None`: an endpoint of address type FQDN, which is deprecated and has nothing to connect to.
fn endpoint(endpoint: &ApiEndpoint) -> Option<Endpoint> {
    let address: IpAddr = endpoint.addresses.first()?.parse().ok()?;
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    // O41: an absent `ready` is true, an absent `serving` follows `ready`, an absent `terminating` is false.
    let ready = conditions.ready.unwrap_or(true);
    Some(Endpoint {
        address,
        node: optional(endpoint.node_name.as_ref()),
        ready,
        serving: conditions.serving.unwrap_or(ready),
        terminating: conditions.terminating.unwrap_or(false),
    })
}

pub(in crate::store) fn secret(secret: &ApiSecret) -> Secret {
    let data = secret.data.iter().flatten().map(|(key, value)| (shared(key), Arc::from(value.0.as_slice())));
    // As in the API server, `stringData` replaces what `data` says.
    let strings =
        secret.string_data.iter().flatten().map(|(key, value)| (shared(key), Arc::from(value.as_bytes())));
    Secret { kind: shared(secret.type_.as_deref().unwrap_or("Opaque")), data: data.chain(strings).collect() }
}

pub(in crate::store) fn config_map(map: &ApiConfigMap) -> ConfigMap {
    ConfigMap { data: map.data.iter().flatten().map(|(key, value)| (shared(key), shared(value))).collect() }
}

pub(in crate::store) fn namespace(namespace: &ApiNamespace) -> Namespace {
    let labels = namespace.metadata.labels.iter().flatten();
    Namespace { labels: labels.map(|(key, value)| (shared(key), shared(value))).collect() }
}

pub(in crate::store) fn reference_grant(grant: &ApiGrant) -> ReferenceGrant {
    let from = grant.spec.from.iter().map(|from| GrantFrom {
        group: shared(&from.group),
        kind: shared(&from.kind),
        namespace: shared(&from.namespace),
    });
    let to = grant.spec.to.iter().map(|to| GrantTo {
        group: shared(&to.group),
        kind: shared(&to.kind),
        // Unspecified or empty: all resources of the kind (`ReferenceGrantTo.name`).
        name: optional(to.name.as_ref()).filter(|name| !name.is_empty()),
    });
    ReferenceGrant { from: from.collect(), to: to.collect() }
}
