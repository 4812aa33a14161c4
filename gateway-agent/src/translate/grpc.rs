//! GRPCRoute to routing tables. A call is a POST to `/service/method`, so that its matches are those of paths.

use std::sync::Arc;

use super::backend::Resolver;
use super::conditions::{Problem, RouteVerdict, join_messages, merge};
use super::placed::CompiledMatch;
use super::precedence::MatchRank;
use crate::snapshot::{
    Filters, HttpAction, HttpMatch, HttpRule, MessageHeaders, PathMatch, RouteKind, RouteName, Split,
};
use crate::status::names::reason;
use crate::store::objects::{GrpcRoute, GrpcRouteMatch, GrpcRouteRule};

/// The status of a rule that cannot be served as written: UNAVAILABLE to a client of gRPC.
const RULE_ERROR: u16 = 500;

/// A route's matches, shared by all listeners that it attaches to.
#[derive(Debug)]
pub(super) struct CompiledGrpc {
    pub(super) route: Arc<GrpcRoute>,
    pub(super) verdict: RouteVerdict,
    pub(super) matches: Vec<CompiledMatch>,
}

pub(super) fn compile(route: &Arc<GrpcRoute>, resolver: &mut Resolver<'_>) -> CompiledGrpc {
    let name = RouteName { kind: RouteKind::Grpc, object: route.meta.name.clone() };
    let mut matches = Vec::new();
    let mut n_usable = 0;
    let mut partial = Vec::new();
    let mut unresolved = Vec::new();
    for (index, rule) in route.rules.iter().enumerate() {
        let action = action(rule, &name, resolver, &mut unresolved);
        match unsupported(index, rule) {
            Some(message) => partial.push(message),
            None => n_usable += 1,
        }
        if !rule.unsupported_matches.is_empty() {
            continue;
        }
        // The schema allows 16 rules.
        let index_16 = u16::try_from(index).unwrap_or(u16::MAX);
        let mut compiled = HttpRule::new(name.clone(), index_16, action);
        compiled.filters = filters(&rule.headers);
        if let Some(name) = &rule.name {
            compiled.name = name.clone();
        }
        let compiled = Arc::new(compiled);
        for (position, one) in rule.matches.iter().enumerate() {
            let compiled = http_match(one, compiled.clone());
            matches.push(CompiledMatch { rank: rank(one), rule: index, position, compiled });
        }
    }
    let message = join_messages(partial);
    let verdict = RouteVerdict {
        // Without rules there is nothing that could be wrong, and nothing that is served.
        unusable: (n_usable == 0 && !route.rules.is_empty())
            .then(|| Problem::new(reason::UNSUPPORTED_VALUE, message.clone())),
        partial: (!message.is_empty()).then(|| format!("Dropped Rule: {message}")),
        unresolved: merge(unresolved),
        note: None,
    };
    CompiledGrpc { route: route.clone(), verdict, matches }
}

/// What of a rule is not supported.
fn unsupported(index: usize, rule: &GrpcRouteRule) -> Option<String> {
    if !rule.unsupported_matches.is_empty() {
        let fields = rule.unsupported_matches.join(", ");
        return Some(format!("rules[{index}]: {fields} is not supported, the rule has no effect"));
    }
    if !rule.unsupported.is_empty() {
        let fields = rule.unsupported.join(", ");
        return Some(format!(
            "rules[{index}]: {fields} is not supported, what matches the rule is answered with UNAVAILABLE"
        ));
    }
    None
}

fn action(
    rule: &GrpcRouteRule,
    route: &RouteName,
    resolver: &mut Resolver<'_>,
    unresolved: &mut Vec<Problem>,
) -> HttpAction {
    let namespace = &route.object.namespace;
    let shares = resolver.resolve(RouteKind::Grpc, namespace, &rule.backends);
    let mirrors = resolver.resolve(RouteKind::Grpc, namespace, &rule.mirrors);
    unresolved.extend(shares.problems.iter().cloned().chain(mirrors.problems));
    for extension in &rule.extensions {
        let message = format!("no filter is known for extensionRef {extension}");
        unresolved.push(Problem::new(reason::INVALID_KIND, message));
    }
    if !rule.extensions.is_empty() || !rule.unsupported.is_empty() {
        // A filter must not be skipped (`GRPCRouteFilter.extensionRef`).
        return HttpAction::Respond(RULE_ERROR);
    }
    let split = with_filters(shares.split(), rule);
    // No backendRefs, or all of them with weight 0.
    if split.total == 0 { HttpAction::Respond(RULE_ERROR) } else { HttpAction::Forward(split) }
}

/// Gives the backends that have filters of their own what the rule's and they do together.
fn with_filters(split: Split, rule: &GrpcRouteRule) -> Split {
    let has_own = |headers: &&MessageHeaders| !headers.request.is_empty() || !headers.response.is_empty();
    if !rule.backend_headers.iter().any(|headers| has_own(&headers)) {
        return split;
    }
    let mut backends = split.backends.to_vec();
    let of_rule = filters(&rule.headers);
    for (backend, own) in backends.iter_mut().zip(&rule.backend_headers).filter(|(_, own)| has_own(own)) {
        backend.filters = Some(Arc::new(of_rule.then(&filters(own))));
    }
    Split::new(backends)
}

/// Of what gRPC knows as filters.
fn filters(headers: &MessageHeaders) -> Filters {
    Filters { headers: headers.clone(), ..Filters::default() }
}

fn http_match(one: &GrpcRouteMatch, rule: Arc<HttpRule>) -> HttpMatch {
    let path = match (&one.service, &one.method) {
        (Some(service), Some(method)) => PathMatch::Exact(format!("/{service}/{method}").into()),
        (Some(service), None) => PathMatch::Prefix(format!("/{service}").into()),
        (None, Some(method)) => PathMatch::Method(method.clone()),
        (None, None) => PathMatch::Prefix("".into()),
    };
    HttpMatch { path, method: None, headers: one.headers.clone(), query: Arc::default(), rule }
}

fn rank(one: &GrpcRouteMatch) -> MatchRank {
    let length = |part: &Option<Arc<str>>| part.as_ref().map_or(0, |part| part.chars().count());
    MatchRank::of_call(length(&one.service), length(&one.method), one.headers.len())
}
