//! All routes, compiled, with what they depend on: to find which of them a change concerns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use super::backend::{Read, Resolver};
use super::conditions::RouteVerdict;
use super::http::{self, CompiledHttp};
use super::route::{Attachment, Attachments, RouteFacts};
use super::stream::{self, CompiledStream};
use crate::api::Kind;
use crate::snapshot::{ObjectName, RouteKind, RouteName};
use crate::status::Parent;
use crate::store::Store;

#[derive(Debug)]
pub(super) enum Compiled {
    /// Of either kind: their rules are the same.
    Http(CompiledHttp),
    /// Larger, and there are few of them.
    Stream(Box<CompiledStream>),
}

#[derive(Debug)]
struct State {
    compiled: Arc<Compiled>,
    /// Sorted.
    reads: Box<[Read]>,
    in_force: InForce,
}

/// What the tables have of a route: where it is attached, and as what it was compiled then.
#[derive(Debug, Default)]
pub(super) struct InForce {
    pub(super) compiled: Option<Arc<Compiled>>,
    pub(super) attachments: Attachments,
}

#[derive(Debug, Default)]
pub(super) struct Routes {
    states: BTreeMap<RouteName, State>,
    by_parent: HashMap<Parent, BTreeSet<RouteName>>,
    by_read: HashMap<Read, BTreeSet<RouteName>>,
}

impl State {
    /// Found anew where they are needed, which is when the route changes: they would be kept for each route.
    fn parents(&self) -> Vec<Parent> {
        self.compiled.facts().parents()
    }
}

impl Compiled {
    pub(super) fn facts(&self) -> RouteFacts<'_> {
        match self {
            Self::Http(CompiledHttp { kind, route, .. }) => RouteFacts {
                kind: *kind,
                meta: &route.meta,
                parents: &route.parents,
                hostnames: &route.hostnames,
            },
            Self::Stream(compiled) => {
                let CompiledStream { route, name, .. } = &**compiled;
                RouteFacts {
                    kind: name.kind,
                    meta: &route.meta,
                    parents: &route.parents,
                    hostnames: &route.hostnames,
                }
            }
        }
    }

    pub(super) fn verdict(&self) -> &RouteVerdict {
        match self {
            Self::Http(compiled) => compiled.verdict(),
            Self::Stream(compiled) => &compiled.verdict,
        }
    }
}

/// The kind of route that objects of `kind` are.
pub(super) const fn route_kind(kind: Kind) -> Option<RouteKind> {
    match kind {
        Kind::GrpcRoute => Some(RouteKind::Grpc),
        Kind::HttpRoute => Some(RouteKind::Http),
        Kind::TcpRoute => Some(RouteKind::Tcp),
        Kind::TlsRoute => Some(RouteKind::Tls),
        Kind::UdpRoute => Some(RouteKind::Udp),
        _ => None,
    }
}

/// The names of all routes in the store.
pub(super) fn all(store: &Store) -> BTreeSet<RouteName> {
    let mut names = BTreeSet::new();
    let mut add = |kind, objects: &mut dyn Iterator<Item = &ObjectName>| {
        names.extend(objects.map(|object| RouteName { kind, object: object.clone() }));
    };
    add(RouteKind::Grpc, &mut store.grpc_routes().keys());
    add(RouteKind::Http, &mut store.http_routes().keys());
    add(RouteKind::Tcp, &mut store.tcp_routes().keys());
    add(RouteKind::Tls, &mut store.tls_routes().keys());
    add(RouteKind::Udp, &mut store.udp_routes().keys());
    names
}

/// `None`: there is no such object.
fn compile(name: &RouteName, store: &Store, resolver: &mut Resolver<'_>) -> Option<Compiled> {
    let RouteName { kind, object } = name;
    let stream = match kind {
        RouteKind::Grpc => {
            let entry = store.grpc_routes().get(object)?;
            return Some(Compiled::Http(http::compile(*kind, &entry.object, resolver)));
        }
        RouteKind::Http => {
            let entry = store.http_routes().get(object)?;
            return Some(Compiled::Http(http::compile(*kind, &entry.object, resolver)));
        }
        RouteKind::Tcp => store.tcp_routes(),
        RouteKind::Tls => store.tls_routes(),
        RouteKind::Udp => store.udp_routes(),
    };
    Some(Compiled::Stream(Box::new(stream::compile(*kind, &stream.get(object)?.object, resolver))))
}

