//! Addresses that the network namespace has.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{Asked, GatewayPlan, MAX_STATUS_ADDRESSES};
use crate::status::Address;
use crate::translate::Config;
use crate::translate::inputs::Inputs;

pub(super) fn place(plan: &mut GatewayPlan, inputs: &Inputs<'_>, config: &Config) {
    let mut asked = Asked::of(&plan.gateway);
    plan.refuse(&asked);
    let own = if config.addresses.is_empty() { &config.local_addresses } else { &config.addresses };
    plan.unusable = asked.usable(
        |address| is_usable(address, config),
        || format!("this agent has {}; not its addresses", list(own)),
    );
    plan.bindings.extend(asked.fixed.iter().copied().map(Some));
    if asked.any {
        if config.addresses.is_empty() {
            plan.bindings.push(None);
        }
        let others = config.addresses.iter().filter(|address| !asked.fixed.contains(address));
        plan.bindings.extend(others.copied().map(Some));
    }
    let listed: Vec<IpAddr> = if plan.bindings.contains(&None) {
        everywhere(inputs, config)
    } else {
        plan.bindings.iter().copied().flatten().collect()
    };
    plan.addresses = listed.into_iter().map(Address::Ip).collect();
}

/// What the agent has, on all of its replicas: each of them would write the same.
fn everywhere(inputs: &Inputs<'_>, config: &Config) -> Vec<IpAddr> {
    let replicas = config.own_pod.replicas();
    let others = replicas.iter().flat_map(|service| inputs.ready_endpoints(service));
    let all: BTreeSet<IpAddr> = config.local_addresses.iter().copied().chain(others).collect();
    all.into_iter().collect()
}

/// One of `--address`, else any address of the network namespace.
fn is_usable(address: IpAddr, config: &Config) -> bool {
    if config.addresses.is_empty() {
        address.is_loopback() || config.local_addresses.contains(&address)
    } else {
        config.addresses.contains(&address)
    }
}

fn list(addresses: &[IpAddr]) -> String {
    let shown: Vec<String> =
        addresses.iter().take(MAX_STATUS_ADDRESSES).map(|address| address.to_string()).collect();
    if shown.is_empty() { "none beside loopback".into() } else { shown.join(", ") }
}
