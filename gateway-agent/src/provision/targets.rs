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

/// The ports of Services, by port as clients see it.
pub type Targets = BTreeMap<PortKey, NonZeroU16>;

/// Who has which port.
#[derive(Clone, Debug)]
pub struct Allocator {
    limits: Limits,
    taken: BTreeSet<(Transport, NonZeroU16)>,
}

impl Allocator {
    /// `reserved` belongs to Services that are about to go.
    pub fn new(limits: Limits, reserved: impl IntoIterator<Item = (Transport, NonZeroU16)>) -> Self {
        Self { limits, taken: reserved.into_iter().collect() }
    }

    /// What of a stored Service counts, and is served. Gateways come in seniority order, all of them before the first
    /// new port is taken.
    pub fn keep(&mut self, stored: &Targets) -> Targets {
        let mut kept = Targets::new();
        for (key, target) in stored {
            let (transport, _) = *key;
            // Also those that the agent cannot have, and of listeners that are gone, until the Service has lost them.
            let is_new = self.taken.insert((transport, *target));
            if is_new && self.limits.is_usable(transport, *target) {
                kept.insert(*key, *target);
            }
        }
        kept
    }

    /// What the Service of `gateway` should have: what was kept, and new ports for the others of `ports`, of which some
    /// are missing where none is left.
    pub fn complete(&mut self, gateway: &ObjectName, ports: &BTreeSet<PortKey>, kept: &Targets) -> Targets {
        let mut wanted = Targets::new();
        for key in ports {
            let target = kept.get(key).copied().or_else(|| self.free(gateway, *key));
            if let Some(target) = target {
                self.taken.insert((key.0, target));
                wanted.insert(*key, target);
            }
        }
        wanted
    }

    /// Whether a new port of this transport cannot be had.
    pub fn is_full(&self, transport: Transport) -> bool {
        !self.limits.range.clone().filter_map(NonZeroU16::new).any(|port| self.is_free(transport, port))
    }

    fn is_free(&self, transport: Transport, port: NonZeroU16) -> bool {
        self.limits.is_usable(transport, port) && !self.taken.contains(&(transport, port))
    }

    /// The first free port from a place of the range on that belongs to this Gateway and port.
    fn free(&self, gateway: &ObjectName, (transport, port): PortKey) -> Option<NonZeroU16> {
        let (first, last) = (*self.limits.range.start(), *self.limits.range.end());
        let length = u64::from(last.checked_sub(first)?) + 1;
        let start = digest(format!("{gateway}/{}/{port}", transport.as_str()).as_bytes()) % length;
        (0..length)
            .filter_map(|step| {
                // Below the range's length, which is at most 65,536.
                let offset = u16::try_from((start + step) % length).ok()?;
                NonZeroU16::new(first.checked_add(offset)?)
            })
            .find(|target| self.is_free(transport, *target))
    }
}

#[cfg(test)]
mod tests;
