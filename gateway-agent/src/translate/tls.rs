//! TLS passthrough listeners: server name to route.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::hostname::{Pattern, Specificity, specificity};
use super::route::Host;
use super::stream::CompiledStream;
use crate::snapshot::{HostTable, ListenerName, ObjectName, TlsMode, TlsRule, TlsTable, TlsVirtualListener};
use crate::store::objects::Age;

/// A listener's share of the table of a port.
#[derive(Debug)]
pub(super) struct Member<'a> {
    pub(super) name: &'a ListenerName,
    pub(super) hostname: &'a Pattern,
    pub(super) routes: Vec<(&'a CompiledStream<'a>, &'a [Host])>,
}

pub(super) fn table(members: &[Member<'_>]) -> TlsTable {
    let mut table = TlsTable::default();
    for member in members {
        table.listeners.insert(member.hostname.as_deref(), Arc::new(virtual_listener(member)));
    }
    table
}

/// The route with the most specific hostname of its own, then the oldest, then by name.
type Seniority<'a> = (Reverse<Specificity>, (Age, &'a ObjectName));

fn virtual_listener(member: &Member<'_>) -> TlsVirtualListener {
    let mut winners: BTreeMap<&Pattern, (Seniority<'_>, &CompiledStream<'_>)> = BTreeMap::new();
    for (compiled, hosts) in &member.routes {
        for host in *hosts {
            let seniority = (Reverse(specificity(&host.original)), compiled.route.meta.seniority());
            let winner = winners.entry(&host.effective).or_insert((seniority, compiled));
            if seniority < winner.0 {
                *winner = (seniority, compiled);
            }
        }
    }
    let mut hosts = HostTable::default();
    for (pattern, (_, compiled)) in winners {
        let rule = TlsRule { route: compiled.name.clone(), split: compiled.shares.split() };
        hosts.insert(pattern.as_deref(), Arc::new(rule));
    }
    TlsVirtualListener { name: member.name.clone(), mode: TlsMode::Passthrough(hosts) }
}
