//! The state of translation: what was made of the objects so far, and what of it a change concerns.
//!
//! A change costs what it changed. Every part is kept with what it was made of, found through indices from the inputs
//! to the parts:
//!
//! | part | made of | made again when |
//! |---|---|---|
//! | policies | BackendTLSPolicies and what they name | one of these changes |
//! | topology: Gateways, ListenerSets, listeners | these, what they name, grants, labels, configuration | one of these changes |
//! | a compiled route | the route, the Services, slices and policies that it names, grants of their namespaces | one of these changes |
//! | where a route is attached | the route, the listeners of its parents, labels of its namespace | one of these changes |
//! | a host's table | the compiled routes attached there | one of these changes |
//! | what is to be provisioned | the topology, Services and slices | one of these changes |
//! | an entry of the snapshot | its listeners and their tables | one of these changes |
//! | a status | what the object itself became | that changes |
//!
//! What comes out equal keeps its allocation, so that whoever compares sees by the pointer that nothing has changed.
//!
//! **Invariant:** the result is that of a fresh translator, whatever came before; a property test holds it.

use std::collections::BTreeSet;

use super::authority::Maps;
use super::backend::{Endpoints, Read, Resolver};
use super::certificates::Certificates;
use super::entries::{Entries, Parts};
use super::inputs::Inputs;
use super::policy::{self, Policies};
use super::route;
use super::routes::{self, InForce, Routes, route_kind};
use super::statuses::Statuses;
use super::tables::Tables;
use super::topology::{self, Topology};
use super::{Config, Translation};
use crate::api::{Kind, ObjectId};
use crate::snapshot::{ListenerName, ObjectName, RouteKind, RouteName};
use crate::status::Parent;
use crate::store::Store;

#[derive(Debug, Default)]
pub struct Translator {
    config: Option<Config>,
    certificates: Certificates,
    /// Those that backends are verified by.
    authorities: Maps,
    endpoints: Endpoints,
    policies: Policies,
    topology: Topology,
    routes: Routes,
    tables: Tables,
    entries: Entries,
    statuses: Statuses,
    translation: Translation,
    gone: Gone,
    work: Work,
}

/// What the data paths serve no more, so that what was kept for it can go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    pub listeners: Vec<ListenerName>,
    pub routes: Vec<RouteName>,
}

/// How much was done: grows for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    pub topologies_planned: u64,
    pub policies_planned: u64,
    pub routes_compiled: u64,
    pub routes_attached: u64,
    pub hosts_made: u64,
    pub entries_made: u64,
    pub statuses_changed: u64,
}

/// What is to be made again.
#[derive(Debug, Default)]
struct Todo {
    policies: bool,
    topology: bool,
    compile: BTreeSet<RouteName>,
    attach: BTreeSet<RouteName>,
    /// Listeners whose routes changed.
    listeners: BTreeSet<ListenerName>,
    /// Services whose routes changed, or where these are attached.
    services: BTreeSet<ObjectName>,
}

impl Translator {
    /// Brings the translation up to date. `dirty`: everything in `store` that changed, came or went since the last call.
    pub fn update(&mut self, store: &Store, dirty: &BTreeSet<ObjectId>, config: &Config) -> &Translation {
        let mut todo = self.todo(store, dirty, config);
        if todo.policies {
            self.plan_policies(store, config, &mut todo);
        }
        if todo.topology {
            self.plan_topology(store, config, &mut todo);
        }
        self.compile(store, config, &mut todo);
        self.attach(store, &mut todo);
        self.make_entries(&mut todo);
        self.set_parent_statuses(&todo);
        self.set_policy_statuses(&todo);
        let wanted = &self.translation.provisions;
        let is_read = |id: &ObjectId| self.topology.provisions_read(id, wanted, store, config);
        if todo.topology || dirty.iter().any(is_read) {
            self.translation.provisions = self.topology.provisions(store, config);
        }
        self.translation.listeners = self.entries.listeners().clone();
        self.statuses.apply(&mut self.translation.statuses);
        self.work.statuses_changed = self.statuses.n_changed();
        &self.translation
    }

    pub const fn translation(&self) -> &Translation {
        &self.translation
    }

