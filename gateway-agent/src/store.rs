//! The accepted objects in a compact form of our own.
//!
//! API types are converted on the way in and dropped. Each object carries the version at which it last changed, and
//! what changed since the last look is listed, so that a change costs what it changed.
//!
//! **Invariant:** no I/O, no clock; does not judge objects, which is `translate`'s work.

mod convert;
pub mod objects;
mod retain;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::objects::{
    Age, BackendTlsPolicy, ConfigMap, EndpointSlice, Gateway, HttpRoute, ListenerSet, Meta, Namespace,
    ParentRef, ReferenceGrant, Secret, Service, StreamRoute,
};
use crate::api::Object;
pub use crate::api::{Kind, ObjectId};
use crate::interner::Interner;
use crate::provision::managed::Managed;
use crate::snapshot::ObjectName;

/// An object and the store's version at which it last changed.
#[derive(Debug)]
pub struct Entry<T> {
    pub version: u64,
    pub object: Arc<T>,
}

/// Objects of one kind, in namespace and name order.
pub type Table<T> = BTreeMap<ObjectName, Entry<T>>;

#[derive(Debug, Default)]
pub struct Store {
    version: u64,
    /// Ages of objects without `creationTimestamp`.
    next_order: u64,
    dirty: BTreeSet<ObjectId>,
    /// What thousands of objects have alike.
    namespace_names: Interner<str>,
    parent_refs: Interner<[ParentRef]>,
    backend_tls_policies: Table<BackendTlsPolicy>,
    config_maps: Table<ConfigMap>,
    gateways: Table<Gateway>,
    grants: Table<ReferenceGrant>,
    grpc_routes: Table<HttpRoute>,
    http_routes: Table<HttpRoute>,
    /// Those of `services` and `slices` that agents made for Gateways.
    managed_services: BTreeSet<ObjectName>,
    managed_slices: BTreeSet<ObjectName>,
    listener_sets: Table<ListenerSet>,
    namespaces: Table<Namespace>,
    secrets: Table<Secret>,
    services: Table<Service>,
    slices: Table<EndpointSlice>,
    /// Slices by the Service that they name in its own namespace.
    slices_of: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    tcp_routes: Table<StreamRoute>,
    tls_routes: Table<StreamRoute>,
    udp_routes: Table<StreamRoute>,
}

impl Store {
    /// Replaces all objects; later objects are younger where `creationTimestamp` is absent. True when anything changed.
    pub fn replace_all(&mut self, objects: &[Object]) -> bool {
        let mut gone = self.ids();
        let mut changed = false;
        for (order, object) in objects.iter().enumerate() {
            let id = self.named(object);
            let (id, is_change) = self.put(id, object, Some(order as u64));
            gone.remove(&id);
            changed |= is_change;
        }
        self.next_order = objects.len() as u64;
        for id in gone {
            changed |= self.delete(&id);
        }
        changed
    }

    /// Adds or updates one object. True when it differs from what the store had.
    pub fn apply(&mut self, object: &Object) -> bool {
        let id = self.named(object);
        self.put(id, object, None).1
    }

    /// The same of an object whose name others keep too.
    pub fn apply_named(&mut self, id: ObjectId, object: &Object) -> bool {
        self.put(id, object, None).1
    }

