//! Gateways: which are ours, on which addresses, with which parameters.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use super::Config;
use super::conditions::Problem;
use super::inputs::Inputs;
use crate::snapshot::{ListenerKey, ObjectName, Transport};
use crate::status::names::reason;
use crate::store::objects::{AddressKind, Gateway, GatewayTls, ListenerSetFilter};

/// `status.addresses` holds at most this many (`GatewayStatus.addresses`).
const MAX_STATUS_ADDRESSES: usize = 16;

/// Keys of the ConfigMap that `spec.infrastructure.parametersRef` names.
const PARAMETERS: [&str; 0] = [];

/// A Gateway of ours and what is to be said of it apart from its listeners.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GatewayPlan {
    pub(super) gateway: Arc<Gateway>,
    /// Accepted=False: nothing of it is served.
    pub(super) problem: Option<Problem>,
    /// Programmed=False although it is accepted.
    pub(super) unusable: Option<Problem>,
    /// Where its listeners are; `None` stands for every address of the network namespace.
    pub(super) bindings: Vec<Option<IpAddr>>,
    pub(super) addresses: Vec<IpAddr>,
    /// Said in the message of Accepted.
    pub(super) note: String,
}

impl GatewayPlan {
    pub(super) fn name(&self) -> &ObjectName {
        &self.gateway.meta.name
    }

    /// Where a listener on `port` is served; empty where it cannot be.
    pub(super) fn keys(&self, transport: Transport, port: NonZeroU16) -> Vec<ListenerKey> {
        self.bindings.iter().map(|address| ListenerKey { transport, address: *address, port }).collect()
    }
}

/// The Gateways of our classes, the oldest first.
pub(super) fn plan(inputs: &Inputs<'_>, config: &Config) -> Vec<GatewayPlan> {
    let gateways = inputs.store().gateways().values().map(|entry| &entry.object);
    let mut gateways: Vec<&Arc<Gateway>> = gateways.filter(|gateway| config.owns(gateway)).collect();
    gateways.sort_by_key(|gateway| gateway.meta.seniority());
    gateways.into_iter().map(|gateway| plan_one(gateway, inputs, config)).collect()
}

fn plan_one(gateway: &Arc<Gateway>, inputs: &Inputs<'_>, config: &Config) -> GatewayPlan {
    let addresses = Addresses::of(gateway, config);
    let problem = parameters_problem(gateway, inputs).or(addresses.unsupported);
    let mut listed = if addresses.bindings.contains(&None) {
        config.local_addresses.clone()
    } else {
        addresses.bindings.iter().copied().flatten().collect()
    };
    let mut notes = Vec::new();
    if listed.len() > MAX_STATUS_ADDRESSES {
        notes.push(format!("status lists the first {MAX_STATUS_ADDRESSES} of {} addresses", listed.len()));
        listed.truncate(MAX_STATUS_ADDRESSES);
    }
    let ignored = ignored(gateway);
    if !ignored.is_empty() {
        notes.push(format!("without effect in this version: {}", ignored.join(", ")));
    }
    let serves = problem.is_none();
    GatewayPlan {
        gateway: gateway.clone(),
        problem,
        unusable: addresses.unusable,
        bindings: if serves { addresses.bindings } else { Vec::new() },
        addresses: if serves { listed } else { Vec::new() },
        note: notes.join("; "),
    }
}

/// Fields that are set and have no effect yet.
fn ignored(gateway: &Gateway) -> Vec<&'static str> {
    let mut ignored = Vec::new();
    if gateway.allowed_listeners != ListenerSetFilter::None {
        ignored.push("spec.allowedListeners");
    }
    if !gateway.infrastructure.labels.is_empty() {
        ignored.push("spec.infrastructure.labels");
    }
    if !gateway.infrastructure.annotations.is_empty() {
        ignored.push("spec.infrastructure.annotations");
    }
    if gateway.tls != GatewayTls::default() {
        ignored.push("spec.tls");
    }
    ignored
}

fn parameters_problem(gateway: &Gateway, inputs: &Inputs<'_>) -> Option<Problem> {
    let parameters = gateway.infrastructure.parameters.as_ref()?;
    let invalid = |message: String| Some(Problem::new(reason::INVALID_PARAMETERS, message));
    if !(parameters.group.is_empty() && &*parameters.kind == "ConfigMap") {
        return invalid(format!(
            "infrastructure.parametersRef names a {} of group {:?}; only a core ConfigMap is supported",
            parameters.kind, parameters.group
        ));
    }
    let namespace = gateway.meta.name.namespace.clone();
    let name = ObjectName { namespace, name: parameters.name.clone() };
    let Some(map) = inputs.config_map(&name) else {
        return invalid(format!("infrastructure.parametersRef: ConfigMap {name} does not exist"));
    };
    let unknown = map.data.keys().find(|key| !PARAMETERS.contains(&&***key))?;
    invalid(format!("ConfigMap {name}: unknown key {unknown}"))
}

/// What `spec.addresses` comes to.
#[derive(Debug, Default)]
struct Addresses {
    bindings: Vec<Option<IpAddr>>,
    unsupported: Option<Problem>,
    unusable: Option<Problem>,
}

impl Addresses {
    fn of(gateway: &Gateway, config: &Config) -> Self {
        let mut found = Self::default();
        if gateway.addresses.is_empty() {
            found.add_default(config);
            return found;
        }
        let mut not_usable = Vec::new();
        for address in &gateway.addresses {
            let value = match (&address.kind, &address.value) {
                (AddressKind::Other(kind), _) => {
                    found.unsupported.get_or_insert_with(|| {
                        let message = format!("addresses of type {kind} are not supported; use IPAddress");
                        Problem::new(reason::UNSUPPORTED_ADDRESS, message)
                    });
                    continue;
                }
                (AddressKind::Ip, None) => {
                    found.add_default(config);
                    continue;
                }
                (AddressKind::Ip, Some(value)) => value,
            };
            match value.parse::<IpAddr>().ok().filter(|address| is_usable(*address, config)) {
                Some(address) => found.add(Some(address)),
                None => not_usable.push(value.to_string()),
            }
        }
        if !not_usable.is_empty() {
            let message = format!(
                "not an address of this agent: {}; it has {}",
                not_usable.join(", "),
                list(if config.addresses.is_empty() { &config.local_addresses } else { &config.addresses })
            );
            found.unusable = Some(Problem::new(reason::ADDRESS_NOT_USABLE, message));
        }
        found
    }

    fn add(&mut self, binding: Option<IpAddr>) {
        if !self.bindings.contains(&binding) {
            self.bindings.push(binding);
        }
    }

    fn add_default(&mut self, config: &Config) {
        if config.addresses.is_empty() {
            self.add(None);
        }
        for address in &config.addresses {
            self.add(Some(*address));
        }
    }
}

/// One of `--address`, else any address of the network namespace.
fn is_usable(address: IpAddr, config: &Config) -> bool {
    if config.addresses.is_empty() {
        address.is_loopback() || config.local_addresses.contains(&address)
    } else {
        config.addresses.contains(&address)
    }
}

fn list(addresses: &[IpAddr]) -> String {
    let shown: Vec<String> =
        addresses.iter().take(MAX_STATUS_ADDRESSES).map(|address| address.to_string()).collect();
    if shown.is_empty() { "none beside loopback".into() } else { shown.join(", ") }
}