    /// What went since this was last called.
    pub fn take_gone(&mut self) -> Gone {
        std::mem::take(&mut self.gone)
    }

    /// Whether a route is attached anywhere.
    pub fn serves_route(&self, name: &RouteName) -> bool {
        self.routes.attachments(name).is_some_and(|attachments| !attachments.is_empty())
    }

    /// Whether there is an entry of this listener.
    pub fn serves_listener(&self, name: &ListenerName) -> bool {
        self.entries.listeners().iter().any(|listener| listener.names.contains(name))
    }

    pub const fn work(&self) -> Work {
        self.work
    }

    /// What the changes concern directly.
    fn todo(&mut self, store: &Store, dirty: &BTreeSet<ObjectId>, config: &Config) -> Todo {
        let mut todo = Todo::default();
        if self.config.as_ref() != Some(config) {
            todo.policies = true;
            todo.topology = true;
            let before = self.config.replace(config.clone());
            // A route's references depend on nothing else of it.
            if before.is_none_or(|before| before.watched != config.watched) {
                todo.compile = routes::all(store);
            }
        }
        for id in dirty {
            let name = &id.name;
            // The ports of a Service that was made for any Gateway are taken.
            let takes_ports = id.kind == Kind::Service && store.is_managed(id);
            todo.topology |= takes_ports || self.topology.has_read(id);
            todo.policies |= self.policies.reads.contains(id);
            match id.kind {
                Kind::BackendTlsPolicy => todo.policies = true,
                // What names them has read them.
                Kind::ConfigMap | Kind::Secret => {}
                // Their Services are in the list too.
                Kind::EndpointSlice => {}
                Kind::Gateway | Kind::ListenerSet => todo.topology = true,
                Kind::Namespace => {
                    // A filter anywhere may select by its labels.
                    todo.topology = true;
                    todo.attach.extend(self.routes.in_namespace(&name.name).cloned());
                }
                Kind::ReferenceGrant => {
                    todo.topology = true;
                    let read = Read::Grants(name.namespace.clone());
                    todo.compile.extend(self.routes.of_read(&read).cloned());
                }
                Kind::Service => {
                    self.endpoints.touch(name);
                    todo.compile.extend(self.routes.of_read(&Read::Service(name.clone())).cloned());
                }
                Kind::GrpcRoute | Kind::HttpRoute | Kind::TcpRoute | Kind::TlsRoute | Kind::UdpRoute => {
                    let kind = route_kind(id.kind);
                    todo.compile.extend(kind.map(|kind| RouteName { kind, object: name.clone() }));
                }
            }
        }
        todo
    }

    fn plan_policies(&mut self, store: &Store, config: &Config, todo: &mut Todo) {
        let policies = policy::plan(Inputs::new(store), &mut self.authorities, config);
        for service in policies.cover.differences(&self.policies.cover) {
            self.endpoints.touch(&service);
            todo.compile.extend(self.routes.of_read(&Read::Service(service)).cloned());
        }
        for gone in self.policies.plans.keys().filter(|name| !policies.plans.contains_key(*name)) {
            self.statuses.remove(&self.translation.statuses, policy::KIND, gone);
        }
        self.policies = policies;
        self.work.policies_planned += 1;
    }

    fn plan_topology(&mut self, store: &Store, config: &Config, todo: &mut Todo) {
        let topology = topology::plan(store, config, &mut self.certificates);
        for parent in topology.differences(&self.topology) {
            todo.attach.extend(self.routes.of_parent(&parent).cloned());
            if topology.owner(&parent).is_none() {
                self.statuses.remove(&self.translation.statuses, parent.kind.as_str(), &parent.name);
            }
        }
        self.topology = topology;
        self.work.topologies_planned += 1;
    }

