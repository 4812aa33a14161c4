//! A listener as one worker serves it: the snapshot's entry and the worker's own counters.
//!
//! Does no I/O. Counters go on when the listener changes and end with it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::tls::{Application, Configs, Termination};
use crate::metrics::{ListenerCells, Metrics, RouteCells};
use crate::snapshot::{Listener, ListenerName, Protocol, RouteName, TlsTerms};

/// How TLS ends at a listener, and what that was made of.
type Ended = (TlsTerms, Application, Arc<Termination>);

/// One listener of one snapshot, and this worker's counters for it.
#[derive(Debug)]
pub(super) struct ListenerState {
    pub listener: Arc<Listener>,
    /// By position in `listener.names`.
    cells: Vec<Arc<ListenerCells>>,
    routes: RefCell<HashMap<RouteName, Arc<RouteCells>>>,
    /// Of listeners that terminate TLS and have been asked to.
    tls: RefCell<HashMap<ListenerName, Ended>>,
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
        // Configurations live on while their terms stay: sessions can be resumed.
        let mut tls = before.map(|before| before.tls.borrow().clone()).unwrap_or_default();
        if !tls.is_empty() {
            let current = terms(&listener.protocol);
            tls.retain(|name, (terms, ..)| current.get(name) == Some(&&*terms));
        }
        Self {
            listener,
            cells,
            routes: RefCell::new(routes),
            tls: RefCell::new(tls),
            metrics: metrics.clone(),
        }
    }

    /// How TLS ends at the listener `name`; `None` where it cannot serve.
    pub(super) fn termination(
        &self,
        configs: &Configs,
        name: &ListenerName,
        terms: &TlsTerms,
        application: Application,
    ) -> Option<Arc<Termination>> {
        if let Some((_, of, termination)) = self.tls.borrow().get(name)
            && *of == application
        {
            return Some(termination.clone());
        }
        if terms.certificates.is_empty() {
            return None;
        }
        let termination = match configs.of(terms, application) {
            Ok(termination) => termination,
            Err(error) => {
                tracing::error!(listener = %name, %error, "cannot configure TLS");
                return None;
            }
        };
        let known = (terms.clone(), application, termination.clone());
        self.tls.borrow_mut().insert(name.clone(), known);
        Some(termination)
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

/// The terms of each listener that terminates TLS.
fn terms(protocol: &Protocol) -> HashMap<&ListenerName, &TlsTerms> {
    let Protocol::Tls(table) = protocol else { return HashMap::new() };
    let terms = table.listeners.values().map(|listener| Some((&listener.name, listener.mode.terms()?)));
    terms.flatten().collect()
}

/// The routes that the relays count for; HTTP counts its own.
fn route_names(protocol: &Protocol) -> Vec<&RouteName> {
    match protocol {
        Protocol::Tcp(service) | Protocol::Udp(service) => service.route.iter().collect(),
        Protocol::Tls(table) => table.rules().map(|rule| &rule.route).collect(),
        Protocol::Http(_) => Vec::new(),
    }
}
