//! Listeners: which are valid, which of them conflict, and where each is served.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use super::Config;
use super::conditions::{Problem, condition, join_messages};
use super::gateway::GatewayPlan;
use crate::provision::AddressProvider;
use crate::provision::targets::PortKey;
use crate::snapshot::{ListenerKey, ListenerName, RouteKind, Transport};
use crate::status::names::{kind, reason};
use crate::status::{Condition, Scope, ScopeStatus};
use crate::store::Store;
use crate::store::objects::{
    GATEWAY_GROUP, LabelRequirement, ListenerProtocol, ListenerSpec, NamespaceFilter,
};

#[derive(Debug)]
pub(super) struct ListenerPlan {
    pub(super) name: ListenerName,
    pub(super) spec: Arc<ListenerSpec>,
    /// What may attach here: supported by the protocol and allowed by the user.
    pub(super) kinds: Vec<RouteKind>,
    /// ResolvedRefs=False.
    unresolved: Option<Problem>,
    /// Accepted=False.
    pub(super) problem: Option<Problem>,
    /// Conflicted=True, and Accepted=False for the same reason.
    conflict: Option<Problem>,
    /// Empty where it is not served.
    pub(super) keys: Vec<ListenerKey>,
    /// Why it is not served although nothing is wrong with it.
    waiting: Option<Problem>,
}

impl ListenerPlan {
    pub(super) const fn is_accepted(&self) -> bool {
        self.problem.is_none() && self.conflict.is_none()
    }

    /// What clients connect to, whatever becomes of it.
    pub(super) fn port(&self) -> Option<PortKey> {
        Some((transport(&self.spec.protocol)?, self.spec.port?))
    }

    /// Why no data path serves it.
    pub(super) fn refusal(&self) -> Option<&Problem> {
        self.conflict.as_ref().or(self.problem.as_ref())
    }

    pub(super) fn allows_namespace(&self, namespace: &str, store: &Store) -> bool {
        match &self.spec.namespaces {
            NamespaceFilter::All => true,
            NamespaceFilter::Same => *self.name.gateway.namespace == *namespace,
            NamespaceFilter::Selector(selector) => selector.requirements.iter().all(|requirement| {
                let is_one_of = |key: &str, values: &[String]| {
                    let label = store.namespace_label(namespace, key);
                    label.is_some_and(|label| values.iter().any(|value| value == label))
                };
                match requirement {
                    LabelRequirement::In(key, values) => is_one_of(key, values),
                    LabelRequirement::NotIn(key, values) => !is_one_of(key, values),
                    LabelRequirement::Exists(key) => store.namespace_label(namespace, key).is_some(),
                    LabelRequirement::DoesNotExist(key) => store.namespace_label(namespace, key).is_none(),
                    LabelRequirement::Unknown(_) => false,
                }
            }),
        }
    }

    pub(super) fn status(&self, attached_routes: usize) -> ScopeStatus {
        ScopeStatus {
            scope: Scope::Listener(self.name.section.to_string()),
            conditions: self.conditions(),
            attached_routes,
            supported_kinds: self.kinds.iter().map(|kind| kind.as_str()).collect(),
            keys: self.keys.clone(),
        }
    }

    fn conditions(&self) -> Vec<Condition> {
        let conflicted = match &self.conflict {
            None => Condition::new(kind::CONFLICTED, false, reason::NO_CONFLICTS, "no conflicts"),
            Some(conflict) => {
                Condition::new(kind::CONFLICTED, true, conflict.reason, conflict.message.clone())
            }
        };
        let mut conditions = vec![
            condition(kind::ACCEPTED, reason::ACCEPTED, "the listener is valid", self.refusal()),
            condition(
                kind::RESOLVED_REFS,
                reason::RESOLVED_REFS,
                "all references resolve",
                self.unresolved.as_ref(),
            ),
            conflicted,
        ];
        if let Some(waiting) = &self.waiting {
            conditions.push(Condition::new(kind::PROGRAMMED, false, waiting.reason, waiting.message.clone()));
        }
        conditions
    }
}