impl Routes {
    pub(super) fn compiled(&self, name: &RouteName) -> Option<&Arc<Compiled>> {
        self.states.get(name).map(|state| &state.compiled)
    }

    pub(super) fn attachments(&self, name: &RouteName) -> Option<&[Attachment]> {
        self.states.get(name).map(|state| &*state.in_force.attachments)
    }

    pub(super) fn reads(&self, name: &RouteName) -> impl Iterator<Item = &Read> {
        self.states.get(name).into_iter().flat_map(|state| &*state.reads)
    }

    /// The routes that name this parent, whether they attach or not.
    pub(super) fn of_parent<'a>(&'a self, parent: &Parent) -> impl Iterator<Item = &'a RouteName> + use<'a> {
        self.by_parent.get(parent).into_iter().flatten()
    }

    /// The routes that were compiled from this.
    pub(super) fn of_read<'a>(&'a self, read: &Read) -> impl Iterator<Item = &'a RouteName> + use<'a> {
        self.by_read.get(read).into_iter().flatten()
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &RouteName> {
        self.states.keys().filter(move |name| *name.object.namespace == *namespace)
    }

    /// Compiles the route anew. What is in force stays as it was. False: the route is not there (any more).
    pub(super) fn compile(&mut self, name: &RouteName, store: &Store, resolver: &mut Resolver<'_>) -> bool {
        let Some(compiled) = compile(name, store, resolver) else {
            return false;
        };
        let reads: Box<[Read]> = std::mem::take(&mut resolver.reads).into_iter().collect();
        let parents = compiled.facts().parents();
        let before = self.states.remove(name);
        if let (Some(Compiled::Stream(before)), Compiled::Stream(after)) =
            (before.as_ref().map(|before| &*before.compiled), &compiled)
        {
            after.inherit(before);
        }
        let parents_before = before.as_ref().map(State::parents).unwrap_or_default();
        let (reads_before, in_force) =
            before.map(|before| (before.reads, before.in_force)).unwrap_or_default();
        reindex(&mut self.by_parent, name, &parents_before, &parents);
        reindex(&mut self.by_read, name, &reads_before, &reads);
        self.states.insert(name.clone(), State { compiled: Arc::new(compiled), reads, in_force });
        true
    }

    /// Puts the route in force as it is compiled now. Returns what was.
    pub(super) fn enforce(&mut self, name: &RouteName, attachments: Attachments) -> Option<InForce> {
        let state = self.states.get_mut(name)?;
        let compiled = Some(state.compiled.clone());
        Some(std::mem::replace(&mut state.in_force, InForce { compiled, attachments }))
    }

    pub(super) fn in_force(&self, name: &RouteName) -> Option<&InForce> {
        self.states.get(name).map(|state| &state.in_force)
    }

    /// Returns what was in force.
    pub(super) fn remove(&mut self, name: &RouteName) -> Option<InForce> {
        let state = self.states.remove(name)?;
        reindex(&mut self.by_parent, name, &state.parents(), &[]);
        reindex(&mut self.by_read, name, &state.reads, &[]);
        Some(state.in_force)
    }
}

fn reindex<K: Clone + Ord + Hash>(
    index: &mut HashMap<K, BTreeSet<RouteName>>,
    name: &RouteName,
    before: &[K],
    after: &[K],
) {
    for gone in before.iter().filter(|key| after.binary_search(key).is_err()) {
        if let Some(names) = index.get_mut(gone) {
            names.remove(name);
            if names.is_empty() {
                index.remove(gone);
            }
        }
    }
    for new in after.iter().filter(|key| before.binary_search(key).is_err()) {
        index.entry(new.clone()).or_default().insert(name.clone());
    }
}
