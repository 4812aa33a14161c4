//! What is attached to each listener, and the tables by hostname made of it.
//!
//! A route that comes, goes or changes is taken out of the hosts where it was and put into those where it is; everything
//! else is shared with the tables before.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::hostname::{Pattern, Specificity, specificity};
use super::precedence::placed;
use super::route::Host;
use super::routes::{Compiled, InForce, Routes};
use super::stream::CompiledStream;
use super::tls;
use crate::snapshot::{HostTable, HttpMatch, ListenerName, RouteKind, RouteName, TlsRule, VirtualHost};
use crate::store::objects::Meta;

/// By listener, whether it is served or not.
#[derive(Debug, Default)]
pub(super) struct Tables {
    listeners: HashMap<ListenerName, ListenerTable>,
    /// Those of which something changed since this was last asked for.
    changed: BTreeSet<ListenerName>,
    n_hosts_made: u64,
}

#[derive(Debug, Default)]
pub(super) struct ListenerTable {
    /// How many routes are Accepted here.
    n_routes: usize,
    /// Those of them that have no hostnames to be told apart by: one of them serves.
    pub(super) streams: BTreeSet<RouteName>,
    pub(super) http: HostTable<Arc<VirtualHost>>,
    /// Of GRPCRoutes.
    pub(super) grpc: HostTable<Arc<VirtualHost>>,
    pub(super) tls: HostTable<Arc<TlsRule>>,
    /// TLSRoutes by effective hostname, each with the most specific of its own hostnames that leads there: one serves.
    rivals: BTreeMap<Pattern, Vec<(RouteName, Specificity)>>,
}

impl Tables {
    pub(super) fn get(&self, listener: &ListenerName) -> Option<&ListenerTable> {
        self.listeners.get(listener)
    }

    pub(super) fn n_routes(&self, listener: &ListenerName) -> usize {
        self.get(listener).map_or(0, |table| table.n_routes)
    }

    /// How many hosts were made in all.
    pub(super) const fn n_hosts_made(&self) -> u64 {
        self.n_hosts_made
    }

    pub(super) fn take_changed(&mut self) -> BTreeSet<ListenerName> {
        std::mem::take(&mut self.changed)
    }

    /// Takes a route from where and what it was to where and what it is.
    pub(super) fn replace(&mut self, name: &RouteName, before: &InForce, after: &InForce, routes: &Routes) {
        let listeners: BTreeSet<&ListenerName> =
            before.attachments.iter().chain(&after.attachments).map(|(listener, _)| listener).collect();
        for listener in listeners {
            let table = self.listeners.entry(listener.clone()).or_default();
            let hosts_before = hosts_at(before, listener);
            let hosts_after = hosts_at(after, listener);
            let (was_here, is_here) = (hosts_before.is_some(), hosts_after.is_some());
            table.n_routes = table.n_routes + usize::from(is_here) - usize::from(was_here);
            let hosts = Hosts { before: strongest(hosts_before), after: strongest(hosts_after) };
            self.n_hosts_made += match name.kind {
                RouteKind::Grpc => replace_matches(&mut table.grpc, &hosts, matches(before), matches(after)),
                RouteKind::Http => replace_matches(&mut table.http, &hosts, matches(before), matches(after)),
                RouteKind::Tls => table.replace_tls(name, &hosts, routes),
                RouteKind::Tcp | RouteKind::Udp => {
                    if is_here {
                        table.streams.insert(name.clone());
                    } else {
                        table.streams.remove(name);
                    }
                    0
                }
            };
            if table.n_routes == 0 {
                self.listeners.remove(listener);
            }
            self.changed.insert(listener.clone());
        }
    }
}

/// The hosts of one route at one listener, each with the most specific of its hostnames that leads there.
struct Hosts<'a> {
    before: BTreeMap<&'a Pattern, Specificity>,
    after: BTreeMap<&'a Pattern, Specificity>,
}

impl<'a> Hosts<'a> {
    fn all(&self) -> BTreeSet<&'a Pattern> {
        self.before.keys().chain(self.after.keys()).copied().collect()
    }
}

fn hosts_at<'a>(in_force: &'a InForce, listener: &ListenerName) -> Option<&'a [Host]> {
    let position = in_force.attachments.binary_search_by(|(name, _)| name.cmp(listener)).ok()?;
    in_force.attachments.get(position).map(|(_, hosts)| &**hosts)
}

/// Each intersection once, with the most specific of the route's hostnames that lead to it.
fn strongest(hosts: Option<&[Host]>) -> BTreeMap<&Pattern, Specificity> {
    let mut found = BTreeMap::new();
    for host in hosts.unwrap_or_default() {
        let rank = specificity(&host.original);
        let best = found.entry(&host.effective).or_insert(rank);
        *best = rank.max(*best);
    }
    found
}

/// The matches of a route and what it is among the others.
type Matches<'a> = (&'a [HttpMatch], &'a Meta);

fn matches(in_force: &InForce) -> Option<Matches<'_>> {
    match in_force.compiled.as_deref()? {
        Compiled::Http(compiled) => Some((&compiled.matches, &compiled.route.meta)),
        Compiled::Stream(_) => None,
    }
}

fn stream<'a>(routes: &'a Routes, name: &RouteName) -> Option<&'a CompiledStream> {
    match &**routes.compiled(name)? {
        Compiled::Stream(compiled) => Some(compiled),
        Compiled::Http(_) => None,
    }
}

impl ListenerTable {
    fn replace_tls(&mut self, name: &RouteName, hosts: &Hosts<'_>, routes: &Routes) -> u64 {
        let all = hosts.all();
        for pattern in &all {
            let rivals = self.rivals.entry((*pattern).clone()).or_default();
            rivals.retain(|(rival, _)| rival != name);
            if let Some(original) = hosts.after.get(pattern) {
                rivals.push((name.clone(), *original));
            }
            let compiled = rivals.iter().filter_map(|(rival, rank)| Some((stream(routes, rival)?, *rank)));
            let winner = tls::winner(compiled).map(|winner| winner.tls_rule().clone());
            if rivals.is_empty() {
                self.rivals.remove(*pattern);
            }
            put(&mut self.tls, pattern, winner);
        }
        all.len() as u64
    }
}

/// Returns how many hosts it touched.
fn replace_matches(
    table: &mut HostTable<Arc<VirtualHost>>,
    hosts: &Hosts<'_>,
    before: Option<Matches<'_>>,
    after: Option<Matches<'_>>,
) -> u64 {
    let all = hosts.all();
    for pattern in &all {
        let known = table.at(pattern.as_deref()).cloned();
        let mut host = known.as_deref().cloned().unwrap_or_default();
        if let (Some((matches, route)), Some(original)) = (before, hosts.before.get(pattern)) {
            for (order, one) in placed(matches, route, *original) {
                host.remove(&order, &one.conditions.path);
            }
        }
        if let (Some((matches, route)), Some(original)) = (after, hosts.after.get(pattern)) {
            for (order, one) in placed(matches, route, *original) {
                host.insert(order, one.clone());
            }
        }
        let host = (!host.is_empty()).then(|| Arc::new(host));
        put(table, pattern, host);
    }
    all.len() as u64
}

/// What is equal stays as it is, so that readers see at once that it does.
fn put<T: Clone + PartialEq>(table: &mut HostTable<T>, pattern: &Pattern, value: Option<T>) {
    let host = pattern.as_deref();
    match value {
        None => drop(table.remove(host)),
        Some(value) => {
            if table.at(host) != Some(&value) {
                table.insert_shared(pattern.as_ref(), value);
            }
        }
    }
}
