//! What the data paths serve: plain, immutable data that `translate` makes and `proxy` and `ebpf` read.
//!
//! **Invariant:** no I/O, no clock, no Kubernetes types, no aya types. Everything is compared by value:
//! an equal snapshot is not published again.

mod filter;
mod host;
mod http;
mod l4;
mod name;
mod provenance;
mod proxy_protocol;
mod publish;
mod shared_map;
mod tls;

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

pub use filter::{
    Cors, CorsSpec, Filters, HeaderChange, HeaderChanges, Mirror, PathChange, Redirect, RefusedHeader,
    Rewrite, Scheme,
};
pub use host::HostTable;
pub use http::{
    BACKOFF_DEFAULT, HeaderMatch, HttpAction, HttpMatch, HttpRouteMatch, HttpRule, HttpTable, HttpTimeouts,
    HttpVirtualListener, MatchOrder, PathMatch, Pattern, QueryMatch, RequestView, Retry, TextMatch,
    VirtualHost,
};
pub use l4::{L4Service, Maglev};
pub use name::ObjectName;
pub use provenance::{ForwardedStyle, Provenance};
pub use proxy_protocol::{ProxySources, ProxyVersion};
pub use publish::{Publisher, Reader};
pub use shared_map::SharedMap;
pub use tls::{
    BackendSecurity, BackendTls, ClientTrust, SubjectName, TlsMode, TlsRule, TlsTable, TlsTerms,
    TlsVirtualListener,
};

/// Counts the translations that were published; grows by one with each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// A listener as the user named it: the Gateway, the ListenerSet where the listener is not the Gateway's own, and the
/// listener's `name` in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerName {
    pub gateway: ObjectName,
    pub set: Option<ObjectName>,
    pub section: Arc<str>,
}

impl ListenerName {
    /// One of the Gateway's own.
    pub fn of_gateway(gateway: &ObjectName, section: &Arc<str>) -> Self {
        Self { gateway: gateway.clone(), set: None, section: section.clone() }
    }
}

impl fmt::Display for ListenerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.set {
            None => write!(f, "{}/{}", self.gateway, self.section),
            Some(set) => write!(f, "{}/{set}/{}", self.gateway, self.section),
        }
    }
}

/// The route kinds that listeners know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteKind {
    Grpc,
    Http,
    Tcp,
    Tls,
    Udp,
}

impl RouteKind {
    /// The Kubernetes kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "GRPCRoute",
            Self::Http => "HTTPRoute",
            Self::Tcp => "TCPRoute",
            Self::Tls => "TLSRoute",
            Self::Udp => "UDPRoute",
        }
    }
}

/// A route as the user named it; labels metrics and logs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteName {
    pub kind: RouteKind,
    pub object: ObjectName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// What a client can connect to. `address` is absent where the listener serves every address of the network
/// namespace, loopback included. At most one [`Listener`] has a given key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerKey {
    pub transport: Transport,
    pub address: Option<IpAddr>,
    pub port: NonZeroU16,
}

impl fmt::Display for ListenerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(IpAddr::V6(address)) => write!(f, "{}/[{address}]:{}", self.transport.as_str(), self.port),
            Some(address) => write!(f, "{}/{address}:{}", self.transport.as_str(), self.port),
            None => write!(f, "{}/*:{}", self.transport.as_str(), self.port),
        }
    }
}

/// One thing to listen on, and all that is served there: several Gateway listeners that share a port and differ by
/// hostname are one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub key: ListenerKey,
    /// The Gateway listeners merged here, in order; never empty.
    pub names: Arc<[ListenerName]>,
    pub protocol: Protocol,
    /// Where every connection has to begin with a header of the PROXY protocol: of whom it is believed. Never at UDP.
    pub proxy_sources: Option<ProxySources>,
}

/// What is spoken on a listener, and the routes behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http(Arc<HttpTable>),
    Tcp(Arc<L4Service>),
    /// TLS and HTTPS listeners: told apart by server name.
    Tls(Arc<TlsTable>),
    Udp(Arc<L4Service>),
}

impl Protocol {
    /// The label in metrics and logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Tcp(_) => "tcp",
            Self::Tls(_) => "tls",
            Self::Udp(_) => "udp",
        }
    }
}

/// Traffic shares by weight. `total` is the sum of the weights; 0 means that nothing may be sent anywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    pub total: u32,
    pub backends: Arc<[WeightedBackend]>,
}

impl Split {
    /// `backends` in rule order; weights are at most 1,000,000 each by the CRD's schema, and at most 16 of them.
    pub fn new(backends: Vec<WeightedBackend>) -> Self {
        let total = backends.iter().map(|backend| backend.weight).sum();
        Self { total, backends: backends.into() }
    }

    /// The backend that owns point `point % total` on the line of weights; `None` when the total is 0.
    pub fn pick(&self, point: u32) -> Option<&WeightedBackend> {
        if self.total == 0 {
            return None;
        }
        let mut rest = point % self.total;
        for backend in self.backends.iter() {
            if rest < backend.weight {
                return Some(backend);
            }
            rest -= backend.weight;
        }
        None
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedBackend {
    pub weight: u32,
    pub backend: Backend,
    /// Where the backend has filters of its own: what they and the rule's, which come first, do together. HTTP only.
    pub filters: Option<Arc<Filters>>,
}

impl WeightedBackend {
    /// Without filters of its own.
    pub const fn new(weight: u32, backend: Backend) -> Self {
        Self { weight, backend, filters: None }
    }
}

/// What filters do to the header fields of a request and of its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageHeaders {
    pub request: HeaderChanges,
    pub response: HeaderChanges,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The Service port exists; with no usable endpoint the set is empty (HTTP 503).
    Endpoints(Arc<EndpointSet>),
    /// The reference does not resolve or is not permitted: its share is answered with 500 or refused.
    Invalid,
}

/// What the endpoints of a Service port speak, by its `appProtocol` and by the kind of route that leads there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendProtocol {
    /// HTTP/1.1, and whatever is no HTTP.
    #[default]
    Http1,
    /// In clear by prior knowledge, by TLS as ALPN says.
    Http2,
}

/// The usable endpoints of one Service port: ready ones, else serving and terminating ones. De-duplicated, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSet {
    pub service: ObjectName,
    pub port: u16,
    pub protocol: BackendProtocol,
    pub addresses: Arc<[std::net::SocketAddr]>,
    pub security: BackendSecurity,
    /// The endpoints are told by the PROXY protocol on whose behalf a connection is made. Never with HTTP, whose
    /// connections to backends are of many clients, and never with UDP.
    pub proxy_version: Option<ProxyVersion>,
}

/// Everything that the data paths serve at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub revision: Revision,
    /// In key order, no key twice.
    pub listeners: Arc<[Arc<Listener>]>,
}

impl Snapshot {
    pub fn listener(&self, key: ListenerKey) -> Option<&Arc<Listener>> {
        let index = self.listeners.binary_search_by_key(&key, |listener| listener.key).ok()?;
        self.listeners.get(index)
    }

    /// Whether both serve the same, whatever their revisions.
    pub fn serves_same(&self, other: &Self) -> bool {
        self.listeners == other.listeners
    }
}