    fn compile(&mut self, store: &Store, config: &Config, todo: &mut Todo) {
        let mut resolver = Resolver {
            store,
            config,
            cover: &self.policies.cover,
            endpoints: &mut self.endpoints,
            reads: BTreeSet::new(),
        };
        let mut unread = BTreeSet::new();
        for name in &todo.compile {
            let before = services(&self.routes, name);
            if self.routes.compile(name, store, &mut resolver) {
                self.work.routes_compiled += 1;
                todo.attach.insert(name.clone());
            } else if let Some(before) = self.routes.remove(name) {
                self.tables.replace(name, &before, &InForce::default(), &self.routes);
                self.statuses.remove(&self.translation.statuses, name.kind.as_str(), &name.object);
                todo.attach.remove(name);
                self.gone.routes.push(name.clone());
            }
            unread.extend(before.iter().cloned());
            todo.services.extend(before);
        }
        for service in unread {
            if self.routes.of_read(&Read::Service(service.clone())).next().is_none() {
                self.endpoints.forget(&service);
            }
        }
    }

    fn attach(&mut self, store: &Store, todo: &mut Todo) {
        for name in &todo.attach {
            let Some(compiled) = self.routes.compiled(name) else { continue };
            let (status, after) = route::attach(compiled.facts(), compiled.verdict(), &self.topology, store);
            self.statuses.set(&self.translation.statuses, status);
            let is_compiled = todo.compile.contains(name);
            let is_attached = !after.is_empty();
            if !is_compiled && self.routes.attachments(name) == Some(&*after) {
                continue;
            }
            let Some(before) = self.routes.enforce(name, after) else { continue };
            let Some(after) = self.routes.in_force(name) else { continue };
            self.tables.replace(name, &before, after, &self.routes);
            if !is_attached && !before.attachments.is_empty() {
                self.gone.routes.push(name.clone());
            }
            todo.services.extend(services(&self.routes, name));
        }
        self.work.routes_attached += todo.attach.len() as u64;
    }

    fn make_entries(&mut self, todo: &mut Todo) {
        let changed = self.tables.take_changed();
        self.work.hosts_made = self.tables.n_hosts_made();
        let parts = Parts { topology: &self.topology, tables: &self.tables, routes: &self.routes };
        if todo.topology {
            self.gone.listeners.extend(self.entries.regroup(parts));
        } else {
            self.work.entries_made += self.entries.update(&changed, parts) as u64;
        }
        todo.listeners = changed;
    }

    fn set_parent_statuses(&mut self, todo: &Todo) {
        let parents: BTreeSet<Parent> = if todo.topology {
            self.topology.parents().cloned().collect()
        } else {
            todo.listeners.iter().map(Parent::of).collect()
        };
        for parent in parents {
            let tables = &self.tables;
            if let Some(status) = self.topology.status(&parent, |listener| tables.n_routes(listener)) {
                self.statuses.set(&self.translation.statuses, status);
            }
        }
    }

    /// A policy's ancestors are the Gateways through which its Services are reached.
    fn set_policy_statuses(&mut self, todo: &Todo) {
        // Whether a TLSRoute sends to backends or passes on depends on the listeners.
        let names: BTreeSet<ObjectName> = if todo.policies || todo.topology {
            self.policies.plans.keys().cloned().collect()
        } else {
            todo.services.iter().flat_map(|service| self.policies.on(service)).cloned().collect()
        };
        for name in names {
            let Some(plan) = self.policies.plans.get(&name) else { continue };
            let reads = plan.services.iter().map(|service| Read::Service(service.clone()));
            let readers = reads.flat_map(|read| self.routes.of_read(&read));
            let gateways = readers.flat_map(|route| {
                let attachments = self.routes.attachments(route).into_iter().flatten();
                let listeners = attachments.map(|(listener, _)| listener);
                let reached = listeners.filter(|listener| match route.kind {
                    RouteKind::Grpc | RouteKind::Http => true,
                    RouteKind::Tls => self.topology.terminates(listener),
                    RouteKind::Tcp | RouteKind::Udp => false,
                });
                reached.map(|listener| listener.gateway.clone())
            });
            let status = plan.status(&gateways.collect());
            self.statuses.set(&self.translation.statuses, status);
        }
    }
}

/// The Services that a route names.
fn services(routes: &Routes, name: &RouteName) -> Vec<ObjectName> {
    let services = routes.reads(name).filter_map(|read| match read {
        Read::Service(service) => Some(service.clone()),
        Read::Grants(_) => None,
    });
    services.collect()
}
