//! GRPCRoute, as the rules of an HTTPRoute: a call is a POST to `/service/method`, so that its matches are those of
//! paths. What is not supported, or may not be done, is kept by name.

use super::http::{Draft, Form, Patterns, Reader, filter};
use super::{backend_ref, hostnames, meta, parent_refs, shared};
use crate::api::GrpcRoute as ApiRoute;
use crate::api::grpcroutes::{
    GrpcRouteRules, GrpcRouteRulesMatches, GrpcRouteRulesMatchesHeadersType as HeaderType,
    GrpcRouteRulesMatchesMethod as Method, GrpcRouteRulesMatchesMethodType as MethodType,
};
use crate::snapshot::{HttpRouteMatch, ObjectName, PathMatch};
use crate::store::objects::{HttpRoute, HttpRouteRule};

pub(in crate::store) fn grpc_route(route: &ApiRoute, name: &ObjectName, order: u64) -> HttpRoute {
    let mut patterns = Patterns::default();
    HttpRoute {
        meta: meta(name, &route.metadata, order),
        parents: parent_refs!(route.spec.parent_refs),
        hostnames: hostnames(route.spec.hostnames.as_deref().unwrap_or_default()),
        rules: route.spec.rules.iter().flatten().map(|one| rule(one, &mut patterns)).collect(),
    }
}

fn rule(rule: &GrpcRouteRules, patterns: &mut Patterns) -> HttpRouteRule {
    // Destructured fully, so that a field of a newer API cannot be passed over.
    let GrpcRouteRules { backend_refs, filters, matches, name } = rule;
    let mut draft = Draft::default();
    for (index, one) in matches.iter().flatten().enumerate() {
        let mut reader = Reader {
            place: format!("matches[{index}]"),
            patterns,
            unsupported: &mut draft.terms.unsupported_matches,
        };
        if let Some(one) = route_match(one, &mut reader) {
            draft.matches.push(one);
        }
    }
    draft.end_matches();
    filter::of_rule_of_calls(filters.as_deref().unwrap_or_default(), &mut draft);
    for (index, backend) in backend_refs.iter().flatten().enumerate() {
        filter::of_backend(index, backend.filters.as_deref().unwrap_or_default(), &mut draft);
        draft.backends.push(backend_ref!(backend));
    }
    draft.finish(name.as_deref())
}

fn route_match(one: &GrpcRouteRulesMatches, reader: &mut Reader<'_>) -> Option<HttpRouteMatch> {
    let GrpcRouteRulesMatches { headers, method } = one;
    // Both first, so that all is said.
    let path = match method {
        None => Some(PathMatch::Prefix(shared(""))),
        Some(method) => path(method, reader),
    };
    let headers = reader.header_matches(headers.iter().flatten().map(|header| {
        let form = match header.r#type {
            None | Some(HeaderType::Exact) => Form::Exact,
            Some(HeaderType::RegularExpression) => Form::Expression,
        };
        (header.name.as_str(), form, header.value.as_str())
    }));
    Some(HttpRouteMatch { path: path?, headers: headers?, ..HttpRouteMatch::every() })
}

/// An empty or absent part matches all.
fn path(method: &Method, reader: &mut Reader<'_>) -> Option<PathMatch> {
    let part = |part: &Option<String>| part.clone().filter(|part| !part.is_empty());
    let (service, name) = (part(&method.service), part(&method.method));
    match method.r#type {
        None | Some(MethodType::Exact) => Some(match (service, name) {
            (Some(service), Some(name)) => PathMatch::Exact(shared(&format!("/{service}/{name}"))),
            (Some(service), None) => PathMatch::Prefix(shared(&format!("/{service}"))),
            (None, Some(name)) => PathMatch::Method(shared(&name)),
            (None, None) => PathMatch::Prefix(shared("")),
        }),
        Some(MethodType::RegularExpression) => {
            let parts = [("service", service), ("method", name)];
            let parts: Vec<Option<String>> = parts
                .into_iter()
                .map(|(field, part)| match part {
                    None => Some("[^/]+".to_owned()),
                    // By itself first: `a)(b` is none, though it is one among others.
                    Some(part) => {
                        reader.pattern(&format!("method.{field}"), &part).map(|_| format!("(?:{part})"))
                    }
                })
                .collect();
            let parts: Option<Vec<String>> = parts.into_iter().collect();
            reader.pattern("method", &format!("/{}", parts?.join("/"))).map(PathMatch::Regex)
        }
    }
}
