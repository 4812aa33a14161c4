//! GRPCRoute.

use super::{backend_ref, hostnames, meta, parent_refs};
use crate::api::GrpcRoute as ApiRoute;
use crate::api::grpcroutes::GrpcRouteRules;
use crate::store::objects::{BackendRef, GrpcRoute, GrpcRouteRule};

pub(in crate::store) fn grpc_route(route: &ApiRoute, order: u64) -> GrpcRoute {
    GrpcRoute {
        meta: meta(&route.metadata, order),
        parents: parent_refs!(route.spec.parent_refs),
        hostnames: hostnames(route.spec.hostnames.as_deref().unwrap_or_default()),
        rules: route.spec.rules.iter().flatten().map(rule).collect(),
    }
}

/// The filters of a rule and those of a backend are the same under two names.
macro_rules! add_filter {
    ($filter:expr, $rule:expr) => {
        if let Some(extension) = &$filter.extension_ref {
            $rule.extensions.push(format!("{}/{} {}", extension.group, extension.kind, extension.name));
        }
        if let Some(mirror) = &$filter.request_mirror {
            let backend = &mirror.backend_ref;
            $rule.mirrors.push(BackendRef {
                group: super::shared(backend.group.as_deref().unwrap_or_default()),
                kind: super::shared(backend.kind.as_deref().unwrap_or("Service")),
                namespace: super::optional(backend.namespace.as_ref()),
                name: super::shared(&backend.name),
                port: super::port(backend.port),
                weight: 1,
            });
        }
    };
}

fn rule(rule: &GrpcRouteRules) -> GrpcRouteRule {
    let mut converted = GrpcRouteRule { backends: Vec::new(), mirrors: Vec::new(), extensions: Vec::new() };
    for filter in rule.filters.iter().flatten() {
        add_filter!(filter, converted);
    }
    for backend in rule.backend_refs.iter().flatten() {
        for filter in backend.filters.iter().flatten() {
            add_filter!(filter, converted);
        }
        converted.backends.push(backend_ref!(backend));
    }
    converted
}
