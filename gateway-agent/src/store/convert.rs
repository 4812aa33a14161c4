//! API types to the store's own.
//!
//! **Invariant:** total: what the API server would have refused becomes the nearest harmless value here (a port out
//! of range is an absent one), and translation says what is wrong with it.

mod core;
mod gateway;
mod grpc;
mod http;
mod policy;
mod stream;

use std::num::NonZeroU16;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub(super) use self::core::{config_map, endpoint_slice, namespace, reference_grant, secret, service};
pub(super) use self::gateway::{gateway, listener_set};
pub(super) use self::grpc::grpc_route;
pub(super) use self::http::http_route;
pub(super) use self::policy::backend_tls_policy;
pub(super) use self::stream::{tcp_route, tls_route, udp_route};

use super::objects::{Age, GroupKind, Meta};
use crate::snapshot::ObjectName;

fn meta(name: &ObjectName, meta: &ObjectMeta, order: u64) -> Meta {
    Meta {
        name: name.clone(),
        generation: meta.generation.unwrap_or(0),
        age: meta.creation_timestamp.as_ref().map_or(Age::Order(order), |time| Age::Created(time.0)),
    }
}

fn port(port: Option<i32>) -> Option<NonZeroU16> {
    u16::try_from(port?).ok().and_then(NonZeroU16::new)
}

/// The schema allows 0 to 1,000,000; absent is 1.
fn weight(weight: Option<i32>) -> u32 {
    weight.map_or(1, |weight| u32::try_from(weight).unwrap_or(0))
}

fn hostname(name: &str) -> Arc<str> {
    name.to_ascii_lowercase().into()
}

fn hostnames<C: FromIterator<Arc<str>>>(names: &[String]) -> C {
    names.iter().map(|name| hostname(name)).collect()
}

fn shared(text: &str) -> Arc<str> {
    text.into()
}

/// `None`: a Service, which is the default and nearly always said.
fn other_kind(group: Option<&str>, kind: Option<&str>) -> Option<Arc<GroupKind>> {
    let (group, kind) = (group.unwrap_or_default(), kind.unwrap_or("Service"));
    let is_service = (group, kind) == ("", "Service");
    (!is_service).then(|| Arc::new(GroupKind { group: shared(group), kind: shared(kind) }))
}

fn optional(text: Option<&String>) -> Option<Arc<str>> {
    text.map(|text| shared(text))
}

/// The generated API types repeat the same shape under another name for every kind of route.
macro_rules! parent_refs {
    ($refs:expr) => {
        $refs
            .as_deref()
            .unwrap_or_default()
            .iter()
            .map(|parent| crate::store::objects::ParentRef {
                group: super::optional(parent.group.as_ref()),
                kind: super::optional(parent.kind.as_ref()),
                namespace: super::optional(parent.namespace.as_ref()),
                name: super::shared(&parent.name),
                section: super::optional(parent.section_name.as_ref()),
                port: parent.port,
            })
            .collect::<std::sync::Arc<[_]>>()
    };
}

macro_rules! backend_ref {
    ($backend:expr) => {
        crate::store::objects::BackendRef {
            other_kind: super::other_kind($backend.group.as_deref(), $backend.kind.as_deref()),
            namespace: super::optional($backend.namespace.as_ref()),
            name: super::shared(&$backend.name),
            port: super::port($backend.port),
            weight: super::weight($backend.weight),
        }
    };
}

use {backend_ref, parent_refs};
