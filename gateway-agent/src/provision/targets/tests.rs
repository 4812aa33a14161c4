use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

use proptest::prelude::*;

use super::{Allocator, Limits, PortKey, Targets};
use crate::snapshot::{ObjectName, Transport};

fn limits(range: std::ops::RangeInclusive<u16>) -> Limits {
    Limits { range, source_ports: 10_000..=29_999, admin_port: 9901 }
}

fn name(name: &str) -> ObjectName {
    ObjectName::new("default", name)
}

fn tcp(port: u16) -> PortKey {
    (Transport::Tcp, NonZeroU16::new(port).unwrap())
}

fn udp(port: u16) -> PortKey {
    (Transport::Udp, NonZeroU16::new(port).unwrap())
}

fn target(port: u16) -> NonZeroU16 {
    NonZeroU16::new(port).unwrap()
}

#[derive(Debug)]
struct Claimant<'a> {
    gateway: &'a ObjectName,
    ports: BTreeSet<PortKey>,
    stored: Targets,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Settled {
    served: Targets,
    wanted: Targets,
}

fn claimant<'a>(gateway: &'a ObjectName, ports: &[PortKey], stored: &[(PortKey, u16)]) -> Claimant<'a> {
    let stored = stored.iter().map(|(key, port)| (*key, target(*port))).collect();
    Claimant { gateway, ports: ports.iter().copied().collect(), stored }
}

