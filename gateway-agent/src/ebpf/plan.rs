//! From what the kernel holds to what it should hold: an ordered list of single map writes.
//!
//! The order keeps every packet right in between: backends before the tables that name them, tables before the
//! listeners that point at them, one write that switches a listener, and only then the removal of what nothing refers
//! to any more. What does not fit is left out as a whole, listener by listener, and all else is done (O09).
//!
//! **Invariant:** no I/O, no clock, no aya; the ABI's types only as values.

mod space;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use gateway_common::abi::{ListenerValue, NO_BACKEND, SLOTS_PER_CHUNK};
use gateway_common::maps;

use self::space::Space;
use super::desired::{Desired, Service, Table, Target};
use crate::snapshot::{ListenerKey, Transport};

/// What a client connects to: a key of the kernel's listener map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Vip {
    pub(super) transport: Transport,
    pub(super) address: IpAddr,
    pub(super) port: u16,
}

/// One write to one map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MapOp {
    PutBackend {
        id: u32,
        target: Target,
    },
    /// Consecutive elements of the slot array: backend ids, the last chunk filled up with [`NO_BACKEND`].
    PutTable {
        first_chunk: u32,
        ids: Arc<[u32]>,
    },
    PutListener {
        vip: Vip,
        value: ListenerValue,
    },
    DeleteListener {
        vip: Vip,
    },
    DeleteBackend {
        id: u32,
    },
}

/// Sizes of the maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) listeners: usize,
    pub(super) chunks: u32,
    pub(super) backends: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            listeners: maps::MAX_LISTENERS as usize,
            chunks: maps::MAX_SLOT_CHUNKS,
            backends: maps::MAX_BACKENDS as usize,
        }
    }
}

/// What was read from the maps of an earlier process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) listeners: BTreeMap<Vip, ListenerValue>,
    /// Content of the tables that listeners point at, by first chunk.
    pub(super) tables: BTreeMap<u32, Arc<[u32]>>,
    pub(super) backends: BTreeMap<u32, Target>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Placed {
    ids: Arc<[u32]>,
    /// `ids` without repetition.
    distinct: BTreeSet<u32>,
}

/// What the maps hold, and which ids and blocks may be given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    limits: Limits,
    listeners: BTreeMap<Vip, ListenerValue>,
    tables: BTreeMap<u32, Placed>,
    backends: BTreeMap<u32, Target>,
    /// Ids whose backend is gone, but which flows may still hold.
    retired_backends: BTreeMap<u32, SocketAddr>,
    backend_ids: BTreeMap<SocketAddr, u32>,
    services: BTreeMap<ListenerKey, u32>,
    retired_services: BTreeSet<u32>,
    new_services: Vec<u32>,
    space: Space,
}

/// The result of [`State::advance`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) ops: Vec<MapOp>,
    /// What did not fit, with the reason.
    pub(super) unplaced: BTreeMap<ListenerKey, String>,
}

/// Counts as an entry of the listener map and equals none.
const UNWRITTEN: ListenerValue = ListenerValue { first_chunk: 0, n_slots: 0, service: u32::MAX, reserved: 0 };

/// The writes for one listener and what takes them back: address, id, what the id meant before, and whether it was retired.
#[derive(Default)]
struct Draft {
    ops: Vec<MapOp>,
    backends: Vec<(SocketAddr, u32, Option<Target>, bool)>,
}

/// A listener's place in the plan.
struct Placement {
    key: ListenerKey,
    service: u32,
    /// First chunk and slots of the table, by address.
    vips: BTreeMap<Vip, (u32, u32)>,
}

impl State {
    pub(super) fn new(limits: Limits) -> Self {
        Self::adopt(limits, &Found::default())
    }

    /// The state of maps that an earlier process has filled. What makes no sense is taken for absent.
    pub(super) fn adopt(limits: Limits, found: &Found) -> Self {
        let mut space = Space::new(limits.chunks);
        let mut tables = BTreeMap::new();
        for (first_chunk, ids) in &found.tables {
            if space.adopt(*first_chunk, n_chunks(ids.len())) {
                tables.insert(*first_chunk, Placed::new(ids.clone()));
            }
        }
        let backend_ids = found.backends.iter().map(|(id, target)| (target.address, *id)).collect();
        let retired_services = found.listeners.values().map(|value| value.service).collect();
        Self {
            limits,
            // One without its table matches no desired one, and is overwritten or deleted in the first plan.
            listeners: found.listeners.clone(),
            tables,
            backends: found.backends.clone(),
            retired_backends: BTreeMap::new(),
            backend_ids,
            services: BTreeMap::new(),
            retired_services,
            new_services: Vec::new(),
            space,
        }
    }

