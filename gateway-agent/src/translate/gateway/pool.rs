//! Addresses of the pool: which a Gateway has, and whether they are served already.

use std::net::IpAddr;

use super::{Asked, GatewayPlan};
use crate::provision::Pool;
use crate::provision::pool::{Assignment, Claimant, assign, is_of};
use crate::provision::range::list;
use crate::status::Address;
use crate::status::names::reason;
use crate::translate::Config;
use crate::translate::conditions::Problem;

pub(super) fn place(plans: &mut [GatewayPlan], config: &Config, pool: &Pool) {
    let asked: Vec<Asked> = plans
        .iter_mut()
        .map(|plan| {
            let mut asked = Asked::of(&plan.gateway);
            plan.refuse(&asked);
            plan.unusable = asked.usable(
                |address| is_of(&pool.ranges, address),
                || format!("the pool has {}; not of it", list(&pool.ranges)),
            );
            asked
        })
        .collect();
    let claimants: Vec<Claimant<'_>> = plans
        .iter()
        .zip(&asked)
        // What is not accepted has no address that others might need.
        .map(|(plan, asked)| Claimant {
            gateway: plan.name(),
            fixed: if plan.problem.is_none() { asked.fixed.clone() } else { Vec::new() },
            any: asked.any && plan.problem.is_none(),
            recorded: &plan.gateway.observed_addresses,
        })
        .collect();
    let assigned = assign(&pool.ranges, &claimants);
    for (plan, assignment) in plans.iter_mut().zip(assigned) {
        settle(plan, assignment, config, pool);
    }
}

fn settle(plan: &mut GatewayPlan, assignment: Assignment, config: &Config, pool: &Pool) {
    let Assignment { addresses, exhausted } = assignment;
    plan.addresses = addresses.iter().copied().map(Address::Ip).collect();
    if !exhausted.is_empty() {
        let families = exhausted.join(" and no ");
        let message = format!("no {families} address is left in the pool {}", list(&pool.ranges));
        if addresses.is_empty() {
            plan.unusable.get_or_insert_with(|| Problem::new(reason::ADDRESS_NOT_ASSIGNED, message));
        } else {
            plan.notes.push(message);
        }
    }
    let recorded = &plan.gateway.observed_addresses;
    let is_served = |address: &IpAddr| !pool.is_recorded || recorded.contains(address);
    let served: Vec<IpAddr> = addresses.iter().copied().filter(is_served).collect();
    if served.len() < addresses.len() {
        let message = "its addresses are not recorded in its status yet";
        plan.unusable.get_or_insert_with(|| Problem::new(reason::ADDRESS_NOT_ASSIGNED, message));
    }
    let undelivered: Vec<String> = served
        .iter()
        .filter(|address| config.undelivered.addresses.contains(address))
        .map(IpAddr::to_string)
        .collect();
    if !undelivered.is_empty() {
        let message =
            format!("{} does not arrive at this pod: {}", undelivered.join(", "), config.undelivered.reason);
        plan.unusable.get_or_insert_with(|| Problem::new(reason::ADDRESS_NOT_USABLE, message));
    }
    plan.bindings = served.into_iter().map(Some).collect();
}
