//! Maglev consistent hashing (Eisenbud et al., NSDI 2016, section 3.4) with weights.
//!
//! Each target walks a permutation of the slots of its own, given by its identity, and takes the next free slot when
//! its turn comes; turns are dealt in proportion to weight. What to expect:
//! - **Share**: a target gets its share of the slots to within one slot, and any target of non-zero weight at least one.
//! - **Disruption**: removing one of `n` equal targets moves its own slots and a few of the others' (property test: at
//!   most 10 % on top of its share at 64 slots per target; Maglev trades this for an even spread). A change of table
//!   size moves most: [`size_for`] steps by four, so growth crosses a step seldom. Established flows do not care:
//!   they keep their backend by the flow table.
//! - **Order**: the result depends on identities and weights, not on the order of the targets.

/// Table sizes: the largest primes below powers of two, so that a table fits a power of two of memory.
pub const SIZES: [u32; 5] = [251, 1021, 4093, 16_381, 65_521];

/// The slot of a flow in a table of `n_slots`; `None` for an empty table.
#[inline(always)]
pub const fn slot(flow_hash: u32, n_slots: u32) -> Option<u32> {
    if n_slots == 0 { None } else { Some(flow_hash % n_slots) }
}

#[cfg(feature = "alloc")]
pub use build::{Target, build, endpoint_weight, size_for};

#[cfg(feature = "alloc")]
mod build {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::SIZES;
    use crate::hash;

    /// Slots per target of equal weight, at least: a share is then off by at most 1/64.
    const SLOTS_PER_TARGET: u64 = 64;
    /// Slots of the smallest share, at least where the largest table allows it: off by at most 1/8.
    const SLOTS_OF_SMALLEST: u64 = 8;

    /// One target of a table.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Target {
        /// [`hash::endpoint`] or [`hash::name`].
        pub identity: u64,
        /// 0: gets no slot.
        pub weight: u64,
    }

    /// The weight of each of `n_endpoints` endpoints that share `backend_weight` (0 to 1,000,000 in Gateway API).
    /// Scaled so that the division loses nothing that matters; comparable between the backends of one rule.
    pub const fn endpoint_weight(backend_weight: u32, n_endpoints: usize) -> u64 {
        if backend_weight == 0 || n_endpoints == 0 {
            return 0;
        }
        let share = ((backend_weight as u64) << 20) / n_endpoints as u64;
        if share == 0 { 1 } else { share }
    }

    /// The smallest of [`SIZES`] that serves these targets well, the largest if none does.
    pub fn size_for(targets: &[Target]) -> u32 {
        let served = || targets.iter().map(|target| target.weight).filter(|weight| *weight > 0);
        let n_targets = served().count() as u64;
        let total: u128 = served().map(u128::from).sum();
        let smallest = u128::from(served().min().unwrap_or(1));
        let wanted_for_smallest = u128::from(SLOTS_OF_SMALLEST) * total / smallest;
        let wanted = u128::from(n_targets * SLOTS_PER_TARGET).max(wanted_for_smallest);
        let [.., largest] = SIZES;
        SIZES.into_iter().find(|size| u128::from(*size) >= wanted).unwrap_or(largest)
    }

    struct Walk {
        target: u16,
        weight: u64,
        /// Turns taken, times the largest weight: the next turn is due in round `r` when `r * weight` exceeds it.
        taken: u128,
        next: u32,
        skip: u32,
    }

    /// The table: for each slot an index into `targets`. Empty when no target has weight, or when there are more targets
    /// than the largest table has slots. `n_slots` is one of [`SIZES`], usually [`size_for`]'s answer.
    pub fn build(targets: &[Target], n_slots: u32) -> Vec<u16> {
        let mut order: Vec<usize> = (0..targets.len())
            .filter(|index| targets.get(*index).is_some_and(|target| target.weight > 0))
            .collect();
        if order.is_empty()
            || n_slots < 2
            || order.len() > n_slots as usize
            || targets.len() > usize::from(u16::MAX)
        {
            return Vec::new();
        }
        order.sort_by_key(|index| targets.get(*index).map(|target| (target.identity, target.weight)));
        let mut walks: Vec<Walk> = order
            .into_iter()
            .filter_map(|index| {
                let target = targets.get(index)?;
                Some(Walk {
                    target: u16::try_from(index).ok()?,
                    weight: target.weight,
                    taken: 0,
                    next: (hash::mix(target.identity ^ 0x5bd1_e995) % u64::from(n_slots)) as u32,
                    skip: (hash::mix(target.identity ^ 0x1b87_3593) % u64::from(n_slots - 1)) as u32 + 1,
                })
            })
            .collect();
        fill(&mut walks, n_slots)
    }

    fn fill(walks: &mut [Walk], n_slots: u32) -> Vec<u16> {
        const FREE: u16 = u16::MAX;
        let largest = walks.iter().map(|walk| walk.weight).max().unwrap_or(1);
        let mut table = vec![FREE; n_slots as usize];
        let mut n_free = n_slots;
        // A target of the largest weight takes a slot in every round, so there are at most `n_slots` rounds.
        for round in 1..=u128::from(n_slots) {
            for walk in &mut *walks {
                if round * u128::from(walk.weight) <= walk.taken {
                    continue;
                }
                walk.taken += u128::from(largest);
                // The step and the prime size share no factor, so `n_slots` steps visit every slot.
                loop {
                    let at = walk.next;
                    walk.next = (at + walk.skip) % n_slots;
                    if let Some(slot) = table.get_mut(at as usize)
                        && *slot == FREE
                    {
                        *slot = walk.target;
                        break;
                    }
                }
                n_free -= 1;
                if n_free == 0 {
                    return table;
                }
            }
        }
        table
    }
}

#[cfg(test)]
mod tests;
