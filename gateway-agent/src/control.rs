//! The control loop's state: objects in, snapshots and condition tables out.
//!
//! **Invariant:** no I/O and no clock. What it is told, it translates; what changed, it publishes once; what the data
//! paths acknowledge, it joins. `app` feeds it and prints.

use std::net::IpAddr;
use std::sync::Arc;

use crate::addresses::Missing;
use crate::api::Object;
use crate::cluster::{Change, Desired, Problems, SyncGate, WatchKey};
use crate::manifests::Load;
use crate::metrics::Metrics;
use crate::provision::Wanted;
use crate::snapshot::{Listener, Publisher, Reader, Revision, Snapshot};
use crate::status::write::Parents;
use crate::status::{self, Applied, Changes, StatusList};
use crate::store::Store;
use crate::store::objects::{ListenerSetFilter, NamespaceFilter};
use crate::translate::{Config, Gone, Translation, Translator, Watched};

#[derive(Debug)]
pub struct Control {
    config: Config,
    store: Store,
    translator: Translator,
    /// What went with the snapshot before: a worker may have counted for it once more.
    gone: Gone,
    revision: Revision,
    /// The first that has the listeners as they are: what comes after differs in routes and endpoints.
    listeners_revision: Revision,
    publisher: Publisher,
    metrics: Arc<Metrics>,
    /// Whether objects have been seen at all: before that there is nothing to serve or to say.
    is_loaded: bool,
    /// Open, unless the API has not told everything yet.
    gate: SyncGate,
    /// The version of the store that was translated last.
    translated: u64,
    reported: StatusList,
    /// Of what was translated last.
    parents: Arc<Parents>,
    provisions: Arc<Vec<Wanted>>,
}

impl Control {
    pub fn new(config: Config, publisher: Publisher, metrics: Arc<Metrics>) -> Self {
        Self {
            config,
            store: Store::default(),
            translator: Translator::default(),
            gone: Gone::default(),
            revision: Revision::default(),
            listeners_revision: Revision::default(),
            publisher,
            metrics,
            is_loaded: false,
            gate: SyncGate::default(),
            translated: 0,
            reported: StatusList::default(),
            parents: Arc::default(),
            provisions: Arc::default(),
        }
    }

    /// Objects come from `watched`. Nothing that the API tells is published before everything that `gate` names was
    /// seen; until then `restored`, the objects of an earlier run, are served, of which there may be none.
    pub fn await_sync(&mut self, watched: Watched, gate: SyncGate, restored: &[Object]) {
        self.config.watched = watched;
        self.gate = gate;
        if !restored.is_empty() {
            for object in restored {
                self.store.apply(object);
            }
            self.is_loaded = true;
            self.translate();
        }
    }

    /// Takes what the API told. True when a new snapshot was published.
    pub fn objects(&mut self, changes: Vec<Change>) -> bool {
        let was_synced = self.gate.is_open();
        let mut has_new_classes = false;
        for change in changes {
            if let Some(key) = change.passes() {
                self.gate.pass(&key);
            }
            match change {
                Change::Applied(id, object) => {
                    self.store.apply_named(id, &object);
                }
                Change::Deleted(id) => {
                    self.store.delete(&id);
                }
                Change::Listed { kind, namespace, names } => {
                    self.store.retain(kind, namespace.as_deref(), &names);
                }
                Change::ForeignClasses(foreign) => {
                    let foreign = foreign.iter().map(ToString::to_string).collect();
                    has_new_classes |= self.config.foreign_classes != foreign;
                    self.config.foreign_classes = foreign;
                }
                Change::Unavailable { .. } | Change::Malformed { .. } | Change::ClassesUnavailable => {}
            }
        }
        // Half of what there is would be a wrong answer: a route without its Service, a Gateway without its routes.
        if !self.gate.is_open() {
            return false;
        }
        if was_synced && self.is_loaded && !has_new_classes && self.store.version() == self.translated {
            return false;
        }
        self.is_loaded = true;
        self.translate()
    }

    /// Whether everything has been seen once.
    pub fn is_synced(&self) -> bool {
        self.gate.is_open()
    }

    /// What has not been seen yet.
    pub fn unseen(&self) -> impl Iterator<Item = &WatchKey> {
        self.gate.waiting()
    }