    /// The writes that make the maps hold `desired`, which is what the state says afterwards.
    pub(super) fn advance(&mut self, desired: &Desired) -> Plan {
        let mut plan = Plan::default();
        let mut placements = Vec::new();
        let mut claimed = BTreeSet::new();
        // A listener of one address goes before one of all addresses that has the same port.
        let (exact, wildcard): (Vec<_>, Vec<_>) = desired.iter().partition(|(key, _)| key.address.is_some());
        for (key, service) in exact.into_iter().chain(wildcard) {
            let vips: BTreeMap<Vip, &Table> =
                vips(*key, service).filter(|(vip, _)| claimed.insert(*vip)).collect();
            match self.place(*key, &vips, &mut plan.ops) {
                Ok(placement) => placements.push(placement),
                Err(reason) => drop(plan.unplaced.insert(*key, reason)),
            }
        }
        self.switch(&placements, &mut plan.ops);
        self.clean_up(&placements, &mut plan.ops);
        plan
    }

    /// Ids that no flow holds any more, as a full pass over the flow tables has found that began after the last
    /// [`Self::advance`].
    pub(super) fn release(&mut self, held_backends: &BTreeSet<u32>, held_services: &BTreeSet<u32>) {
        let backend_ids = &mut self.backend_ids;
        self.retired_backends.retain(|id, address| {
            let held = held_backends.contains(id);
            if !held {
                backend_ids.remove(address);
            }
            held
        });
        self.retired_services.retain(|service| held_services.contains(service));
    }

    /// Blocks that were given back may be given out again: no program that read them is still running.
    pub(super) fn reclaim(&mut self) {
        self.space.reclaim();
    }

    #[cfg(test)]
    pub(super) fn has_retired(&self) -> bool {
        !self.retired_backends.is_empty() || !self.retired_services.is_empty()
    }

    /// The service id of each listener that is served.
    pub(super) fn services(&self) -> &BTreeMap<ListenerKey, u32> {
        &self.services
    }

