//! One Service for each Gateway: its name, its ports, and the addresses that it gives.

use std::collections::HashSet;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use super::{Asked, GatewayPlan};
use crate::provision::ServiceDefaults;
use crate::provision::managed::Managed;
use crate::provision::names::{Marker, digested_service_name, service_name};
use crate::provision::pool::is_of;
use crate::provision::range::list;
use crate::provision::service::type_name;
use crate::provision::targets::{Allocator, Limits, PortKey, Targets};
use crate::snapshot::{ObjectName, Transport};
use crate::status::Address;
use crate::status::names::reason;
use crate::store::Store;
use crate::store::objects::{Gateway, Service, ServiceIngress, ServiceType};
use crate::translate::Config;
use crate::translate::conditions::Problem;
use crate::translate::inputs::Inputs;

/// The Service of one Gateway.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::translate) struct ServicePlace {
    pub(in crate::translate) name: ObjectName,
    /// What the stored Service has, and what of it counts.
    pub(in crate::translate) stored: Targets,
    served: Targets,
    /// No targetPort is left.
    is_full: bool,
    /// The address that the load balancer is asked for.
    pub(in crate::translate) asked: Option<IpAddr>,
    /// False where nothing may be written: somebody else has the name, or what is asked for cannot be had.
    pub(in crate::translate) is_wanted: bool,
}

impl ServicePlace {
    /// The port of the agent's pods that the stored Service leads to.
    pub(super) fn target(&self, key: PortKey) -> Option<NonZeroU16> {
        self.served.get(&key).copied()
    }

    /// Why there is none.
    pub(super) fn waiting(&self, key: PortKey) -> Option<Problem> {
        if self.served.contains_key(&key) {
            return None;
        }
        let message = if self.is_full {
            "no targetPort is left: widen --target-ports".to_owned()
        } else {
            format!("Service {} does not have the port yet", self.name)
        };
        Some(Problem::new(reason::PENDING, message))
    }
}

pub(super) fn place(
    plans: &mut [GatewayPlan],
    inputs: &Inputs<'_>,
    config: &Config,
    defaults: &ServiceDefaults,
) {
    let mut claimed = HashSet::new();
    let names: Vec<Name> =
        plans.iter().map(|plan| choose_name(&plan.gateway, inputs, config, &mut claimed)).collect();
    let mut allocator = allocator(inputs.store(), config, defaults, &claimed);
    let places: Vec<ServicePlace> = names
        .iter()
        .map(|name| {
            let stored = name.stored.as_deref().map(stored_ports).unwrap_or_default();
            ServicePlace {
                name: name.name.clone(),
                served: allocator.keep(&stored),
                stored,
                is_full: false,
                asked: None,
                is_wanted: !name.is_taken,
            }
        })
        .collect();
    let is_full = [Transport::Tcp, Transport::Udp].into_iter().any(|transport| allocator.is_full(transport));
    for ((plan, name), mut place) in plans.iter_mut().zip(names).zip(places) {
        place.is_full = is_full;
        place_one(plan, &name, place, config, defaults);
    }
}

/// Knows the ports of Services of ours that no Gateway of ours has (any more).
pub(in crate::translate) fn allocator(
    store: &Store,
    config: &Config,
    defaults: &ServiceDefaults,
    claimed: &HashSet<ObjectName>,
) -> Allocator {
    let limits = Limits {
        range: defaults.target_ports.clone(),
        source_ports: config.source_ports.clone(),
        admin_port: config.admin_port,
    };
    let is_others = |name: &ObjectName, managed: &Managed| {
        *managed.marker.controller == *config.controller_name && !claimed.contains(name)
    };
    let reserved = store
        .managed_services()
        .filter(|(name, _, managed)| is_others(name, managed))
        .flat_map(|(_, service, _)| stored_ports(service))
        .map(|((transport, _), target)| (transport, target));
    Allocator::new(limits, reserved)
}

/// The Service's name, and the Service if it is there and ours.
struct Name {
    name: ObjectName,
    stored: Option<Arc<Service>>,
    is_taken: bool,
}

/// The one that is there already, else the plain name, else the other one where another Gateway of ours has that.
fn choose_name(
    gateway: &Gateway,
    inputs: &Inputs<'_>,
    config: &Config,
    claimed: &mut HashSet<ObjectName>,
) -> Name {
    let (namespace, name) = (&gateway.meta.name.namespace, &gateway.meta.name.name);
    let candidates = [service_name(name, &gateway.class), digested_service_name(name, &gateway.class)]
        .map(|name| ObjectName::new(namespace.clone(), name));
    // Both are looked up, so that a change of either is noticed.
    let stored = candidates.each_ref().map(|name| inputs.service(name));
    let marker = |service: &Arc<Service>| service.managed.as_deref().map(|managed| managed.marker.clone());
    let is_ours = |service: &Arc<Service>| {
        let of_gateway =
            |marker: Marker| marker.is_of(&config.controller_name, &gateway.class, &gateway.meta.name);
        marker(service).is_some_and(of_gateway)
    };
    let ours = stored.iter().position(|service| service.is_some_and(is_ours));
    let chosen = match ours {
        Some(index) => {
            Name { name: candidates[index].clone(), stored: stored[index].cloned(), is_taken: false }
        }
        None => {
            let of_another = |service: &Arc<Service>| {
                marker(service).is_some_and(|marker| *marker.controller == *config.controller_name)
            };
            let is_anothers = claimed.contains(&candidates[0]) || stored[0].is_some_and(of_another);
            let index = usize::from(is_anothers);
            Name { name: candidates[index].clone(), stored: None, is_taken: stored[index].is_some() }
        }
    };
    claimed.insert(chosen.name.clone());
    chosen
}

