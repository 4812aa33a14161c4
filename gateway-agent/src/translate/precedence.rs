//! Which of several matches is tried first.

use std::cmp::Reverse;

use super::hostname::Specificity;
use crate::snapshot::{ObjectName, PathMatch};
use crate::store::objects::{Age, HttpRouteMatch, Meta};

/// `HTTPRouteRule.matches` in `httproute_types.go`, field by field; the lesser is tried first. The hostname is the
/// route's own, not its intersection with the listener's, and outranks the rest (GEP-3567's neighbour, feature
/// GatewayRouteHostnameIntersectionPrecedence).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Precedence<'a> {
    hostname: Reverse<Specificity>,
    rank: MatchRank,
    age: Age,
    route: &'a ObjectName,
    rule: usize,
    position: usize,
}

/// The part that a match has by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MatchRank {
    path: PathRank,
    has_method: Reverse<bool>,
    n_headers: Reverse<usize>,
    n_query: Reverse<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathRank {
    Exact,
    /// By length in characters.
    Prefix(Reverse<usize>),
}

impl MatchRank {
    pub(super) fn of(one: &HttpRouteMatch) -> Self {
        Self {
            path: match &one.path {
                PathMatch::Exact(_) => PathRank::Exact,
                PathMatch::Prefix(prefix) => PathRank::Prefix(Reverse(prefix.chars().count())),
            },
            has_method: Reverse(one.method.is_some()),
            n_headers: Reverse(one.headers.len()),
            n_query: Reverse(one.query.len()),
        }
    }
}

impl<'a> Precedence<'a> {
    pub(super) const fn new(
        hostname: Specificity,
        rank: MatchRank,
        route: &'a Meta,
        rule: usize,
        position: usize,
    ) -> Self {
        Self { hostname: Reverse(hostname), rank, age: route.age, route: &route.name, rule, position }
    }
}
