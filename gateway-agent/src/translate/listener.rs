//! Listeners of Gateways and ListenerSets: which are valid, which of them conflict, and where each is served.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::ops::Range;
use std::sync::Arc;

use super::Config;
use super::certificates::Certificates;
use super::conditions::{Problem, condition, join_messages, merge};
use super::conflict::{self, Holders, transport};
use super::frontend::{self, Frontend};
use super::gateway::GatewayPlan;
use super::grant::From;
use super::inputs::Inputs;
use super::listener_set::SetPlan;
use super::overlap;
use crate::certificate::Certificate;
use crate::provision::AddressProvider;
use crate::provision::targets::PortKey;
use crate::snapshot::{ListenerKey, ListenerName, Provenance, ProxySources, RouteKind, TlsTerms, Transport};
use crate::status::names::{kind, reason};
use crate::status::{Condition, ListenerFacts, ScopeStatus};
use crate::store::Store;
use crate::store::objects::{
    GATEWAY_GROUP, LabelRequirement, ListenerProtocol, ListenerSpec, NamespaceFilter,
};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListenerPlan {
    pub(super) name: ListenerName,
    pub(super) spec: Arc<ListenerSpec>,
    /// What may attach here: supported by the protocol and allowed by the user.
    pub(super) kinds: Vec<RouteKind>,
    /// ResolvedRefs=False.
    unresolved: Option<Problem>,
    /// Accepted=False.
    problem: Option<Problem>,
    /// Conflicted=True, and Accepted=False for the same reason.
    pub(super) conflict: Option<Problem>,
    /// Programmed=False although it is accepted: it has nothing to serve with.
    pub(super) unserved: Option<Problem>,
    /// The same, for want of something that will come.
    waiting: Option<Problem>,
    /// OverlappingTLSConfig=True.
    overlap: Option<Problem>,
    /// Where TLS ends here.
    pub(super) terms: TlsTerms,
    /// Of the Gateway, for backends.
    pub(super) client_certificate: Option<Arc<Certificate>>,
    /// Whose headers of the PROXY protocol are believed, where connections have to begin with one.
    pub(super) proxy_sources: Option<ProxySources>,
    /// Of the Gateway.
    pub(super) provenance: Arc<Provenance>,
    /// Empty where it is not served.
    pub(super) keys: Vec<ListenerKey>,
}

impl ListenerPlan {
    pub(super) const fn is_accepted(&self) -> bool {
        self.problem.is_none() && self.conflict.is_none()
    }

    /// Whether it could be served, the data path permitting.
    pub(super) const fn is_valid(&self) -> bool {
        self.is_accepted() && self.unserved.is_none()
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
        // Relative to where the listener is written.
        let own = self.name.set.as_ref().unwrap_or(&self.name.gateway);
        selects(&self.spec.namespaces, &own.namespace, namespace, store)
    }

    pub(super) fn status(&self, attached_routes: usize) -> ScopeStatus {
        let facts = ListenerFacts {
            attached_routes,
            supported_kinds: self.kinds.iter().map(|kind| kind.as_str()).collect(),
            is_valid: self.is_valid(),
            keys: self.keys.clone(),
        };
        ScopeStatus::of_listener(self.name.section.to_string(), self.conditions(), facts)
    }

    fn conditions(&self) -> Vec<Condition> {
        let conflicted = match &self.conflict {
            None => Condition::new(kind::CONFLICTED, false, reason::NO_CONFLICTS, "no conflicts"),
            Some(conflict) => {
                Condition::new(kind::CONFLICTED, true, conflict.reason, conflict.message.clone())
            }
        };
        let mut message = "the listener is valid".to_owned();
        if !self.spec.tls.options.is_empty() {
            message.push_str(&format!("; without effect: tls.options {}", self.spec.tls.options.join(", ")));
        }
        let mut conditions = vec![
            condition(kind::ACCEPTED, reason::ACCEPTED, message, self.refusal()),
            condition(
                kind::RESOLVED_REFS,
                reason::RESOLVED_REFS,
                "all references resolve",
                self.unresolved.as_ref(),
            ),
            conflicted,
        ];
        let unserved = self.unserved.as_ref().or(self.waiting.as_ref());
        if let (true, Some(unserved)) = (self.is_accepted(), unserved) {
            let message = unserved.message.clone();
            conditions.push(Condition::new(kind::PROGRAMMED, false, unserved.reason, message));
        }
        if let Some(overlap) = &self.overlap {
            let kind = kind::OVERLAPPING_TLS_CONFIG;
            conditions.push(Condition::new(kind, true, overlap.reason, overlap.message.clone()));
        }
        conditions
    }
}

