//! Objects that are looked up by name.

use std::sync::Arc;

use crate::snapshot::ObjectName;
use crate::store::Store;
use crate::store::objects::{ConfigMap, Service};

#[derive(Debug)]
pub(super) struct Inputs<'a> {
    store: &'a Store,
}

impl<'a> Inputs<'a> {
    pub(super) const fn new(store: &'a Store) -> Self {
        Self { store }
    }

    /// For what is not looked up by name.
    pub(super) const fn store(&self) -> &'a Store {
        self.store
    }

    pub(super) fn service(&self, name: &ObjectName) -> Option<&'a Arc<Service>> {
        self.store.service(name)
    }

    pub(super) fn config_map(&self, name: &ObjectName) -> Option<&'a Arc<ConfigMap>> {
        self.store.config_map(name)
    }
}
