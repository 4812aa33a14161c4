//! HTTPRoute.

mod filter;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use super::{backend_ref, hostnames, meta, parent_refs, shared};
use crate::api::HttpRoute as ApiRoute;
use crate::api::httproutes::{
    HttpRouteRules, HttpRouteRulesMatches, HttpRouteRulesMatchesHeaders, HttpRouteRulesMatchesHeadersType,
    HttpRouteRulesMatchesMethod, HttpRouteRulesMatchesPath, HttpRouteRulesMatchesPathType,
    HttpRouteRulesMatchesQueryParams, HttpRouteRulesMatchesQueryParamsType,
};
use crate::snapshot::{HeaderMatch, MessageHeaders, PathMatch, QueryMatch};
use crate::store::objects::{HttpRoute, HttpRouteMatch, HttpRouteRule};
use crate::syntax::path::{self, BadPath};

pub(in crate::store) fn http_route(route: &ApiRoute, order: u64) -> HttpRoute {
    let rules = match route.spec.rules.as_deref() {
        // The default of the CRD: one rule that matches every path.
        None | Some([]) => vec![default_rule()],
        Some(rules) => rules.iter().map(rule).collect(),
    };
    HttpRoute {
        meta: meta(&route.metadata, order),
        parents: parent_refs!(route.spec.parent_refs),
        hostnames: hostnames(route.spec.hostnames.as_deref().unwrap_or_default()),
        rules,
    }
}

fn default_rule() -> HttpRouteRule {
    HttpRouteRule {
        matches: vec![every_path()],
        backends: Vec::new(),
        backend_headers: Vec::new(),
        headers: MessageHeaders::default(),
        redirect: None,
        unsupported_matches: Vec::new(),
        unsupported: Vec::new(),
        extensions: Vec::new(),
    }
}

fn every_path() -> HttpRouteMatch {
    HttpRouteMatch {
        path: PathMatch::Prefix(shared("")),
        method: None,
        headers: Arc::default(),
        query: Arc::default(),
    }
}

fn rule(rule: &HttpRouteRules) -> HttpRouteRule {
    // Destructured fully, so that a field of a newer API cannot be passed over.
    let HttpRouteRules { backend_refs, filters, matches, name: _, retry, timeouts } = rule;
    let mut converted = HttpRouteRule { matches: Vec::new(), ..default_rule() };
    for (index, one) in matches.iter().flatten().enumerate() {
        if let Some(one) = route_match(index, one, &mut converted.unsupported_matches) {
            converted.matches.push(one);
        }
    }
    if converted.matches.is_empty() && converted.unsupported_matches.is_empty() {
        converted.matches.push(every_path());
    }
    for (index, one) in filters.iter().flatten().enumerate() {
        filter::of_rule(index, one, &mut converted);
    }
    for (index, backend) in backend_refs.iter().flatten().enumerate() {
        let filters = backend.filters.as_deref().unwrap_or_default();
        let headers = filter::of_backend(index, filters, &mut converted.unsupported);
        converted.backend_headers.push(headers);
        converted.backends.push(backend_ref!(backend));
    }
    if timeouts.is_some() {
        converted.unsupported.push("timeouts".into());
    }
    if retry.is_some() {
        converted.unsupported.push("retry".into());
    }
    converted
}

fn route_match(
    index: usize,
    one: &HttpRouteRulesMatches,
    unsupported: &mut Vec<String>,
) -> Option<HttpRouteMatch> {
    let HttpRouteRulesMatches { headers, method, path, query_params } = one;
    let before = unsupported.len();
    let path = path_match(path.as_ref());
    if path.is_none() {
        unsupported.push(format!("matches[{index}].path (RegularExpression)"));
    }
    let headers = header_matches(headers.as_deref().unwrap_or_default());
    if headers.is_none() {
        unsupported.push(format!("matches[{index}].headers (RegularExpression)"));
    }
    let query = query_matches(query_params.as_deref().unwrap_or_default());
    if query.is_none() {
        unsupported.push(format!("matches[{index}].queryParams (RegularExpression)"));
    }
    if unsupported.len() > before {
        return None;
    }
    Some(HttpRouteMatch {
        path: path?,
        method: method.as_ref().map(|method| shared(method_name(method))),
        headers: headers?,
        query: query?,
    })
}

/// `None`: a regular expression.
fn path_match(path: Option<&HttpRouteRulesMatchesPath>) -> Option<PathMatch> {
    let Some(path) = path else {
        return Some(PathMatch::Prefix(shared("")));
    };
    let value = path.value.as_deref().unwrap_or("/");
    match path.r#type {
        // "A trailing slash is ignored" (`PathMatchPathPrefix`).
        None | Some(HttpRouteRulesMatchesPathType::PathPrefix) => {
            Some(PathMatch::Prefix(shared(normal_path(value).trim_end_matches('/'))))
        }
        Some(HttpRouteRulesMatchesPathType::Exact) => Some(PathMatch::Exact(shared(&normal_path(value)))),
        Some(HttpRouteRulesMatchesPathType::RegularExpression) => None,
    }
}

/// As paths of requests are brought to: `/%61` is `/a`. What has no normal form matches no request, and stays.
fn normal_path(path: &str) -> Cow<'_, str> {
    let mut normal = String::new();
    match path::normalise(path, &mut normal) {
        Ok(true) => normal.into(),
        Ok(false) | Err(BadPath) => path.into(),
    }
}

/// Of entries with an equivalent name only the first counts (`HTTPHeaderMatch.name`).
fn header_matches(headers: &[HttpRouteRulesMatchesHeaders]) -> Option<Arc<[HeaderMatch]>> {
    let mut seen = HashSet::new();
    let mut matches = Vec::with_capacity(headers.len());
    for header in headers {
        let name = header.name.to_ascii_lowercase();
        if !seen.insert(name.clone()) {
            continue;
        }
        match header.r#type {
            None | Some(HttpRouteRulesMatchesHeadersType::Exact) => {}
            Some(HttpRouteRulesMatchesHeadersType::RegularExpression) => return None,
        }
        matches.push(HeaderMatch { name: name.into(), value: shared(&header.value) });
    }
    Some(matches.into())
}

/// Names are case-sensitive here; of equal ones only the first counts.
fn query_matches(params: &[HttpRouteRulesMatchesQueryParams]) -> Option<Arc<[QueryMatch]>> {
    let mut seen = HashSet::new();
    let mut matches = Vec::with_capacity(params.len());
    for param in params {
        if !seen.insert(param.name.as_str()) {
            continue;
        }
        match param.r#type {
            None | Some(HttpRouteRulesMatchesQueryParamsType::Exact) => {}
            Some(HttpRouteRulesMatchesQueryParamsType::RegularExpression) => return None,
        }
        matches.push(QueryMatch { name: shared(&param.name), value: shared(&param.value) });
    }
    Some(matches.into())
}

const fn method_name(method: &HttpRouteRulesMatchesMethod) -> &'static str {
    match method {
        HttpRouteRulesMatchesMethod::Get => "GET",
        HttpRouteRulesMatchesMethod::Head => "HEAD",
        HttpRouteRulesMatchesMethod::Post => "POST",
        HttpRouteRulesMatchesMethod::Put => "PUT",
        HttpRouteRulesMatchesMethod::Delete => "DELETE",
        HttpRouteRulesMatchesMethod::Connect => "CONNECT",
        HttpRouteRulesMatchesMethod::Options => "OPTIONS",
        HttpRouteRulesMatchesMethod::Trace => "TRACE",
        HttpRouteRulesMatchesMethod::Patch => "PATCH",
    }
}