    /// Whether a Gateway or any listener selects namespaces by their labels.
    pub fn uses_selectors(&self) -> bool {
        let is_selector = |filter: &NamespaceFilter| matches!(filter, NamespaceFilter::Selector(_));
        let gateways = || self.store.gateways().values().map(|entry| &entry.object);
        let sets = self.store.listener_sets().values().flat_map(|entry| &entry.object.listeners);
        let mut listeners = gateways().flat_map(|gateway| &gateway.listeners).chain(sets);
        listeners.any(|listener| is_selector(&listener.namespaces))
            || gateways().any(|gateway| match &gateway.allowed_listeners {
                ListenerSetFilter::None => false,
                ListenerSetFilter::Some(filter) => is_selector(filter),
            })
    }

    /// What the writers are to bring about; nothing before everything was seen.
    pub fn desired(&self) -> Desired {
        if !self.is_synced() {
            return Desired::default();
        }
        Desired {
            statuses: self.reported.clone(),
            parents: self.parents.clone(),
            provisions: self.provisions.clone(),
            revision: self.revision,
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
        self.is_consistent() && self.translate()
    }

    /// Takes what keeps Services from being written. True when a new snapshot was published.
    pub fn provision_problems(&mut self, problems: Arc<Problems>) -> bool {
        if problems == self.config.provision_problems {
            return false;
        }
        self.config.provision_problems = problems;
        self.is_consistent() && self.translate()
    }

    /// Takes which addresses of the pool do not arrive. True when a new snapshot was published.
    pub fn undelivered(&mut self, missing: Arc<Missing>) -> bool {
        if missing == self.config.undelivered {
            return false;
        }
        self.config.undelivered = missing;
        self.is_consistent() && self.translate()
    }

    /// Before everything was seen the store may be neither what was restored nor what there is.
    fn is_consistent(&self) -> bool {
        self.is_loaded && (self.is_synced() || self.store.version() == self.translated)
    }

    /// Brings the snapshot up to date. True when a new one was published.
    fn translate(&mut self) -> bool {
        self.translated = self.store.version();
        let before = self.translator.translation().listeners.clone();
        let planned = self.translator.work().topologies_planned;
        let dirty = self.store.take_dirty();
        let translation = self.translator.update(&self.store, &dirty, &self.config);
        // What is equal has kept its allocation.
        let serves_same = self.revision > Revision(0) && Arc::ptr_eq(&translation.listeners, &before);
        let listeners = translation.listeners.clone();
        if *self.provisions != translation.provisions {
            self.provisions = Arc::new(translation.provisions.clone());
        }
        self.forget();
        // Gateways and ListenerSets tell whose entries are whose.
        if self.translator.work().topologies_planned != planned {
            let parents = Parents::new(&self.store, &self.config);
            if *self.parents != parents {
                self.parents = Arc::new(parents);
            }
        }
        if serves_same {
            return false;
        }
        self.revision.0 += 1;
        if self.translator.work().topologies_planned != planned {
            self.listeners_revision = self.revision;
        }
        self.publisher.publish(Arc::new(Snapshot { revision: self.revision, listeners }));
        true
    }

    /// Ends the counters of what is served no more, also of what was not by the snapshot before.
    fn forget(&mut self) {
        let gone = self.translator.take_gone();
        for Gone { listeners, routes } in [&gone, &self.gone] {
            let listeners = listeners.iter().filter(|listener| !self.translator.serves_listener(listener));
            let routes = routes.iter().filter(|route| !self.translator.serves_route(route));
            self.metrics.forget(listeners, routes);
        }
        self.gone = gone;
    }

    fn translation(&self) -> &Translation {
        self.translator.translation()
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
        Snapshot { revision: self.revision, listeners: self.translation().listeners.clone() }
    }

    pub fn listeners(&self) -> &[Arc<Listener>] {
        &self.translation().listeners
    }

    /// Whether the data paths have spoken of the listeners as they are now.
    pub fn is_acknowledged(&self, proxy: &Applied, kernel: &Applied) -> bool {
        self.is_loaded && status::acknowledged(self.listeners_revision, proxy, Some(kernel))
    }

    /// The conditions of all objects.
    pub fn statuses(&self, proxy: &Applied, kernel: &Applied) -> StatusList {
        status::join(&self.translation().statuses, self.listeners_revision, proxy, Some(kernel))
    }

    /// What differs from what this returned before.
    pub fn report(&mut self, proxy: &Applied, kernel: &Applied) -> Changes {
        let statuses = self.statuses(proxy, kernel);
        let changes = status::changed(&self.reported, &statuses);
        // What is the same stays the same allocation, which is how a writer knows.
        if !changes.is_empty() {
            self.reported = statuses;
        }
        changes
    }
}

#[cfg(test)]
mod tests;
