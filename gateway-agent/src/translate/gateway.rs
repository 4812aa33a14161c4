//! Gateways: which are ours, on which addresses, with which parameters.

use std::net::IpAddr;

use super::Config;
use super::conditions::Problem;
use crate::snapshot::ObjectName;
use crate::status::names::reason;
use crate::store::Store;
use crate::store::objects::{AddressKind, Gateway};

/// `status.addresses` holds at most this many (`GatewayStatus.addresses`).
const MAX_STATUS_ADDRESSES: usize = 16;

/// Keys of the ConfigMap that `spec.infrastructure.parametersRef` names.
const PARAMETERS: [&str; 0] = [];

/// A Gateway of ours and what is to be said of it apart from its listeners.
#[derive(Debug)]
pub(super) struct GatewayPlan<'a> {
    pub(super) gateway: &'a Gateway,
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

impl GatewayPlan<'_> {
    pub(super) const fn name(&self) -> &ObjectName {
        &self.gateway.meta.name
    }
}

/// The Gateways of our classes, the oldest first.
pub(super) fn plan<'a>(store: &'a Store, config: &Config) -> Vec<GatewayPlan<'a>> {
    let ours = |gateway: &&Gateway| config.gateway_class_names.iter().any(|class| **class == *gateway.class);
    let mut gateways: Vec<&Gateway> =
        store.gateways().values().map(|entry| &*entry.object).filter(ours).collect();
    gateways.sort_by_key(|gateway| gateway.meta.seniority());
    gateways.into_iter().map(|gateway| plan_one(gateway, store, config)).collect()
}

fn plan_one<'a>(gateway: &'a Gateway, store: &Store, config: &Config) -> GatewayPlan<'a> {
    let addresses = Addresses::of(gateway, config);
    let problem = parameters_problem(gateway, store).or(addresses.unsupported);
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
    if !gateway.ignored.is_empty() {
        notes.push(format!("without effect in this version: {}", gateway.ignored.join(", ")));
    }
    let serves = problem.is_none();
    GatewayPlan {
        gateway,
        problem,
        unusable: addresses.unusable,
        bindings: if serves { addresses.bindings } else { Vec::new() },
        addresses: if serves { listed } else { Vec::new() },
        note: notes.join("; "),
    }
}

fn parameters_problem(gateway: &Gateway, store: &Store) -> Option<Problem> {
    let parameters = gateway.parameters.as_ref()?;
    let invalid = |message: String| Some(Problem::new(reason::INVALID_PARAMETERS, message));
    if !(parameters.group.is_empty() && &*parameters.kind == "ConfigMap") {
        return invalid(format!(
            "infrastructure.parametersRef names a {} of group {:?}; only a core ConfigMap is supported",
            parameters.kind, parameters.group
        ));
    }
    let namespace = gateway.meta.name.namespace.clone();
    let name = ObjectName { namespace, name: parameters.name.clone() };
    let Some(map) = store.config_map(&name) else {
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