    /// Removes one object. True when the store had it.
    pub fn delete(&mut self, id: &ObjectId) -> bool {
        let name = &id.name;
        let had = match id.kind {
            Kind::BackendTlsPolicy => self.backend_tls_policies.remove(name).is_some(),
            Kind::ConfigMap => self.config_maps.remove(name).is_some(),
            Kind::EndpointSlice => {
                let removed = self.slices.remove(name);
                self.managed_slices.remove(name);
                if let Some(entry) = &removed {
                    self.unlink_slice(name, entry.object.service.as_ref());
                    self.touch_service(name, entry.object.service.as_ref());
                }
                removed.is_some()
            }
            Kind::Gateway => self.gateways.remove(name).is_some(),
            Kind::GrpcRoute => self.grpc_routes.remove(name).is_some(),
            Kind::HttpRoute => self.http_routes.remove(name).is_some(),
            Kind::ListenerSet => self.listener_sets.remove(name).is_some(),
            Kind::Namespace => self.namespaces.remove(name).is_some(),
            Kind::ReferenceGrant => self.grants.remove(name).is_some(),
            Kind::Secret => self.secrets.remove(name).is_some(),
            Kind::Service => {
                self.managed_services.remove(name);
                self.services.remove(name).is_some()
            }
            Kind::TcpRoute => self.tcp_routes.remove(name).is_some(),
            Kind::TlsRoute => self.tls_routes.remove(name).is_some(),
            Kind::UdpRoute => self.udp_routes.remove(name).is_some(),
        };
        if had {
            self.version += 1;
            self.dirty.insert(id.clone());
        }
        had
    }

    /// Grows with every change.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// What changed, came or went since this was last called. A change of an EndpointSlice is one of its Service too.
    pub fn take_dirty(&mut self) -> BTreeSet<ObjectId> {
        std::mem::take(&mut self.dirty)
    }

    /// Of an object whose name nobody else keeps.
    fn named(&mut self, object: &Object) -> ObjectId {
        let ObjectId { kind, name } = object.id();
        let namespace = self.namespace_names.intern(name.namespace.clone());
        ObjectId { kind, name: ObjectName::new(namespace, name.name.clone()) }
    }

    fn put(&mut self, mut id: ObjectId, object: &Object, order: Option<u64>) -> (ObjectId, bool) {
        let fresh = order.unwrap_or(self.next_order);
        let version = self.version + 1;
        let name = &mut id.name;
        let keep = order.is_none();
        // `$parents`: where it is a route.
        macro_rules! aged {
            ($table:ident, $convert:ident, $object:expr $(, $parents:ident)?) => {{
                let before = self.$table.get_key_value(name);
                // One allocation of it: whatever names the object has a copy of this one.
                *name = before.map_or_else(|| name.clone(), |(known, _)| known.clone());
                let mut converted = convert::$convert($object, name, fresh);
                $(converted.$parents = self.parent_refs.intern(converted.$parents);)?
                keep_order(keep, &mut converted.meta, before.map(|(_, old)| &old.object.meta));
                upsert(&mut self.$table, name, version, converted)
            }};
        }
        let changed = match object {
            Object::BackendTlsPolicy(policy) => aged!(backend_tls_policies, backend_tls_policy, policy),
            Object::ConfigMap(map) => upsert(&mut self.config_maps, name, version, convert::config_map(map)),
            Object::EndpointSlice(slice) => self.put_slice(name, version, convert::endpoint_slice(slice)),
            Object::Gateway(gateway) => aged!(gateways, gateway, gateway),
            Object::GrpcRoute(route) => aged!(grpc_routes, grpc_route, route, parents),
            Object::HttpRoute(route) => aged!(http_routes, http_route, route, parents),
            Object::ListenerSet(set) => aged!(listener_sets, listener_set, set),
            Object::Namespace(namespace) => {
                upsert(&mut self.namespaces, name, version, convert::namespace(namespace))
            }
            Object::ReferenceGrant(grant) => {
                upsert(&mut self.grants, name, version, convert::reference_grant(grant))
            }
            Object::Secret(secret) => upsert(&mut self.secrets, name, version, convert::secret(secret)),
            Object::Service(service) => {
                let service = convert::service(service);
                mark(&mut self.managed_services, name, service.managed.is_some());
                upsert(&mut self.services, name, version, service)
            }
            Object::TcpRoute(route) => aged!(tcp_routes, tcp_route, route, parents),
            Object::TlsRoute(route) => aged!(tls_routes, tls_route, route, parents),
            Object::UdpRoute(route) => aged!(udp_routes, udp_route, route, parents),
        };
        if order.is_none() {
            self.next_order += 1;
        }
        if changed {
            self.version = version;
            self.dirty.insert(id.clone());
        }
        (id, changed)
    }