/// The listeners of `gateways`, which are sorted by age, in that order and each Gateway's in its own.
pub(super) fn plan(gateways: &[GatewayPlan], config: &Config) -> Vec<ListenerPlan> {
    let mut plans = Vec::new();
    let mut claims = Claims::default();
    for gateway in gateways {
        let first = plans.len();
        for spec in &gateway.gateway.listeners {
            let (kinds, unresolved) = route_kinds(spec);
            let name = ListenerName::of_gateway(gateway.name(), &spec.name);
            let problem = problem(spec, config);
            plans.push(ListenerPlan {
                name,
                spec: spec.clone(),
                kinds,
                unresolved,
                problem,
                conflict: None,
                keys: Vec::new(),
                waiting: None,
            });
        }
        set_inner_conflicts(&mut plans[first..]);
        for index in first..plans.len() {
            claims.claim(index, &mut plans, gateway);
        }
    }
    add_covered_keys(&mut plans);
    plans
}

/// Why the listener cannot be accepted, apart from conflicts.
fn problem(spec: &ListenerSpec, config: &Config) -> Option<Problem> {
    let unsupported = |message: &str| Some(Problem::new(reason::UNSUPPORTED_PROTOCOL, message));
    match &spec.protocol {
        ListenerProtocol::Http
        | ListenerProtocol::TlsPassthrough
        | ListenerProtocol::Tcp
        | ListenerProtocol::Udp => {}
        ListenerProtocol::Https => {
            return unsupported("protocol HTTPS is not supported yet; HTTP, TLS, TCP and UDP are");
        }
        ListenerProtocol::TlsTerminate => {
            let message = "tls.mode Terminate is not supported yet; Passthrough is";
            return Some(Problem::new(reason::UNSUPPORTED_VALUE, message));
        }
        ListenerProtocol::Other(other) => {
            return unsupported(&format!("protocol {other} is not supported; HTTP, TLS, TCP and UDP are"));
        }
    }
    let Some(port) = spec.port else {
        return Some(Problem::new(reason::UNSUPPORTED_VALUE, "port is out of range: 1 to 65535"));
    };
    // Ports of Services lead to other ports of the pod.
    let is_own = !matches!(config.provider, AddressProvider::Service(_));
    if is_own && transport(&spec.protocol) == Some(Transport::Tcp) && port.get() == config.admin_port {
        let message = format!(
            "port {port} is the agent's admin server's; choose another one or start the agent with another --admin-address"
        );
        return Some(Problem::new(reason::PORT_UNAVAILABLE, message));
    }
    None
}

/// What may attach, and what is wrong with `allowedRoutes.kinds`.
fn route_kinds(spec: &ListenerSpec) -> (Vec<RouteKind>, Option<Problem>) {
    let supported: &[RouteKind] = match spec.protocol {
        ListenerProtocol::Http => &[RouteKind::Http],
        ListenerProtocol::TlsPassthrough | ListenerProtocol::TlsTerminate => &[RouteKind::Tls],
        ListenerProtocol::Tcp => &[RouteKind::Tcp],
        ListenerProtocol::Udp => &[RouteKind::Udp],
        ListenerProtocol::Https | ListenerProtocol::Other(_) => &[],
    };
    let Some(allowed) = spec.kinds.as_ref().filter(|_| !supported.is_empty()) else {
        return (supported.to_vec(), None);
    };
    let mut kinds = Vec::new();
    let mut invalid = Vec::new();
    for wanted in allowed {
        let found = supported.iter().find(|kind| kind.as_str() == &*wanted.kind);
        match found.filter(|_| &*wanted.group == GATEWAY_GROUP) {
            Some(kind) if kinds.contains(kind) => {}
            Some(kind) => kinds.push(*kind),
            None => {
                let names: Vec<&str> = supported.iter().map(|kind| kind.as_str()).collect();
                invalid.push(format!(
                    "allowedRoutes.kinds: {} of group {:?} cannot attach to this listener; {} can",
                    wanted.kind,
                    wanted.group,
                    names.join(", ")
                ));
            }
        }
    }
    let unresolved =
        (!invalid.is_empty()).then(|| Problem::new(reason::INVALID_ROUTE_KINDS, join_messages(invalid)));
    (kinds, unresolved)
}

const fn transport(protocol: &ListenerProtocol) -> Option<Transport> {
    match protocol {
        ListenerProtocol::Http
        | ListenerProtocol::Https
        | ListenerProtocol::TlsPassthrough
        | ListenerProtocol::TlsTerminate
        | ListenerProtocol::Tcp => Some(Transport::Tcp),
        ListenerProtocol::Udp => Some(Transport::Udp),
        ListenerProtocol::Other(_) => None,
    }
}

/// The reason why two listeners cannot share an address (`Listeners` in `gateway_types.go`): HTTP, HTTPS and TLS are
/// told apart by port or hostname, TCP and UDP by port alone.
fn clash(one: &ListenerSpec, other: &ListenerSpec) -> Option<&'static str> {
    let transports = (transport(&one.protocol)?, transport(&other.protocol)?);
    if transports.0 != transports.1 || one.port? != other.port? {
        return None;
    }
    clash_on_a_port(one, other)
}

