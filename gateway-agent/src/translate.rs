//! Store to snapshot and conditions.
//!
//! Gateways give listeners, the oldest Gateway first ([`gateway`], [`listener`]). Routes are compiled once each
//! ([`http`], [`stream`], [`backend`]) and attached ([`route`]). What is attached to the listeners that share an address
//! and port becomes one entry of the snapshot ([`http`], [`tls`], [`l4`]).
//!
//! **Invariant:** pure and total: no I/O, no clock, no failure. A bad object becomes a condition and, where the spec
//! says so, a 500. Does not decide Programmed: that takes the data paths' word ([`crate::status::join`]).

mod backend;
mod conditions;
mod config;
mod gateway;
mod grant;
mod hostname;
mod http;
mod inputs;
mod l4;
mod listener;
mod parameters;
mod precedence;
mod provision;
mod route;
mod stream;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU16;
use std::sync::Arc;

use self::backend::Resolver;
pub use self::config::{Config, PodIdentity, Watched};
use self::gateway::GatewayPlan;
use self::http::CompiledHttp;
use self::inputs::Inputs;
use self::listener::ListenerPlan;
pub use self::parameters::table as parameters_table;
use self::route::{Host, RouteFacts, Targets};
use self::stream::CompiledStream;
use crate::provision::Wanted;
use crate::provision::targets::PortKey;
use crate::snapshot::{L4Service, Listener, ListenerKey, ObjectName, Protocol, RouteKind, Scheme};
use crate::status::names::kind;
use crate::status::{Condition, ObjectStatus, Scope, ScopeStatus};
use crate::store::objects::{ListenerProtocol, StreamRoute};
use crate::store::{Store, Table};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// In key order, no key twice.
    pub listeners: Arc<[Arc<Listener>]>,
    /// One per object that has a status of ours, in kind, namespace, name order.
    pub statuses: Vec<Arc<ObjectStatus>>,
    /// What is to be written for Gateways beside their status: the difference to what is stored.
    pub provisions: Vec<Wanted>,
}

/// What `store` comes to. Equal input gives equal output.
pub fn translate(store: &Store, config: &Config) -> Translation {
    let inputs = Inputs::new(store);
    let gateways = gateway::plan(&inputs, config);
    let listeners = listener::plan(&gateways, config);
    let routes = Routes::compile(store);
    let mut attached = Attached(vec![Vec::new(); listeners.len()]);
    let mut statuses = routes.attach(&targets(store, &gateways, &listeners), &mut attached);
    statuses.extend(gateways.iter().map(|gateway| gateway_status(gateway, &listeners, &attached)));
    statuses.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
    let statuses = statuses.into_iter().map(Arc::new).collect();
    let provisions = provision::plan(&gateways, &ports(&listeners), store, config);
    Translation { listeners: merge(&listeners, &attached, &routes), statuses, provisions }
}

/// The ports that each Gateway's listeners have, as clients know them: also of listeners that are not accepted, so that
/// a port does not come and go with them.
fn ports(listeners: &[ListenerPlan]) -> HashMap<&ObjectName, BTreeSet<PortKey>> {
    let mut ports: HashMap<&ObjectName, BTreeSet<PortKey>> = HashMap::new();
    for listener in listeners {
        ports.entry(&listener.name.gateway).or_default().extend(listener.port());
    }
    ports
}

/// By listener: the routes of the one kind that can attach there, by position among their kind.
#[derive(Debug)]
struct Attached(Vec<Vec<(usize, Vec<Host>)>>);

/// Every route, compiled, in namespace and name order.
#[derive(Debug)]
struct Routes<'a> {
    http: Vec<CompiledHttp<'a>>,
    tcp: Vec<CompiledStream<'a>>,
    tls: Vec<CompiledStream<'a>>,
    udp: Vec<CompiledStream<'a>>,
}

impl<'a> Routes<'a> {
    fn compile(store: &'a Store) -> Self {
        let mut resolver = Resolver::new(store);
        let http = store.http_routes().values();
        let http = http.map(|entry| http::compile(&entry.object, &mut resolver)).collect();
        let mut streams = |kind, routes: &'a Table<StreamRoute>| {
            routes.values().map(|entry| stream::compile(kind, &entry.object, &mut resolver)).collect()
        };
        Self {
            http,
            tcp: streams(RouteKind::Tcp, store.tcp_routes()),
            tls: streams(RouteKind::Tls, store.tls_routes()),
            udp: streams(RouteKind::Udp, store.udp_routes()),
        }
    }

    fn attach(&self, targets: &Targets<'_>, attached: &mut Attached) -> Vec<ObjectStatus> {
        let mut statuses = Vec::new();
        let mut attach = |position: usize, facts: RouteFacts<'_>, verdict| {
            let (status, attachments) = route::attach(facts, verdict, targets);
            for (listener, hosts) in attachments {
                attached.0[listener].push((position, hosts));
            }
            statuses.push(status);
        };
        for (position, compiled) in self.http.iter().enumerate() {
            let route = compiled.route;
            let facts = RouteFacts {
                kind: RouteKind::Http,
                meta: &route.meta,
                parents: &route.parents,
                hostnames: &route.hostnames,
            };
            attach(position, facts, &compiled.verdict);
        }
        for streams in [&self.tcp, &self.tls, &self.udp] {
            for (position, compiled) in streams.iter().enumerate() {
                let route = compiled.route;
                let facts = RouteFacts {
                    kind: compiled.name.kind,
                    meta: &route.meta,
                    parents: &route.parents,
                    hostnames: &route.hostnames,
                };
                attach(position, facts, &compiled.verdict);
            }
        }
        statuses
    }
}