/// As translation does it. What is served is of listeners that are there.
fn settle(
    claimants: &[Claimant<'_>],
    reserved: impl IntoIterator<Item = (Transport, NonZeroU16)>,
    limits: &Limits,
) -> Vec<Settled> {
    let mut allocator = Allocator::new(limits.clone(), reserved);
    let kept: Vec<Targets> = claimants.iter().map(|claimant| allocator.keep(&claimant.stored)).collect();
    claimants
        .iter()
        .zip(kept)
        .map(|(claimant, mut served)| {
            let wanted = allocator.complete(claimant.gateway, &claimant.ports, &served);
            served.retain(|key, _| claimant.ports.contains(key));
            Settled { served, wanted }
        })
        .collect()
}

#[test]
fn what_is_stored_is_served_and_kept() {
    let gateway = name("g");
    let settled =
        settle(&[claimant(&gateway, &[tcp(80)], &[(tcp(80), 61_234)])], [], &limits(61_000..=65_535));
    assert_eq!(settled[0].served, BTreeMap::from([(tcp(80), target(61_234))]));
    assert_eq!(settled[0].wanted, settled[0].served);
}

#[test]
fn what_is_not_stored_is_wanted_and_not_served() {
    let gateway = name("g");
    let settled = settle(&[claimant(&gateway, &[tcp(80), udp(80)], &[])], [], &limits(61_000..=65_535));
    assert!(settled[0].served.is_empty());
    assert_eq!(settled[0].wanted.keys().copied().collect::<Vec<_>>(), [tcp(80), udp(80)]);
}

#[test]
fn same_service_made_anew_gets_the_same_ports() {
    let gateway = name("g");
    let made = || settle(&[claimant(&gateway, &[tcp(80), tcp(443)], &[])], [], &limits(61_000..=65_535));
    assert_eq!(made(), made());
}

#[test]
fn stored_port_outside_of_the_range_is_kept() {
    let gateway = name("g");
    let settled =
        settle(&[claimant(&gateway, &[tcp(80)], &[(tcp(80), 61_234)])], [], &limits(40_000..=40_100));
    assert_eq!(settled[0].served, BTreeMap::from([(tcp(80), target(61_234))]));
}

#[test]
fn stored_port_that_the_agent_needs_itself_is_replaced() {
    let gateway = name("g");
    for taken in [80, 9901, 10_000, 29_999] {
        let settled =
            settle(&[claimant(&gateway, &[tcp(80)], &[(tcp(80), taken)])], [], &limits(61_000..=65_535));
        assert!(settled[0].served.is_empty(), "{taken}");
        assert!(settled[0].wanted[&tcp(80)].get() >= 61_000, "{taken}");
    }
    let settled = settle(&[claimant(&gateway, &[udp(80)], &[(udp(80), 9901)])], [], &limits(61_000..=65_535));
    assert_eq!(settled[0].served.len(), 1, "the admin server speaks TCP");
}

#[test]
fn older_gateway_keeps_a_port_that_two_claim() {
    let (old, new) = (name("z"), name("a"));
    let stored = [(tcp(80), 61_500)];
    let claimants = [claimant(&old, &[tcp(80)], &stored), claimant(&new, &[tcp(80)], &stored)];
    let settled = settle(&claimants, [], &limits(61_000..=65_535));
    assert_eq!(settled[0].served.len(), 1);
    assert!(settled[1].served.is_empty());
    assert_ne!(settled[1].wanted[&tcp(80)], target(61_500));
}

#[test]
fn full_range_is_known_to_be_full() {
    let gateway = name("g");
    let mut allocator = Allocator::new(limits(61_000..=61_001), [(Transport::Tcp, target(61_000))]);
    assert!(!allocator.is_full(Transport::Tcp));
    assert_eq!(allocator.complete(&gateway, &[tcp(80), tcp(81)].into(), &Targets::new()).len(), 1);
    assert!(allocator.is_full(Transport::Tcp) && !allocator.is_full(Transport::Udp));
}

#[test]
fn port_of_a_listener_that_went_is_free_when_the_service_has_lost_it() {
    let (one, other) = (name("a"), name("b"));
    let claimants = [claimant(&one, &[], &[(tcp(80), 61_000)]), claimant(&other, &[tcp(80)], &[])];
    let settled = settle(&claimants, [], &limits(61_000..=61_000));
    assert_eq!(settled[0], Settled::default());
    assert!(settled[1].wanted.is_empty());
    let settled = settle(&claimants[1..], [], &limits(61_000..=61_000));
    assert_eq!(settled[0].wanted, BTreeMap::from([(tcp(80), target(61_000))]));
    let settled = settle(&claimants[1..], [(Transport::Tcp, target(61_000))], &limits(61_000..=61_000));
    assert!(settled[0].wanted.is_empty());
}

/// What each of up to six Gateways wants and has; ports of a narrow range, so that they meet.
fn worlds() -> impl Strategy<Value = Vec<(BTreeSet<u16>, BTreeMap<u16, u16>)>> {
    let ports = proptest::collection::btree_set(1u16..6, 0..5);
    let stored = proptest::collection::btree_map(1u16..6, 60_995u16..61_015, 0..5);
    proptest::collection::vec((ports, stored), 0..6)
}

fn run(world: &[(BTreeSet<u16>, BTreeMap<u16, u16>)]) -> Vec<Settled> {
    let names: Vec<ObjectName> = (0..world.len()).map(|index| name(&format!("g{index}"))).collect();
    let claimants: Vec<Claimant<'_>> = world
        .iter()
        .zip(&names)
        .map(|((ports, stored), name)| {
            let ports: Vec<PortKey> = ports.iter().map(|port| tcp(*port)).collect();
            let stored: Vec<(PortKey, u16)> =
                stored.iter().map(|(port, target)| (tcp(*port), *target)).collect();
            claimant(name, &ports, &stored)
        })
        .collect();
    settle(&claimants, [], &limits(61_000..=61_011))
}

proptest! {
    #[test]
    fn no_port_belongs_to_two_listeners(world in worlds()) {
        let settled = run(&world);
        let wanted: Vec<NonZeroU16> = settled.iter().flat_map(|targets| targets.wanted.values().copied()).collect();
        prop_assert_eq!(wanted.iter().collect::<BTreeSet<_>>().len(), wanted.len());
    }

    #[test]
    fn listener_is_without_a_port_only_when_none_is_left(world in worlds()) {
        let settled = run(&world);
        let n_missing: usize =
            settled.iter().zip(&world).map(|(targets, (ports, _))| ports.len() - targets.wanted.len()).sum();
        let stored = world.iter().flat_map(|(_, stored)| stored.values().copied());
        let used = settled.iter().flat_map(|targets| targets.wanted.values().map(|target| target.get()));
        let used: BTreeSet<u16> = stored.chain(used).filter(|port| (61_000..=61_011).contains(port)).collect();
        prop_assert!(n_missing == 0 || used.len() == 12);
    }

    /// Also what another replica comes to that takes over as the leader.
    #[test]
    fn what_was_written_is_not_moved(world in worlds()) {
        let written: Vec<(BTreeSet<u16>, BTreeMap<u16, u16>)> = run(&world)
            .iter()
            .zip(&world)
            .map(|(targets, (ports, _))| {
                let stored = targets.wanted.iter().map(|(key, target)| (key.1.get(), target.get())).collect();
                (ports.clone(), stored)
            })
            .collect();
        for (targets, (_, stored)) in run(&written).iter().zip(&written) {
            let served: BTreeMap<u16, u16> =
                targets.served.iter().map(|(key, target)| (key.1.get(), target.get())).collect();
            prop_assert_eq!(&served, stored);
            // A port that could not be had may have become free.
            prop_assert!(targets.served.iter().all(|(key, target)| targets.wanted.get(key) == Some(target)));
        }
    }
}
