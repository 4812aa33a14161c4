//! The ports of the agent's pods that the ports of Services lead to.
//!
//! A stored Service is the truth: what it says is kept as long as it can be served, and the rest is chosen by a hash of
//! Gateway and port, so that a port does not go to another Gateway soon after it was given up, while nodes may still
//! send there. **Invariant:** no targetPort belongs to two Gateways; where two stored Services claim one, the older
//! Gateway's has it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::ops::RangeInclusive;

use super::names::digest;
use crate::snapshot::{ObjectName, Transport};

/// A port of a Service, as clients see it.
pub type PortKey = (Transport, NonZeroU16);

/// What a port may be.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Where new ones are taken from.
    pub range: RangeInclusive<u16>,
    /// Never: the agent's own ports.
    pub source_ports: RangeInclusive<u16>,
    /// Never, with TCP.
    pub admin_port: u16,
}

impl Limits {
    /// A stored port need not be of the range: with another `--target-ports` it moves only when it must, so that
    /// replicas of both settings serve it meanwhile.
    fn is_usable(&self, transport: Transport, port: NonZeroU16) -> bool {
        let port = port.get();
        let is_admin = transport == Transport::Tcp && port == self.admin_port;
        port >= 1024 && !is_admin && !self.source_ports.contains(&port)
    }
}

/// A Gateway's Service: what it should have and what it has.
#[derive(Clone, Debug)]
pub struct Claimant<'a> {
    pub gateway: &'a ObjectName,
    pub ports: BTreeSet<PortKey>,
    pub stored: BTreeMap<PortKey, NonZeroU16>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// Stored, and therefore served.
    pub served: BTreeMap<PortKey, NonZeroU16>,
    /// What the Service should have.
    pub wanted: BTreeMap<PortKey, NonZeroU16>,
    /// For these the range has no port left.
    pub exhausted: BTreeSet<PortKey>,
}

/// By claimant. `claimants` come in seniority order; `reserved` belongs to Services that are about to go.
pub fn settle(
    claimants: &[Claimant<'_>],
    reserved: impl IntoIterator<Item = (Transport, NonZeroU16)>,
    limits: &Limits,
) -> Vec<Targets> {
    let mut taken: BTreeSet<(Transport, NonZeroU16)> = reserved.into_iter().collect();
    let mut settled: Vec<Targets> = Vec::with_capacity(claimants.len());
    for claimant in claimants {
        let mut targets = Targets::default();
        for (key, target) in &claimant.stored {
            let (transport, _) = *key;
            // A listener that went away keeps its port until the Service has lost it.
            let is_new = taken.insert((transport, *target));
            if is_new && limits.is_usable(transport, *target) && claimant.ports.contains(key) {
                targets.served.insert(*key, *target);
                targets.wanted.insert(*key, *target);
            }
        }
        settled.push(targets);
    }
    for (claimant, targets) in claimants.iter().zip(&mut settled) {
        for key in &claimant.ports {
            if targets.wanted.contains_key(key) {
                continue;
            }
            match free(claimant.gateway, *key, &taken, limits) {
                Some(target) => {
                    taken.insert((key.0, target));
                    targets.wanted.insert(*key, target);
                }
                None => drop(targets.exhausted.insert(*key)),
            }
        }
    }
    settled
}

/// The first free port from a place of the range on that belongs to this Gateway and port.
fn free(
    gateway: &ObjectName,
    (transport, port): PortKey,
    taken: &BTreeSet<(Transport, NonZeroU16)>,
    limits: &Limits,
) -> Option<NonZeroU16> {
    let (first, last) = (*limits.range.start(), *limits.range.end());
    let length = u64::from(last.checked_sub(first)?) + 1;
    let start = digest(format!("{gateway}/{}/{port}", transport.as_str()).as_bytes()) % length;
    (0..length)
        .filter_map(|step| {
            // Below the range's length, which is at most 65,536.
            let offset = u16::try_from((start + step) % length).ok()?;
            NonZeroU16::new(first.checked_add(offset)?)
        })
        .find(|target| limits.is_usable(transport, *target) && !taken.contains(&(transport, *target)))
}

#[cfg(test)]
mod tests;
