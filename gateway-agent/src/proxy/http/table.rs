//! A worker's view of the snapshot: the routing table of each listener, with the metric cells of what it names.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use crate::metrics::{ListenerCells, Metrics, RouteCells};
use crate::snapshot::{
    HttpRule, HttpTable, HttpVirtualListener, ListenerKey, ListenerName, Protocol, Reader, RouteName,
    Snapshot, TlsMode, TlsTable,
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
}

/// One listener's table. A request holds it to its end, also when a newer one has come.
#[derive(Debug)]
pub(super) struct Table {
    routing: Routing,
    names: Arc<[ListenerName]>,
    cells: RefCell<Cells>,
}

/// As the snapshot has it.
#[derive(Clone, Debug)]
enum Routing {
    Cleartext(Arc<HttpTable>),
    Tls(Arc<TlsTable>),
}

/// The host that a request names belongs to another listener than the name in the handshake: the client has taken a
/// connection for another server's (RFC 9110 section 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Misdirected;

/// Taken from the registry when first needed. They go with the table: what they counted stays in the registry's sum,
/// and an object that was deleted and made anew gets new ones.
#[derive(Debug, Default)]
struct Cells {
    /// By the address of what the table keeps alive.
    by_rule: FastMap<*const HttpRule, Arc<RouteCells>>,
    /// By route and name of the rule: rules of a table may be the same one at several hosts.
    by_name: FastMap<(RouteName, Arc<str>), Arc<RouteCells>>,
    by_listener: FastMap<ListenerName, Arc<ListenerCells>>,
}

impl Tables {
    pub(super) fn new(mut reader: Reader, metrics: Arc<Metrics>) -> Self {
        let seen = reader.current().clone();
        Self { reader, metrics, seen, by_key: HashMap::default() }
    }

    /// The newest table of a listener; `None` when it is gone or speaks no HTTP.
    pub(super) fn table(&mut self, key: ListenerKey) -> Option<Rc<Table>> {
        let current = self.reader.current();
        if !Arc::ptr_eq(current, &self.seen) {
            // Over a snapshot that was not looked at, objects may have gone and come back.
            let is_next = current.revision.0 == self.seen.revision.0 + 1;
            self.by_key.retain(|key, table| is_next && table.is_of(current, *key));
            self.seen = current.clone();
        }
        if let Some(table) = self.by_key.get(&key) {
            return Some(table.clone());
        }
        let listener = self.seen.listener(key)?;
        let routing = Routing::of(&listener.protocol)?;
        let names = listener.names.clone();
        let table = Rc::new(Table { routing, names, cells: RefCell::default() });
        self.by_key.insert(key, table.clone());
        Some(table)
    }

    pub(super) fn route_cells(&self, table: &Table, rule: &Arc<HttpRule>) -> Arc<RouteCells> {
        let Cells { by_rule, by_name, .. } = &mut *table.cells.borrow_mut();
        let cells = by_rule.entry(Arc::as_ptr(rule)).or_insert_with(|| {
            let HttpRule { route, name, .. } = &**rule;
            let new = || self.metrics.rule(route, name);
            by_name.entry((route.clone(), name.clone())).or_insert_with(new).clone()
        });
        cells.clone()
    }

    /// Cells of the listener that a request came to; of the first of the port where it came to none.
    pub(super) fn listener_cells(
        &self,
        table: &Table,
        listener: Option<&Arc<HttpVirtualListener>>,
    ) -> Option<Arc<ListenerCells>> {
        let name = listener.map(|listener| &listener.name).or_else(|| table.names.first())?;
        let cells = &mut table.cells.borrow_mut().by_listener;
        Some(cells.entry(name.clone()).or_insert_with(|| self.metrics.listener(name)).clone())
    }
}

impl Routing {
    fn of(protocol: &Protocol) -> Option<Self> {
        match protocol {
            Protocol::Http(http) => Some(Self::Cleartext(http.clone())),
            Protocol::Tls(tls) => Some(Self::Tls(tls.clone())),
            Protocol::Tcp(_) | Protocol::Udp(_) => None,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cleartext(one), Self::Cleartext(other)) => Arc::ptr_eq(one, other),
            (Self::Tls(one), Self::Tls(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Table {
    /// The listener that a request for `host` belongs to. `server_name`: of the handshake, where there was one.
    pub(super) fn listener(
        &self,
        server_name: Option<&str>,
        host: &str,
    ) -> Result<Option<&Arc<HttpVirtualListener>>, Misdirected> {
        match (&self.routing, server_name) {
            (Routing::Cleartext(http), None) => Ok(http.listeners.lookup(host)),
            (Routing::Tls(tls), Some(server_name)) => behind_tls(tls, server_name, host),
            // Served otherwise than when the client came.
            (Routing::Cleartext(_), Some(_)) | (Routing::Tls(_), None) => Ok(None),
        }
    }

    /// Whether this is what `snapshot` serves at `key`. By identity: equal tables are shared between snapshots.
    fn is_of(&self, snapshot: &Snapshot, key: ListenerKey) -> bool {
        snapshot.listener(key).is_some_and(|listener| {
            Routing::of(&listener.protocol).is_some_and(|routing| routing.is_same(&self.routing))
                && Arc::ptr_eq(&listener.names, &self.names)
        })
    }
}

/// "Gateways SHOULD match the authority of the requests with all the SNI hostname(s) configured across all the Gateway
/// Listeners on the same port" (`Listener.hostname` in `gateway_types.go`).
fn behind_tls<'t>(
    tls: &'t TlsTable,
    server_name: &str,
    host: &str,
) -> Result<Option<&'t Arc<HttpVirtualListener>>, Misdirected> {
    let (Some(own), Some(asked)) = (tls.listeners.lookup(server_name), tls.listeners.lookup(host)) else {
        return Ok(None);
    };
    if !Arc::ptr_eq(own, asked) && own.name != asked.name {
        return Err(Misdirected);
    }
    match &own.mode {
        TlsMode::Https { http, .. } => Ok(http.listeners.lookup(host)),
        TlsMode::Passthrough(_) | TlsMode::Terminate { .. } => Ok(None),
    }
}
