//! Listeners that a client may take for each other although each has hostnames and certificates of its own.
//!
//! A client that speaks HTTP/2 may send requests for one of them over a connection that it opened to the other, where the
//! hostnames overlap or a certificate is good for both; they are then misdirected (GEP-3567). Both are told so; neither
//! is refused.

use std::collections::HashMap;

use super::conditions::Problem;
use super::hostname::{Pattern, ancestors};
use super::listener::ListenerPlan;
use crate::snapshot::ListenerKey;
use crate::status::names::reason;
use crate::store::objects::ListenerProtocol;

/// Positions by hostname.
type Members<'a> = HashMap<&'a Pattern, usize>;

/// Problems by position in `plans`.
pub(super) fn overlaps(plans: &[ListenerPlan]) -> HashMap<usize, Problem> {
    let mut by_key: HashMap<ListenerKey, Members<'_>> = HashMap::new();
    for (index, plan) in plans.iter().enumerate() {
        if plan.spec.protocol == ListenerProtocol::Https && plan.is_accepted() {
            for key in &plan.keys {
                by_key.entry(*key).or_default().insert(&plan.spec.hostname, index);
            }
        }
    }
    let mut found = HashMap::new();
    for members in by_key.values() {
        by_hostname(members, &mut found);
        // Where both overlap the spec wants this reason.
        by_certificate(members, plans, &mut found);
    }
    found
}

fn by_hostname(members: &Members<'_>, found: &mut HashMap<usize, Problem>) {
    let message = "another HTTPS listener of this port has a hostname that overlaps with this one's; clients that \
                   reuse HTTP/2 connections may send requests to the wrong one";
    for (pattern, index) in members {
        for wider in ancestors(pattern) {
            if let Some(other) = members.get(&wider) {
                for index in [*index, *other] {
                    let problem = || Problem::new(reason::OVERLAPPING_HOSTNAMES, message);
                    found.entry(index).or_insert_with(problem);
                }
            }
        }
    }
}

fn by_certificate(members: &Members<'_>, plans: &[ListenerPlan], found: &mut HashMap<usize, Problem>) {
    let message = "a certificate is good for the hostname of another HTTPS listener of this port; clients that reuse \
                   HTTP/2 connections may send requests to the wrong one";
    // A wildcard in a certificate stands for one label.
    let mut below: HashMap<&str, Vec<usize>> = HashMap::new();
    for (pattern, index) in members {
        if let Some((_, parent)) = pattern.as_deref().and_then(|name| name.split_once('.')) {
            below.entry(parent).or_default().push(*index);
        }
    }
    for index in members.values() {
        for name in plans[*index].terms.certificates.iter().flat_map(|certificate| certificate.names()) {
            let others: &[usize] = match name.strip_prefix("*.") {
                Some(parent) => below.get(parent).map(Vec::as_slice).unwrap_or_default(),
                None => members.get(&Some(name.clone())).map(std::slice::from_ref).unwrap_or_default(),
            };
            for other in others.iter().filter(|other| *other != index) {
                for index in [*index, *other] {
                    found.insert(index, Problem::new(reason::OVERLAPPING_CERTIFICATES, message));
                }
            }
        }
    }
}
