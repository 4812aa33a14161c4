//! Gateways: which are ours, on which addresses, with which parameters.

mod host;
mod pool;
mod service;

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

pub(super) use self::service::{ServicePlace, allocator};
use super::Config;
use super::conditions::Problem;
use super::inputs::Inputs;
use super::parameters::{self, Parameters, Serving};
use crate::provision::AddressProvider;
use crate::provision::service::ServiceSettings;
use crate::snapshot::{ListenerKey, ObjectName, Provenance, Transport};
use crate::status::Address;
use crate::status::names::reason;
use crate::store::objects::{AddressKind, Gateway};

/// `status.addresses` holds at most this many (`GatewayStatus.addresses`).
const MAX_STATUS_ADDRESSES: usize = 16;

/// A Gateway of ours and what is to be said of it apart from its listeners.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GatewayPlan {
    pub(super) gateway: Arc<Gateway>,
    pub(super) settings: ServiceSettings,
    pub(super) serving: Serving,
    pub(super) provenance: Arc<Provenance>,
    /// Accepted=False: nothing of it is served.
    pub(super) problem: Option<Problem>,
    /// Programmed=False although it is accepted.
    pub(super) unusable: Option<Problem>,
    /// Where its listeners are; `None` stands for every address of the network namespace.
    pub(super) bindings: Vec<Option<IpAddr>>,
    /// What leads to the listeners, where that is a Service.
    pub(super) service: Option<ServicePlace>,
    pub(super) addresses: Vec<Address>,
    /// Said in the message of Accepted.
    notes: Vec<String>,
}

impl GatewayPlan {
    fn new(gateway: &Arc<Gateway>, inputs: &Inputs<'_>, config: &Config) -> Self {
        let (Parameters { service: settings, serving, provenance }, problem) =
            match parameters::read(gateway, inputs, &config.provider) {
                Ok(parameters) => (parameters, None),
                Err(problem) => (Parameters::default(), Some(problem)),
            };
        let ignored = ignored(gateway, &config.provider);
        let mut notes = Vec::new();
        if !ignored.is_empty() {
            notes.push(format!("without effect in this version: {}", ignored.join(", ")));
        }
        Self {
            gateway: gateway.clone(),
            settings,
            serving,
            provenance: Arc::new(provenance),
            problem,
            unusable: None,
            bindings: Vec::new(),
            service: None,
            addresses: Vec::new(),
            notes,
        }
    }

    pub(super) fn name(&self) -> &ObjectName {
        &self.gateway.meta.name
    }

    pub(super) fn note(&self) -> String {
        self.notes.join("; ")
    }

    /// Where a listener on `port` is served; empty where it cannot be.
    pub(super) fn keys(&self, transport: Transport, port: NonZeroU16) -> Vec<ListenerKey> {
        let port = match &self.service {
            None => Some(port),
            Some(place) => place.target((transport, port)),
        };
        let Some(port) = port else {
            return Vec::new();
        };
        self.bindings.iter().map(|address| ListenerKey { transport, address: *address, port }).collect()
    }

    /// Why a listener has no keys although its Gateway is accepted and has addresses.
    pub(super) fn waiting(&self, transport: Transport, port: NonZeroU16) -> Option<Problem> {
        self.service.as_ref().filter(|_| self.problem.is_none())?.waiting((transport, port))
    }

    /// Takes what `spec.addresses` asks for that no provider can give.
    fn refuse(&mut self, asked: &Asked) {
        if self.problem.is_none() {
            self.problem.clone_from(&asked.unsupported);
        }
    }

    fn finish(&mut self) {
        if self.problem.is_some() {
            self.bindings.clear();
            self.addresses.clear();
        }
        if self.addresses.len() > MAX_STATUS_ADDRESSES {
            let n = self.addresses.len();
            self.notes.insert(0, format!("status lists the first {MAX_STATUS_ADDRESSES} of {n} addresses"));
            self.addresses.truncate(MAX_STATUS_ADDRESSES);
        }
    }
}

/// The Gateways of our classes, the oldest first.
pub(super) fn plan(inputs: &Inputs<'_>, config: &Config) -> Vec<GatewayPlan> {
    let gateways = inputs.store().gateways().values().map(|entry| &entry.object);
    let mut gateways: Vec<&Arc<Gateway>> = gateways.filter(|gateway| config.owns(gateway)).collect();
    gateways.sort_by_key(|gateway| gateway.meta.seniority());
    let mut plans: Vec<GatewayPlan> =
        gateways.into_iter().map(|gateway| GatewayPlan::new(gateway, inputs, config)).collect();
    match &config.provider {
        AddressProvider::Host => plans.iter_mut().for_each(|plan| host::place(plan, inputs, config)),
        AddressProvider::Service(defaults) => service::place(&mut plans, inputs, config, defaults),
        AddressProvider::Pool(pool) => pool::place(&mut plans, config, pool),
    }
    plans.iter_mut().for_each(GatewayPlan::finish);
    plans
}

/// Fields that are set and have no effect yet.
fn ignored(gateway: &Gateway, provider: &AddressProvider) -> Vec<&'static str> {
    let mut ignored = Vec::new();
    // They are for objects that are made for the Gateway.
    if !matches!(provider, AddressProvider::Service(_)) {
        if !gateway.infrastructure.labels.is_empty() {
            ignored.push("spec.infrastructure.labels");
        }
        if !gateway.infrastructure.annotations.is_empty() {
            ignored.push("spec.infrastructure.annotations");
        }
    }
    ignored
}

/// What `spec.addresses` says.
#[derive(Debug, Default)]
struct Asked {
    /// These, each once.
    fixed: Vec<IpAddr>,
    /// Any: nothing is said, or a type without a value.
    any: bool,
    /// Values that are no addresses.
    malformed: Vec<String>,
    unsupported: Option<Problem>,
}

impl Asked {
    fn of(gateway: &Gateway) -> Self {
        let mut asked = Self { any: gateway.addresses.is_empty(), ..Self::default() };
        for address in &gateway.addresses {
            match (&address.kind, &address.value) {
                (AddressKind::Other(kind), _) => {
                    asked.unsupported.get_or_insert_with(|| {
                        let message = format!("addresses of type {kind} are not supported; use IPAddress");
                        Problem::new(reason::UNSUPPORTED_ADDRESS, message)
                    });
                }
                (AddressKind::Ip, None) => asked.any = true,
                (AddressKind::Ip, Some(value)) => match value.parse::<IpAddr>() {
                    Ok(address) if asked.fixed.contains(&address) => {}
                    Ok(address) => asked.fixed.push(address),
                    Err(_) => asked.malformed.push(value.to_string()),
                },
            }
        }
        asked
    }

    /// Keeps of the fixed ones those that are usable. The problem with the others: `what` they are not.
    fn usable(
        &mut self,
        is_usable: impl Fn(IpAddr) -> bool,
        what: impl FnOnce() -> String,
    ) -> Option<Problem> {
        let mut bad = std::mem::take(&mut self.malformed);
        self.fixed.retain(|address| {
            let usable = is_usable(*address);
            if !usable {
                bad.push(address.to_string());
            }
            usable
        });
        let message = || format!("{}: {}", what(), bad.join(", "));
        (!bad.is_empty()).then(|| Problem::new(reason::ADDRESS_NOT_USABLE, message()))
    }
}
