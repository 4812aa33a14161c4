//! Entries of the snapshot: one per address and port, with all the listeners that share it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::Arc;

use super::listener::ListenerPlan;
use super::routes::{Compiled, Routes};
use super::tables::Tables;
use super::topology::Topology;
use crate::snapshot::{
    HttpTable, HttpVirtualListener, L4Service, Listener, ListenerKey, ListenerName, Protocol, Scheme,
    TlsMode, TlsTable, TlsVirtualListener,
};
use crate::store::objects::ListenerProtocol;

#[derive(Debug, Default)]
pub(super) struct Entries {
    groups: Vec<Group>,
    by_key: BTreeMap<ListenerKey, Arc<Listener>>,
    listeners: Arc<[Arc<Listener>]>,
}

/// Keys with the same members: the addresses of one Gateway share their tables.
#[derive(Debug)]
struct Group {
    keys: Vec<ListenerKey>,
    /// Positions in the topology.
    members: Vec<usize>,
    names: Arc<[ListenerName]>,
}

/// What entries are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    pub(super) topology: &'a Topology,
    pub(super) tables: &'a Tables,
    pub(super) routes: &'a Routes,
}

impl Entries {
    /// In key order, no key twice. The same allocation as before where nothing has changed.
    pub(super) const fn listeners(&self) -> &Arc<[Arc<Listener>]> {
        &self.listeners
    }

    /// The topology is another one: everything is looked at again. Returns the listeners that are served no more.
    pub(super) fn regroup(&mut self, parts: Parts<'_>) -> Vec<ListenerName> {
        let mut members_of: BTreeMap<ListenerKey, Vec<usize>> = BTreeMap::new();
        for (index, plan) in parts.topology.listeners.iter().enumerate() {
            for key in &plan.keys {
                members_of.entry(*key).or_default().push(index);
            }
        }
        let mut groups: BTreeMap<Vec<usize>, Vec<ListenerKey>> = BTreeMap::new();
        for (key, members) in members_of {
            groups.entry(members).or_default().push(key);
        }
        let before = self.names();
        let group = |(members, keys): (Vec<usize>, Vec<ListenerKey>)| {
            let names =
                members.iter().filter_map(|member| Some(parts.topology.listeners.get(*member)?.name.clone()));
            let names: Arc<[ListenerName]> = names.collect();
            // Readers tell by the allocation whether the names are the same.
            let known = keys.first().and_then(|key| self.by_key.get(key)).map(|listener| &listener.names);
            let names = known.filter(|known| **known == names).cloned().unwrap_or(names);
            Group { keys, members, names }
        };
        self.groups = groups.into_iter().map(group).collect();
        let kept: BTreeSet<ListenerKey> = self.groups.iter().flat_map(|group| group.keys.clone()).collect();
        let n_before = self.by_key.len();
        self.by_key.retain(|key, _| kept.contains(key));
        let mut is_changed = self.by_key.len() != n_before;
        for group in &self.groups {
            is_changed |= make(&mut self.by_key, group, parts);
        }
        self.collect(is_changed);
        let after = self.names();
        before.difference(&after).cloned().collect()
    }

    /// The tables of these listeners are other ones. Returns how many entries were made.
    pub(super) fn update(&mut self, changed: &BTreeSet<ListenerName>, parts: Parts<'_>) -> usize {
        let mut is_changed = false;
        let mut n_made = 0;
        for group in self.groups.iter().filter(|group| group.names.iter().any(|name| changed.contains(name)))
        {
            is_changed |= make(&mut self.by_key, group, parts);
            n_made += group.keys.len();
        }
        self.collect(is_changed);
        n_made
    }

    fn collect(&mut self, is_changed: bool) {
        if is_changed {
            self.listeners = self.by_key.values().cloned().collect();
        }
    }

    fn names(&self) -> BTreeSet<ListenerName> {
        self.by_key.values().flat_map(|listener| listener.names.iter().cloned()).collect()
    }
}

