//! TLSRoute, TCPRoute, UDPRoute: compiled once, whatever they attach to.

use std::sync::{Arc, OnceLock};

use super::backend::{Resolver, Shares};
use super::conditions::{RouteVerdict, merge};
use super::l4;
use crate::snapshot::{L4Service, RouteKind, RouteName, TlsRule};
use crate::store::objects::StreamRoute;

#[derive(Debug)]
pub(super) struct CompiledStream {
    pub(super) route: Arc<StreamRoute>,
    pub(super) name: RouteName,
    pub(super) verdict: RouteVerdict,
    shares: Shares,
    tls: OnceLock<Arc<TlsRule>>,
    /// Made when the route first serves: most that share a port never do, and a table is large.
    l4: OnceLock<Arc<L4Service>>,
}

pub(super) fn compile(
    kind: RouteKind,
    route: &Arc<StreamRoute>,
    resolver: &mut Resolver<'_>,
) -> CompiledStream {
    let shares = resolver.resolve(kind, &route.meta.name.namespace, &route.backends);
    let verdict = RouteVerdict {
        unresolved: merge(shares.problems.clone()),
        note: if kind == RouteKind::Tls { None } else { l4::overflow(&shares) },
        ..RouteVerdict::default()
    };
    CompiledStream {
        route: route.clone(),
        name: RouteName { kind, object: route.meta.name.clone() },
        verdict,
        shares,
        tls: OnceLock::new(),
        l4: OnceLock::new(),
    }
}

impl CompiledStream {
    pub(super) fn tls_rule(&self) -> &Arc<TlsRule> {
        self.tls.get_or_init(|| Arc::new(TlsRule { route: self.name.clone(), split: self.shares.split() }))
    }

    pub(super) fn l4_service(&self) -> &Arc<L4Service> {
        self.l4.get_or_init(|| Arc::new(l4::service(&self.name, &self.shares)))
    }

    /// What of `before`, an earlier version of the same route, still holds.
    pub(super) fn inherit(&self, before: &Self) {
        if self.shares != before.shares {
            return;
        }
        if let Some(rule) = before.tls.get() {
            self.tls.get_or_init(|| rule.clone());
        }
        if let Some(service) = before.l4.get() {
            self.l4.get_or_init(|| service.clone());
        }
    }
}