/// Whether a filter that is written in namespace `own` selects `namespace`.
pub(super) fn selects(filter: &NamespaceFilter, own: &str, namespace: &str, store: &Store) -> bool {
    match filter {
        NamespaceFilter::All => true,
        NamespaceFilter::Same => own == namespace,
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

/// Makes the plans of all listeners.
#[derive(Debug)]
pub(super) struct Planner<'a> {
    pub(super) inputs: &'a Inputs<'a>,
    pub(super) config: &'a Config,
    pub(super) certificates: &'a mut Certificates,
    pub(super) plans: Vec<ListenerPlan>,
    claims: BTreeMap<(Transport, NonZeroU16), BTreeMap<Option<IpAddr>, Holders>>,
}

impl<'a> Planner<'a> {
    pub(super) const fn new(
        inputs: &'a Inputs<'a>,
        config: &'a Config,
        certificates: &'a mut Certificates,
    ) -> Self {
        Self { inputs, config, certificates, plans: Vec::new(), claims: BTreeMap::new() }
    }

    /// Adds the listeners of a Gateway and of its ListenerSets. Gateways are to come by age. Returns the positions of
    /// the Gateway's own and notes those of each set.
    pub(super) fn add(&mut self, gateway: &GatewayPlan, sets: &mut [SetPlan]) -> Range<usize> {
        let first = self.plans.len();
        for spec in &gateway.gateway.listeners {
            let name = ListenerName::of_gateway(gateway.name(), &spec.name);
            let from = From { kind: "Gateway", namespace: &gateway.name().namespace };
            self.push(name, spec, from, gateway);
        }
        let own = first..self.plans.len();
        conflict::set_inner_conflicts(&mut self.plans[own.clone()]);
        self.add_sets(gateway, sets, &own);
        for index in first..self.plans.len() {
            self.claim(index, gateway);
        }
        own
    }

    /// Of a set, and of all sets and the Gateway, the listener that comes first wins. Where listeners of the Gateway
    /// conflict with each other none of them is served, and no set can take their place.
    fn add_sets(&mut self, gateway: &GatewayPlan, sets: &mut [SetPlan], own: &Range<usize>) {
        let mut holders: HashMap<(Transport, NonZeroU16), Holders> = HashMap::new();
        let mut hold = |spec: &ListenerSpec, index| {
            if let (Some(transport), Some(port)) = (transport(&spec.protocol), spec.port) {
                holders.entry((transport, port)).or_default().add(spec, index);
            }
        };
        for index in own.clone() {
            if self.plans[index].problem.is_none() {
                hold(&self.plans[index].spec, index);
            }
        }
        for set in sets.iter_mut().filter(|set| set.is_allowed()) {
            let first = self.plans.len();
            for spec in &set.set.listeners {
                let name = ListenerName {
                    gateway: gateway.name().clone(),
                    set: Some(set.set.meta.name.clone()),
                    section: spec.name.clone(),
                };
                let from = From { kind: "ListenerSet", namespace: &set.set.meta.name.namespace };
                self.push(name, spec, from, gateway);
                let index = self.plans.len() - 1;
                let clash = transport(&spec.protocol)
                    .zip(spec.port)
                    .and_then(|place| holders.get(&place)?.clash(spec));
                match clash {
                    Some((reason, _)) => {
                        // What others listen to may be none of the set's business.
                        let message = conflict::message(reason, "that comes before");
                        self.plans[index].conflict = Some(Problem::new(reason, message));
                    }
                    None if self.plans[index].problem.is_none() => {
                        if let (Some(transport), Some(port)) = (transport(&spec.protocol), spec.port) {
                            holders.entry((transport, port)).or_default().add(spec, index);
                        }
                    }
                    None => {}
                }
            }
            set.listeners = first..self.plans.len();
        }
    }

    fn push(&mut self, name: ListenerName, spec: &Arc<ListenerSpec>, from: From<'_>, gateway: &GatewayPlan) {
        let (kinds, bad_kinds) = route_kinds(spec);
        let Frontend { unresolved: bad_authority, problem: refused, clients } =
            frontend::frontend(&gateway.gateway, spec, self.certificates, self.inputs, self.config);
        let client_certificate =
            frontend::client_certificate(&gateway.gateway, self.certificates, self.inputs, self.config);
        let (certificates, bad_certificate) = if spec.protocol.terminates_tls() {
            self.certificates.resolve(&spec.tls.certificates, from, self.inputs, self.config)
        } else {
            (Arc::default(), None)
        };
        let unserved = bad_certificate.as_ref().filter(|_| certificates.is_empty()).map(|bad| {
            Problem::new(reason::INVALID, format!("there is no usable certificate: {}", bad.message))
        });
        let unresolved = [bad_certificate, bad_authority, bad_kinds].into_iter().flatten().collect();
        self.plans.push(ListenerPlan {
            name,
            spec: spec.clone(),
            kinds,
            unresolved: merge(unresolved),
            problem: problem(spec, self.config).or(refused),
            conflict: None,
            unserved,
            waiting: None,
            overlap: None,
            terms: TlsTerms { certificates, clients },
            client_certificate: client_certificate.and_then(Result::ok),
            proxy_sources: spec
                .port
                .filter(|_| transport(&spec.protocol) == Some(Transport::Tcp))
                .and_then(|port| gateway.serving.proxy_sources(port)),
            provenance: gateway.provenance.clone(),
            keys: Vec::new(),
        });
    }

    /// Takes the listener's place at every address of its Gateway, unless an older Gateway has it.
    fn claim(&mut self, index: usize, gateway: &GatewayPlan) {
        let listener = &self.plans[index];
        let (true, Some(transport), Some(port)) =
            (listener.is_accepted(), transport(&listener.spec.protocol), listener.spec.port)
        else {
            return;
        };
        let keys = gateway.keys(transport, port);
        let waiting = gateway.waiting(transport, port);
        let conflict = keys.iter().find_map(|key| {
            let by_address = self.claims.get(&(key.transport, key.port))?;
            let mut rivals = by_address.iter().filter(|(address, _)| overlap(key.address, **address));
            rivals.find_map(|(_, holders)| self.clash(listener, holders))
        });
        if conflict.is_none() {
            for key in &keys {
                let by_address = self.claims.entry((key.transport, key.port)).or_default();
                by_address.entry(key.address).or_default().add(&listener.spec, index);
            }
            self.plans[index].keys = keys;
            self.plans[index].waiting = waiting;
        }
        self.plans[index].conflict = conflict;
    }

    /// Why the listener cannot be one of those that have a port already.
    fn clash(&self, listener: &ListenerPlan, holders: &Holders) -> Option<Problem> {
        if let Some((reason, rival)) = holders.clash(&listener.spec) {
            return Some(Problem::new(
                reason,
                conflict::message(reason, &self.plans[rival].name.to_string()),
            ));
        }
        // It comes before all that tells listeners of a port apart. Those that are there agree.
        let rival = &self.plans[holders.any()?];
        (rival.proxy_sources != listener.proxy_sources).then(|| {
            let message =
                format!("listener {} of the port has other parameters of the PROXY protocol", rival.name);
            Problem::new(reason::PROTOCOL_CONFLICT, message)
        })
    }

    pub(super) fn finish(mut self) -> Vec<ListenerPlan> {
        add_covered_keys(&mut self.plans);
        for (index, problem) in overlap::overlaps(&self.plans) {
            self.plans[index].overlap = Some(problem);
        }
        self.plans
    }
}

/// Why the listener cannot be accepted, apart from conflicts.
fn problem(spec: &ListenerSpec, config: &Config) -> Option<Problem> {
    match &spec.protocol {
        ListenerProtocol::Http
        | ListenerProtocol::Https
        | ListenerProtocol::TlsPassthrough
        | ListenerProtocol::TlsTerminate
        | ListenerProtocol::Tcp
        | ListenerProtocol::Udp => {}
        ListenerProtocol::Other(other) => {
            let message = format!("protocol {other} is not supported; HTTP, HTTPS, TLS, TCP and UDP are");
            return Some(Problem::new(reason::UNSUPPORTED_PROTOCOL, message));
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
        ListenerProtocol::Http | ListenerProtocol::Https => &[RouteKind::Http, RouteKind::Grpc],
        ListenerProtocol::TlsPassthrough | ListenerProtocol::TlsTerminate => &[RouteKind::Tls],
        ListenerProtocol::Tcp => &[RouteKind::Tcp],
        ListenerProtocol::Udp => &[RouteKind::Udp],
        ListenerProtocol::Other(_) => &[],
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
