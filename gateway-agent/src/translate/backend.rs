//! backendRefs to endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use super::Config;
use super::announced;
use super::conditions::Problem;
use super::grant::{self, From};
use super::policy::Cover;
use crate::snapshot::{
    Backend, BackendProtocol, BackendSecurity, EndpointSet, ObjectName, ProxyVersion, RouteKind, Split,
    Transport, WeightedBackend,
};
use crate::status::names::reason;
use crate::store::Store;
use crate::store::objects::{
    BackendRef, GroupKind, PROXY_PROTOCOL_ANNOTATION, ServicePort, ServiceType, SlicePort,
};

/// How a Service port with this `appProtocol` is spoken to for a route of this kind, or why it is not: the promise that it
/// makes to clients would not be kept. Routes of streams pass on what they get.
fn spoken(
    route: RouteKind,
    app_protocol: Option<&str>,
    security: &BackendSecurity,
) -> Result<BackendProtocol, &'static str> {
    let is = |known: &[&str]| {
        app_protocol.is_some_and(|name| known.iter().any(|known| name.eq_ignore_ascii_case(known)))
    };
    if matches!(route, RouteKind::Http | RouteKind::Grpc)
        && is(&HTTPS_APP_PROTOCOLS)
        && *security == BackendSecurity::Cleartext
    {
        return Err("needs a BackendTLSPolicy that says whom to trust");
    }
    // The second and third are not Kubernetes' own and in wide use for the same.
    let is_http_2 = is(&["kubernetes.io/h2c", "h2c", "grpc"]);
    let is_https = is(&HTTPS_APP_PROTOCOLS);
    match route {
        RouteKind::Tcp | RouteKind::Tls | RouteKind::Udp => Ok(BackendProtocol::Http1),
        RouteKind::Http if is_http_2 => Ok(BackendProtocol::Http2),
        RouteKind::Http if app_protocol.is_none() || is_https || is(&["http", "kubernetes.io/ws"]) => {
            Ok(BackendProtocol::Http1)
        }
        // gRPC is always HTTP/2; a Service that says otherwise is not one for it.
        RouteKind::Grpc if app_protocol.is_none() || is_http_2 || is(&["https"]) => {
            Ok(BackendProtocol::Http2)
        }
        RouteKind::Grpc | RouteKind::Http => Err("is not supported"),
    }
}

/// The same by TLS, where a policy says whom to trust (GEP-1911).
const HTTPS_APP_PROTOCOLS: [&str; 2] = ["https", "kubernetes.io/wss"];

/// What one backendRef stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) weight: u32,
    /// `None`: the reference is invalid, or there is no way to serve it.
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

/// What a route's references led to: when it changes, the route is compiled anew.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Read {
    /// The Service, its slices and the policies on it, also where there are none.
    Service(ObjectName),
    /// The ReferenceGrants of a namespace.
    Grants(Arc<str>),
}

type PortKey = (ObjectName, u16, Transport, BackendProtocol);

/// The endpoints of Service ports, kept from one translation to the next.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    known: BTreeMap<PortKey, Known>,
}

#[derive(Debug)]
struct Known {
    set: Arc<EndpointSet>,
    is_current: bool,
}

impl Endpoints {
    /// The Service, its slices or the policies on it have changed.
    pub(super) fn touch(&mut self, service: &ObjectName) {
        for (_, known) in self.of_mut(service) {
            known.is_current = false;
        }
    }

    /// No route refers to the Service any more.
    pub(super) fn forget(&mut self, service: &ObjectName) {
        let keys: Vec<PortKey> = self.of_mut(service).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.known.remove(&key);
        }
    }

    fn of_mut<'a>(
        &'a mut self,
        service: &'a ObjectName,
    ) -> impl Iterator<Item = (&'a PortKey, &'a mut Known)> {
        let first = (service.clone(), 0, Transport::Tcp, BackendProtocol::Http1);
        self.known.range_mut(first..).take_while(move |((of, ..), _)| of == service)
    }

    fn get(
        &mut self,
        store: &Store,
        config: &Config,
        service: ObjectName,
        port: &ServicePort,
        (transport, protocol): (Transport, BackendProtocol),
        (security, proxy_version): (BackendSecurity, Option<ProxyVersion>),
    ) -> Arc<EndpointSet> {
        let key = (service, port.port, transport, protocol);
        if let Some(known) = self.known.get(&key).filter(|known| known.is_current) {
            return known.set.clone();
        }
        let fresh = EndpointSet {
            service: key.0.clone(),
            port: port.port,
            protocol,
            addresses: usable(store, config, &key.0, &port.name, transport),
            security,
            proxy_version,
        };
        let before = self.known.remove(&key).map(|known| known.set).filter(|set| **set == fresh);
        let set = before.unwrap_or_else(|| Arc::new(fresh));
        self.known.insert(key, Known { set: set.clone(), is_current: true });
        set
    }
}

