//! A worker's view of the snapshot: the routing table of each listener, with the metric cells of what it names.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use crate::metrics::{ListenerCells, Metrics, RouteCells};
use crate::snapshot::{
    HttpRule, HttpTable, HttpVirtualListener, ListenerKey, ListenerName, Protocol, Reader, RouteName,
    Snapshot,
};

type FastMap<K, V> = HashMap<K, V, FxBuildHasher>;

/// All tables of one worker.
#[derive(Debug)]
pub(super) struct Tables {
    reader: Reader,
    metrics: Arc<Metrics>,
    /// What `by_key` was made of.
    seen: Arc<Snapshot>,
    by_key: FastMap<ListenerKey, Rc<Table>>,
    /// Cells live as long as their objects are configured, over snapshots.
    routes: FastMap<RouteName, Arc<RouteCells>>,
    listeners: FastMap<ListenerName, Arc<ListenerCells>>,
    was_replaced: bool,
}

/// One listener's table. A request holds it to its end, also when a newer one has come.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) http: Arc<HttpTable>,
    names: Arc<[ListenerName]>,
    /// By the address of what `http` keeps alive.
    routes: RefCell<FastMap<*const HttpRule, Arc<RouteCells>>>,
    listeners: RefCell<FastMap<*const HttpVirtualListener, Arc<ListenerCells>>>,
}

impl Tables {
    pub(super) fn new(mut reader: Reader, metrics: Arc<Metrics>) -> Self {
        let seen = reader.current().clone();
        Self {
            reader,
            metrics,
            seen,
            by_key: HashMap::default(),
            routes: HashMap::default(),
            listeners: HashMap::default(),
            was_replaced: false,
        }
    }

    /// The newest table of a listener; `None` when it is gone or speaks no HTTP.
    pub(super) fn table(&mut self, key: ListenerKey) -> Option<Rc<Table>> {
        let current = self.reader.current();
        if !Arc::ptr_eq(current, &self.seen) {
            self.seen = current.clone();
            self.was_replaced = true;
            let seen = &self.seen;
            self.by_key.retain(|key, table| table.is_of(seen, *key));
        }
        if let Some(table) = self.by_key.get(&key) {
            return Some(table.clone());
        }
        let listener = self.seen.listener(key)?;
        let Protocol::Http(http) = &listener.protocol else { return None };
        let table = Rc::new(Table {
            http: http.clone(),
            names: listener.names.clone(),
            routes: RefCell::default(),
            listeners: RefCell::default(),
        });
        self.by_key.insert(key, table.clone());
        Some(table)
    }

    pub(super) fn route_cells(&mut self, table: &Table, rule: &Arc<HttpRule>) -> Arc<RouteCells> {
        let mut known = table.routes.borrow_mut();
        let cells = known.entry(Arc::as_ptr(rule)).or_insert_with(|| match self.routes.get(&rule.route) {
            Some(cells) => cells.clone(),
            None => {
                let cells = self.metrics.route(&rule.route);
                self.routes.insert(rule.route.clone(), cells.clone());
                cells
            }
        });
        cells.clone()
    }

    /// Cells of the listener that a request came to; of the first of the port where it came to none.
    pub(super) fn listener_cells(
        &mut self,
        table: &Table,
        listener: Option<&Arc<HttpVirtualListener>>,
    ) -> Option<Arc<ListenerCells>> {
        let Some(listener) = listener else {
            return table.names.first().map(|name| self.cells_of(name));
        };
        let mut known = table.listeners.borrow_mut();
        let cells = known.entry(Arc::as_ptr(listener)).or_insert_with(|| self.cells_of(&listener.name));
        Some(cells.clone())
    }

    fn cells_of(&mut self, name: &ListenerName) -> Arc<ListenerCells> {
        if let Some(cells) = self.listeners.get(name) {
            return cells.clone();
        }
        let cells = self.metrics.listener(name);
        self.listeners.insert(name.clone(), cells.clone());
        cells
    }

    /// Lets go of the cells of routes and listeners that are configured no more.
    pub(super) fn prune(&mut self) {
        if !std::mem::take(&mut self.was_replaced) {
            return;
        }
        let mut names = HashSet::new();
        let mut routes = HashSet::new();
        for listener in self.seen.listeners.iter() {
            names.extend(listener.names.iter());
            let Protocol::Http(http) = &listener.protocol else { continue };
            let hosts = http.listeners.values().flat_map(|listener| listener.hosts.values());
            routes.extend(hosts.flat_map(|host| host.matches()).map(|found| &found.rule.route));
        }
        self.listeners.retain(|name, _| names.contains(name));
        self.routes.retain(|name, _| routes.contains(name));
    }
}

impl Table {
    /// Whether this is what `snapshot` serves at `key`. By identity: equal tables are shared between snapshots.
    fn is_of(&self, snapshot: &Snapshot, key: ListenerKey) -> bool {
        snapshot.listener(key).is_some_and(|listener| match &listener.protocol {
            Protocol::Http(http) => {
                Arc::ptr_eq(http, &self.http) && Arc::ptr_eq(&listener.names, &self.names)
            }
            _ => false,
        })
    }
}
