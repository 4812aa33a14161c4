//! The objects as the store keeps them: what translation reads, and nothing else.
//!
//! **Invariant:** plain data, compared by value. What an object asks for and this agent does not do yet is kept by
//! name (`unsupported`, `ignored`), so that it can be said in a condition instead of being dropped.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::snapshot::{HeaderMatch, ObjectName, PathMatch, QueryMatch, Transport};

/// The API group of Gateway, routes and grants.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// How old an object is: the lesser is the older. Objects without `creationTimestamp` count as younger than all that
/// have one, in the order in which they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Age {
    Created(Timestamp),
    Order(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    pub name: ObjectName,
    /// 0 where the object has none.
    pub generation: i64,
    pub age: Age,
}

impl Meta {
    /// The order in which the spec lets objects win: the oldest, then by namespace and name.
    pub const fn seniority(&self) -> (Age, &ObjectName) {
        (self.age, &self.name)
    }
}

// === Gateway ===

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    pub meta: Meta,
    pub class: Arc<str>,
    pub listeners: Vec<GatewayListener>,
    pub addresses: Vec<GatewayAddress>,
    pub parameters: Option<LocalRef>,
    /// Fields that are set and have no effect yet.
    pub ignored: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayListener {
    pub name: Arc<str>,
    /// In lower case; `None` for every hostname, also where the field is the empty string.
    pub hostname: Option<Arc<str>>,
    /// `None`: out of range.
    pub port: Option<NonZeroU16>,
    pub protocol: ListenerProtocol,
    /// `None`: every kind that the protocol allows.
    pub kinds: Option<Vec<GroupKind>>,
    pub namespaces: NamespaceFilter,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerProtocol {
    Http,
    Https,
    TlsPassthrough,
    TlsTerminate,
    Tcp,
    Udp,
    /// Not one of the spec's, or one that another implementation defines.
    Other(Arc<str>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupKind {
    pub group: Arc<str>,
    pub kind: Arc<str>,
}

/// `allowedRoutes.namespaces`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceFilter {
    Same,
    All,
    Selector(LabelSelector),
}

/// All of them must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    pub requirements: Vec<LabelRequirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelRequirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    DoesNotExist(String),
    /// An operator that Kubernetes does not have; never holds.
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayAddress {
    pub kind: AddressKind,
    /// `None` or empty: any address of that type.
    pub value: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressKind {
    Ip,
    Other(Arc<str>),
}

/// A reference to an object of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRef {
    pub group: Arc<str>,
    pub kind: Arc<str>,
    pub name: Arc<str>,
}

// === Routes ===

/// As stored: what is omitted stays omitted, because status entries echo it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentRef {
    pub group: Option<Arc<str>>,
    pub kind: Option<Arc<str>>,
    pub namespace: Option<Arc<str>>,
    pub name: Arc<str>,
    pub section: Option<Arc<str>>,
    pub port: Option<i32>,
}

/// A reference to a backend, defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendRef {
    pub group: Arc<str>,
    pub kind: Arc<str>,
    pub namespace: Option<Arc<str>>,
    pub name: Arc<str>,
    /// `None`: absent or out of range.
    pub port: Option<NonZeroU16>,
    pub weight: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRoute {
    pub meta: Meta,
    pub parents: Vec<ParentRef>,
    /// In lower case.
    pub hostnames: Vec<Arc<str>>,
    pub rules: Vec<HttpRouteRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRouteRule {
    /// Never empty unless one could not be expressed: then `unsupported_matches` says so.
    pub matches: Vec<HttpRouteMatch>,
    pub backends: Vec<BackendRef>,
    /// Parts of `matches` that are not supported: what the rule is for cannot be told, so it is dropped.
    pub unsupported_matches: Vec<String>,
    /// Filters, timeouts and the like that are not supported: the rule matches and may not be served without them.
    pub unsupported: Vec<String>,
    /// `ExtensionRef` filters, as `group/kind name`; none of them can be resolved.
    pub extensions: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRouteMatch {
    pub path: PathMatch,
    pub method: Option<Arc<str>>,
    pub headers: Arc<[HeaderMatch]>,
    pub query: Arc<[QueryMatch]>,
}

/// TLSRoute, TCPRoute and UDPRoute. The latter two have no hostnames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRoute {
    pub meta: Meta,
    pub parents: Vec<ParentRef>,
    /// In lower case.
    pub hostnames: Vec<Arc<str>>,
    /// Of the only rule that the schema allows.
    pub backends: Vec<BackendRef>,
}

// === Backends ===

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub is_external_name: bool,
    pub ports: Vec<ServicePort>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Empty where the port has none, as in EndpointSlices.
    pub name: Arc<str>,
    pub port: u16,
    /// `None`: neither TCP nor UDP.
    pub transport: Option<Transport>,
    pub app_protocol: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// The label `kubernetes.io/service-name`.
    pub service: Option<Arc<str>>,
    pub ports: Vec<SlicePort>,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    pub name: Arc<str>,
    pub port: u16,
    pub transport: Option<Transport>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The first address of the endpoint: the further ones of the list mean the same endpoint
    /// (`discovery/v1/types.go`, `Endpoint.Addresses`).
    pub address: IpAddr,
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
}

// === Others ===

#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    pub kind: Arc<str>,
    pub data: BTreeMap<Arc<str>, Arc<[u8]>>,
}

impl std::fmt::Debug for Secret {
    /// Names only: a secret must not reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("kind", &self.kind).field("keys", &self.data.keys()).finish()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMap {
    pub data: BTreeMap<Arc<str>, Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceGrant {
    pub from: Vec<GrantFrom>,
    pub to: Vec<GrantTo>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantFrom {
    pub group: Arc<str>,
    pub kind: Arc<str>,
    pub namespace: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantTo {
    pub group: Arc<str>,
    pub kind: Arc<str>,
    /// `None`: every object of the kind.
    pub name: Option<Arc<str>>,
}
