//! The maps of the L4 path: single writes, and reading back what an earlier process has written.
//!
//! **Invariant:** decides nothing; the order of writes is the plan's.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use aya::maps::{Array, HashMap, MapData, MapError};
use gateway_common::abi::{BackendValue, Config, ListenerKey, ListenerValue, SLOTS_PER_CHUNK, SlotChunk};
use gateway_common::{maglev, maps};

use super::encode;
use super::load::{LoadError, Objects};
use super::plan::{Found, MapOp};

/// A write that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("map {map} cannot be {action}")]
pub(super) struct WriteError {
    map: &'static str,
    action: &'static str,
    #[source]
    source: MapError,
}

impl WriteError {
    pub(super) const fn cause(&self) -> &MapError {
        &self.source
    }
}

pub(super) struct Tables {
    listeners: HashMap<MapData, ListenerKey, ListenerValue>,
    slots: Array<MapData, SlotChunk>,
    backends: HashMap<MapData, u32, BackendValue>,
    config: Array<MapData, Config>,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").finish_non_exhaustive()
    }
}

impl Tables {
    pub(super) fn open(objects: &Objects) -> Result<Self, LoadError> {
        Ok(Self {
            listeners: objects.typed(maps::LISTENERS)?,
            slots: objects.typed(maps::SLOTS)?,
            backends: objects.typed(maps::BACKENDS)?,
            config: objects.typed(maps::CONFIG)?,
        })
    }

    /// A count of 0 has the programs open no new flows.
    pub(super) fn set_source_ports(&mut self, first: u16, count: u32) -> Result<(), WriteError> {
        let config = Config { source_port_first: first.into(), source_port_count: count };
        self.config.set(0, &config, 0).map_err(error(maps::CONFIG, "written"))
    }

    pub(super) fn apply(&mut self, op: &MapOp) -> Result<(), WriteError> {
        match op {
            MapOp::PutBackend { id, target } => self
                .backends
                .insert(id, &encode::backend(target), 0)
                .map_err(error(maps::BACKENDS, "written")),
            MapOp::PutTable { first_chunk, ids } => {
                for (chunk, index) in encode::chunks(ids).zip(*first_chunk..) {
                    self.slots.set(index, &chunk, 0).map_err(error(maps::SLOTS, "written"))?;
                }
                Ok(())
            }
            MapOp::PutListener { vip, value } => self
                .listeners
                .insert(&encode::listener_key(vip), value, 0)
                .map_err(error(maps::LISTENERS, "written")),
            MapOp::DeleteListener { vip } => {
                gone(self.listeners.remove(&encode::listener_key(vip)), maps::LISTENERS)
            }
            MapOp::DeleteBackend { id } => gone(self.backends.remove(id), maps::BACKENDS),
        }
    }

    /// What the maps hold now. Values that no agent of this ABI writes are left out, so that they are overwritten.
    pub(super) fn read(&self) -> Result<Found, WriteError> {
        let mut found = Found::default();
        for entry in self.backends.iter() {
            let (id, value) = entry.map_err(error(maps::BACKENDS, "read"))?;
            found.backends.insert(id, encode::target(&value));
        }
        for entry in self.listeners.iter() {
            let (key, value) = entry.map_err(error(maps::LISTENERS, "read"))?;
            let Some(vip) = encode::vip(&key) else { continue };
            found.listeners.insert(vip, value);
            if !maglev::SIZES.contains(&value.n_slots) || found.tables.contains_key(&value.first_chunk) {
                continue;
            }
            if let Some(ids) = self.read_table(&value)? {
                found.tables.insert(value.first_chunk, ids);
            }
        }
        // A table that names a backend that is not there is not whole.
        let backends: &BTreeMap<u32, _> = &found.backends;
        found.tables.retain(|_, ids| ids.iter().all(|id| *id == 0 || backends.contains_key(id)));
        Ok(found)
    }

    fn read_table(&self, value: &ListenerValue) -> Result<Option<Arc<[u32]>>, WriteError> {
        let last = value.first_chunk.checked_add(value.n_slots.div_ceil(SLOTS_PER_CHUNK));
        let Some(end) = last.filter(|end| *end <= self.slots.len()) else { return Ok(None) };
        let mut ids = Vec::with_capacity(value.n_slots as usize);
        for index in value.first_chunk..end {
            ids.extend(self.slots.get(&index, 0).map_err(error(maps::SLOTS, "read"))?.backends);
        }
        ids.truncate(value.n_slots as usize);
        Ok(Some(ids.into()))
    }
}

fn error(map: &'static str, action: &'static str) -> impl FnOnce(MapError) -> WriteError {
    move |source| WriteError { map, action, source }
}

/// Absent already is as well.
fn gone(removed: Result<(), MapError>, map: &'static str) -> Result<(), WriteError> {
    match removed {
        Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        removed => removed.map_err(error(map, "changed")),
    }
}
