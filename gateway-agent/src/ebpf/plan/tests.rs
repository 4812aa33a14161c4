use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use gateway_common::abi::{ListenerValue, NO_BACKEND};
use proptest::prelude::*;

use super::{Found, Limits, MapOp, Plan, State, Vip, vips};
use crate::ebpf::desired::{Desired, Service, Table, Target};
use crate::snapshot::{ListenerKey, Transport};

const SLOTS: usize = 251;
const CHUNKS: u32 = 16;

/// The maps, as the kernel keeps them: bounded, and without a check of what a value leads to.
#[derive(Clone, Debug, Default)]
struct Maps {
    listeners: BTreeMap<Vip, ListenerValue>,
    slots: BTreeMap<u32, u32>,
    backends: BTreeMap<u32, Target>,
}

impl Maps {
    /// Applies the writes one by one; after each, all that a packet could meet must be whole.
    fn apply(&mut self, plan: &Plan, limits: Limits) {
        for op in &plan.ops {
            match op {
                MapOp::PutBackend { id, target } => {
                    assert_ne!(*id, NO_BACKEND);
                    let before = self.backends.insert(*id, *target);
                    let same = before.is_none_or(|before| before.address == target.address);
                    assert!(same, "id {id} changes its address");
                    assert!(self.backends.len() <= limits.backends, "more backends than the map takes");
                }
                MapOp::PutTable { first_chunk, ids } => {
                    assert!(first_chunk + CHUNKS <= limits.chunks, "past the end of the slot array");
                    for (slot, id) in (first_chunk * 16..).zip(ids.iter()) {
                        self.slots.insert(slot, *id);
                    }
                }
                MapOp::PutListener { vip, value } => {
                    self.listeners.insert(*vip, *value);
                    assert!(self.listeners.len() <= limits.listeners, "more listeners than the map takes");
                }
                MapOp::DeleteListener { vip } => assert!(self.listeners.remove(vip).is_some()),
                MapOp::DeleteBackend { id } => assert!(self.backends.remove(id).is_some()),
            }
            for vip in self.listeners.keys() {
                self.resolve(vip);
            }
        }
    }

    /// Where the slots of a listener lead.
    fn resolve(&self, vip: &Vip) -> Vec<Option<Target>> {
        let value = self.listeners[vip];
        (value.first_chunk * 16..value.first_chunk * 16 + value.n_slots)
            .map(|slot| match self.slots[&slot] {
                NO_BACKEND => None,
                id => Some(*self.backends.get(&id).expect("slot names a backend that is gone")),
            })
            .collect()
    }

    fn found(&self) -> Found {
        let table = |value: &ListenerValue| {
            let first = value.first_chunk * 16;
            (value.first_chunk, (first..first + value.n_slots).map(|slot| self.slots[&slot]).collect())
        };
        Found {
            listeners: self.listeners.clone(),
            tables: self.listeners.values().map(table).collect(),
            backends: self.backends.clone(),
        }
    }

    fn hold(&self, desired: &Desired, except: &BTreeMap<ListenerKey, String>) {
        let mut expected = BTreeMap::new();
        let exact_first = desired.iter().filter(|(key, _)| key.address.is_some());
        for (key, service) in exact_first.chain(desired.iter().filter(|(key, _)| key.address.is_none())) {
            for (vip, table) in vips(*key, service) {
                let targets = table.slots.iter().map(|slot| table.targets[usize::from(*slot)]).collect();
                let targets: Option<Vec<Option<Target>>> = (!except.contains_key(key)).then_some(targets);
                expected.entry(vip).or_insert(targets);
            }
        }
        let held: BTreeMap<Vip, Vec<Option<Target>>> =
            self.listeners.keys().map(|vip| (*vip, self.resolve(vip))).collect();
        let expected: BTreeMap<Vip, Vec<Option<Target>>> =
            expected.into_iter().filter_map(|(vip, targets)| Some((vip, targets?))).collect();
        assert_eq!(held, expected);
        let named: BTreeSet<u32> = self
            .listeners
            .values()
            .flat_map(|value| value.first_chunk * 16..value.first_chunk * 16 + value.n_slots)
            .map(|slot| self.slots[&slot])
            .filter(|id| *id != NO_BACKEND)
            .collect();
        assert_eq!(self.backends.keys().copied().collect::<BTreeSet<_>>(), named, "backends left behind");
    }
}

