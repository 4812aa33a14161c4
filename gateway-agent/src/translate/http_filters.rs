//! Filters of an HTTPRoute to what the data path does.

use std::sync::Arc;

use super::backend::Resolver;
use super::conditions::Problem;
use crate::snapshot::{Filters, Mirror, RouteName};
use crate::status::names::reason;
use crate::store::objects::{BackendRef, HttpFilters};

/// Without the redirect, which is an action where it is a rule's. References that lead nowhere are told and left out.
pub(super) fn compile(
    filters: &HttpFilters,
    route: &RouteName,
    resolver: &mut Resolver<'_>,
    unresolved: &mut Vec<Problem>,
) -> Arc<Filters> {
    if *filters == HttpFilters::default() {
        return Filters::none();
    }
    let HttpFilters { headers, redirect: _, rewrite, cors, mirrors, extensions } = filters;
    for extension in extensions {
        let message = format!("no filter is known for extensionRef {extension}");
        unresolved.push(Problem::new(reason::INVALID_KIND, message));
    }
    let backends: Vec<BackendRef> = mirrors.iter().map(|mirror| mirror.backend.clone()).collect();
    let resolved = resolver.resolve(route.kind, &route.object.namespace, &backends);
    unresolved.extend(resolved.problems.into_iter().map(|problem| Problem {
        message: format!("RequestMirror: {}", problem.message),
        reason: problem.reason,
    }));
    let mirrors = mirrors.iter().zip(resolved.shares).filter_map(|(mirror, share)| {
        let (numerator, denominator) = (mirror.numerator, mirror.denominator);
        Some(Mirror { endpoints: share.endpoints?, numerator, denominator })
    });
    Arc::new(Filters {
        headers: headers.clone(),
        rewrite: rewrite.clone(),
        cors: cors.clone(),
        mirrors: mirrors.filter(|mirror| mirror.numerator > 0).collect(),
        redirect: None,
    })
}
