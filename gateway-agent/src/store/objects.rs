//! The objects as the store keeps them: what translation reads, and nothing else.
//!
//! **Invariant:** plain data, compared by value. What an object asks for and this agent does not do yet is kept by
//! name (`unsupported`, `ignored`), so that it can be said in a condition instead of being dropped.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::provision::managed::Managed;
use crate::snapshot::{
    Cors, HttpRouteMatch, HttpTimeouts, MessageHeaders, ObjectName, Redirect, Retry, Rewrite, SubjectName,
    Transport,
};

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
    /// Absent from manifests of a folder. Taken for absent while the Gateway is being deleted: nothing is made for it
    /// any more, or it would be made anew while the garbage collector takes it away.
    pub uid: Option<Arc<str>>,
    pub class: Arc<str>,
    pub listeners: Vec<Arc<ListenerSpec>>,
    pub addresses: Vec<GatewayAddress>,
    /// `status.addresses` as last written, by whoever wrote it.
    pub observed_addresses: Vec<IpAddr>,
    pub infrastructure: Infrastructure,
    /// `spec.allowedListeners`: where ListenerSets of this Gateway may be.
    pub allowed_listeners: ListenerSetFilter,
    pub tls: GatewayTls,
}

/// `spec.infrastructure`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Infrastructure {
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    pub annotations: BTreeMap<Arc<str>, Arc<str>>,
    pub parameters: Option<LocalRef>,
}

/// `spec.tls`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayTls {
    /// `backend.clientCertificateRef`.
    pub client_certificate: Option<ObjectRef>,
    /// `frontend.default.validation`.
    pub frontend_default: Option<ClientValidation>,
    /// `frontend.perPort`: replaces the default on that port, also by nothing.
    pub frontend_per_port: Vec<(i32, Option<ClientValidation>)>,
}

/// How certificates of clients are validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientValidation {
    pub authorities: Vec<ObjectRef>,
    /// `mode: AllowInsecureFallback`.
    pub allows_insecure_fallback: bool,
}

/// `allowedListeners.namespaces`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerSetFilter {
    None,
    Some(NamespaceFilter),
}

/// Listeners that belong to a Gateway and are managed apart from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSet {
    pub meta: Meta,
    pub parent: ObjectRef,
    pub listeners: Vec<Arc<ListenerSpec>>,
}

/// A listener of a Gateway or of a ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSpec {
    pub name: Arc<str>,
    /// In lower case; `None` for every hostname, also where the field is the empty string.
    pub hostname: Option<Arc<str>>,
    /// `None`: out of range.
    pub port: Option<NonZeroU16>,
    pub protocol: ListenerProtocol,
    pub tls: ListenerTls,
    /// `None`: every kind that the protocol allows.
    pub kinds: Option<Vec<GroupKind>>,
    pub namespaces: NamespaceFilter,
}

/// A listener's `tls` without its mode, which is part of the protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerTls {
    pub certificates: Vec<ObjectRef>,
    /// Keys of `options`, all of which are implementation-specific.
    pub options: Vec<Arc<str>>,
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

impl ListenerProtocol {
    /// Whether clients speak TLS.
    pub const fn is_tls(&self) -> bool {
        matches!(self, Self::Https | Self::TlsPassthrough | Self::TlsTerminate)
    }

    /// Whether TLS ends at the listener.
    pub const fn terminates_tls(&self) -> bool {
        matches!(self, Self::Https | Self::TlsTerminate)
    }
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

/// A reference to an object, defaults of group and kind filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    pub group: Arc<str>,
    pub kind: Arc<str>,
    /// `None`: that of the object that refers.
    pub namespace: Option<Arc<str>>,
    pub name: Arc<str>,
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// `None`: a Service, as nearly every one is.
    pub other_kind: Option<Arc<GroupKind>>,
    pub namespace: Option<Arc<str>>,
    pub name: Arc<str>,
    /// `None`: absent or out of range.
    pub port: Option<NonZeroU16>,
    pub weight: u32,
}

/// An HTTPRoute; or a GRPCRoute, whose matches are those of the paths `/service/method`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRoute {
    pub meta: Meta,
    pub parents: ParentRefs,
    /// In lower case.
    pub hostnames: Box<[Arc<str>]>,
    pub rules: Box<[HttpRouteRule]>,
}

/// Those of one route, kept once for all routes that say the same.
pub type ParentRefs = Arc<[ParentRef]>;

