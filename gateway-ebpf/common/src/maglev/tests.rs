use alloc::vec::Vec;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::{SIZES, Target, build, endpoint_weight, size_for};

fn targets(weights: &[(u64, u64)]) -> Vec<Target> {
    weights.iter().map(|(identity, weight)| Target { identity: *identity, weight: *weight }).collect()
}

fn shares(table: &[u16], n_targets: usize) -> Vec<u64> {
    let mut shares = alloc::vec![0; n_targets];
    for target in table {
        shares[usize::from(*target)] += 1;
    }
    shares
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Under miri only the two smallest tables.
fn max_targets() -> usize {
    if cfg!(miri) { 3 } else { 60 }
}

#[test]
fn sizes_are_primes_that_fill_a_power_of_two_of_chunks() {
    for size in SIZES {
        assert!(
            (2..size)
                .take_while(|divisor| divisor * divisor <= size)
                .all(|divisor| !size.is_multiple_of(divisor))
        );
        assert!(size.div_ceil(crate::abi::SLOTS_PER_CHUNK).is_power_of_two());
    }
}

#[test]
fn nothing_with_weight_gives_an_empty_table() {
    assert!(build(&[], 251).is_empty());
    assert!(build(&targets(&[(1, 0), (2, 0)]), 251).is_empty());
}

#[test]
fn target_of_weight_zero_gets_no_slot() {
    let table = build(&targets(&[(1, 1), (2, 0), (3, 1)]), 251);
    assert_eq!(shares(&table, 3)[1], 0);
}

#[test]
fn smallest_weight_is_reachable() {
    let targets = targets(&[(1, 1), (2, 1_000_000)]);
    // The largest table takes miri a minute.
    let n_slots = if cfg!(miri) { SIZES[0] } else { size_for(&targets) };
    assert_eq!(shares(&build(&targets, n_slots), 2)[0], 1);
}

#[test]
fn size_follows_number_and_smallest_share() {
    let equal = |n: u64| (0..n).map(|identity| (identity, 1)).collect::<Vec<_>>();
    assert_eq!(size_for(&[]), 251);
    assert_eq!(size_for(&targets(&equal(3))), 251);
    assert_eq!(size_for(&targets(&equal(4))), 1021);
    assert_eq!(size_for(&targets(&equal(16))), 4093);
    assert_eq!(size_for(&targets(&equal(100))), 16_381);
    assert_eq!(size_for(&targets(&equal(1000))), 65_521);
    assert_eq!(size_for(&targets(&[(1, 1), (2, 99)])), 1021);
    assert_eq!(size_for(&targets(&[(1, 1), (2, 1_000_000)])), 65_521);
}

#[test]
fn endpoints_of_one_backend_share_its_weight() {
    // Weight 1 over three endpoints against weight 1 over one: a sixth each against a half.
    let each = endpoint_weight(1, 3);
    let targets = targets(&[(1, each), (2, each), (3, each), (4, endpoint_weight(1, 1))]);
    let table = build(&targets, 1021);
    assert!(shares(&table, 4)[3].abs_diff(1021 / 2) <= 4);
    assert_eq!(endpoint_weight(0, 3), 0);
    assert_eq!(endpoint_weight(1_000_000, 1), 1_000_000 << 20);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_share_is_right_to_within_a_slot_per_target(
        weights in btree_map(any::<u64>(), 1u64..1_000_000, 1..max_targets()),
    ) {
        let targets = targets(&weights.into_iter().collect::<Vec<_>>());
        let n_slots = if cfg!(miri) { 251 } else { size_for(&targets) };
        let table = build(&targets, n_slots);
        prop_assert_eq!(table.len(), n_slots as usize);
        let total: u64 = targets.iter().map(|target| target.weight).sum();
        for (target, share) in targets.iter().zip(shares(&table, targets.len())) {
            let exact = u64::from(n_slots) * target.weight / total;
            // Each of the others may be a slot ahead, in proportion to this one's weight.
            let tolerance = 2 + targets.len() as u64 * target.weight / total;
            prop_assert!(share.abs_diff(exact) <= tolerance, "{share} of {n_slots}, {exact} expected");
            prop_assert!(share >= 1);
        }
    }

    #[test]
    fn order_of_targets_does_not_matter(
        weights in btree_map(any::<u64>(), 1u64..1000, 1..max_targets()),
    ) {
        let forward = targets(&weights.into_iter().collect::<Vec<_>>());
        let backward: Vec<Target> = forward.iter().rev().copied().collect();
        let n_slots = SIZES[0];
        let identities = |targets: &[Target]| {
            build(targets, n_slots).iter().map(|index| targets[usize::from(*index)].identity).collect::<Vec<_>>()
        };
        prop_assert_eq!(identities(&forward), identities(&backward));
    }

    #[test]
    fn removing_one_of_equal_targets_moves_little_else(
        identities in vec(any::<u64>(), 2..max_targets()), removed in any::<prop::sample::Index>(),
    ) {
        let before: Vec<Target> = identities.iter().map(|identity| Target { identity: *identity, weight: 1 }).collect();
        let removed = removed.index(before.len());
        let mut after = before.clone();
        let gone = after.remove(removed);
        let n_slots = size_for(&before);
        let (old, new) = (build(&before, n_slots), build(&after, n_slots));
        let moved = old.iter().zip(&new).filter(|(old, new)| {
            let old = before[usize::from(**old)];
            old != gone && old != after[usize::from(**new)]
        }).count();
        prop_assert!(moved * 10 <= n_slots as usize, "{moved} of {n_slots} moved although their target stayed");
    }
}