fn target(number: u8, interface: u32) -> Target {
    let address = SocketAddr::from(([10, 0, 0, number], 8080));
    Target { address, source: IpAddr::from([192, 0, 2, 1]), interface }
}

fn table(targets: Vec<Option<Target>>) -> Table {
    let slots = (0..SLOTS).map(|slot| u16::try_from(slot % targets.len()).unwrap()).collect();
    Table { slots, targets: targets.into() }
}

fn service(addresses: &[u8], targets: &[u8]) -> Service {
    let table = table(targets.iter().map(|number| Some(target(*number, 2))).collect());
    let each = |last: &u8| (IpAddr::from([192, 0, 2, *last]), table.clone());
    Service { addresses: addresses.iter().map(each).collect() }
}

fn key(port: u16) -> ListenerKey {
    ListenerKey { transport: Transport::Tcp, address: None, port: NonZeroU16::new(port).unwrap() }
}

/// The route to an address is one at any time, and may be another at another time.
fn any_service(moved: u8) -> impl Strategy<Value = Service> {
    let any_target = (1u8..12).prop_map(move |number| target(number, 2 + u32::from((number ^ moved) & 1)));
    let target = prop_oneof![1 => Just(None), 4 => any_target.prop_map(Some)];
    let table = proptest::collection::vec(target, 1..4).prop_map(table);
    proptest::collection::btree_map((1u8..4).prop_map(|last| IpAddr::from([192, 0, 2, last])), table, 1..3)
        .prop_map(|addresses| Service { addresses })
}

fn any_desired() -> impl Strategy<Value = Desired> {
    let address = proptest::option::weighted(0.3, Just(IpAddr::from([192, 0, 2, 1])));
    let key = (1u16..6, address).prop_map(|(port, address)| ListenerKey { address, ..key(port) });
    any::<bool>().prop_flat_map(move |moved| {
        proptest::collection::btree_map(key.clone(), any_service(u8::from(moved)), 0..5)
    })
}

