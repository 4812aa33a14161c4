//! HTTPRoute to routing tables.

use std::sync::Arc;

use super::backend::Resolver;
use super::conditions::{Problem, RouteVerdict, join_messages, merge};
use super::hostname::Specificity;
use super::precedence::{MatchRank, Precedence};
use crate::snapshot::{
    HttpAction, HttpMatch, HttpRule, MatchOrder, MessageHeaders, RouteKind, RouteName, Split,
};
use crate::status::names::reason;
use crate::store::objects::{HttpRoute, HttpRouteRule};

/// The status of a rule that cannot be served as written.
const RULE_ERROR: u16 = 500;

/// A route's matches, shared by all listeners that it attaches to.
#[derive(Debug)]
pub(super) struct CompiledHttp {
    pub(super) route: Arc<HttpRoute>,
    pub(super) verdict: RouteVerdict,
    matches: Vec<CompiledMatch>,
}

#[derive(Debug)]
struct CompiledMatch {
    rank: MatchRank,
    rule: usize,
    position: usize,
    compiled: HttpMatch,
}

pub(super) fn compile(route: &Arc<HttpRoute>, resolver: &mut Resolver<'_>) -> CompiledHttp {
    let name = RouteName { kind: RouteKind::Http, object: route.meta.name.clone() };
    let mut matches = Vec::new();
    let mut n_usable = 0;
    let mut partial = Vec::new();
    let mut unresolved = Vec::new();
    for (index, rule) in route.rules.iter().enumerate() {
        let action = action(rule, &name, resolver, &mut unresolved);
        if let Some(message) = unsupported(index, rule) {
            partial.push(message);
        } else {
            n_usable += 1;
        }
        if !rule.unsupported_matches.is_empty() {
            continue;
        }
        // The schema allows 16 rules.
        let index_16 = u16::try_from(index).unwrap_or(u16::MAX);
        let headers = rule.headers.clone();
        let compiled_rule = Arc::new(HttpRule { route: name.clone(), index: index_16, headers, action });
        for (position, one) in rule.matches.iter().enumerate() {
            matches.push(CompiledMatch {
                rank: MatchRank::of(one),
                rule: index,
                position,
                compiled: HttpMatch {
                    path: one.path.clone(),
                    method: one.method.clone(),
                    headers: one.headers.clone(),
                    query: one.query.clone(),
                    rule: compiled_rule.clone(),
                },
            });
        }
    }
    let message = join_messages(partial);
    let verdict = RouteVerdict {
        unusable: (n_usable == 0).then(|| Problem::new(reason::UNSUPPORTED_VALUE, message.clone())),
        partial: (!message.is_empty()).then(|| format!("Dropped Rule: {message}")),
        unresolved: merge(unresolved),
        note: None,
    };
    CompiledHttp { route: route.clone(), verdict, matches }
}

/// What of a rule is not supported.
fn unsupported(index: usize, rule: &HttpRouteRule) -> Option<String> {
    if !rule.unsupported_matches.is_empty() {
        let fields = rule.unsupported_matches.join(", ");
        return Some(format!("rules[{index}]: {fields} is not supported, the rule has no effect"));
    }
    if !rule.unsupported.is_empty() {
        let fields = rule.unsupported.join(", ");
        return Some(format!(
            "rules[{index}]: {fields} is not supported yet, what matches the rule is answered with {RULE_ERROR}"
        ));
    }
    None
}

fn action(
    rule: &HttpRouteRule,
    route: &RouteName,
    resolver: &mut Resolver<'_>,
    unresolved: &mut Vec<Problem>,
) -> HttpAction {
    let shares = resolver.resolve(route.kind, &route.object.namespace, &rule.backends);
    unresolved.extend(shares.problems.iter().cloned());
    for extension in &rule.extensions {
        let message = format!("no filter is known for extensionRef {extension}");
        unresolved.push(Problem::new(reason::INVALID_KIND, message));
    }
    if !rule.extensions.is_empty() || !rule.unsupported.is_empty() {
        // A filter must not be skipped (`HTTPRouteFilter.extensionRef`).
        return HttpAction::Respond(RULE_ERROR);
    }
    if let Some(redirect) = &rule.redirect {
        return HttpAction::Redirect(redirect.clone());
    }
    let split = with_headers(shares.split(), rule);
    // No backendRefs, or all of them with weight 0 (O44).
    if split.total == 0 { HttpAction::Respond(RULE_ERROR) } else { HttpAction::Forward(split) }
}

impl CompiledHttp {
    /// Every match, with its place at a host that it came to by a hostname of this specificity.
    ///
    /// Lookup falls through to less specific hosts of the listener. Within one listener a less specific intersection
    /// always stems from a less specific hostname, so that is the order of precedence.
    pub(super) fn matches(&self, original: Specificity) -> impl Iterator<Item = (MatchOrder, &HttpMatch)> {
        self.matches.iter().map(move |one| {
            let precedence = Precedence::new(original, one.rank, &self.route.meta, one.rule, one.position);
            (precedence.order(), &one.compiled)
        })
    }
}

/// Gives the backends that have filters of their own what the rule's and they do together.
fn with_headers(split: Split, rule: &HttpRouteRule) -> Split {
    let has_own = |headers: &&MessageHeaders| !headers.request.is_empty() || !headers.response.is_empty();
    if !rule.backend_headers.iter().any(|headers| has_own(&headers)) {
        return split;
    }
    let mut backends = split.backends.to_vec();
    for (backend, own) in backends.iter_mut().zip(&rule.backend_headers).filter(|(_, own)| has_own(own)) {
        backend.headers = Some(Arc::new(MessageHeaders {
            request: rule.headers.request.then(&own.request),
            response: rule.headers.response.then(&own.response),
        }));
    }
    Split::new(backends)
}