    fn put_slice(&mut self, name: &ObjectName, version: u64, slice: EndpointSlice) -> bool {
        let before = self.slices.get(name).and_then(|entry| entry.object.service.clone());
        if before != slice.service {
            self.unlink_slice(name, before.as_ref());
        }
        if let Some(service) = &slice.service {
            let service = ObjectName::new(name.namespace.clone(), service.clone());
            self.slices_of.entry(service).or_default().insert(name.clone());
        }
        mark(&mut self.managed_slices, name, slice.managed.is_some());
        let after = slice.service.clone();
        let is_changed = upsert(&mut self.slices, name, version, slice);
        if is_changed {
            self.touch_service(name, before.as_ref());
            self.touch_service(name, after.as_ref());
        }
        is_changed
    }

    fn touch_service(&mut self, slice: &ObjectName, service: Option<&Arc<str>>) {
        if let Some(service) = service {
            let name = ObjectName::new(slice.namespace.clone(), service.clone());
            self.dirty.insert(ObjectId { kind: Kind::Service, name });
        }
    }

    fn unlink_slice(&mut self, name: &ObjectName, service: Option<&Arc<str>>) {
        let Some(service) = service else {
            return;
        };
        let service = ObjectName::new(name.namespace.clone(), service.clone());
        if let Some(slices) = self.slices_of.get_mut(&service) {
            slices.remove(name);
            if slices.is_empty() {
                self.slices_of.remove(&service);
            }
        }
    }

    fn ids(&self) -> BTreeSet<ObjectId> {
        let mut ids = BTreeSet::new();
        let mut add = |kind: Kind, names: &mut dyn Iterator<Item = &ObjectName>| {
            ids.extend(names.map(|name| ObjectId { kind, name: name.clone() }));
        };
        add(Kind::BackendTlsPolicy, &mut self.backend_tls_policies.keys());
        add(Kind::ConfigMap, &mut self.config_maps.keys());
        add(Kind::EndpointSlice, &mut self.slices.keys());
        add(Kind::Gateway, &mut self.gateways.keys());
        add(Kind::GrpcRoute, &mut self.grpc_routes.keys());
        add(Kind::HttpRoute, &mut self.http_routes.keys());
        add(Kind::ListenerSet, &mut self.listener_sets.keys());
        add(Kind::Namespace, &mut self.namespaces.keys());
        add(Kind::ReferenceGrant, &mut self.grants.keys());
        add(Kind::Secret, &mut self.secrets.keys());
        add(Kind::Service, &mut self.services.keys());
        add(Kind::TcpRoute, &mut self.tcp_routes.keys());
        add(Kind::TlsRoute, &mut self.tls_routes.keys());
        add(Kind::UdpRoute, &mut self.udp_routes.keys());
        ids
    }
}

/// What translation reads.
impl Store {
    pub const fn gateways(&self) -> &Table<Gateway> {
        &self.gateways
    }

    pub const fn listener_sets(&self) -> &Table<ListenerSet> {
        &self.listener_sets
    }

    pub const fn backend_tls_policies(&self) -> &Table<BackendTlsPolicy> {
        &self.backend_tls_policies
    }

    pub const fn services(&self) -> &Table<Service> {
        &self.services
    }

    pub const fn grpc_routes(&self) -> &Table<HttpRoute> {
        &self.grpc_routes
    }

    pub const fn http_routes(&self) -> &Table<HttpRoute> {
        &self.http_routes
    }

    pub const fn tls_routes(&self) -> &Table<StreamRoute> {
        &self.tls_routes
    }

    pub const fn tcp_routes(&self) -> &Table<StreamRoute> {
        &self.tcp_routes
    }

    pub const fn udp_routes(&self) -> &Table<StreamRoute> {
        &self.udp_routes
    }

    pub const fn grants(&self) -> &Table<ReferenceGrant> {
        &self.grants
    }

