//! What translation depends on beside the objects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::addresses::Missing;
use crate::certificate::Authorities;
use crate::provision::AddressProvider;
use crate::snapshot::ObjectName;
use crate::store::objects::Gateway;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub gateway_class_names: Vec<String>,
    pub controller_name: String,
    pub watched: Watched,
    /// `--local-endpoints`: only endpoints of the agent's own pod are used.
    pub local_endpoints: bool,
    /// `--gateway`: the only Gateway that is served.
    pub gateway: Option<ObjectName>,
    /// Of `gateway_class_names`, those whose GatewayClass names another controller: their Gateways are left alone.
    pub foreign_classes: BTreeSet<String>,
    /// `--address`; empty: every address of the network namespace.
    pub addresses: Vec<IpAddr>,
    /// Addresses that the network namespace has now, loopback excluded, sorted.
    pub local_addresses: Vec<IpAddr>,
    /// Who gives Gateways their addresses.
    pub provider: AddressProvider,
    /// Addresses of the pool that do not arrive here.
    pub undelivered: Arc<Missing>,
    /// By Gateway, what keeps its Service from being written.
    pub provision_problems: Arc<BTreeMap<ObjectName, String>>,
    /// Where the agent itself runs; empty without a cluster.
    pub own_pod: PodIdentity,
    /// Of `wellKnownCACertificates: System`; absent where the machine has none.
    pub system_authorities: Option<Arc<Authorities>>,
    /// TCP port of the admin server, which no listener can have.
    pub admin_port: u16,
    /// Ports that the TC path draws from.
    pub source_ports: RangeInclusive<u16>,
}

/// The pod that the agent runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodIdentity {
    pub namespace: Arc<str>,
    pub ips: Vec<IpAddr>,
    pub node: Option<Arc<str>>,
    /// `--agent-service`: a headless Service over the agent's pods, in their namespace. Its EndpointSlices tell the
    /// addresses of the replicas.
    pub service: Arc<str>,
}

impl PodIdentity {
    /// The Service over the replicas; `None` without a cluster.
    pub fn replicas(&self) -> Option<ObjectName> {
        let is_in_cluster = !self.namespace.is_empty() && !self.service.is_empty();
        is_in_cluster.then(|| ObjectName::new(self.namespace.clone(), self.service.clone()))
    }
}

/// Where objects are read. What is elsewhere cannot be seen, and a reference to it is not permitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Watched {
    #[default]
    All,
    Namespaces(BTreeSet<Arc<str>>),
}

impl Default for Config {
    /// As without any flag, on a machine without addresses.
    fn default() -> Self {
        Self {
            gateway_class_names: vec!["gateway-agent".into()],
            controller_name: "gateway-agent.dev/agent".into(),
            watched: Watched::All,
            local_endpoints: false,
            gateway: None,
            foreign_classes: BTreeSet::new(),
            addresses: Vec::new(),
            local_addresses: Vec::new(),
            provider: AddressProvider::Host,
            undelivered: Arc::default(),
            provision_problems: Arc::default(),
            own_pod: PodIdentity::default(),
            system_authorities: None,
            admin_port: 9901,
            source_ports: 10_000..=29_999,
        }
    }
}

impl Config {
    /// Whether this agent serves the Gateway and owns its status.
    pub fn owns(&self, gateway: &Gateway) -> bool {
        let name = &gateway.meta.name;
        self.gateway_class_names.iter().any(|class| **class == *gateway.class)
            && !self.foreign_classes.contains(&*gateway.class)
            && self.watched.contains(&name.namespace)
            && self.gateway.as_ref().is_none_or(|only| only == name)
    }
}

impl Watched {
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(namespaces) => namespaces.contains(namespace),
        }
    }
}
