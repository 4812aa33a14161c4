//! Which of several matches is tried first.

use super::hostname::Specificity;
use crate::snapshot::{HttpMatch, HttpRouteMatch, MatchOrder, PathMatch};
use crate::store::objects::{Age, Meta};

/// Every match of a route, in the order of its rules, with its place at a host that it came to by a hostname of this
/// specificity.
///
/// Lookup falls through to less specific hosts of the listener. Within one listener a less specific intersection always
/// stems from a less specific hostname, so that is the order of precedence.
pub(super) fn placed<'a>(
    matches: &'a [HttpMatch],
    route: &'a Meta,
    original: Specificity,
) -> impl Iterator<Item = (MatchOrder, &'a HttpMatch)> {
    matches
        .iter()
        .enumerate()
        .map(move |(position, one)| (order(original, &one.conditions, route, position), one))
}

/// `HTTPRouteRule.matches` in `httproute_types.go`, field by field; the lesser is tried first. The hostname is the
/// route's own, not its intersection with the listener's, and outranks the rest (GEP-3567's neighbour, feature
/// GatewayRouteHostnameIntersectionPrecedence).
fn order(hostname: Specificity, one: &HttpRouteMatch, route: &Meta, position: usize) -> MatchOrder {
    let (age_s, age_ns) = age(route.age);
    MatchOrder {
        rank: rank(hostname, one),
        age_s,
        age_ns,
        route: Some(route.name.clone()),
        position: u32::try_from(position).unwrap_or(u32::MAX),
    }
}

/// What a match has by its route's hostname and by itself, from the top of the number down.
fn rank(hostname: Specificity, one: &HttpRouteMatch) -> u64 {
    let (host_kind, host_length) = match hostname {
        Specificity::Exact(length) => (0, length),
        Specificity::Wildcard(length) => (1, length),
        Specificity::Any => (2, 0),
    };
    // By length in characters.
    let (path_kind, path_length) = match &one.path {
        PathMatch::Exact(_) => (0, 0),
        // The API leaves the place to implementations: an expression beside a prefix is meant as an exception from it.
        PathMatch::Regex(pattern) => (1, pattern.text().chars().count()),
        // By characters of the service, then of the method (`GRPCRouteRule.matches` in `grpcroute_types.go`): a service
        // alone is a prefix of two characters at least, and nothing at all is one of none. The methods that a call can
        // be of are of one length.
        PathMatch::Method(_) => (2, 1),
        PathMatch::Prefix(prefix) => (2, prefix.chars().count()),
    };
    let fields = [
        (host_kind, 2),
        (descending(host_length, 16), 16),
        (path_kind, 2),
        (descending(path_length, 16), 16),
        (descending(usize::from(one.method.is_some()), 1), 1),
        (descending(one.headers.len(), 8), 8),
        (descending(one.query.len(), 8), 8),
    ];
    fields.into_iter().fold(0, |rank, (value, bits)| (rank << bits) | value)
}

/// The greater comes first. What is too large for so many bits counts as the largest: the schema allows hostnames of 253
/// characters, paths of 1,024, and 16 headers and parameters; expressions have 4,096 bytes at most.
fn descending(count: usize, bits: u32) -> u64 {
    let max = (1 << bits) - 1;
    max - u64::try_from(count).unwrap_or(max).min(max)
}

/// Seconds and nanoseconds in the order of [`Age`].
fn age(age: Age) -> (u64, u32) {
    /// Whatever was created is older than this: no time is that far from 1970.
    const CREATED_MAX: u64 = 1 << 63;
    const NANOS: i128 = 1_000_000_000;
    match age {
        Age::Created(time) => {
            let (seconds, nanos) =
                (time.as_nanosecond().div_euclid(NANOS), time.as_nanosecond().rem_euclid(NANOS));
            // Times before 1970 are negative and come first.
            let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
            ((CREATED_MAX / 2).wrapping_add_signed(seconds), u32::try_from(nanos).unwrap_or(u32::MAX))
        }
        Age::Order(order) => (CREATED_MAX | order, 0),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::jiff::Timestamp;
    use proptest::prelude::*;

    use super::order;
    use crate::snapshot::{
        HeaderMatch, HttpRouteMatch, MatchOrder, ObjectName, PathMatch, Pattern, QueryMatch,
    };
    use crate::store::objects::{Age, Meta};
    use crate::translate::hostname::Specificity;

    #[derive(Clone, Debug)]
    struct Candidate {
        hostname: Specificity,
        one: HttpRouteMatch,
        meta: Meta,
        position: usize,
    }

    impl Candidate {
        fn order(&self) -> MatchOrder {
            order(self.hostname, &self.one, &self.meta, self.position)
        }
    }

    fn age() -> impl Strategy<Value = Age> {
        let created = |nanos: i128| Age::Created(Timestamp::from_nanosecond(nanos).unwrap());
        prop_oneof![
            (0..2_u64).prop_map(Age::Order),
            prop::sample::select(vec![-1_000_000_001, -1, 0, 1, 1_000_000_000]).prop_map(created),
        ]
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
        (parts, age(), "[ab]", 0..3_usize).prop_map(|(parts, age, name, position)| {
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
                meta: Meta { name, generation: 0, age },
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
            .or_else(|| (one.position != other.position).then_some(one.position < other.position))
    }

    proptest! {
        #[test]
        fn precedence_is_the_order_of_the_spec(one in candidate(), other in candidate()) {
            let (first, second) = (one.order(), other.order());
            prop_assert_eq!((first != second).then(|| first < second), by_the_spec(&one, &other));
        }

        #[test]
        fn precedence_is_a_total_order(one in candidate(), two in candidate(), three in candidate()) {
            let (one, two, three) = (one.order(), two.order(), three.order());
            prop_assert_eq!(one.cmp(&two), two.cmp(&one).reverse());
            if one <= two && two <= three {
                prop_assert!(one <= three);
            }
        }
    }
}
