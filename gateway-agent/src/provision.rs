//! What a Gateway needs beside its routes: addresses of its own, and the objects that carry them.
//!
//! Plans only: names and labels ([`names`]), ports of the agent's pods ([`targets`]), Services and EndpointSlices
//! ([`service`], [`slices`], [`managed`]), addresses of a pool ([`pool`], [`range`]). [`crate::translate`] asks for
//! them and `cluster::provision` writes what is wanted.
//!
//! **Invariant:** no I/O, no clock, no randomness: every replica comes to the same plan from the same objects, and only
//! what is read back from the API is served.

pub mod managed;
pub mod names;
pub mod pool;
pub mod range;
pub mod service;
pub mod slices;
pub mod targets;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::Value;

pub use range::IpRange;

use crate::snapshot::ObjectName;

/// Where the targetPorts of Services are from by default: above the kernel's ephemeral ports (32768-60999), NodePorts
/// (30000-32767) and `--source-ports` (10000-29999), and away from the well-known ports of what else runs in a pod.
/// 4,536 listeners per transport are more than one agent's memory budget has room for.
pub const TARGET_PORTS: RangeInclusive<u16> = 61_000..=65_535;

/// Who gives Gateways their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AddressProvider {
    /// The network namespace has them.
    #[default]
    Host,
    /// One Service for each Gateway.
    Service(ServiceDefaults),
    Pool(Pool),
}

impl AddressProvider {
    /// As on the command line.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Service(_) => "service",
            Self::Pool(_) => "pool",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceDefaults {
    /// `--target-ports`: where new targetPorts are taken from.
    pub target_ports: RangeInclusive<u16>,
    /// `--pod-selector`: the labels of the agent's pods, for Services in their own namespace.
    pub pod_selector: BTreeMap<Arc<str>, Arc<str>>,
    /// `--address-pool`: what a load balancer can be asked for. Empty: anything, the load balancer decides.
    pub askable: Vec<IpRange>,
    /// The addresses of this pod's node, for Services of type NodePort.
    pub node_addresses: Vec<IpAddr>,
}

impl Default for ServiceDefaults {
    fn default() -> Self {
        let pod_selector = BTreeMap::from([
            ("app.kubernetes.io/component".into(), "agent".into()),
            ("app.kubernetes.io/name".into(), "gateway-agent".into()),
        ]);
        Self { target_ports: TARGET_PORTS, pod_selector, askable: Vec::new(), node_addresses: Vec::new() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// `--address-pool`.
    pub ranges: Vec<IpRange>,
    /// An assignment counts once the Gateway's status has it. False without an API to record it in.
    pub is_recorded: bool,
}

/// One write that is wanted of the leader of `class` in the object's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub class: Arc<str>,
    /// Whom it is for.
    pub gateway: ObjectName,
    pub change: Change,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// There is none of this name.
    Create(Manifest),
    /// The stored one, of this UID, is ours and differs.
    Apply {
        manifest: Manifest,
        uid: Arc<str>,
    },
    Delete {
        kind: ManifestKind,
        name: ObjectName,
        uid: Option<Arc<str>>,
    },
}

impl Change {
    pub const fn kind(&self) -> ManifestKind {
        match self {
            Self::Create(manifest) | Self::Apply { manifest, .. } => manifest.kind,
            Self::Delete { kind, .. } => *kind,
        }
    }

    pub const fn name(&self) -> &ObjectName {
        match self {
            Self::Create(manifest) | Self::Apply { manifest, .. } => &manifest.name,
            Self::Delete { name, .. } => name,
        }
    }

    /// The label in metrics and logs.
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Apply { .. } => "apply",
            Self::Delete { .. } => "delete",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ManifestKind {
    EndpointSlice,
    Service,
}

impl ManifestKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EndpointSlice => "EndpointSlice",
            Self::Service => "Service",
        }
    }
}

/// An object as it is to be applied: all the fields that are ours, and no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub kind: ManifestKind,
    pub name: ObjectName,
    pub body: Value,
}
