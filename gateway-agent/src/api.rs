//! The Kubernetes objects that the agent reads. Gateway API types are generated from the CRDs of v1.7.0 by
//! `cargo xtask codegen`.

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// One object of a kind that the agent knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    ConfigMap(Box<ConfigMap>),
    EndpointSlice(Box<EndpointSlice>),
    Secret(Box<Secret>),
    Service(Box<Service>),
}
