//! Listeners whose hostnames overlap although each has certificates of its own.
//!
//! A client that speaks HTTP/2 may send requests for one of them over a connection that it opened to the other, which
//! are then misdirected (GEP-3567). Both are told so; neither is refused.

use std::collections::HashMap;

use super::conditions::Problem;
use super::hostname::{Pattern, ancestors};
use super::listener::ListenerPlan;
use crate::snapshot::ListenerKey;
use crate::status::names::reason;
use crate::store::objects::ListenerProtocol;

/// Problems by position in `plans`.
pub(super) fn overlaps(plans: &[ListenerPlan]) -> HashMap<usize, Problem> {
    let mut by_key: HashMap<ListenerKey, HashMap<&Pattern, usize>> = HashMap::new();
    for (index, plan) in plans.iter().enumerate() {
        if plan.spec.protocol == ListenerProtocol::Https && plan.is_accepted() {
            for key in &plan.keys {
                by_key.entry(*key).or_default().insert(&plan.spec.hostname, index);
            }
        }
    }
    let mut found = HashMap::new();
    for by_hostname in by_key.values() {
        for (pattern, index) in by_hostname {
            for wider in ancestors(pattern) {
                if let Some(other) = by_hostname.get(&wider) {
                    found.entry(*index).or_insert_with(problem);
                    found.entry(*other).or_insert_with(problem);
                }
            }
        }
    }
    found
}

fn problem() -> Problem {
    let message = "another HTTPS listener of this port has a hostname that overlaps with this one's; clients \
                   that reuse HTTP/2 connections may send requests to the wrong one";
    Problem::new(reason::OVERLAPPING_HOSTNAMES, message)
}
