//! GRPCRoute: its references are resolved and it attaches like any other; there is no data path for it yet, which it is
//! told.

use std::sync::Arc;

use super::backend::Resolver;
use super::conditions::{Problem, RouteVerdict, merge};
use crate::snapshot::RouteKind;
use crate::status::names::reason;
use crate::store::objects::GrpcRoute;

#[derive(Debug)]
pub(super) struct CompiledGrpc {
    pub(super) route: Arc<GrpcRoute>,
    pub(super) verdict: RouteVerdict,
}

pub(super) fn compile(route: &Arc<GrpcRoute>, resolver: &mut Resolver<'_>) -> CompiledGrpc {
    let mut unresolved = Vec::new();
    for rule in &route.rules {
        for backends in [&rule.backends, &rule.mirrors] {
            let resolved = resolver.resolve(RouteKind::Grpc, &route.meta.name.namespace, backends);
            unresolved.extend(resolved.problems);
        }
        unresolved.extend(rule.extensions.iter().map(|extension| {
            let message = format!("no filter is known for extensionRef {extension}");
            Problem::new(reason::INVALID_KIND, message)
        }));
    }
    let message = "GRPCRoutes are not served by this version of the agent";
    let verdict = RouteVerdict {
        unusable: Some(Problem::new(reason::UNSUPPORTED_VALUE, message)),
        unresolved: merge(unresolved),
        ..RouteVerdict::default()
    };
    CompiledGrpc { route: route.clone(), verdict }
}