    /// Numbers that were given out since the last call: what was counted under them is another listener's.
    pub(super) fn take_new_services(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.new_services)
    }

    /// Whether the kernel has an entry of this listener, also one of an earlier process.
    pub(super) fn serves(&self, key: ListenerKey) -> bool {
        let is_of = |vip: &Vip| {
            let same_port = vip.transport == key.transport && vip.port == key.port.get();
            same_port && key.address.is_none_or(|address| vip.address == address)
        };
        self.services.contains_key(&key) || self.listeners.keys().any(is_of)
    }

    /// The backends that new flows of each service may get.
    pub(super) fn members(&self) -> BTreeMap<u32, BTreeSet<u32>> {
        let mut members: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for value in self.listeners.values() {
            if let Some(placed) = self.tables.get(&value.first_chunk) {
                members.entry(value.service).or_default().extend(&placed.distinct);
            }
        }
        members
    }

    /// Backends and tables of one listener; undone as a whole when something does not fit.
    fn place(
        &mut self,
        key: ListenerKey,
        vips: &BTreeMap<Vip, &Table>,
        ops: &mut Vec<MapOp>,
    ) -> Result<Placement, String> {
        let n_new = vips.keys().filter(|vip| !self.listeners.contains_key(vip)).count();
        if self.listeners.len() + n_new > self.limits.listeners {
            return Err(format!("the kernel path's table of listeners is full ({})", self.limits.listeners));
        }
        let mut draft = Draft::default();
        match self.place_tables(vips, &mut draft) {
            Ok(tables) => {
                ops.extend(draft.ops);
                let service = self.service(key, vips);
                // For the count above: these entries are as good as written.
                for vip in tables.keys() {
                    self.listeners.entry(*vip).or_insert(UNWRITTEN);
                }
                Ok(Placement { key, service, vips: tables })
            }
            Err(reason) => {
                self.undo(draft);
                Err(reason)
            }
        }
    }

    fn place_tables(
        &mut self,
        vips: &BTreeMap<Vip, &Table>,
        draft: &mut Draft,
    ) -> Result<BTreeMap<Vip, (u32, u32)>, String> {
        // All addresses of one family share a table.
        let mut done: Vec<(&Table, u32)> = Vec::new();
        let mut places = BTreeMap::new();
        for (vip, table) in vips {
            let n_slots = u32::try_from(table.slots.len()).map_err(|_too_large| "table is too large")?;
            let known = done.iter().find(|(known, _)| known == table).map(|(_, first_chunk)| *first_chunk);
            let first_chunk = match known {
                Some(first_chunk) => first_chunk,
                None => self.place_table(vip, table, draft)?,
            };
            done.push((table, first_chunk));
            places.insert(*vip, (first_chunk, n_slots));
        }
        Ok(places)
    }

    fn place_table(&mut self, vip: &Vip, table: &Table, draft: &mut Draft) -> Result<u32, String> {
        let mut ids = Vec::with_capacity(table.targets.len());
        for target in table.targets.iter() {
            ids.push(match target {
                Some(target) => self.place_backend(*target, draft)?,
                None => NO_BACKEND,
            });
        }
        let slots = table.slots.iter();
        let ids: Option<Arc<[u32]>> = slots.map(|slot| ids.get(usize::from(*slot)).copied()).collect();
        let ids = ids.ok_or("table names a target that it does not have")?;
        let current = self.listeners.get(vip).map(|value| value.first_chunk);
        let unchanged =
            |first_chunk: &u32| self.tables.get(first_chunk).is_some_and(|placed| placed.ids == ids);
        if let Some(first_chunk) = current.filter(unchanged) {
            return Ok(first_chunk);
        }
        let Some(first_chunk) = self.space.take(n_chunks(ids.len())) else {
            return Err("the kernel path's space for tables is full".into());
        };
        draft.ops.push(MapOp::PutTable { first_chunk, ids: ids.clone() });
        self.tables.insert(first_chunk, Placed::new(ids));
        Ok(first_chunk)
    }

    fn place_backend(&mut self, target: Target, draft: &mut Draft) -> Result<u32, String> {
        let known = self.backend_ids.get(&target.address).copied();
        if let Some(id) = known
            && self.backends.get(&id) == Some(&target)
        {
            return Ok(id);
        }
        let is_new = known.is_none_or(|id| !self.backends.contains_key(&id));
        if is_new && self.backends.len() >= self.limits.backends {
            return Err(format!("the kernel path's table of backends is full ({})", self.limits.backends));
        }
        let id = match known {
            Some(id) => id,
            None => self
                .free_backend_id()
                .ok_or("the kernel path has no free backend id, all are held by flows")?,
        };
        let was_retired = self.retired_backends.remove(&id).is_some();
        self.backend_ids.insert(target.address, id);
        let before = self.backends.insert(id, target);
        draft.backends.push((target.address, id, before, was_retired));
        draft.ops.push(MapOp::PutBackend { id, target });
        Ok(id)
    }

    /// Ids are bounded by twice the map, so that ids which flows hold do not use up those of live backends.
    fn free_backend_id(&self) -> Option<u32> {
        let bound = u32::try_from(self.limits.backends.saturating_mul(2)).unwrap_or(u32::MAX);
        let last_live = self.backends.last_key_value().map_or(NO_BACKEND, |(id, _)| *id);
        let last_retired = self.retired_backends.last_key_value().map_or(NO_BACKEND, |(id, _)| *id);
        let last = last_live.max(last_retired);
        let is_free = |id: &u32| !self.backends.contains_key(id) && !self.retired_backends.contains_key(id);
        if last < bound { Some(last + 1) } else { (NO_BACKEND + 1..=bound).find(is_free) }
    }

    /// The listener's number: the one it has, the one that its addresses have in the kernel, or a new one.
    fn service(&mut self, key: ListenerKey, vips: &BTreeMap<Vip, &Table>) -> u32 {
        if let Some(service) = self.services.get(&key) {
            return *service;
        }
        let taken: BTreeSet<u32> = self.services.values().copied().collect();
        let mut adopted = vips.keys().filter_map(|vip| self.listeners.get(vip)).map(|value| value.service);
        let free =
            || (0..).find(|service| !taken.contains(service) && !self.retired_services.contains(service));
        let adopted = adopted.find(|service| !taken.contains(service));
        let service = adopted.or_else(free).expect("there are more numbers than listeners");
        if adopted.is_none() {
            self.new_services.push(service);
        }
        self.retired_services.remove(&service);
        self.services.insert(key, service);
        service
    }

    /// Points the listeners at their tables.
    fn switch(&mut self, placements: &[Placement], ops: &mut Vec<MapOp>) {
        for placement in placements {
            for (vip, (first_chunk, n_slots)) in &placement.vips {
                let value = ListenerValue {
                    first_chunk: *first_chunk,
                    n_slots: *n_slots,
                    service: placement.service,
                    reserved: 0,
                };
                if self.listeners.insert(*vip, value) != Some(value) {
                    ops.push(MapOp::PutListener { vip: *vip, value });
                }
            }
        }
    }

    /// Removes what nothing refers to any more.
    fn clean_up(&mut self, placements: &[Placement], ops: &mut Vec<MapOp>) {
        let vips: BTreeSet<Vip> = placements.iter().flat_map(|each| each.vips.keys().copied()).collect();
        self.listeners.retain(|vip, _| {
            let stays = vips.contains(vip);
            if !stays {
                ops.push(MapOp::DeleteListener { vip: *vip });
            }
            stays
        });
        let keys: BTreeSet<ListenerKey> = placements.iter().map(|each| each.key).collect();
        let retired_services = &mut self.retired_services;
        self.services.retain(|key, service| {
            let stays = keys.contains(key);
            if !stays {
                retired_services.insert(*service);
            }
            stays
        });

        let in_use: BTreeSet<u32> = self.listeners.values().map(|value| value.first_chunk).collect();
        let space = &mut self.space;
        self.tables.retain(|first_chunk, placed| {
            let stays = in_use.contains(first_chunk);
            if !stays {
                space.give_back(*first_chunk, n_chunks(placed.ids.len()));
            }
            stays
        });
        let named: BTreeSet<u32> =
            self.tables.values().flat_map(|placed| placed.distinct.iter().copied()).collect();
        let retired_backends = &mut self.retired_backends;
        self.backends.retain(|id, target| {
            let stays = named.contains(id);
            if !stays {
                ops.push(MapOp::DeleteBackend { id: *id });
                retired_backends.insert(*id, target.address);
            }
            stays
        });
    }

    /// Takes back what [`Self::place`] has drafted, newest first. Nothing of it was written yet.
    fn undo(&mut self, draft: Draft) {
        for op in &draft.ops {
            if let MapOp::PutTable { first_chunk, ids } = op {
                self.tables.remove(first_chunk);
                self.space.take_back(*first_chunk, n_chunks(ids.len()));
            }
        }
        for (address, id, before, was_retired) in draft.backends.into_iter().rev() {
            match before {
                Some(target) => drop(self.backends.insert(id, target)),
                None => drop(self.backends.remove(&id)),
            }
            if was_retired {
                self.retired_backends.insert(id, address);
            } else if before.is_none() {
                self.backend_ids.remove(&address);
            }
        }
    }
}

impl Placed {
    fn new(ids: Arc<[u32]>) -> Self {
        let distinct = ids.iter().copied().filter(|id| *id != NO_BACKEND).collect();
        Self { ids, distinct }
    }
}

/// At most 4,096: the largest table has 65,521 slots.
fn n_chunks(n_slots: usize) -> u32 {
    u32::try_from(n_slots.div_ceil(SLOTS_PER_CHUNK as usize)).unwrap_or(u32::MAX)
}

fn vips(key: ListenerKey, service: &Service) -> impl Iterator<Item = (Vip, &Table)> {
    let vip = move |address| Vip { transport: key.transport, address, port: key.port.get() };
    service.addresses.iter().map(move |(address, table)| (vip(*address), table))
}

#[cfg(test)]
mod tests;
