//! A listener as one worker serves it: the snapshot's entry and the worker's own counters.
//!
//! Does no I/O. Counters go on when the listener changes and end with it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use rustls::ServerConfig;

use super::tls::{Certificates, Configs};
use crate::metrics::{ListenerCells, Metrics, RouteCells};
use crate::snapshot::{Listener, ListenerName, Protocol, RouteName, TlsMode};

/// One listener of one snapshot, and this worker's counters for it.
#[derive(Debug)]
pub(super) struct ListenerState {
    pub listener: Arc<Listener>,
    /// By position in `listener.names`.
    cells: Vec<Arc<ListenerCells>>,
    routes: RefCell<HashMap<RouteName, Arc<RouteCells>>>,
    /// Of listeners that terminate TLS and have been asked to.
    tls: RefCell<HashMap<ListenerName, (Certificates, Arc<ServerConfig>)>>,
    metrics: Arc<Metrics>,
}

impl ListenerState {
    /// Counters go on from `before`, as far as it has the names.
    pub(super) fn new(listener: Arc<Listener>, metrics: &Arc<Metrics>, before: Option<&Rc<Self>>) -> Self {
        let known = |name: &ListenerName| {
            let before = before?;
            let position = before.listener.names.iter().position(|candidate| candidate == name)?;
            before.cells.get(position).cloned()
        };
        let cells =
            listener.names.iter().map(|name| known(name).unwrap_or_else(|| metrics.listener(name))).collect();
        let mut routes = HashMap::new();
        if let Some(before) = before {
            let before = before.routes.borrow();
            for route in route_names(&listener.protocol) {
                if let Some(cells) = before.get(route) {
                    routes.insert(route.clone(), cells.clone());
                }
            }
        }
        // Configurations live on while their certificates stay: sessions can be resumed.
        let mut tls = before.map(|before| before.tls.borrow().clone()).unwrap_or_default();
        if !tls.is_empty() {
            let current = certificates(&listener.protocol);
            tls.retain(|name, (certificates, _)| current.get(name) == Some(&&*certificates));
        }
        Self {
            listener,
            cells,
            routes: RefCell::new(routes),
            tls: RefCell::new(tls),
            metrics: metrics.clone(),
        }
    }

    /// What the listener `name` offers; `None` where it cannot serve.
    pub(super) fn tls_config(
        &self,
        configs: &Configs,
        name: &ListenerName,
        certificates: &Certificates,
    ) -> Option<Arc<ServerConfig>> {
        if let Some((_, config)) = self.tls.borrow().get(name) {
            return Some(config.clone());
        }
        if certificates.is_empty() {
            return None;
        }
        let config = match configs.of(certificates) {
            Ok(config) => config,
            Err(error) => {
                tracing::error!(listener = %name, %error, "cannot configure TLS");
                return None;
            }
        };
        self.tls.borrow_mut().insert(name.clone(), (certificates.clone(), config.clone()));
        Some(config)
    }

    /// The counters of the Gateway listener `name`; of the first one for traffic that reached none.
    pub(super) fn cells(&self, name: Option<&ListenerName>) -> Arc<ListenerCells> {
        let position = name.and_then(|name| self.listener.names.iter().position(|known| known == name));
        // `names` is never empty, see `Listener`; were it, the counts would go nowhere.
        self.cells.get(position.unwrap_or(0)).cloned().unwrap_or_default()
    }

    pub(super) fn route(&self, name: &RouteName) -> Arc<RouteCells> {
        if let Some(cells) = self.routes.borrow().get(name) {
            return cells.clone();
        }
        let cells = self.metrics.route(name);
        self.routes.borrow_mut().insert(name.clone(), cells.clone());
        cells
    }
}

/// The certificates of each listener that terminates TLS.
fn certificates(protocol: &Protocol) -> HashMap<&ListenerName, &Certificates> {
    let Protocol::Tls(table) = protocol else { return HashMap::new() };
    let pairs = table.listeners.values().filter_map(|listener| match &listener.mode {
        TlsMode::Https { certificates, .. } => Some((&listener.name, certificates)),
        TlsMode::Passthrough(_) => None,
    });
    pairs.collect()
}

/// The routes that the relays count for; HTTP counts its own.
fn route_names(protocol: &Protocol) -> Vec<&RouteName> {
    match protocol {
        Protocol::Tcp(service) | Protocol::Udp(service) => service.route.iter().collect(),
        Protocol::Tls(table) => table.passthrough_rules().map(|rule| &rule.route).collect(),
        Protocol::Http(_) => Vec::new(),
    }
}
