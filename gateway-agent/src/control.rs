//! The control loop's state: objects in, snapshots and condition tables out.
//!
//! **Invariant:** no I/O and no clock. What it is told, it translates; what changed, it publishes once; what the data
//! paths acknowledge, it joins. `app` feeds it and prints.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use crate::manifests::Load;
use crate::metrics::Metrics;
use crate::snapshot::{
    HttpTable, Listener, ListenerName, Protocol, Publisher, Reader, Revision, RouteName, Snapshot,
};
use crate::status::{self, Applied, Changes, ObjectStatus};
use crate::store::Store;
use crate::translate::{self, Config, Translation};

#[derive(Debug)]
pub struct Control {
    config: Config,
    store: Store,
    translation: Translation,
    revision: Revision,
    publisher: Publisher,
    metrics: Arc<Metrics>,
    /// Whether objects have been seen at all: before that there is nothing to serve or to say.
    is_loaded: bool,
    reported: Vec<Arc<ObjectStatus>>,
}

impl Control {
    pub fn new(config: Config, publisher: Publisher, metrics: Arc<Metrics>) -> Self {
        Self {
            config,
            store: Store::default(),
            translation: Translation::default(),
            revision: Revision::default(),
            publisher,
            metrics,
            is_loaded: false,
            reported: Vec::new(),
        }
    }

    /// Takes the objects of a folder. True when a new snapshot was published.
    pub fn load(&mut self, load: &Load) -> bool {
        let has_changed = self.store.replace_all(&load.objects);
        if !has_changed && self.is_loaded {
            return false;
        }
        self.is_loaded = true;
        self.translate()
    }

    /// Takes the addresses that the network namespace has now. True when a new snapshot was published.
    pub fn local_addresses(&mut self, addresses: Vec<IpAddr>) -> bool {
        if addresses == self.config.local_addresses {
            return false;
        }
        self.config.local_addresses = addresses;
        self.is_loaded && self.translate()
    }

    fn translate(&mut self) -> bool {
        let translation = translate::translate(&self.store, &self.config);
        let serves_same = self.revision > Revision(0) && translation.listeners == self.translation.listeners;
        self.translation = translation;
        if serves_same {
            return false;
        }
        self.revision.0 += 1;
        let (listeners, routes) = names(&self.translation.listeners);
        self.metrics.retain(&listeners, &routes);
        let listeners = self.translation.listeners.clone();
        self.publisher.publish(Arc::new(Snapshot { revision: self.revision, listeners }));
        true
    }

    /// A further reader of what is published.
    pub fn reader(&self) -> Reader {
        self.publisher.reader()
    }

    /// The revision that was published last; 0 before the first.
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// What was published last.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { revision: self.revision, listeners: self.translation.listeners.clone() }
    }

    pub fn listeners(&self) -> &[Arc<Listener>] {
        &self.translation.listeners
    }

    /// Whether the data paths have spoken of what was published last.
    pub fn is_acknowledged(&self, proxy: &Applied, kernel: &Applied) -> bool {
        self.is_loaded && status::acknowledged(self.revision, proxy, Some(kernel))
    }

    /// The conditions of all objects.
    pub fn statuses(&self, proxy: &Applied, kernel: &Applied) -> Vec<Arc<ObjectStatus>> {
        status::join(&self.translation.statuses, self.revision, proxy, Some(kernel))
    }

    /// What differs from what this returned before.
    pub fn report(&mut self, proxy: &Applied, kernel: &Applied) -> Changes {
        let statuses = self.statuses(proxy, kernel);
        let changes = status::changed(&self.reported, &statuses);
        self.reported = statuses;
        changes
    }
}

/// Every listener and route that has counters.
fn names(listeners: &[Arc<Listener>]) -> (HashSet<ListenerName>, HashSet<RouteName>) {
    let names = listeners.iter().flat_map(|listener| listener.names.iter().cloned()).collect();
    let mut routes = HashSet::new();
    for listener in listeners {
        match &listener.protocol {
            Protocol::Http(table) => routes.extend(http_routes(table)),
            Protocol::Tls(table) => {
                routes.extend(table.passthrough_rules().map(|rule| rule.route.clone()));
                routes.extend(table.http_tables().flat_map(|http| http_routes(http)));
            }
            Protocol::Tcp(service) | Protocol::Udp(service) => routes.extend(service.route.clone()),
        }
    }
    (names, routes)
}

fn http_routes(table: &HttpTable) -> impl Iterator<Item = RouteName> {
    let hosts = table.listeners.values().flat_map(|listener| listener.hosts.values());
    hosts.flat_map(|host| host.matches()).map(|found| found.rule.route.clone())
}
