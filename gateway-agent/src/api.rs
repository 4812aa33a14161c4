//! The Kubernetes objects that the agent reads. Gateway API types are generated from the CRDs of v1.7.0 by
//! `cargo xtask codegen`.

#[rustfmt::skip]
#[allow(unreachable_pub, unused_qualifications, clippy::all, clippy::allow_attributes_without_reason, reason = "generated")]
pub mod backendtlspolicies;
#[rustfmt::skip]
#[allow(unreachable_pub, unused_qualifications, clippy::all, clippy::allow_attributes_without_reason, reason = "generated")]
pub mod gateways;
#[rustfmt::skip]
#[allow(unreachable_pub, unused_qualifications, clippy::all, clippy::allow_attributes_without_reason, reason = "generated")]
pub mod grpcroutes;
#[rustfmt::skip]
#[allow(unreachable_pub, unused_qualifications, clippy::all, clippy::allow_attributes_without_reason, reason = "generated")]
pub mod httproutes;
#[rustfmt::skip]
#[allow(unreachable_pub, unused_qualifications, clippy::all, clippy::allow_attributes_without_reason, reason = "generated")]
pub mod listenersets;
#[rustfmt::skip]
#[allow(unreachable_pub, unused_qualifications, clippy::all, clippy::allow_attributes_without_reason, reason = "generated")]
pub mod referencegrants;
#[rustfmt::skip]
#[allow(unreachable_pub, unused_qualifications, clippy::all, clippy::allow_attributes_without_reason, reason = "generated")]
pub mod tcproutes;
#[rustfmt::skip]
#[allow(unreachable_pub, unused_qualifications, clippy::all, clippy::allow_attributes_without_reason, reason = "generated")]
pub mod tlsroutes;
#[rustfmt::skip]
#[allow(unreachable_pub, unused_qualifications, clippy::all, clippy::allow_attributes_without_reason, reason = "generated")]
pub mod udproutes;

use std::fmt;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use backendtlspolicies::BackendTlsPolicy;
pub use gateways::Gateway;
pub use grpcroutes::GrpcRoute;
pub use httproutes::HttpRoute;
pub use listenersets::ListenerSet;
pub use referencegrants::ReferenceGrant;
pub use tcproutes::TcpRoute;
pub use tlsroutes::TlsRoute;
pub use udproutes::UdpRoute;

use crate::snapshot::ObjectName;

/// Where an object without a namespace belongs.
const DEFAULT_NAMESPACE: &str = "default";

/// The kinds that the agent reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    BackendTlsPolicy,
    ConfigMap,
    EndpointSlice,
    Gateway,
    GrpcRoute,
    HttpRoute,
    ListenerSet,
    Namespace,
    ReferenceGrant,
    Secret,
    Service,
    TcpRoute,
    TlsRoute,
    UdpRoute,
}

/// Kind, namespace and name, which no two objects share; the namespace of a Namespace is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    pub kind: Kind,
    pub name: ObjectName,
}

/// One object of a kind that the agent knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    BackendTlsPolicy(Box<BackendTlsPolicy>),
    ConfigMap(Box<ConfigMap>),
    EndpointSlice(Box<EndpointSlice>),
    Gateway(Box<Gateway>),
    GrpcRoute(Box<GrpcRoute>),
    HttpRoute(Box<HttpRoute>),
    ListenerSet(Box<ListenerSet>),
    /// Its labels, for `from: Selector`.
    Namespace(Box<Namespace>),
    ReferenceGrant(Box<ReferenceGrant>),
    Secret(Box<Secret>),
    Service(Box<Service>),
    TcpRoute(Box<TcpRoute>),
    TlsRoute(Box<TlsRoute>),
    UdpRoute(Box<UdpRoute>),
}

// === impl Kind ===

impl Kind {
    pub const ALL: [Self; 14] = [
        Self::BackendTlsPolicy,
        Self::ConfigMap,
        Self::EndpointSlice,
        Self::Gateway,
        Self::GrpcRoute,
        Self::HttpRoute,
        Self::ListenerSet,
        Self::Namespace,
        Self::ReferenceGrant,
        Self::Secret,
        Self::Service,
        Self::TcpRoute,
        Self::TlsRoute,
        Self::UdpRoute,
    ];

    /// As in manifests: `HTTPRoute`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BackendTlsPolicy => "BackendTLSPolicy",
            Self::ConfigMap => "ConfigMap",
            Self::EndpointSlice => "EndpointSlice",
            Self::Gateway => "Gateway",
            Self::GrpcRoute => "GRPCRoute",
            Self::HttpRoute => "HTTPRoute",
            Self::ListenerSet => "ListenerSet",
            Self::Namespace => "Namespace",
            Self::ReferenceGrant => "ReferenceGrant",
            Self::Secret => "Secret",
            Self::Service => "Service",
            Self::TcpRoute => "TCPRoute",
            Self::TlsRoute => "TLSRoute",
            Self::UdpRoute => "UDPRoute",
        }
    }

    /// The API group; empty for the core group.
    pub const fn group(self) -> &'static str {
        match self {
            Self::ConfigMap | Self::Namespace | Self::Secret | Self::Service => "",
            Self::EndpointSlice => "discovery.k8s.io",
            Self::BackendTlsPolicy
            | Self::Gateway
            | Self::GrpcRoute
            | Self::HttpRoute
            | Self::ListenerSet
            | Self::ReferenceGrant
            | Self::TcpRoute
            | Self::TlsRoute
            | Self::UdpRoute => "gateway.networking.k8s.io",
        }
    }

    pub const fn is_namespaced(self) -> bool {
        !matches!(self, Self::Namespace)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl ObjectId ===

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name.name)
        } else {
            write!(f, "{} {}", self.kind, self.name)
        }
    }
}

// === impl Object ===

impl Object {
    pub fn kind(&self) -> Kind {
        self.parts().0
    }

    pub fn metadata(&self) -> &ObjectMeta {
        self.parts().1
    }

    pub fn id(&self) -> ObjectId {
        let (kind, metadata) = self.parts();
        let namespace = match &metadata.namespace {
            _ if !kind.is_namespaced() => "",
            Some(namespace) => namespace,
            None => DEFAULT_NAMESPACE,
        };
        let name = metadata.name.as_deref().unwrap_or_default();
        ObjectId { kind, name: ObjectName::new(namespace, name) }
    }

    fn parts(&self) -> (Kind, &ObjectMeta) {
        match self {
            Self::BackendTlsPolicy(object) => (Kind::BackendTlsPolicy, &object.metadata),
            Self::ConfigMap(object) => (Kind::ConfigMap, &object.metadata),
            Self::EndpointSlice(object) => (Kind::EndpointSlice, &object.metadata),
            Self::Gateway(object) => (Kind::Gateway, &object.metadata),
            Self::GrpcRoute(object) => (Kind::GrpcRoute, &object.metadata),
            Self::HttpRoute(object) => (Kind::HttpRoute, &object.metadata),
            Self::ListenerSet(object) => (Kind::ListenerSet, &object.metadata),
            Self::Namespace(object) => (Kind::Namespace, &object.metadata),
            Self::ReferenceGrant(object) => (Kind::ReferenceGrant, &object.metadata),
            Self::Secret(object) => (Kind::Secret, &object.metadata),
            Self::Service(object) => (Kind::Service, &object.metadata),
            Self::TcpRoute(object) => (Kind::TcpRoute, &object.metadata),
            Self::TlsRoute(object) => (Kind::TlsRoute, &object.metadata),
            Self::UdpRoute(object) => (Kind::UdpRoute, &object.metadata),
        }
    }
}
