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

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

pub use backendtlspolicies::BackendTlsPolicy;
pub use gateways::Gateway;
pub use grpcroutes::GrpcRoute;
pub use httproutes::HttpRoute;
pub use listenersets::ListenerSet;
pub use referencegrants::ReferenceGrant;
pub use tcproutes::TcpRoute;
pub use tlsroutes::TlsRoute;
pub use udproutes::UdpRoute;

/// One object of a kind that the agent knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    ConfigMap(Box<ConfigMap>),
    EndpointSlice(Box<EndpointSlice>),
    Gateway(Box<Gateway>),
    HttpRoute(Box<HttpRoute>),
    /// Standalone only: its labels, for `from: Selector`.
    Namespace(Box<Namespace>),
    ReferenceGrant(Box<ReferenceGrant>),
    Secret(Box<Secret>),
    Service(Box<Service>),
    TcpRoute(Box<TcpRoute>),
    TlsRoute(Box<TlsRoute>),
    UdpRoute(Box<UdpRoute>),
}