/// Resolves references; equal ones share their endpoints.
#[derive(Debug)]
pub(super) struct Resolver<'a> {
    pub(super) store: &'a Store,
    pub(super) config: &'a Config,
    pub(super) cover: &'a Cover,
    pub(super) endpoints: &'a mut Endpoints,
    pub(super) reads: BTreeSet<Read>,
}

impl Resolver<'_> {
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
                Ok(endpoints) => endpoints,
                Err(problem) => {
                    resolved.problems.push(problem);
                    None
                }
            };
            resolved.shares.push(Share { weight: backend.weight, endpoints });
        }
        resolved
    }

    /// `None`: the reference is good, and the agent cannot speak what the Service wants to hear.
    fn endpoints(
        &mut self,
        route: RouteKind,
        namespace: &Arc<str>,
        backend: &BackendRef,
    ) -> Result<Option<Arc<EndpointSet>>, Problem> {
        let BackendRef { other_kind, namespace: target_namespace, name, port, weight: _ } = backend;
        if let Some(other) = other_kind {
            let GroupKind { group, kind } = &**other;
            let group = if group.is_empty() { "core" } else { group };
            let message =
                format!("backendRef {name} is a {kind} of group {group}; only Services are supported");
            return Err(Problem::new(reason::INVALID_KIND, message));
        }
        let target_namespace = target_namespace.as_ref().unwrap_or(namespace);
        let service = self.store.service_name(ObjectName::new(target_namespace.clone(), name.clone()));
        if service.namespace != *namespace {
            self.reads.insert(Read::Grants(service.namespace.clone()));
        }
        self.reads.insert(Read::Service(service.clone()));
        let from = From { kind: route.as_str(), namespace };
        grant::check(self.store, self.config, from, "Service", &service)?;
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
        let security = self.cover.security(&service, &service_port.name);
        let app_protocol = service_port.app_protocol.as_deref();
        let protocol = spoken(route, app_protocol, &security).map_err(|why| {
            let app_protocol = app_protocol.unwrap_or_default();
            let message =
                format!("port {port} of Service {service} has appProtocol {app_protocol}, which {why}");
            Problem::new(reason::UNSUPPORTED_PROTOCOL, message)
        })?;
        let proxy_version = announced::proxy_version(route, object, service_port).map_err(|why| {
            let message = format!("Service {service}: annotation {PROXY_PROTOCOL_ANNOTATION}: {why}");
            Problem::new(reason::UNSUPPORTED_PROTOCOL, message)
        })?;
        // What is to be sent by TLS is never sent in clear.
        if matches!(route, RouteKind::Grpc | RouteKind::Http) && security == BackendSecurity::Refused {
            return Ok(None);
        }
        let (speech, terms) = ((transport, protocol), (security, proxy_version));
        Ok(Some(self.endpoints.get(self.store, self.config, service, service_port, speech, terms)))
    }
}

/// The union over the Service's slices, each with its own number for the port of that *name* (O42, O43). Ready
/// endpoints, and only where there is none the terminating ones that still serve (O41).
fn usable(
    store: &Store,
    config: &Config,
    service: &ObjectName,
    port_name: &str,
    transport: Transport,
) -> Arc<[SocketAddr]> {
    // Sorted and without duplicates; whether any slice holds the endpoint ready.
    let mut found: BTreeMap<SocketAddr, bool> = BTreeMap::new();
    for slice in store.slices(service) {
        let named = |port: &&SlicePort| {
            &*port.name == port_name && port.transport == Some(transport) && port.port != 0
        };
        let Some(port) = slice.ports.iter().find(named) else {
            continue;
        };
        for endpoint in &slice.endpoints {
            let can_be_dialled = !endpoint.address.is_unspecified() && !endpoint.address.is_multicast();
            let is_wanted = !config.local_endpoints || config.own_pod.ips.contains(&endpoint.address);
            if can_be_dialled && is_wanted && (endpoint.ready || (endpoint.serving && endpoint.terminating)) {
                let address = SocketAddr::new(endpoint.address, port.port);
                *found.entry(address).or_default() |= endpoint.ready;
            }
        }
    }
    let any_ready = found.values().any(|ready| *ready);
    found.into_iter().filter(|(_, ready)| *ready || !any_ready).map(|(address, _)| address).collect()
}