fn targets<'a>(store: &'a Store, gateways: &'a [GatewayPlan], listeners: &'a [ListenerPlan]) -> Targets<'a> {
    let mut of_gateway = HashMap::new();
    let mut first = 0;
    for gateway in gateways {
        let next = first + gateway.gateway.listeners.len();
        of_gateway.insert(gateway.name(), first..next);
        first = next;
    }
    Targets { store, listeners, of_gateway }
}

fn gateway_status(plan: &GatewayPlan, listeners: &[ListenerPlan], attached: &Attached) -> ObjectStatus {
    let own =
        || listeners.iter().zip(&attached.0).filter(|(listener, _)| listener.name.gateway == *plan.name());
    let refused: Vec<&str> = own()
        .filter(|(listener, _)| !listener.is_accepted())
        .map(|(listener, _)| &*listener.name.section)
        .collect();
    let mut conditions = vec![conditions::gateway(
        plan.problem.as_ref(),
        plan.gateway.listeners.len(),
        &refused,
        &plan.note(),
    )];
    if let Some(unusable) = &plan.unusable {
        conditions.push(Condition::new(kind::PROGRAMMED, false, unusable.reason, unusable.message.clone()));
    }
    let object = ScopeStatus::new(Scope::Object, conditions);
    let listeners = own().map(|(listener, routes)| listener.status(routes.len()));
    ObjectStatus {
        kind: "Gateway",
        name: plan.name().clone(),
        observed_generation: plan.gateway.meta.generation,
        addresses: plan.addresses.clone(),
        attached_listener_sets: Some(0),
        scopes: std::iter::once(object).chain(listeners).collect(),
    }
}

/// One entry per address and port, with all the listeners that share it.
fn merge(plans: &[ListenerPlan], attached: &Attached, routes: &Routes<'_>) -> Arc<[Arc<Listener>]> {
    let mut groups: BTreeMap<ListenerKey, Vec<usize>> = BTreeMap::new();
    for (index, plan) in plans.iter().enumerate() {
        for key in &plan.keys {
            groups.entry(*key).or_default().push(index);
        }
    }
    // Addresses of one Gateway share their tables.
    let mut known: HashMap<Vec<usize>, Protocol> = HashMap::new();
    let mut services: HashMap<(RouteKind, usize), Arc<L4Service>> = HashMap::new();
    let mut listeners = Vec::with_capacity(groups.len());
    for (key, members) in groups {
        let names = members.iter().map(|member| plans[*member].name.clone()).collect();
        let protocol = match known.get(&members) {
            Some(protocol) => Some(protocol.clone()),
            None => protocol(&members, plans, attached, routes, &mut services),
        };
        if let Some(protocol) = protocol {
            known.insert(members, protocol.clone());
            listeners.push(Arc::new(Listener { key, names, protocol }));
        }
    }
    listeners.into()
}

/// `None` where the first member's protocol has no data path; such a listener has no key.
fn protocol(
    members: &[usize],
    plans: &[ListenerPlan],
    attached: &Attached,
    routes: &Routes<'_>,
    services: &mut HashMap<(RouteKind, usize), Arc<L4Service>>,
) -> Option<Protocol> {
    let first = *members.first()?;
    let mut l4 = |kind: RouteKind, streams: &[CompiledStream<'_>]| {
        let positions = attached.0[first].iter().map(|(position, _)| *position);
        let oldest = positions.min_by_key(|position| streams[*position].route.meta.seniority());
        match oldest {
            None => Arc::default(),
            Some(position) => services
                .entry((kind, position))
                .or_insert_with(|| Arc::new(l4::service(&streams[position])))
                .clone(),
        }
    };
    match plans[first].spec.protocol {
        ListenerProtocol::Http => {
            let members: Vec<http::Member<'_>> = members
                .iter()
                .map(|member| http::Member {
                    name: &plans[*member].name,
                    hostname: &plans[*member].spec.hostname,
                    port: plans[*member].spec.port.map_or(0, NonZeroU16::get),
                    scheme: Scheme::Http,
                    routes: attached.0[*member]
                        .iter()
                        .map(|(position, hosts)| (&routes.http[*position], hosts.as_slice()))
                        .collect(),
                })
                .collect();
            Some(Protocol::Http(Arc::new(http::table(&members))))
        }
        ListenerProtocol::TlsPassthrough => {
            let members: Vec<tls::Member<'_>> = members
                .iter()
                .map(|member| tls::Member {
                    name: &plans[*member].name,
                    hostname: &plans[*member].spec.hostname,
                    routes: attached.0[*member]
                        .iter()
                        .map(|(position, hosts)| (&routes.tls[*position], hosts.as_slice()))
                        .collect(),
                })
                .collect();
            Some(Protocol::Tls(Arc::new(tls::table(&members))))
        }
        ListenerProtocol::Tcp => Some(Protocol::Tcp(l4(RouteKind::Tcp, &routes.tcp))),
        ListenerProtocol::Udp => Some(Protocol::Udp(l4(RouteKind::Udp, &routes.udp))),
        ListenerProtocol::Https | ListenerProtocol::TlsTerminate | ListenerProtocol::Other(_) => None,
    }
}
