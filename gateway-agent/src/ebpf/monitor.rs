//! What the kernel path counts, for metrics and the admin view. Readable from any thread, without asking the task that
//! serves the path.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aya::Pod;
use aya::maps::{MapData, PerCpuArray, PerCpuValues};
use gateway_common::abi::{Counter, ServiceCounters};
use gateway_common::maps;

use super::load::{LoadError, Objects};
use super::probe::Paths;
use super::sweep::Removed;
use crate::snapshot::ListenerKey;

/// See the module.
#[derive(Debug)]
pub struct Monitor {
    paths: Paths,
    maps: Option<Maps>,
    told: Mutex<Told>,
}

struct Maps {
    counters: PerCpuArray<MapData, u64>,
    services: Mutex<PerCpuArray<MapData, ServiceCounters>>,
}

impl fmt::Debug for Maps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maps").finish_non_exhaustive()
    }
}

/// What the serving task tells.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) flows: u64,
    pub(super) removed: Removed,
    pub(super) unplaced: u64,
    pub(super) write_errors: u64,
    /// How often the holder has started a worker anew.
    pub(super) worker_restarts: u64,
    pub(super) services: BTreeMap<ListenerKey, u32>,
}

impl Monitor {
    pub(super) fn new(paths: Paths, objects: Option<&Objects>) -> Result<Self, LoadError> {
        let maps = objects.map(|objects| {
            let services = Mutex::new(objects.typed(maps::SERVICE_COUNTERS)?);
            Ok::<_, LoadError>(Maps { counters: objects.typed(maps::COUNTERS)?, services })
        });
        Ok(Self { paths, maps: maps.transpose()?, told: Mutex::default() })
    }

    /// Which paths are in use, and why not the others.
    pub const fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Totals of the kernel path, with names for metrics: those of `gateway_common::abi::Counter`, and what the agent
    /// itself has done. They go on over a restart of the worker.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let Some(maps) = &self.maps else { return Vec::new() };
        let mut counters: Vec<(&'static str, u64)> = Counter::ALL
            .into_iter()
            .map(|(counter, name)| {
                let values = maps.counters.get(&(counter as u32), 0);
                (name, values.map_or(0, |values| values.iter().sum()))
            })
            .collect();
        let told = self.told().clone();
        counters.push(("flows_expired", told.removed.expired));
        counters.push(("flows_endpoint_gone", told.removed.endpoint_gone));
        counters.push(("map_write_errors", told.write_errors));
        counters.push(("worker_restarts", told.worker_restarts));
        counters
    }

    /// Established flows at the last look, which was seconds ago.
    pub fn flows(&self) -> u64 {
        self.told().flows
    }

    /// Listeners that did not fit into the kernel's tables and are left to the proxy.
    pub fn unplaced(&self) -> u64 {
        self.told().unplaced
    }

    /// What each listener's flows carried in the kernel. Listeners past the size of the map are not in it.
    pub fn listeners(&self) -> Vec<(ListenerKey, ServiceCounters)> {
        let Some(maps) = &self.maps else { return Vec::new() };
        let services = self.told().services.clone();
        let map = maps.services.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |(key, service)| Some((key, total(&map.get(&service, 0).ok()?)));
        services.into_iter().filter_map(sum).collect()
    }

    /// Begins anew for a number that another listener has had.
    pub(super) fn reset(&self, service: u32) {
        let Some(maps) = &self.maps else { return };
        let mut map = maps.services.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(zero) = zeroed(&map) {
            // Past the end of the map: not counted at all.
            drop(map.set(service, zero, 0));
        }
    }

    pub(super) fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn zeroed<T: Pod + Default>(map: &PerCpuArray<MapData, T>) -> Result<PerCpuValues<T>, std::io::Error> {
    let n_cpus = map.get(&0, 0).map_err(std::io::Error::other)?.len();
    PerCpuValues::try_from(vec![T::default(); n_cpus])
}

fn total(values: &PerCpuValues<ServiceCounters>) -> ServiceCounters {
    let mut total = ServiceCounters::default();
    for value in values.iter() {
        let ServiceCounters { flows, received_packets, received_bytes, sent_packets, sent_bytes } = value;
        total.flows += flows;
        total.received_packets += received_packets;
        total.received_bytes += received_bytes;
        total.sent_packets += sent_packets;
        total.sent_bytes += sent_bytes;
    }
    total
}
