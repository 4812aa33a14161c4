use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use proptest::prelude::*;

use super::{Assignment, Claimant, assign};
use crate::provision::IpRange;
use crate::snapshot::ObjectName;

fn name(name: &str) -> ObjectName {
    ObjectName::new("default", name)
}

fn ranges(text: &str) -> Vec<IpRange> {
    text.split(',').map(|range| range.parse().unwrap()).collect()
}

fn ips(text: &str) -> Vec<IpAddr> {
    text.split_whitespace().map(|address| address.parse().unwrap()).collect()
}

/// Each Gateway as `fixed | recorded`, with `any` where nothing is fixed or an asterisk stands there; the assignments
/// as text.
fn check(pool: &str, gateways: &[&str]) -> Vec<String> {
    let names: Vec<ObjectName> = (0..gateways.len()).map(|index| name(&format!("g{index}"))).collect();
    let parsed: Vec<(Vec<IpAddr>, bool, Vec<IpAddr>)> = gateways
        .iter()
        .map(|text| {
            let (fixed, recorded) = text.split_once('|').unwrap();
            let any = fixed.trim().is_empty() || fixed.contains('*');
            (ips(&fixed.replace('*', "")), any, ips(recorded))
        })
        .collect();
    let claimants: Vec<Claimant<'_>> = parsed
        .iter()
        .zip(&names)
        .map(|((fixed, any, recorded), gateway)| Claimant {
            gateway,
            fixed: fixed.clone(),
            any: *any,
            recorded,
        })
        .collect();
    let text = |assignment: &Assignment| {
        let addresses: Vec<String> = assignment.addresses.iter().map(IpAddr::to_string).collect();
        let exhausted = assignment.exhausted.iter().map(|family| format!("no {family}"));
        addresses.into_iter().chain(exhausted).collect::<Vec<_>>().join(" ")
    };
    assign(&ranges(pool), &claimants).iter().map(text).collect()
}

#[test]
fn lowest_free_address_of_each_family_comes_first() {
    assert_eq!(
        check("192.0.2.8/30,2001:db8::10-2001:db8::11", &["|", "|"]),
        ["192.0.2.9 2001:db8::10", "192.0.2.10 2001:db8::11"]
    );
}

#[test]
fn second_range_of_a_family_follows_when_the_first_is_used_up() {
    assert_eq!(check("192.0.2.1,192.0.2.7", &["|", "|"]), ["192.0.2.1", "192.0.2.7"]);
}

#[test]
fn recorded_address_is_kept_also_by_a_younger_gateway() {
    assert_eq!(check("192.0.2.1-192.0.2.3", &["|", "| 192.0.2.1"]), ["192.0.2.2", "192.0.2.1"]);
}

#[test]
fn older_gateway_keeps_an_address_that_two_records_claim() {
    assert_eq!(check("192.0.2.1-192.0.2.3", &["| 192.0.2.2", "| 192.0.2.2"]), ["192.0.2.2", "192.0.2.1"]);
}

#[test]
fn recorded_address_that_the_pool_lost_is_replaced() {
    assert_eq!(check("192.0.2.1-192.0.2.3", &["| 198.51.100.1"]), ["192.0.2.1"]);
}

#[test]
fn used_up_pool_says_of_which_family_nothing_is_left() {
    assert_eq!(
        check("192.0.2.1,2001:db8::1-2001:db8::2", &["|", "|", "|"]),
        ["192.0.2.1 2001:db8::1", "2001:db8::2 no IPv4", "no IPv4 no IPv6"]
    );
}

#[test]
fn address_that_is_asked_for_is_given_to_no_one_else_by_chance() {
    assert_eq!(check("192.0.2.1-192.0.2.3", &["|", "192.0.2.1 |"]), ["192.0.2.2", "192.0.2.1"]);
}

#[test]
fn gateways_that_ask_for_the_same_address_share_it() {
    assert_eq!(check("192.0.2.1-192.0.2.3", &["192.0.2.2 |", "192.0.2.2 |"]), ["192.0.2.2", "192.0.2.2"]);
    // Nobody loses what they have because somebody else wants it.
    assert_eq!(check("192.0.2.1-192.0.2.3", &["| 192.0.2.2", "192.0.2.2 |"]), ["192.0.2.2", "192.0.2.2"]);
}

#[test]
fn one_that_is_asked_for_and_any_other_are_two() {
    let first = check("192.0.2.1-192.0.2.3", &["192.0.2.2 * |"]);
    assert_eq!(first, ["192.0.2.2 192.0.2.1"]);
    assert_eq!(check("192.0.2.1-192.0.2.3", &["192.0.2.2 * | 192.0.2.2 192.0.2.1"]), first);
}

proptest! {
    /// Gateways come and go, agents start anew: what somebody has they keep, and nobody has what another has.
    #[test]
    fn assignments_are_stable_and_disjoint(steps in proptest::collection::vec((0usize..8, any::<bool>()), 1..40)) {
        let pool = ranges("192.0.2.1-192.0.2.6,2001:db8::1-2001:db8::5");
        let mut recorded: BTreeMap<usize, Vec<IpAddr>> = BTreeMap::new();
        for (gateway, comes) in steps {
            if comes {
                recorded.entry(gateway).or_default();
            } else {
                recorded.remove(&gateway);
            }
            let names: Vec<ObjectName> = recorded.keys().map(|index| name(&format!("g{index}"))).collect();
            let claimants: Vec<Claimant<'_>> = recorded
                .values()
                .zip(&names)
                .map(|(recorded, gateway)| Claimant { gateway, fixed: Vec::new(), any: true, recorded })
                .collect();
            let assigned = assign(&pool, &claimants);
            let all: Vec<IpAddr> = assigned.iter().flat_map(|one| one.addresses.iter().copied()).collect();
            prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
            for (before, now) in recorded.values_mut().zip(assigned) {
                prop_assert!(before.iter().all(|address| now.addresses.contains(address)));
                *before = now.addresses;
            }
        }
    }
}
