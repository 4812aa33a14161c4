//! Objects that are looked up by name, with a record of what was looked at.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use crate::api::{Kind, ObjectId};
use crate::snapshot::ObjectName;
use crate::store::Store;
use crate::store::objects::{ConfigMap, Secret, Service};

/// A change of what was looked at, also of what was found absent, calls for the work to be done again.
#[derive(Debug)]
pub(super) struct Inputs<'a> {
    store: &'a Store,
    reads: RefCell<BTreeSet<ObjectId>>,
}

impl<'a> Inputs<'a> {
    pub(super) fn new(store: &'a Store) -> Self {
        Self { store, reads: RefCell::default() }
    }

    /// For what is not looked up by name; nothing is recorded.
    pub(super) const fn store(&self) -> &'a Store {
        self.store
    }

    /// The ready endpoints of a Service.
    pub(super) fn ready_endpoints(&self, service: &ObjectName) -> Vec<IpAddr> {
        // A change of its slices is told as one of the Service, whether or not there is one.
        self.record(Kind::Service, service);
        let endpoints = self.store.slices(service).flat_map(|slice| &slice.endpoints);
        endpoints.filter(|endpoint| endpoint.ready).map(|endpoint| endpoint.address).collect()
    }

    pub(super) fn config_map(&self, name: &ObjectName) -> Option<&'a Arc<ConfigMap>> {
        self.record(Kind::ConfigMap, name);
        self.store.config_map(name)
    }

    pub(super) fn secret(&self, name: &ObjectName) -> Option<&'a Arc<Secret>> {
        self.record(Kind::Secret, name);
        self.store.secret(name)
    }

    pub(super) fn service(&self, name: &ObjectName) -> Option<&'a Arc<Service>> {
        self.record(Kind::Service, name);
        self.store.service(name)
    }

    pub(super) fn into_reads(self) -> BTreeSet<ObjectId> {
        self.reads.into_inner()
    }

    fn record(&self, kind: Kind, name: &ObjectName) {
        self.reads.borrow_mut().insert(ObjectId { kind, name: name.clone() });
    }
}
