//! backendRefs to endpoints.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use super::conditions::Problem;
use super::grant;
use crate::snapshot::{Backend, EndpointSet, ObjectName, RouteKind, Split, Transport, WeightedBackend};
use crate::status::names::reason;
use crate::store::Store;
use crate::store::objects::{BackendRef, ServicePort, ServiceType};

/// `appProtocol`s that the HTTP/1.1 proxy can speak. Others (`kubernetes.io/h2c`, `https`, ...) promise the client
/// something that would not be kept.
const HTTP_APP_PROTOCOLS: [&str; 2] = ["http", "kubernetes.io/ws"];

/// What one backendRef stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) weight: u32,
    /// `None`: the reference is invalid.
    pub(super) endpoints: Option<Arc<EndpointSet>>,
}

/// The backendRefs of one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) shares: Vec<Share>,
    pub(super) problems: Vec<Problem>,
}

impl Shares {
    pub(super) fn split(&self) -> Split {
        let backends = self.shares.iter().map(|share| {
            let backend = share.endpoints.clone().map_or(Backend::Invalid, Backend::Endpoints);
            WeightedBackend::new(share.weight, backend)
        });
        Split::new(backends.collect())
    }
}

/// Resolves references; equal ones share their endpoints.
#[derive(Debug)]
pub(super) struct Resolver<'a> {
    store: &'a Store,
    known: HashMap<(ObjectName, u16, Transport), Arc<EndpointSet>>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(store: &'a Store) -> Self {
        Self { store, known: HashMap::new() }
    }

    /// The backendRefs of one rule of a route of this kind and namespace.
    pub(super) fn resolve(
        &mut self,
        route: RouteKind,
        namespace: &Arc<str>,
        backends: &[BackendRef],
    ) -> Shares {
        let mut resolved = Shares::default();
        for backend in backends {
            let endpoints = match self.endpoints(route, namespace, backend) {
                Ok(endpoints) => Some(endpoints),
                Err(problem) => {
                    resolved.problems.push(problem);
                    None
                }
            };
            resolved.shares.push(Share { weight: backend.weight, endpoints });
        }
        resolved
    }

    fn endpoints(
        &mut self,
        route: RouteKind,
        namespace: &Arc<str>,
        backend: &BackendRef,
    ) -> Result<Arc<EndpointSet>, Problem> {
        let BackendRef { group, kind, namespace: target_namespace, name, port, weight: _ } = backend;
        if !(group.is_empty() && &**kind == "Service") {
            let group = if group.is_empty() { "core" } else { group };
            let message =
                format!("backendRef {name} is a {kind} of group {group}; only Services are supported");
            return Err(Problem::new(reason::INVALID_KIND, message));
        }
        let service = ObjectName {
            namespace: target_namespace.clone().unwrap_or_else(|| namespace.clone()),
            name: name.clone(),
        };
        // Permission is decided before existence, so that nothing is told about what may not be seen.
        if !grant::permits(self.store, route.as_str(), namespace, ("", "Service", &service)) {
            let message = format!(
                "no ReferenceGrant in namespace {} permits {}s of namespace {namespace} to refer to Service {name}",
                service.namespace,
                route.as_str()
            );
            return Err(Problem::new(reason::REF_NOT_PERMITTED, message));
        }
        let not_found = |message: String| Problem::new(reason::BACKEND_NOT_FOUND, message);
        let Some(port) = port else {
            return Err(not_found(format!("the backendRef to Service {service} needs a port")));
        };
        let Some(object) = self.store.service(&service) else {
            return Err(not_found(format!("Service {service} does not exist")));
        };
        if object.kind == ServiceType::ExternalName {
            let message = format!("Service {service} is of type ExternalName, which cannot be a backend");
            return Err(Problem::new(reason::INVALID_KIND, message));
        }
        let transport = if route == RouteKind::Udp { Transport::Udp } else { Transport::Tcp };
        let wanted =
            |candidate: &&ServicePort| candidate.port == port.get() && candidate.transport == Some(transport);
        let Some(service_port) = object.ports.iter().find(wanted) else {
            let transport = transport.as_str().to_uppercase();
            return Err(not_found(format!("Service {service} has no {transport} port {port}")));
        };
        if let (RouteKind::Http, Some(protocol)) = (route, &service_port.app_protocol)
            && !HTTP_APP_PROTOCOLS.iter().any(|known| protocol.eq_ignore_ascii_case(known))
        {
            let message = format!(
                "port {port} of Service {service} has appProtocol {protocol}, which is not supported"
            );
            return Err(Problem::new(reason::UNSUPPORTED_PROTOCOL, message));
        }
        Ok(self.endpoint_set(service, service_port, transport))
    }

    fn endpoint_set(
        &mut self,
        service: ObjectName,
        port: &ServicePort,
        transport: Transport,
    ) -> Arc<EndpointSet> {
        let key = (service, port.port, transport);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let set = Arc::new(EndpointSet {
            service: key.0.clone(),
            port: port.port,
            addresses: usable(self.store, &key.0, &port.name, transport),
        });
        self.known.insert(key, set.clone());
        set
    }
}

/// The union over the Service's slices, each with its own number for the port of that *name* (O42, O43). Ready
/// endpoints, and only where there is none the terminating ones that still serve (O41).
fn usable(store: &Store, service: &ObjectName, port_name: &str, transport: Transport) -> Arc<[SocketAddr]> {
    // Sorted and without duplicates; whether any slice holds the endpoint ready.
    let mut found: BTreeMap<SocketAddr, bool> = BTreeMap::new();
    for slice in store.slices(service) {
        let named = |port: &&crate::store::objects::SlicePort| {
            &*port.name == port_name && port.transport == Some(transport) && port.port != 0
        };
        let Some(port) = slice.ports.iter().find(named) else {
            continue;
        };
        for endpoint in &slice.endpoints {
            let can_be_dialled = !endpoint.address.is_unspecified() && !endpoint.address.is_multicast();
            if can_be_dialled && (endpoint.ready || (endpoint.serving && endpoint.terminating)) {
                let address = SocketAddr::new(endpoint.address, port.port);
                *found.entry(address).or_default() |= endpoint.ready;
            }
        }
    }
    let any_ready = found.values().any(|ready| *ready);
    found.into_iter().filter(|(_, ready)| *ready || !any_ready).map(|(address, _)| address).collect()
}
