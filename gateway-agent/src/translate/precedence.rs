//! Which of several matches is tried first.

use std::cmp::Reverse;

use super::hostname::Specificity;
use crate::snapshot::{MatchOrder, ObjectName, PathMatch};
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
    /// By length of the expression in characters. The API leaves the place to implementations: an expression beside a
    /// prefix is meant as an exception from it.
    Regex(Reverse<usize>),
    /// By length in characters.
    Prefix(Reverse<usize>),
}

impl MatchRank {
    pub(super) fn of(one: &HttpRouteMatch) -> Self {
        Self {
            path: match &one.path {
                PathMatch::Exact(_) => PathRank::Exact,
                // By characters of the service, then of the method (`GRPCRouteRule.matches` in `grpcroute_types.go`): a
                // service alone is a prefix of two characters at least, and nothing at all is one of none. The methods
                // that a call can be of are of one length.
                PathMatch::Method(_) => PathRank::Prefix(Reverse(1)),
                PathMatch::Prefix(prefix) => PathRank::Prefix(Reverse(prefix.chars().count())),
                PathMatch::Regex(pattern) => PathRank::Regex(Reverse(pattern.text().chars().count())),
            },
            has_method: Reverse(one.method.is_some()),
            n_headers: Reverse(one.headers.len()),
            n_query: Reverse(one.query.len()),
        }
    }
}

impl Precedence<'_> {
    /// The same order in bytes: longer and greater comes first where the complement is written.
    pub(super) fn order(&self) -> MatchOrder {
        let mut bytes = Vec::with_capacity(64 + self.route.namespace.len() + self.route.name.len());
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (kind, length) = match self.hostname.0 {
            Specificity::Exact(length) => (0, count(length)),
            Specificity::Wildcard(length) => (1, count(length)),
            Specificity::Any => (2, 0),
        };
        bytes.push(kind);
        bytes.extend((!length).to_be_bytes());
        let (kind, length) = match self.rank.path {
            PathRank::Exact => (0, 0),
            PathRank::Regex(Reverse(length)) => (1, count(length)),
            PathRank::Prefix(Reverse(length)) => (2, count(length)),
        };
        bytes.push(kind);
        bytes.extend((!length).to_be_bytes());
        bytes.push(u8::from(!self.rank.has_method.0));
        bytes.extend((!count(self.rank.n_headers.0)).to_be_bytes());
        bytes.extend((!count(self.rank.n_query.0)).to_be_bytes());
        match self.age {
            Age::Created(time) => {
                bytes.push(0);
                // Times before 1970 are negative and come first.
                bytes.extend((time.as_nanosecond() ^ i128::MIN).to_be_bytes());
            }
            Age::Order(order) => {
                bytes.push(1);
                bytes.extend(order.to_be_bytes());
            }
        }
        // No name holds a zero, so that none is the beginning of another.
        for name in [&self.route.namespace, &self.route.name] {
            bytes.extend(name.as_bytes());
            bytes.push(0);
        }
        bytes.extend(count(self.rule).to_be_bytes());
        bytes.extend(count(self.position).to_be_bytes());
        MatchOrder::new(&bytes)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::{MatchRank, Precedence};
    use crate::snapshot::{HeaderMatch, ObjectName, PathMatch, Pattern, QueryMatch};
    use crate::store::objects::{Age, HttpRouteMatch, Meta};
    use crate::translate::hostname::Specificity;

    #[derive(Clone, Debug)]
    struct Candidate {
        hostname: Specificity,
        one: HttpRouteMatch,
        meta: Meta,
        rule: usize,
        position: usize,
    }

    impl Candidate {
        fn precedence(&self) -> Precedence<'_> {
            Precedence::new(self.hostname, MatchRank::of(&self.one), &self.meta, self.rule, self.position)
        }
    }

    fn candidate() -> impl Strategy<Value = Candidate> {
        let hostname = prop_oneof![
            Just(Specificity::Any),
            (5..8_usize).prop_map(Specificity::Wildcard),
            (5..8_usize).prop_map(Specificity::Exact),
        ];
        let path = prop_oneof![
            Just(PathMatch::Exact("/a".into())),
            prop::sample::select(vec!["", "/a", "/a/b"]).prop_map(|path| PathMatch::Prefix(path.into())),
            prop::sample::select(vec!["/", "/.*"])
                .prop_map(|text| PathMatch::Regex(Pattern::new(text).unwrap())),
        ];
        let parts = (hostname, path, any::<bool>(), 0..3_usize, 0..3_usize);
        (parts, 0..2_u64, "[ab]", 0..2_usize, 0..2_usize).prop_map(|(parts, order, name, rule, position)| {
            let (hostname, path, has_method, n_headers, n_query) = parts;
            let header = HeaderMatch { name: "x".into(), value: "1".into() };
            let query = QueryMatch { name: "x".into(), value: "1".into() };
            let name = ObjectName::new("default", name);
            Candidate {
                hostname,
                one: HttpRouteMatch {
                    path,
                    method: has_method.then(|| "GET".into()),
                    headers: Arc::from(vec![header; n_headers]),
                    query: Arc::from(vec![query; n_query]),
                },
                meta: Meta { name, generation: 0, age: Age::Order(order) },
                rule,
                position,
            }
        })
    }

    /// The prose of `HTTPRouteRule.matches`: whether `one` is tried before `other`, `None` where nothing decides.
    fn by_the_spec(one: &Candidate, other: &Candidate) -> Option<bool> {
        let length = |path: &PathMatch| match path {
            PathMatch::Exact(_) => usize::MAX,
            PathMatch::Method(_) => 1,
            PathMatch::Regex(pattern) => 1000 + pattern.text().len(),
            PathMatch::Prefix(prefix) => prefix.len(),
        };
        let differ = |one: usize, other: usize| (one != other).then_some(one > other);
        (one.hostname != other.hostname)
            .then_some(one.hostname > other.hostname)
            .or_else(|| differ(length(&one.one.path), length(&other.one.path)))
            .or_else(|| differ(one.one.method.is_some().into(), other.one.method.is_some().into()))
            .or_else(|| differ(one.one.headers.len(), other.one.headers.len()))
            .or_else(|| differ(one.one.query.len(), other.one.query.len()))
            .or_else(|| {
                (one.meta.seniority() != other.meta.seniority())
                    .then(|| one.meta.seniority() < other.meta.seniority())
            })
            .or_else(|| (one.rule != other.rule).then_some(one.rule < other.rule))
            .or_else(|| (one.position != other.position).then_some(one.position < other.position))
    }

    proptest! {
        #[test]
        fn precedence_is_the_order_of_the_spec(one in candidate(), other in candidate()) {
            let (first, second) = (one.precedence(), other.precedence());
            prop_assert_eq!((first != second).then(|| first < second), by_the_spec(&one, &other));
            prop_assert_eq!(first.cmp(&second), first.order().cmp(&second.order()));
        }

        #[test]
        fn precedence_is_a_total_order(one in candidate(), two in candidate(), three in candidate()) {
            let (one, two, three) = (one.precedence(), two.precedence(), three.precedence());
            prop_assert_eq!(one.cmp(&two), two.cmp(&one).reverse());
            if one <= two && two <= three {
                prop_assert!(one <= three);
            }
        }
    }
}
