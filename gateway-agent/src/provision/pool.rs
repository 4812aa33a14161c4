//! Addresses out of a pool.
//!
//! The Gateway's `status.addresses` is the record: what it has is kept, over restarts and leader changes; who has none
//! gets the lowest free address of each family. **Invariant:** of two Gateways only those that asked for an address
//! share it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::IpRange;
use crate::snapshot::ObjectName;

/// A Gateway and what it asks for.
#[derive(Clone, Debug)]
pub struct Claimant<'a> {
    pub gateway: &'a ObjectName,
    /// Asked for by `spec.addresses` and of the pool.
    pub fixed: Vec<IpAddr>,
    /// Wants any address: has no `spec.addresses`, or one without a value.
    pub any: bool,
    pub recorded: &'a [IpAddr],
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// The fixed ones in the order of the spec, then IPv4, then IPv6.
    pub addresses: Vec<IpAddr>,
    /// Families of the pool of which nothing was left: `IPv4`, `IPv6`.
    pub exhausted: Vec<&'static str>,
}

/// By claimant; they come in seniority order.
pub fn assign(ranges: &[IpRange], claimants: &[Claimant<'_>]) -> Vec<Assignment> {
    let mut taken: BTreeSet<IpAddr> = BTreeSet::new();
    let mut kept: Vec<[Option<IpAddr>; 2]> = Vec::with_capacity(claimants.len());
    for claimant in claimants {
        let mut mine = [None, None];
        for address in claimant.recorded.iter().filter(|_| claimant.any) {
            let slot = &mut mine[usize::from(address.is_ipv6())];
            // An address that was asked for and is recorded too is none of those that were given.
            let is_given = !claimant.fixed.contains(address) && is_of(ranges, *address);
            if slot.is_none() && is_given && taken.insert(*address) {
                *slot = Some(*address);
            }
        }
        kept.push(mine);
    }
    taken.extend(claimants.iter().flat_map(|claimant| claimant.fixed.iter().copied()));
    let families: Vec<bool> =
        [true, false].into_iter().filter(|v4| ranges.iter().any(|range| range.is_ipv4() == *v4)).collect();
    claimants
        .iter()
        .zip(kept)
        .map(|(claimant, kept)| {
            let mut assignment = Assignment { addresses: claimant.fixed.clone(), exhausted: Vec::new() };
            for v4 in families.iter().filter(|_| claimant.any) {
                let of_family = ranges.iter().filter(|range| range.is_ipv4() == *v4);
                let kept = kept[usize::from(!*v4)];
                match kept.or_else(|| of_family.into_iter().find_map(|range| range.lowest_free(&taken))) {
                    Some(address) => {
                        taken.insert(address);
                        assignment.addresses.push(address);
                    }
                    None => assignment.exhausted.push(if *v4 { "IPv4" } else { "IPv6" }),
                }
            }
            assignment
        })
        .collect()
}

/// Whether the pool has the address.
pub fn is_of(ranges: &[IpRange], address: IpAddr) -> bool {
    ranges.iter().any(|range| range.contains(address))
}

#[cfg(test)]
mod tests;
