//! HTTPRoute.

pub(super) mod filter;
mod matching;
mod policy;

use std::sync::Arc;

pub(super) use self::matching::{Form, Patterns, Reader};
use super::{backend_ref, hostnames, meta, parent_refs, shared};
use crate::api::HttpRoute as ApiRoute;
use crate::api::httproutes::HttpRouteRules;
use crate::store::objects::{HttpFilters, HttpRoute, HttpRouteMatch, HttpRouteRule};

pub(in crate::store) fn http_route(route: &ApiRoute, order: u64) -> HttpRoute {
    let mut patterns = Patterns::default();
    let rules = match route.spec.rules.as_deref() {
        // The default of the CRD: one rule that matches every path.
        None | Some([]) => vec![default_rule()],
        Some(rules) => rules.iter().map(|one| rule(one, &mut patterns)).collect(),
    };
    HttpRoute {
        meta: meta(&route.metadata, order),
        parents: parent_refs!(route.spec.parent_refs),
        hostnames: hostnames(route.spec.hostnames.as_deref().unwrap_or_default()),
        rules,
    }
}

fn default_rule() -> HttpRouteRule {
    HttpRouteRule { matches: vec![HttpRouteMatch::every()], ..HttpRouteRule::default() }
}

fn rule(rule: &HttpRouteRules, patterns: &mut Patterns) -> HttpRouteRule {
    // Destructured fully, so that a field of a newer API cannot be passed over.
    let HttpRouteRules { backend_refs, filters, matches, name, retry, timeouts } = rule;
    let mut converted = HttpRouteRule { name: name.as_deref().map(shared), ..HttpRouteRule::default() };
    for (index, one) in matches.iter().flatten().enumerate() {
        let mut reader = Reader {
            place: format!("matches[{index}]"),
            patterns,
            unsupported: &mut converted.unsupported_matches,
        };
        if let Some(one) = reader.read(one) {
            converted.matches.push(one);
        }
    }
    if converted.matches.is_empty() && converted.unsupported_matches.is_empty() {
        converted.matches.push(HttpRouteMatch::every());
    }
    filter::of_rule(filters.as_deref().unwrap_or_default(), &mut converted);
    for (index, backend) in backend_refs.iter().flatten().enumerate() {
        filter::of_backend(index, backend.filters.as_deref().unwrap_or_default(), &mut converted);
        converted.backends.push(backend_ref!(backend));
    }
    if converted.filters.redirect.is_some() && !converted.backends.is_empty() {
        converted.incompatible.push("filters (RequestRedirect together with backendRefs)".into());
    }
    match timeouts.as_ref().map(policy::timeouts).transpose() {
        Ok(timeouts) => converted.timeouts = timeouts.unwrap_or_default(),
        Err(place) => converted.unsupported.push(place),
    }
    match retry.as_ref().map(policy::retry).transpose() {
        Ok(retry) => converted.retry = retry.map(Arc::new),
        Err(place) => converted.unsupported.push(place),
    }
    settle(&mut converted);
    converted
}

/// Thousands of rules are kept for as long as their routes exist, and most have one match and one backend: room for more
/// would be most of what they take.
pub(super) fn settle(rule: &mut HttpRouteRule) {
    if rule.backend_filters.iter().all(|own| *own == HttpFilters::default()) {
        rule.backend_filters = Vec::new();
    }
    rule.backend_filters.shrink_to_fit();
    rule.backends.shrink_to_fit();
    rule.matches.shrink_to_fit();
}
