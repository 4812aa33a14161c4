//! Counters without sharing on the hot path: each worker owns its cells, the scrape sums them.
//!
//! Labels come from configured objects only (never host, path, address), so the number of series is bounded by the
//! configuration; what belongs to no object goes to one series.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::snapshot::{ListenerName, RouteName};

/// A number with one writer and any readers: an add is a load and a store, no locked instruction.
#[derive(Debug, Default)]
pub struct Cell(AtomicU64);

impl Cell {
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    pub fn sub(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(amount), Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one worker counts for one Gateway listener. Units in the names; bytes are those of the client's connection.
#[derive(Debug, Default)]
pub struct ListenerCells {
    pub connections: Cell,
    pub connections_active: Cell,
    /// Ended without reaching a route: no SNI match, bad hello, bad request head, 404.
    pub unrouted: Cell,
    pub received_bytes: Cell,
    pub sent_bytes: Cell,
}

/// What one worker counts for one route.
#[derive(Debug, Default)]
pub struct RouteCells {
    /// By class of the answer's status: index 1 for 1xx to 5 for 5xx; 0 for none. TCP, TLS and UDP flows count in 0.
    pub requests: [Cell; 6],
    /// A backend that refused, reset, or stalled beyond its deadline.
    pub upstream_failures: Cell,
    /// Shares of invalid backends or of such without endpoints.
    pub refused: Cell,
    pub received_bytes: Cell,
    pub sent_bytes: Cell,
}

type Family<K, C> = Mutex<HashMap<K, Vec<Weak<C>>>>;

/// The process-wide list of all cells.
#[derive(Default)]
pub struct Metrics {
    listeners: Family<ListenerName, ListenerCells>,
    routes: Family<RouteName, RouteCells>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn register<K: Eq + Hash + Clone, C: Default>(family: &Family<K, C>, key: &K) -> Arc<C> {
    let cells = Arc::new(C::default());
    let mut family = family.lock().unwrap_or_else(PoisonError::into_inner);
    family.entry(key.clone()).or_default().push(Arc::downgrade(&cells));
    cells
}

impl Metrics {
    /// New cells for one worker; they leave the scrape when the worker drops them, and with the last the series goes.
    pub fn listener(&self, name: &ListenerName) -> Arc<ListenerCells> {
        register(&self.listeners, name)
    }

    pub fn route(&self, name: &RouteName) -> Arc<RouteCells> {
        register(&self.routes, name)
    }
}