/// Kept by the thousand: what nearly none has is in its terms, and nothing has room to grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRouteRule {
    pub name: Option<Arc<str>>,
    /// Never empty unless one could not be expressed: then `unsupported_matches` says so.
    pub matches: Box<[Arc<HttpRouteMatch>]>,
    pub backends: Box<[BackendRef]>,
    /// The same allocation for all rules that say nothing of it.
    pub terms: Arc<HttpRuleTerms>,
}

/// What a rule says beside what it matches and where that goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpRuleTerms {
    /// Of the backend at the same position; empty where no backend has any.
    pub backend_filters: Vec<HttpFilters>,
    pub filters: HttpFilters,
    pub timeouts: HttpTimeouts,
    pub retry: Option<Arc<Retry>>,
    /// Parts of `matches` that are not supported: what the rule is for cannot be told, so it is dropped.
    pub unsupported_matches: Vec<String>,
    /// Filters, timeouts and the like that are not supported: the rule matches and may not be served without them.
    pub unsupported: Vec<String>,
    /// Filters that may not be used together: as `unsupported`.
    pub incompatible: Vec<String>,
}

/// The filters of a rule or of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpFilters {
    pub headers: MessageHeaders,
    /// Then no backend is asked.
    pub redirect: Option<Arc<Redirect>>,
    pub rewrite: Rewrite,
    pub cors: Option<Arc<Cors>>,
    pub mirrors: Vec<MirrorRef>,
    /// `ExtensionRef` filters, as `group/kind name`; none of them can be resolved.
    pub extensions: Vec<String>,
}

/// A RequestMirror filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorRef {
    pub backend: BackendRef,
    /// Of `denominator` requests, which is never 0.
    pub numerator: u32,
    pub denominator: u32,
}

/// TLSRoute, TCPRoute and UDPRoute. The latter two have no hostnames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRoute {
    pub meta: Meta,
    pub parents: ParentRefs,
    /// In lower case.
    pub hostnames: Vec<Arc<str>>,
    /// Of the only rule that the schema allows.
    pub backends: Vec<BackendRef>,
}

// === Backends ===

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub kind: ServiceType,
    /// Of those that an agent made for a Gateway.
    pub managed: Option<Arc<Managed>>,
    /// Empty for a headless Service.
    pub cluster_addresses: Vec<IpAddr>,
    /// `status.loadBalancer.ingress`.
    pub ingress: Vec<ServiceIngress>,
    pub ports: Vec<ServicePort>,
    /// Its annotation [`PROXY_PROTOCOL_ANNOTATION`].
    pub proxy_protocol: Option<Arc<str>>,
}

/// By which a Service says that its endpoints are to be told of clients by the PROXY protocol.
pub const PROXY_PROTOCOL_ANNOTATION: &str = "gateway-agent.dev/proxy-protocol";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceType {
    ClusterIp,
    ExternalName,
    /// What is made for a Gateway unless its parameters say otherwise.
    #[default]
    LoadBalancer,
    NodePort,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceIngress {
    Address(IpAddr),
    Hostname(Arc<str>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Empty where the port has none, as in EndpointSlices.
    pub name: Arc<str>,
    pub port: u16,
    /// As a number; `None` where it is a name, absent or out of range.
    pub target_port: Option<NonZeroU16>,
    pub node_port: Option<NonZeroU16>,
    /// `None`: neither TCP nor UDP.
    pub transport: Option<Transport>,
    pub app_protocol: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// The label `kubernetes.io/service-name`.
    pub service: Option<Arc<str>>,
    /// Of those that an agent made for a Gateway.
    pub managed: Option<Arc<Managed>>,
    /// Made by Kubernetes for a Service with a selector.
    pub is_of_selector: bool,
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
    pub node: Option<Arc<str>>,
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
}

// === Policies ===

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendTlsPolicy {
    pub meta: Meta,
    pub targets: Vec<PolicyTarget>,
    pub hostname: Arc<str>,
    pub authorities: Vec<LocalRef>,
    /// `wellKnownCACertificates`.
    pub well_known_authorities: Option<Arc<str>>,
    pub alternative_names: Vec<SubjectName>,
    /// Keys of `options`, all of which are implementation-specific.
    pub options: Vec<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTarget {
    pub reference: LocalRef,
    /// The name of a port; `None`: all of them.
    pub section: Option<Arc<str>>,
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