/// True where the entry of any key is another one than before.
fn make(by_key: &mut BTreeMap<ListenerKey, Arc<Listener>>, group: &Group, parts: Parts<'_>) -> bool {
    let members: Vec<&ListenerPlan> =
        group.members.iter().filter_map(|member| parts.topology.listeners.get(*member)).collect();
    let protocol = protocol(&members, parts);
    // The same for all: they would be in conflict.
    let proxy_sources = members.first().and_then(|member| member.proxy_sources.clone());
    let mut is_changed = false;
    for key in &group.keys {
        match &protocol {
            None => is_changed |= by_key.remove(key).is_some(),
            Some(protocol) => {
                let known = by_key.get(key);
                let is_same = known.is_some_and(|known| {
                    known.names == group.names
                        && known.proxy_sources == proxy_sources
                        && known.protocol == *protocol
                });
                if !is_same {
                    let (names, protocol) = (group.names.clone(), protocol.clone());
                    let proxy_sources = proxy_sources.clone();
                    let listener = Listener { key: *key, names, protocol, proxy_sources };
                    by_key.insert(*key, Arc::new(listener));
                    is_changed = true;
                }
            }
        }
    }
    is_changed
}

/// `None` where no member can serve.
fn protocol(members: &[&ListenerPlan], parts: Parts<'_>) -> Option<Protocol> {
    let first = members.first()?;
    match first.spec.protocol {
        ListenerProtocol::Http => Some(Protocol::Http(Arc::new(http(members, Scheme::Http, parts)))),
        ListenerProtocol::Https | ListenerProtocol::TlsPassthrough | ListenerProtocol::TlsTerminate => {
            tls(members, parts)
        }
        ListenerProtocol::Tcp => Some(Protocol::Tcp(l4(first, parts))),
        ListenerProtocol::Udp => Some(Protocol::Udp(l4(first, parts))),
        ListenerProtocol::Other(_) => None,
    }
}

fn http(members: &[&ListenerPlan], scheme: Scheme, parts: Parts<'_>) -> HttpTable {
    let mut table = HttpTable::default();
    for member in members {
        let known = parts.tables.get(&member.name);
        let (hosts, grpc) = known.map(|table| (table.http.clone(), table.grpc.clone())).unwrap_or_default();
        let port = member.spec.port.map_or(0, NonZeroU16::get);
        let (name, client_certificate) = (member.name.clone(), member.client_certificate.clone());
        let provenance = member.provenance.clone();
        let listener =
            HttpVirtualListener { name, port, scheme, client_certificate, provenance, hosts, grpc };
        table.listeners.insert(member.spec.hostname.as_deref(), Arc::new(listener));
    }
    table
}

/// A listener without a certificate keeps its names from the others and closes their connections.
fn tls(members: &[&ListenerPlan], parts: Parts<'_>) -> Option<Protocol> {
    if !members.iter().any(|member| member.is_valid()) {
        return None;
    }
    let is_https = |member: &&&ListenerPlan| member.spec.protocol == ListenerProtocol::Https;
    let https: Vec<&ListenerPlan> = members.iter().filter(is_https).copied().collect();
    let http = Arc::new(http(&https, Scheme::Https, parts));
    let mut table = TlsTable::default();
    for member in members {
        let hosts = || parts.tables.get(&member.name).map(|table| table.tls.clone()).unwrap_or_default();
        let terms = member.terms.clone();
        let mode = match member.spec.protocol {
            ListenerProtocol::Https => TlsMode::Https { terms, http: http.clone() },
            ListenerProtocol::TlsTerminate => {
                let client_certificate = member.client_certificate.clone();
                TlsMode::Terminate { terms, hosts: hosts(), client_certificate }
            }
            _ => TlsMode::Passthrough(hosts()),
        };
        let listener = TlsVirtualListener { name: member.name.clone(), mode };
        table.listeners.insert(member.spec.hostname.as_deref(), Arc::new(listener));
    }
    Some(Protocol::Tls(Arc::new(table)))
}

/// Of several routes the oldest serves.
fn l4(listener: &ListenerPlan, parts: Parts<'_>) -> Arc<L4Service> {
    let names = parts.tables.get(&listener.name).into_iter().flat_map(|table| &table.streams);
    let streams = names.filter_map(|name| match &**parts.routes.compiled(name)? {
        Compiled::Stream(compiled) => Some(compiled),
        Compiled::Http(_) => None,
    });
    let oldest = streams.min_by(|one, other| one.route.meta.seniority().cmp(&other.route.meta.seniority()));
    oldest.map(|oldest| oldest.l4_service().clone()).unwrap_or_default()
}