fn roomy() -> Limits {
    Limits { listeners: 64, chunks: 64 * CHUNKS, backends: 64 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn applying_the_plan_gives_the_desired_state(steps in proptest::collection::vec(any_desired(), 1..5)) {
        let (mut state, mut maps) = (State::new(roomy()), Maps::default());
        for desired in &steps {
            let plan = state.advance(desired);
            prop_assert_eq!(&plan.unplaced, &BTreeMap::new());
            maps.apply(&plan, roomy());
            maps.hold(desired, &BTreeMap::new());
            prop_assert_eq!(state.advance(desired), Plan::default(), "a second plan is empty");
            state.reclaim();
        }
    }

    #[test]
    fn state_read_from_the_maps_needs_no_write(desired in any_desired(), next in any_desired()) {
        let (mut state, mut maps) = (State::new(roomy()), Maps::default());
        maps.apply(&state.advance(&desired), roomy());
        let mut adopted = State::adopt(roomy(), &maps.found());
        let unexpected = adopted.advance(&desired);
        // Same content, so nothing to write, unless two listeners changed numbers.
        prop_assert!(unexpected.ops.iter().all(|op| matches!(op, MapOp::PutListener { .. })), "{:?}", unexpected);
        maps.apply(&unexpected, roomy());
        maps.apply(&adopted.advance(&next), roomy());
        maps.hold(&next, &BTreeMap::new());
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_all_else_is_done(steps in proptest::collection::vec(any_desired(), 1..6)) {
        let limits = Limits { listeners: 5, chunks: 4 * CHUNKS, backends: 6 };
        let (mut state, mut maps) = (State::new(limits), Maps::default());
        for desired in &steps {
            let plan = state.advance(desired);
            maps.apply(&plan, limits);
            maps.hold(desired, &plan.unplaced);
            state.reclaim();
            state.release(&BTreeSet::new(), &BTreeSet::new());
        }
    }
}

// O09: with room for four services, the fifth is left out, and comes in when another goes.
#[test]
fn service_that_did_not_fit_is_placed_when_room_is_made() {
    let limits = Limits { listeners: 64, chunks: 64 * CHUNKS, backends: 4 };
    let (mut state, mut maps) = (State::new(limits), Maps::default());
    let mut desired: Desired = (1..=5).map(|n| (key(n.into()), service(&[1], &[n]))).collect();
    let plan = state.advance(&desired);
    assert_eq!(plan.unplaced.keys().copied().collect::<Vec<_>>(), [key(5)]);
    assert!(plan.unplaced[&key(5)].contains("table of backends is full (4)"));
    maps.apply(&plan, limits);
    maps.hold(&desired, &plan.unplaced);

    desired.remove(&key(2));
    // The map is at its size until the old backend is deleted, which comes last: the next plan places it.
    maps.apply(&state.advance(&desired), limits);
    let plan = state.advance(&desired);
    maps.apply(&plan, limits);
    assert_eq!(plan.unplaced, BTreeMap::new());
    maps.hold(&desired, &BTreeMap::new());
}

#[test]
fn backend_id_that_flows_hold_is_not_given_to_another_address() {
    let (mut state, mut maps) = (State::new(roomy()), Maps::default());
    let one = Desired::from([(key(1), service(&[1], &[1]))]);
    let two = Desired::from([(key(1), service(&[1], &[2]))]);
    let id_of = |maps: &Maps, number| {
        let address = target(number, 2).address;
        *maps.backends.iter().find(|(_, target)| target.address == address).unwrap().0
    };
    maps.apply(&state.advance(&one), roomy());
    let id = id_of(&maps, 1);
    maps.apply(&state.advance(&two), roomy());
    assert_ne!(id_of(&maps, 2), id);

    // The same address gets it back, though flows hold it.
    state.release(&BTreeSet::from([id]), &BTreeSet::new());
    maps.apply(&state.advance(&one), roomy());
    assert_eq!(id_of(&maps, 1), id);
    assert!(state.has_retired());
    state.release(&BTreeSet::from([id]), &BTreeSet::new());
    assert!(!state.has_retired());
}

#[test]
fn service_number_that_flows_hold_is_not_given_to_another_listener() {
    let mut state = State::new(roomy());
    state.advance(&Desired::from([(key(1), service(&[1], &[1]))]));
    assert_eq!(state.services()[&key(1)], 0);
    state.advance(&Desired::from([(key(2), service(&[1], &[1]))]));
    assert_eq!(state.services()[&key(2)], 1);
    state.release(&BTreeSet::new(), &BTreeSet::new());
    state.advance(&Desired::from([(key(2), service(&[1], &[1])), (key(3), service(&[1], &[1]))]));
    assert_eq!(state.services()[&key(3)], 0);
}

#[test]
fn all_addresses_of_a_listener_share_one_table() {
    let mut state = State::new(roomy());
    let plan = state.advance(&Desired::from([(key(1), service(&[1, 2, 3], &[1, 2]))]));
    assert_eq!(plan.ops.iter().filter(|op| matches!(op, MapOp::PutTable { .. })).count(), 1);
    assert_eq!(plan.ops.iter().filter(|op| matches!(op, MapOp::PutListener { .. })).count(), 3);
    assert_eq!(state.members(), BTreeMap::from([(0, BTreeSet::from([1, 2]))]));
}

#[test]
fn moved_route_changes_the_backend_in_place() {
    let mut state = State::new(roomy());
    let moved = |interface| {
        let table = table(vec![Some(target(1, interface))]);
        Desired::from([(key(1), Service { addresses: BTreeMap::from([([192, 0, 2, 1].into(), table)]) })])
    };
    state.advance(&moved(2));
    let plan = state.advance(&moved(3));
    assert_eq!(plan.ops, [MapOp::PutBackend { id: 1, target: target(1, 3) }]);
}