    pub fn service(&self, name: &ObjectName) -> Option<&Arc<Service>> {
        self.services.get(name).map(|entry| &entry.object)
    }

    /// The same name, of the allocation that the Service's own has, where there is one.
    pub fn service_name(&self, name: ObjectName) -> ObjectName {
        self.services.get_key_value(&name).map_or(name, |(known, _)| known.clone())
    }

    pub fn secret(&self, name: &ObjectName) -> Option<&Arc<Secret>> {
        self.secrets.get(name).map(|entry| &entry.object)
    }

    pub fn config_map(&self, name: &ObjectName) -> Option<&Arc<ConfigMap>> {
        self.config_maps.get(name).map(|entry| &entry.object)
    }

    /// Every slice that names this Service, in its namespace.
    pub fn slices(&self, service: &ObjectName) -> impl Iterator<Item = &Arc<EndpointSlice>> {
        let names = self.slices_of.get(service).into_iter().flatten();
        names.filter_map(|name| self.slices.get(name)).map(|entry| &entry.object)
    }

    /// Every slice that names this Service, by name.
    pub fn named_slices(
        &self,
        service: &ObjectName,
    ) -> impl Iterator<Item = (&ObjectName, &Arc<EndpointSlice>)> {
        let names = self.slices_of.get(service).into_iter().flatten();
        names.filter_map(|name| Some((name, &self.slices.get(name)?.object)))
    }

    pub fn slice(&self, name: &ObjectName) -> Option<&Arc<EndpointSlice>> {
        self.slices.get(name).map(|entry| &entry.object)
    }

    /// Whether an agent made it for a Gateway.
    pub fn is_managed(&self, id: &ObjectId) -> bool {
        match id.kind {
            Kind::EndpointSlice => self.managed_slices.contains(&id.name),
            Kind::Service => self.managed_services.contains(&id.name),
            _ => false,
        }
    }

    /// The Services that agents made for Gateways.
    pub fn managed_services(&self) -> impl Iterator<Item = (&ObjectName, &Service, &Managed)> {
        self.managed_services.iter().filter_map(|name| {
            let service = self.service(name)?;
            Some((name, &**service, service.managed.as_deref()?))
        })
    }

    /// The slices that agents made for Gateways.
    pub fn managed_slices(&self) -> impl Iterator<Item = (&ObjectName, &Managed)> {
        self.managed_slices.iter().filter_map(|name| Some((name, self.slice(name)?.managed.as_deref()?)))
    }

    /// The value of a namespace's label. `kubernetes.io/metadata.name` is known without reading the namespace.
    pub fn namespace_label<'a>(&'a self, namespace: &'a str, key: &str) -> Option<&'a str> {
        if key == "kubernetes.io/metadata.name" {
            return Some(namespace);
        }
        self.namespaces.get(&namespace_key(namespace))?.object.labels.get(key).map(|value| &**value)
    }
}

fn mark(set: &mut BTreeSet<ObjectName>, name: &ObjectName, is_in: bool) {
    if is_in {
        set.insert(name.clone());
    } else {
        set.remove(name);
    }
}

/// Namespaces are in no namespace.
fn namespace_key(name: &str) -> ObjectName {
    ObjectName::new("", name)
}

/// An object without `creationTimestamp` that is applied again keeps the age it had.
fn keep_order(keep: bool, meta: &mut Meta, before: Option<&Meta>) {
    if let (true, Age::Order(_), Some(Meta { age: Age::Order(age), .. })) = (keep, meta.age, before) {
        meta.age = Age::Order(*age);
    }
}

/// True when the object is new or differs; an equal one keeps its version and its allocation.
fn upsert<T: PartialEq>(table: &mut Table<T>, name: &ObjectName, version: u64, object: T) -> bool {
    if table.get(name).is_some_and(|entry| *entry.object == object) {
        return false;
    }
    table.insert(name.clone(), Entry { version, object: Arc::new(object) });
    true
}
