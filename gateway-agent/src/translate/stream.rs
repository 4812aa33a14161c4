//! TLSRoute, TCPRoute, UDPRoute: compiled once, whatever they attach to.

use super::backend::{Resolver, Shares};
use super::conditions::{RouteVerdict, merge};
use super::l4;
use crate::snapshot::{RouteKind, RouteName};
use crate::store::objects::StreamRoute;

#[derive(Debug)]
pub(super) struct CompiledStream<'a> {
    pub(super) route: &'a StreamRoute,
    pub(super) name: RouteName,
    pub(super) verdict: RouteVerdict,
    pub(super) shares: Shares,
}

pub(super) fn compile<'a>(
    kind: RouteKind,
    route: &'a StreamRoute,
    resolver: &mut Resolver<'_>,
) -> CompiledStream<'a> {
    let shares = resolver.resolve(kind, &route.meta.name.namespace, &route.backends);
    let verdict = RouteVerdict {
        unresolved: merge(shares.problems.clone()),
        note: if kind == RouteKind::Tls { None } else { l4::overflow(&shares) },
        ..RouteVerdict::default()
    };
    CompiledStream { route, name: RouteName { kind, object: route.meta.name.clone() }, verdict, shares }
}