/// The same, of listeners that would have one port.
fn clash_on_a_port(one: &ListenerSpec, other: &ListenerSpec) -> Option<&'static str> {
    let by_sni = |protocol: &ListenerProtocol| {
        matches!(protocol, ListenerProtocol::TlsPassthrough | ListenerProtocol::TlsTerminate)
    };
    let may_share = one.protocol == other.protocol
        || (one.protocol == ListenerProtocol::Https && by_sni(&other.protocol))
        || (other.protocol == ListenerProtocol::Https && by_sni(&one.protocol));
    if !may_share {
        Some(reason::PROTOCOL_CONFLICT)
    } else if one.hostname == other.hostname {
        Some(reason::HOSTNAME_CONFLICT)
    } else {
        None
    }
}

/// Within one Gateway no one wins.
fn set_inner_conflicts(listeners: &mut [ListenerPlan]) {
    let conflicts: Vec<Option<Problem>> = listeners
        .iter()
        .map(|listener| {
            let mut others = listeners.iter().filter(|other| !std::ptr::eq(*other, listener));
            others.find_map(|other| {
                let reason = clash(&listener.spec, &other.spec)?;
                Some(Problem::new(reason, conflict_message(reason, &other.name.section)))
            })
        })
        .collect();
    for (listener, conflict) in listeners.iter_mut().zip(conflicts) {
        listener.conflict = conflict;
    }
}

fn conflict_message(reason: &str, other: &str) -> String {
    if reason == reason::PROTOCOL_CONFLICT {
        format!("the protocol cannot share the port with that of listener {other}")
    } else {
        format!("listener {other} has the same port, protocol and hostname")
    }
}

/// Who has which port, over all Gateways: of Gateways that share an address the older one wins.
#[derive(Debug, Default)]
struct Claims {
    by_port: HashMap<(Transport, NonZeroU16), Vec<Claim>>,
}

#[derive(Debug)]
struct Claim {
    listener: usize,
    address: Option<IpAddr>,
}

impl Claims {
    fn claim(&mut self, index: usize, plans: &mut [ListenerPlan], gateway: &GatewayPlan) {
        let listener = &plans[index];
        let (true, Some(transport), Some(port)) =
            (listener.is_accepted(), transport(&listener.spec.protocol), listener.spec.port)
        else {
            return;
        };
        let keys = gateway.keys(transport, port);
        let waiting = gateway.waiting(transport, port);
        let conflict = keys.iter().find_map(|key| {
            let holders = self.by_port.get(&(key.transport, key.port))?;
            let mut rivals = holders.iter().filter(|held| overlap(key.address, held.address));
            rivals.find_map(|held| {
                let rival = &plans[held.listener];
                let reason = clash_on_a_port(&listener.spec, &rival.spec)?;
                Some(Problem::new(reason, conflict_message(reason, &rival.name.to_string())))
            })
        });
        if conflict.is_none() {
            for key in &keys {
                let holders = self.by_port.entry((key.transport, key.port)).or_default();
                holders.push(Claim { listener: index, address: key.address });
            }
            plans[index].keys = keys;
        }
        plans[index].waiting = waiting.filter(|_| conflict.is_none());
        plans[index].conflict = conflict;
    }
}

fn overlap(one: Option<IpAddr>, other: Option<IpAddr>) -> bool {
    one.is_none() || other.is_none() || one == other
}

/// A listener on every address is also behind the entries of those that named one of them: the data paths look up the
/// more specific entry only.
fn add_covered_keys(plans: &mut [ListenerPlan]) {
    let mut named: BTreeMap<(Transport, NonZeroU16), Vec<ListenerKey>> = BTreeMap::new();
    for key in plans.iter().flat_map(|plan| &plan.keys).filter(|key| key.address.is_some()) {
        let keys = named.entry((key.transport, key.port)).or_default();
        if !keys.contains(key) {
            keys.push(*key);
        }
    }
    for plan in plans {
        let Some(every) = plan.keys.iter().find(|key| key.address.is_none()) else {
            continue;
        };
        let covered = named.get(&(every.transport, every.port)).into_iter().flatten();
        let missing: Vec<ListenerKey> = covered.filter(|key| !plan.keys.contains(key)).copied().collect();
        plan.keys.extend(missing);
        plan.keys.sort_unstable();
    }
}
