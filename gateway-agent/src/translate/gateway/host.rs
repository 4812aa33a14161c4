//! Addresses that the network namespace has.

use std::net::IpAddr;

use super::{Asked, GatewayPlan, MAX_STATUS_ADDRESSES};
use crate::status::Address;
use crate::translate::Config;

pub(super) fn place(plan: &mut GatewayPlan, config: &Config) {
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
        config.local_addresses.clone()
    } else {
        plan.bindings.iter().copied().flatten().collect()
    };
    plan.addresses = listed.into_iter().map(Address::Ip).collect();
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
