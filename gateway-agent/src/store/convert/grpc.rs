//! GRPCRoute. What is not supported, or may not be done, is kept by name.

use std::collections::HashSet;
use std::sync::Arc;

use super::{backend_ref, hostnames, meta, parent_refs, shared};
use crate::api::GrpcRoute as ApiRoute;
use crate::api::grpcroutes::{
    GrpcRouteRules, GrpcRouteRulesBackendRefsFiltersType, GrpcRouteRulesFiltersType, GrpcRouteRulesMatches,
    GrpcRouteRulesMatchesHeaders, GrpcRouteRulesMatchesHeadersType, GrpcRouteRulesMatchesMethodType,
};
use crate::snapshot::{HeaderChanges, HeaderMatch, MessageHeaders, RefusedHeader, TextMatch};
use crate::store::objects::{BackendRef, GrpcRoute, GrpcRouteMatch, GrpcRouteRule};

pub(in crate::store) fn grpc_route(route: &ApiRoute, order: u64) -> GrpcRoute {
    GrpcRoute {
        meta: meta(&route.metadata, order),
        parents: parent_refs!(route.spec.parent_refs),
        hostnames: hostnames(route.spec.hostnames.as_deref().unwrap_or_default()),
        rules: route.spec.rules.iter().flatten().map(rule).collect(),
    }
}

/// The generated API types repeat the same shape under another name for requests, responses, rules and backends.
macro_rules! header_changes {
    ($modifier:expr) => {{
        let modifier = $modifier;
        HeaderChanges::new(
            modifier.remove.iter().flatten().map(String::as_str),
            modifier.set.iter().flatten().map(|header| (header.name.as_str(), header.value.as_str())),
            modifier.add.iter().flatten().map(|header| (header.name.as_str(), header.value.as_str())),
        )
    }};
}

/// The filters of a rule and those of a backend are the same under two names. `$place` says where the filter stands.
macro_rules! add_filter {
    ($filter:expr, $Type:ident, $headers:expr, $rule:expr, $place:expr) => {{
        let filter = $filter;
        let (name, done) = match filter.r#type {
            $Type::RequestHeaderModifier => {
                let changes = filter.request_header_modifier.as_ref();
                let done = changes.map_or(Ok(()), |one| add(&mut $headers.request, header_changes!(one)));
                ("RequestHeaderModifier", done)
            }
            $Type::ResponseHeaderModifier => {
                let changes = filter.response_header_modifier.as_ref();
                let done = changes.map_or(Ok(()), |one| add(&mut $headers.response, header_changes!(one)));
                ("ResponseHeaderModifier", done)
            }
            $Type::RequestMirror => ("RequestMirror", Err(String::new())),
            $Type::ExtensionRef => ("ExtensionRef", Ok(())),
        };
        if let Err(reason) = done {
            let place = $place;
            let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
            $rule.unsupported.push(format!("{place} ({name}{reason})"));
        }
        if let Some(extension) = &filter.extension_ref {
            $rule.extensions.push(format!("{}/{} {}", extension.group, extension.kind, extension.name));
        }
        if let Some(mirror) = &filter.request_mirror {
            let backend = &mirror.backend_ref;
            $rule.mirrors.push(BackendRef {
                group: shared(backend.group.as_deref().unwrap_or_default()),
                kind: shared(backend.kind.as_deref().unwrap_or("Service")),
                namespace: super::optional(backend.namespace.as_ref()),
                name: shared(&backend.name),
                port: super::port(backend.port),
                weight: 1,
            });
        }
    }};
}

fn rule(rule: &GrpcRouteRules) -> GrpcRouteRule {
    use GrpcRouteRulesBackendRefsFiltersType as BackendType;
    use GrpcRouteRulesFiltersType as RuleType;
    // Destructured fully, so that a field of a newer API cannot be passed over.
    let GrpcRouteRules { backend_refs, filters, matches, name } = rule;
    let mut converted = GrpcRouteRule { name: name.as_deref().map(shared), ..GrpcRouteRule::default() };
    for (index, one) in matches.iter().flatten().enumerate() {
        match route_match(index, one) {
            Ok(one) => converted.matches.push(one),
            Err(fields) => converted.unsupported_matches.extend(fields),
        }
    }
    if converted.matches.is_empty() && converted.unsupported_matches.is_empty() {
        // "If no matches are specified, the implementation MUST match every gRPC request."
        converted.matches.push(GrpcRouteMatch::default());
    }
    let mut headers = MessageHeaders::default();
    for (index, filter) in filters.iter().flatten().enumerate() {
        add_filter!(filter, RuleType, headers, converted, format!("filters[{index}]"));
    }
    converted.headers = headers;
    for (index, backend) in backend_refs.iter().flatten().enumerate() {
        let mut headers = MessageHeaders::default();
        for filter in backend.filters.iter().flatten() {
            let place = format!("backendRefs[{index}].filters");
            add_filter!(filter, BackendType, headers, converted, place);
        }
        converted.backend_headers.push(headers);
        converted.backends.push(backend_ref!(backend));
    }
    converted
}

fn add(all: &mut HeaderChanges, further: Result<HeaderChanges, RefusedHeader>) -> Result<(), String> {
    *all = all.then(&further.map_err(|refused| refused.to_string())?);
    Ok(())
}

/// Or what of it is not supported.
fn route_match(index: usize, one: &GrpcRouteRulesMatches) -> Result<GrpcRouteMatch, Vec<String>> {
    let GrpcRouteRulesMatches { headers, method } = one;
    let mut converted = GrpcRouteMatch::default();
    let mut unsupported = Vec::new();
    if let Some(method) = method {
        match method.r#type {
            None | Some(GrpcRouteRulesMatchesMethodType::Exact) => {
                let part =
                    |part: &Option<String>| part.as_deref().filter(|part| !part.is_empty()).map(shared);
                (converted.service, converted.method) = (part(&method.service), part(&method.method));
            }
            Some(GrpcRouteRulesMatchesMethodType::RegularExpression) => {
                unsupported.push(format!("matches[{index}].method (RegularExpression)"));
            }
        }
    }
    match header_matches(headers.as_deref().unwrap_or_default()) {
        Some(headers) => converted.headers = headers,
        None => unsupported.push(format!("matches[{index}].headers (RegularExpression)")),
    }
    if unsupported.is_empty() { Ok(converted) } else { Err(unsupported) }
}

/// Of entries with an equivalent name only the first counts (`GRPCHeaderMatch.name`). `None`: a regular expression.
fn header_matches(headers: &[GrpcRouteRulesMatchesHeaders]) -> Option<Arc<[HeaderMatch]>> {
    let mut seen = HashSet::new();
    let mut matches = Vec::with_capacity(headers.len());
    for header in headers {
        let name = header.name.to_ascii_lowercase();
        if !seen.insert(name.clone()) {
            continue;
        }
        match header.r#type {
            None | Some(GrpcRouteRulesMatchesHeadersType::Exact) => {}
            Some(GrpcRouteRulesMatchesHeadersType::RegularExpression) => return None,
        }
        matches.push(HeaderMatch { name: name.into(), value: TextMatch::Exact(shared(&header.value)) });
    }
    Some(matches.into())
}
