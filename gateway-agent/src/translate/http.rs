//! HTTPRoute and GRPCRoute to routing tables: the rules of both are the same once they are in the store.

use std::sync::Arc;

use super::backend::Resolver;
use super::conditions::{Problem, RouteVerdict, join_messages, merge};
use super::http_filters;
use crate::snapshot::{Backend, Filters, HttpAction, HttpMatch, HttpRule, RouteKind, RouteName, Split};
use crate::status::names::reason;
use crate::store::objects::{HttpFilters, HttpRoute, HttpRouteRule};

/// The status of a rule that cannot be served as written: UNAVAILABLE to a client of gRPC.
const RULE_ERROR: u16 = 500;

/// A route's matches, shared by all listeners that it attaches to.
#[derive(Debug)]
pub(super) struct CompiledHttp {
    pub(super) kind: RouteKind,
    pub(super) route: Arc<HttpRoute>,
    /// `None`: nothing is to be said.
    verdict: Option<Box<RouteVerdict>>,
    /// In the order of the rules.
    pub(super) matches: Box<[HttpMatch]>,
}

/// What is said of a route in which nothing is wrong.
static NOTHING: RouteVerdict = RouteVerdict { unusable: None, partial: None, unresolved: None, note: None };

impl CompiledHttp {
    pub(super) fn verdict(&self) -> &RouteVerdict {
        self.verdict.as_deref().unwrap_or(&NOTHING)
    }
}

/// `kind`: `Http` or `Grpc`.
pub(super) fn compile(kind: RouteKind, route: &Arc<HttpRoute>, resolver: &mut Resolver<'_>) -> CompiledHttp {
    let name = RouteName { kind, object: route.meta.name.clone() };
    let mut matches = Vec::with_capacity(route.rules.iter().map(|rule| rule.matches.len()).sum());
    let mut n_usable = 0;
    let mut partial = Vec::new();
    let mut unresolved = Vec::new();
    for (index, rule) in route.rules.iter().enumerate() {
        let compiled_rule = Arc::new(compile_rule(index, rule, &name, resolver, &mut unresolved));
        let problems = problems(kind, index, rule);
        if problems.is_empty() {
            n_usable += 1;
        }
        partial.extend(problems);
        if !rule.terms.unsupported_matches.is_empty() {
            continue;
        }
        matches.extend(
            rule.matches
                .iter()
                .map(|conditions| HttpMatch { conditions: conditions.clone(), rule: compiled_rule.clone() }),
        );
    }
    // Where all is wrong for one reason, that is the condition's.
    let is_incompatible =
        !route.rules.is_empty() && route.rules.iter().all(|rule| !rule.terms.incompatible.is_empty());
    let reason = if is_incompatible { reason::INCOMPATIBLE_FILTERS } else { reason::UNSUPPORTED_VALUE };
    let message = join_messages(partial);
    let verdict = RouteVerdict {
        // Without rules, which a GRPCRoute may be, there is nothing that could be wrong, and nothing that is served.
        unusable: (n_usable == 0 && !route.rules.is_empty()).then(|| Problem::new(reason, message.clone())),
        partial: (!message.is_empty()).then(|| format!("Dropped Rule: {message}")),
        unresolved: merge(unresolved),
        note: None,
    };
    let verdict = (verdict != NOTHING).then(|| Box::new(verdict));
    CompiledHttp { kind, route: route.clone(), verdict, matches: matches.into() }
}

/// What of a rule cannot be served.
fn problems(kind: RouteKind, index: usize, rule: &HttpRouteRule) -> Vec<String> {
    let mut problems = Vec::new();
    if !rule.terms.unsupported_matches.is_empty() {
        let fields = rule.terms.unsupported_matches.join(", ");
        problems.push(format!("rules[{index}]: {fields} is not supported, the rule has no effect"));
    }
    let answer = if kind == RouteKind::Grpc { "UNAVAILABLE".to_owned() } else { RULE_ERROR.to_string() };
    let consequence = format!("what matches the rule is answered with {answer}");
    let terms = &rule.terms;
    for (fields, what) in [(&terms.incompatible, "is not allowed"), (&terms.unsupported, "is not supported")]
    {
        if !fields.is_empty() {
            problems.push(format!("rules[{index}]: {} {what}, {consequence}", fields.join(", ")));
        }
    }
    problems
}

fn compile_rule(
    index: usize,
    rule: &HttpRouteRule,
    route: &RouteName,
    resolver: &mut Resolver<'_>,
    unresolved: &mut Vec<Problem>,
) -> HttpRule {
    let HttpRouteRule { name, terms, .. } = rule;
    let filters = http_filters::compile(&terms.filters, route, resolver, unresolved);
    let action = action(rule, &filters, route, resolver, unresolved);
    // The schema allows 16 rules.
    let index = u16::try_from(index).unwrap_or(u16::MAX);
    let mut compiled = HttpRule::new(route.clone(), index, action);
    if let Some(name) = name {
        compiled.name = name.clone();
    }
    (compiled.filters, compiled.timeouts, compiled.retry) = (filters, terms.timeouts, terms.retry.clone());
    compiled
}

fn action(
    rule: &HttpRouteRule,
    filters: &Filters,
    route: &RouteName,
    resolver: &mut Resolver<'_>,
    unresolved: &mut Vec<Problem>,
) -> HttpAction {
    let shares = resolver.resolve(route.kind, &route.object.namespace, &rule.backends);
    unresolved.extend(shares.problems.iter().cloned());
    let split = with_filters(shares.split(), filters, rule, route, resolver, unresolved);
    let terms = &rule.terms;
    let is_whole = terms.unsupported.is_empty() && terms.incompatible.is_empty();
    if !is_whole || !terms.filters.extensions.is_empty() {
        // A filter must not be skipped (`HTTPRouteFilter.extensionRef`).
        return HttpAction::Respond(RULE_ERROR);
    }
    if let Some(redirect) = &terms.filters.redirect {
        return HttpAction::Redirect(redirect.clone());
    }
    // No backendRefs, or all of them with weight 0 (O44).
    if split.total == 0 { HttpAction::Respond(RULE_ERROR) } else { HttpAction::Forward(split) }
}

/// Gives the backends that have filters of their own what the rule's and they do together.
fn with_filters(
    split: Split,
    of_rule: &Filters,
    rule: &HttpRouteRule,
    route: &RouteName,
    resolver: &mut Resolver<'_>,
    unresolved: &mut Vec<Problem>,
) -> Split {
    let of_backends = &rule.terms.backend_filters;
    if of_backends.is_empty() {
        return split;
    }
    let mut backends = split.backends.to_vec();
    for (backend, own) in backends.iter_mut().zip(of_backends) {
        if *own == HttpFilters::default() {
            continue;
        }
        if !own.extensions.is_empty() {
            // As for a rule: the requests of this backend are an error, and it is not asked.
            backend.backend = Backend::Invalid;
        }
        let mut compiled = Arc::unwrap_or_clone(http_filters::compile(own, route, resolver, unresolved));
        compiled.redirect.clone_from(&own.redirect);
        backend.filters = Some(Arc::new(of_rule.then(&compiled)));
    }
    Split::new(backends)
}
