//! EndpointSlices that lead a Service without a selector to the agent's pods in another namespace.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use serde_json::{Value, json};

use super::managed::{Owner, metadata, seal};
use super::service::{gateway_labels, port_name, protocol};
use super::targets::PortKey;
use super::{Manifest, ManifestKind};
use crate::snapshot::ObjectName;

/// Tells Kubernetes' own controllers that these are not theirs.
pub const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
pub const MANAGER: &str = "agent.gateway-agent.dev";
/// Who makes the slices of Services with a selector; they stay behind when the Service loses it.
pub const KUBERNETES_MANAGER: &str = "endpointslice-controller.k8s.io";
pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Per slice, as Kubernetes' own controller does: an update sends a whole slice to every node.
const ENDPOINTS_MAX: usize = 100;
/// Per slice (`discovery/v1`, EndpointSlice.ports). Gateways of more listeners have several slices per family.
const PORTS_MAX: usize = 100;

/// A pod of the agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentEndpoint {
    pub address: IpAddr,
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
    /// Which `externalTrafficPolicy: Local` needs.
    pub node: Option<Arc<str>>,
}

/// In order of their names. `endpoints` are sorted, so that equal sets give equal slices.
pub fn manifests(
    service: &ObjectName,
    owner: &Owner<'_>,
    ports: &BTreeMap<PortKey, NonZeroU16>,
    endpoints: &[AgentEndpoint],
) -> Vec<Manifest> {
    let ports: Vec<(&PortKey, &NonZeroU16)> = ports.iter().collect();
    let mut manifests = Vec::new();
    for (family, is_v4) in [("IPv4", true), ("IPv6", false)] {
        let mut of_family: Vec<&AgentEndpoint> =
            endpoints.iter().filter(|endpoint| endpoint.address.is_ipv4() == is_v4).collect();
        of_family.sort_unstable();
        of_family.dedup_by_key(|endpoint| endpoint.address);
        let mut index = 0;
        for endpoints in of_family.chunks(ENDPOINTS_MAX) {
            for ports in ports.chunks(PORTS_MAX) {
                let name = format!("{}-{}-{index}", service.name, family.to_ascii_lowercase());
                let name = ObjectName::new(service.namespace.clone(), name);
                manifests.push(manifest(name, service, owner, family, ports, endpoints));
                index += 1;
            }
        }
    }
    manifests
}

fn manifest(
    name: ObjectName,
    service: &ObjectName,
    owner: &Owner<'_>,
    family: &str,
    ports: &[(&PortKey, &NonZeroU16)],
    endpoints: &[&AgentEndpoint],
) -> Manifest {
    let labels = gateway_labels(owner)
        .into_iter()
        .chain([(MANAGED_BY_LABEL, MANAGER.to_owned()), (SERVICE_LABEL, service.name.to_string())]);
    let mut metadata = metadata(owner, labels, []);
    metadata["name"] = (*name.name).into();
    metadata["namespace"] = (*name.namespace).into();
    let ports: Vec<Value> = ports
        .iter()
        .map(|(key, target)| {
            json!({"name": port_name(**key), "port": target.get(), "protocol": protocol(key.0)})
        })
        .collect();
    let endpoints: Vec<Value> = endpoints.iter().map(|endpoint| endpoint_value(endpoint)).collect();
    let body = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": family,
        "endpoints": endpoints,
        "ports": ports,
    });
    Manifest { kind: ManifestKind::EndpointSlice, name, body: seal(body) }
}

fn endpoint_value(endpoint: &AgentEndpoint) -> Value {
    let AgentEndpoint { address, ready, serving, terminating, node } = endpoint;
    let mut value = json!({
        "addresses": [address.to_string()],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
    });
    if let Some(node) = node {
        value["nodeName"] = (**node).into();
    }
    value
}
