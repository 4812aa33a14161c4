//! The Service that carries a Gateway's addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use serde_json::{Value, json};

use super::managed::{Owner, metadata, seal};
use super::names::{CLASS_NAME_LABEL, GATEWAY_NAME_LABEL, label_value};
use super::targets::PortKey;
use super::{Manifest, ManifestKind};
use crate::snapshot::{ObjectName, Transport};
use crate::store::objects::ServiceType;

/// As the API has it.
pub const fn type_name(kind: ServiceType) -> &'static str {
    match kind {
        ServiceType::ClusterIp => "ClusterIP",
        ServiceType::ExternalName => "ExternalName",
        ServiceType::LoadBalancer => "LoadBalancer",
        ServiceType::NodePort => "NodePort",
    }
}

/// What parameters say of the Service. Values that they can have are checked where they are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceSettings {
    pub kind: ServiceType,
    pub is_traffic_local: bool,
    pub load_balancer_class: Option<Arc<str>>,
    pub source_ranges: Vec<Arc<str>>,
    /// `None`: PreferDualStack.
    pub ip_family_policy: Option<&'static str>,
    /// Empty: as the cluster has it.
    pub ip_families: Vec<&'static str>,
    pub without_node_ports: bool,
    pub has_client_affinity: bool,
    pub annotations: BTreeMap<Arc<str>, Arc<str>>,
    /// What is published for type NodePort; empty: the addresses of the leader's node.
    pub node_addresses: Vec<IpAddr>,
}

/// All that a Service is made of.
#[derive(Clone, Copy, Debug)]
pub struct ServicePlan<'a> {
    pub name: &'a ObjectName,
    pub owner: Owner<'a>,
    pub settings: &'a ServiceSettings,
    /// Not empty.
    pub ports: &'a BTreeMap<PortKey, NonZeroU16>,
    /// `None`: the pods are in another namespace, EndpointSlices of ours lead to them.
    pub selector: Option<&'a BTreeMap<Arc<str>, Arc<str>>>,
    /// The address that the load balancer is asked for.
    pub asked: Option<IpAddr>,
}

pub fn manifest(plan: &ServicePlan<'_>) -> Manifest {
    let annotations = plan.settings.annotations.iter().map(|(key, value)| (&**key, &**value));
    let mut metadata = metadata(&plan.owner, gateway_labels(&plan.owner), annotations);
    metadata["name"] = (*plan.name.name).into();
    metadata["namespace"] = (*plan.name.namespace).into();
    let body = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec(plan)});
    Manifest { kind: ManifestKind::Service, name: plan.name.clone(), body: seal(body) }
}

pub(super) fn gateway_labels(owner: &Owner<'_>) -> [(&'static str, String); 2] {
    [
        (GATEWAY_NAME_LABEL, label_value(&owner.marker.gateway)),
        (CLASS_NAME_LABEL, label_value(&owner.marker.class)),
    ]
}

fn spec(plan: &ServicePlan<'_>) -> Value {
    let settings = plan.settings;
    let ports: Vec<Value> = plan
        .ports
        .iter()
        .map(|(key, target)| {
            json!({
                "name": port_name(*key),
                "protocol": protocol(key.0),
                "port": key.1.get(),
                "targetPort": target.get(),
            })
        })
        .collect();
    let mut spec = json!({
        "type": type_name(settings.kind),
        "ports": ports,
        "ipFamilyPolicy": settings.ip_family_policy.unwrap_or("PreferDualStack"),
        "sessionAffinity": if settings.has_client_affinity { "ClientIP" } else { "None" },
    });
    if let Some(selector) = plan.selector {
        spec["selector"] =
            selector.iter().map(|(key, value)| (key.to_string(), Value::from(&**value))).collect();
    }
    if !settings.ip_families.is_empty() {
        spec["ipFamilies"] = settings.ip_families.clone().into();
    }
    // The API refuses them with the types that they say nothing of.
    if settings.kind != ServiceType::ClusterIp {
        spec["externalTrafficPolicy"] = if settings.is_traffic_local { "Local" } else { "Cluster" }.into();
    }
    if settings.kind == ServiceType::LoadBalancer {
        if let Some(class) = &settings.load_balancer_class {
            spec["loadBalancerClass"] = (**class).into();
        }
        if !settings.source_ranges.is_empty() {
            let ranges: Vec<Value> =
                settings.source_ranges.iter().map(|range| Value::from(&**range)).collect();
            spec["loadBalancerSourceRanges"] = ranges.into();
        }
        if settings.without_node_ports {
            spec["allocateLoadBalancerNodePorts"] = false.into();
        }
        if let Some(address) = plan.asked {
            spec["loadBalancerIP"] = address.to_string().into();
        }
    }
    spec
}

/// Ports of one Service have names of their own; EndpointSlices refer to them.
pub(super) fn port_name((transport, port): PortKey) -> String {
    format!("{}-{port}", transport.as_str())
}

pub(super) const fn protocol(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "TCP",
        Transport::Udp => "UDP",
    }
}