fn stored_ports(service: &Service) -> Targets {
    let ports = service.ports.iter();
    ports
        .filter_map(|port| Some(((port.transport?, NonZeroU16::new(port.port)?), port.target_port?)))
        .collect()
}

fn place_one(
    plan: &mut GatewayPlan,
    name: &Name,
    mut place: ServicePlace,
    config: &Config,
    defaults: &ServiceDefaults,
) {
    let mut asked = Asked::of(&plan.gateway);
    plan.refuse(&asked);
    let has = name.stored.as_deref().map(|service| addresses(service, plan, defaults)).unwrap_or_default();
    plan.unusable = usable(&mut asked, plan.settings.kind, &has, defaults);
    let is_any = asked.any || !asked.fixed.is_empty();
    plan.addresses = has.iter().filter(|address| asked.any || is_asked(&asked, address)).cloned().collect();
    if name.is_taken {
        let message = format!("Service {} exists and is not this agent's: rename one of the two", name.name);
        plan.unusable = Some(Problem::new(reason::ADDRESS_NOT_ASSIGNED, message));
    } else if let Some(problem) = config.provision_problems.get(plan.name()) {
        plan.notes.push(problem.clone());
        if plan.unusable.is_none() && plan.addresses.is_empty() {
            plan.unusable = Some(Problem::new(reason::ADDRESS_NOT_ASSIGNED, problem.clone()));
        }
    } else if plan.unusable.is_none() {
        plan.unusable = missing(plan, name, &has, &asked);
    }
    if plan.settings.kind == ServiceType::NodePort
        && let Some(service) = &name.stored
    {
        plan.notes.extend(node_ports(service));
    }
    plan.bindings = match config.addresses.as_slice() {
        [] => vec![None],
        addresses => addresses.iter().copied().map(Some).collect(),
    };
    place.asked = asked.fixed.first().copied().filter(|_| plan.settings.kind == ServiceType::LoadBalancer);
    place.is_wanted &= is_any && plan.problem.is_none();
    plan.service = Some(place);
}

fn is_asked(asked: &Asked, address: &Address) -> bool {
    matches!(address, Address::Ip(ip) if asked.fixed.contains(ip))
}

/// Keeps what can be asked of a Service of this type.
fn usable(
    asked: &mut Asked,
    kind: ServiceType,
    has: &[Address],
    defaults: &ServiceDefaults,
) -> Option<Problem> {
    let askable = &defaults.askable;
    match kind {
        ServiceType::LoadBalancer => {
            // The field of a Service that asks for an address takes one.
            let first =
                asked.fixed.iter().copied().find(|address| askable.is_empty() || is_of(askable, *address));
            asked.usable(
                |address| Some(address) == first,
                || match first {
                    Some(first) => {
                        format!("a load balancer can be asked for one address, and {first} is it; not")
                    }
                    None => format!("the load balancer can be asked for {}; not for", list(askable)),
                },
            )
        }
        ServiceType::ClusterIp | ServiceType::ExternalName | ServiceType::NodePort => asked.usable(
            |address| has.contains(&Address::Ip(address)),
            || format!("not an address of this Gateway's Service of type {}", type_name(kind)),
        ),
    }
}

/// What the Service gives.
fn addresses(service: &Service, plan: &GatewayPlan, defaults: &ServiceDefaults) -> Vec<Address> {
    if service.kind != plan.settings.kind {
        return Vec::new();
    }
    let ips = |ips: &[IpAddr]| ips.iter().copied().map(Address::Ip).collect();
    match plan.settings.kind {
        ServiceType::LoadBalancer => service.ingress.iter().map(ingress).collect(),
        ServiceType::ClusterIp | ServiceType::ExternalName => ips(&service.cluster_addresses),
        ServiceType::NodePort if plan.settings.node_addresses.is_empty() => ips(&defaults.node_addresses),
        ServiceType::NodePort => ips(&plan.settings.node_addresses),
    }
}

fn ingress(ingress: &ServiceIngress) -> Address {
    match ingress {
        ServiceIngress::Address(address) => Address::Ip(*address),
        ServiceIngress::Hostname(name) => Address::Hostname(name.clone()),
    }
}

/// Why the Gateway has no address yet.
fn missing(plan: &GatewayPlan, name: &Name, has: &[Address], asked: &Asked) -> Option<Problem> {
    let not_assigned = |message: String| Some(Problem::new(reason::ADDRESS_NOT_ASSIGNED, message));
    let service = &name.name;
    if name.stored.is_none() {
        return not_assigned(format!("Service {service} does not exist yet"));
    }
    if has.is_empty() {
        return not_assigned(match plan.settings.kind {
            ServiceType::LoadBalancer => {
                format!("no load balancer has given Service {service} an address yet")
            }
            ServiceType::ClusterIp | ServiceType::ExternalName => {
                format!("Service {service} is not of type ClusterIP yet")
            }
            ServiceType::NodePort => format!(
                "Service {service} is not of type NodePort yet, or the nodes' addresses are unknown: set nodeAddresses in the \
                 parameters"
            ),
        });
    }
    if plan.addresses.is_empty() && !asked.any {
        let given: Vec<String> = has.iter().map(Address::to_string).collect();
        let message = format!("the load balancer gave Service {service} {} instead", given.join(", "));
        return Some(Problem::new(reason::ADDRESS_NOT_USABLE, message));
    }
    None
}

/// Where clients find the ports: not where the Gateway says.
fn node_ports(service: &Service) -> Option<String> {
    let ports: Vec<String> = service
        .ports
        .iter()
        .filter_map(|port| {
            let transport = port.transport?.as_str();
            Some(format!("{}/{transport} at {}", port.port, port.node_port?))
        })
        .collect();
    (!ports.is_empty()).then(|| format!("ports of the nodes: {}", ports.join(", ")))
}
