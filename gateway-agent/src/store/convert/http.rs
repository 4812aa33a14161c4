//! HTTPRoute.

pub(super) mod filter;
mod matching;
mod policy;

use std::sync::{Arc, LazyLock};

pub(super) use self::matching::{Form, Patterns, Reader};
use super::{backend_ref, hostnames, meta, parent_refs, shared};
use crate::api::HttpRoute as ApiRoute;
use crate::api::httproutes::HttpRouteRules;
use crate::snapshot::{HttpRouteMatch, ObjectName};
use crate::store::objects::{BackendRef, HttpFilters, HttpRoute, HttpRouteRule, HttpRuleTerms};

pub(in crate::store) fn http_route(route: &ApiRoute, name: &ObjectName, order: u64) -> HttpRoute {
    let mut patterns = Patterns::default();
    let rules = match route.spec.rules.as_deref() {
        // The default of the CRD: one rule that matches every path.
        None | Some([]) => [default_rule()].into(),
        Some(rules) => rules.iter().map(|one| rule(one, &mut patterns)).collect(),
    };
    HttpRoute {
        meta: meta(name, &route.metadata, order),
        parents: parent_refs!(route.spec.parent_refs),
        hostnames: hostnames(route.spec.hostnames.as_deref().unwrap_or_default()),
        rules,
    }
}

fn default_rule() -> HttpRouteRule {
    let mut draft = Draft::default();
    draft.end_matches();
    draft.finish(None)
}

/// A rule in the making.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) matches: Vec<HttpRouteMatch>,
    pub(super) backends: Vec<BackendRef>,
    pub(super) terms: HttpRuleTerms,
}

/// What nearly every rule says beside its matches and backends.
static NO_TERMS: LazyLock<Arc<HttpRuleTerms>> = LazyLock::new(Arc::default);

impl Draft {
    /// All matches are read. Without any the rule holds for every request: the default of the CRD, and what a GRPCRoute
    /// means ("If no matches are specified, the implementation MUST match every gRPC request").
    pub(super) fn end_matches(&mut self) {
        if self.matches.is_empty() && self.terms.unsupported_matches.is_empty() {
            self.matches.push(HttpRouteMatch::every());
        }
    }

    pub(super) fn finish(self, name: Option<&str>) -> HttpRouteRule {
        let Self { matches, backends, mut terms } = self;
        if terms.backend_filters.iter().all(|own| *own == HttpFilters::default()) {
            terms.backend_filters = Vec::new();
        }
        let has_terms = terms != HttpRuleTerms::default();
        HttpRouteRule {
            name: name.map(shared),
            matches: matches.into_iter().map(Arc::new).collect(),
            backends: backends.into(),
            terms: if has_terms { Arc::new(terms) } else { NO_TERMS.clone() },
        }
    }
}

fn rule(rule: &HttpRouteRules, patterns: &mut Patterns) -> HttpRouteRule {
    // Destructured fully, so that a field of a newer API cannot be passed over.
    let HttpRouteRules { backend_refs, filters, matches, name, retry, timeouts } = rule;
    let mut draft = Draft::default();
    for (index, one) in matches.iter().flatten().enumerate() {
        let mut reader = Reader {
            place: format!("matches[{index}]"),
            patterns,
            unsupported: &mut draft.terms.unsupported_matches,
        };
        if let Some(one) = reader.read(one) {
            draft.matches.push(one);
        }
    }
    draft.end_matches();
    filter::of_rule(filters.as_deref().unwrap_or_default(), &mut draft);
    for (index, backend) in backend_refs.iter().flatten().enumerate() {
        filter::of_backend(index, backend.filters.as_deref().unwrap_or_default(), &mut draft);
        draft.backends.push(backend_ref!(backend));
    }
    if draft.terms.filters.redirect.is_some() && !draft.backends.is_empty() {
        draft.terms.incompatible.push("filters (RequestRedirect together with backendRefs)".into());
    }
    match timeouts.as_ref().map(policy::timeouts).transpose() {
        Ok(timeouts) => draft.terms.timeouts = timeouts.unwrap_or_default(),
        Err(place) => draft.terms.unsupported.push(place),
    }
    match retry.as_ref().map(policy::retry).transpose() {
        Ok(retry) => draft.terms.retry = retry.map(Arc::new),
        Err(place) => draft.terms.unsupported.push(place),
    }
    draft.finish(name.as_deref())
}
