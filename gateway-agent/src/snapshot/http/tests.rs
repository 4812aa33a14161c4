//! The index against the plain reading of the list.

use std::sync::Arc;

use proptest::prelude::*;

use super::{
    HeaderMatch, HttpAction, HttpMatch, HttpRouteMatch, HttpRule, MatchOrder, PathMatch, Pattern, QueryMatch,
    RequestView, TextMatch, VirtualHost,
};
use crate::snapshot::{ObjectName, RouteKind, RouteName};

#[derive(Clone, Debug, Default)]
struct Request {
    path: String,
    method: String,
    headers: Vec<(String, String)>,
    query: Option<String>,
}

impl RequestView for Request {
    fn path(&self) -> &str {
        &self.path
    }

    fn method(&self) -> &str {
        &self.method
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_bytes())
    }

    fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }
}

fn get(path: &str) -> Request {
    Request { path: path.into(), method: "GET".into(), ..Request::default() }
}

/// Its rule's index is its number.
fn numbered(number: usize, path: PathMatch) -> HttpMatch {
    let object = ObjectName::new("ns", "route");
    let route = RouteName { kind: RouteKind::Http, object };
    let index = u16::try_from(number).unwrap();
    let rule = Arc::new(HttpRule::new(route, index, HttpAction::Respond(200)));
    HttpMatch { conditions: Arc::new(HttpRouteMatch::by_path(path)), rule }
}

fn conditions(found: &mut HttpMatch) -> &mut HttpRouteMatch {
    Arc::make_mut(&mut found.conditions)
}

fn found(host: &VirtualHost, request: &Request) -> Option<u16> {
    host.find(request).map(|rule| rule.index)
}

/// What the types' documentation says, word by word.
fn found_by_reading(matches: &[HttpMatch], request: &Request) -> Option<u16> {
    let holds = |candidate: &&HttpMatch| {
        let path_holds = match &candidate.conditions.path {
            PathMatch::Exact(path) => request.path == **path,
            PathMatch::Method(method) => {
                let segments: Vec<&str> = request.path.split('/').collect();
                matches!(segments[..], ["", service, last] if !service.is_empty() && last == &**method)
            }
            PathMatch::Prefix(prefix) => {
                let rest = request.path.strip_prefix(&**prefix);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            PathMatch::Regex(pattern) => pattern.matches(request.path.as_bytes()),
        };
        path_holds && candidate.conditions.holds_beyond_path(request)
    };
    matches.iter().find(holds).map(|found| found.rule.index)
}

fn host(paths: Vec<PathMatch>) -> VirtualHost {
    VirtualHost::new(paths.into_iter().enumerate().map(|(n, path)| numbered(n, path)).collect())
}

#[test]
fn prefix_holds_by_element() {
    let host = host(vec![PathMatch::Prefix("/foo".into()), PathMatch::Prefix("".into())]);
    for (path, expected) in [("/foo", 0), ("/foo/", 0), ("/foo/x", 0), ("/foobar", 1), ("/", 1), ("/Foo", 1)]
    {
        assert_eq!(found(&host, &get(path)), Some(expected), "{path}");
    }
    assert_eq!(found(&host, &get("*")), None);
}

// O45
#[test]
fn earlier_entry_wins_whatever_its_kind_and_length() {
    let acme = PathMatch::Exact("/.well-known/acme-challenge/tok".into());
    let in_order = host(vec![acme.clone(), PathMatch::Prefix("".into())]);
    assert_eq!(found(&in_order, &get("/.well-known/acme-challenge/tok")), Some(0));
    let reversed = host(vec![PathMatch::Prefix("".into()), PathMatch::Prefix("/.well-known".into()), acme]);
    assert_eq!(found(&reversed, &get("/.well-known/acme-challenge/tok")), Some(0));
}

#[test]
fn what_fails_beyond_the_path_falls_through_to_the_next() {
    let mut first = numbered(0, PathMatch::Exact("/a".into()));
    conditions(&mut first).headers = [HeaderMatch { name: "x-env".into(), value: "Canary".into() }].into();
    let mut second = numbered(1, PathMatch::Prefix("/a".into()));
    conditions(&mut second).method = Some("POST".into());
    let mut third = numbered(2, PathMatch::Prefix("/a".into()));
    conditions(&mut third).query = [QueryMatch { name: "v".into(), value: "2".into() }].into();
    let last = numbered(3, PathMatch::Prefix("".into()));
    let host = VirtualHost::new(vec![first, second, third, last]);
    let mut request = get("/a");
    assert_eq!(found(&host, &request), Some(3));
    request.query = Some("w=1&v=2".into());
    assert_eq!(found(&host, &request), Some(2));
    request.method = "POST".into();
    assert_eq!(found(&host, &request), Some(1));
    request.headers = vec![("x-env".into(), "Canary".into()), ("x-env".into(), "other".into())];
    assert_eq!(found(&host, &request), Some(0));
    request.headers.reverse();
    assert_eq!(found(&host, &request), Some(1), "the first of equal names decides");
}

#[test]
fn expressions_match_paths_headers_and_parameters() {
    let pattern = |text: &str| Pattern::new(text).unwrap();
    let mut first = numbered(0, PathMatch::Regex(pattern("/v[0-9]+(/.*)?")));
    conditions(&mut first).headers =
        [HeaderMatch { name: "x-env".into(), value: TextMatch::Regex(pattern("canary|beta")) }].into();
    let mut second = numbered(1, PathMatch::Prefix("".into()));
    conditions(&mut second).query =
        [QueryMatch { name: "v".into(), value: TextMatch::Regex(pattern("[0-9]+")) }].into();
    let host = VirtualHost::new(vec![first, second, numbered(2, PathMatch::Exact("/v1".into()))]);
    let mut request = get("/v1");
    assert_eq!(found(&host, &request), Some(2));
    request.headers = vec![("x-env".into(), "beta".into())];
    assert_eq!(found(&host, &request), Some(0));
    request.path = "/v1/x".into();
    assert_eq!(found(&host, &request), Some(0));
    request.path = "/v".into();
    assert_eq!(found(&host, &request), None);
    request.query = Some("v=12".into());
    assert_eq!(found(&host, &request), Some(1));
    request.query = Some("v=12x".into());
    assert_eq!(found(&host, &request), None);
}

#[test]
fn ten_thousand_routes_cost_no_more_looks_than_ten() {
    let paths = (0..10_000).map(|n| PathMatch::Prefix(format!("/api/v1/service-{n}").into()));
    let host = host(paths.chain([PathMatch::Prefix("".into())]).collect());
    let looks = std::cell::Cell::new(0);
    let found = host.first("/api/v1/service-9999/x/y/z", |_| {
        looks.set(looks.get() + 1);
        true
    });
    assert_eq!((found.map(|found| found.rule.index), looks.get()), (Some(9999), 1));
}

#[test]
fn hosts_are_equal_by_their_matches() {
    let paths = || vec![PathMatch::Prefix("/a".into()), PathMatch::Exact("/b".into())];
    assert_eq!(host(paths()), host(paths()));
    assert_ne!(host(paths()), host(paths().into_iter().rev().collect()));
}

#[test]
fn longest_prefix_is_known_after_removals() {
    let prefixes = ["/a", "/a/b", "/c/d", "/a/b/c"];
    let orders: Vec<MatchOrder> = (0..4).map(MatchOrder::of_position).collect();
    let mut host = VirtualHost::default();
    for (n, prefix) in prefixes.iter().enumerate() {
        host.insert(orders[n].clone(), numbered(n, PathMatch::Prefix((*prefix).into())));
    }
    assert_eq!(found(&host, &get("/a/b/c/d")), Some(0), "by order, not by length");
    for (n, left) in [(3, Some(1)), (1, None), (2, None), (0, None)] {
        host.remove(&orders[n], &PathMatch::Prefix(prefixes[n].into()));
        let mut others = host.clone();
        others.remove(&orders[0], &PathMatch::Prefix(prefixes[0].into()));
        assert_eq!(found(&others, &get("/a/b/c/d")), left, "without {n}");
    }
    assert!(host.is_empty());
}

fn path() -> impl Strategy<Value = String> {
    "(/[ab]{0,2}){1,4}"
}

fn any_match() -> impl Strategy<Value = HttpMatch> {
    let path = prop_oneof![
        path().prop_map(|path| PathMatch::Exact(path.into())),
        path().prop_map(|path| PathMatch::Prefix(path.trim_end_matches('/').into())),
        prop::sample::select(vec!["/a", "/[ab]+", "/b/.*", ".*a", ".*"])
            .prop_map(|path| PathMatch::Regex(Pattern::new(path).unwrap())),
    ];
    let parts = (path, prop::option::of("(GET|POST)"), prop::option::of("[xy]"), prop::option::of("[12]"));
    parts.prop_map(|(path, method, header, query)| {
        let header = header.iter().map(|value| HeaderMatch { name: "h".into(), value: (**value).into() });
        let query = query.iter().map(|value| QueryMatch { name: "q".into(), value: (**value).into() });
        let conditions = HttpRouteMatch {
            path,
            method: method.map(Into::into),
            headers: header.collect(),
            query: query.collect(),
        };
        HttpMatch { conditions: Arc::new(conditions), ..numbered(0, PathMatch::Exact("".into())) }
    })
}

proptest! {
    #[test]
    fn index_finds_what_reading_the_list_finds(
        matches in prop::collection::vec(any_match(), 0..24),
        path in path(),
        method in "(GET|POST)",
        headers in prop::collection::vec("[xy]", 0..3),
        query in prop::option::of("(q=[12])?&?(q=[12])?"),
    ) {
        let number = |(n, found): (usize, HttpMatch)| {
            let HttpRule { route, action, .. } = (*found.rule).clone();
            let rule = Arc::new(HttpRule::new(route, u16::try_from(n).unwrap(), action));
            HttpMatch { rule, ..found }
        };
        let matches: Vec<_> = matches.into_iter().enumerate().map(number).collect();
        let headers = headers.into_iter().map(|value| ("h".to_owned(), value)).collect();
        let request = Request { path, method, headers, query };
        let expected = found_by_reading(&matches, &request);
        prop_assert_eq!(found(&VirtualHost::new(matches), &request), expected);
    }

    /// Orders are few here, so that they meet.
    #[test]
    fn host_depends_on_what_it_holds_and_not_on_how_it_came_to_it(
        steps in prop::collection::vec((any_match(), 0..6_usize, any::<bool>()), 0..40),
    ) {
        let mut host = VirtualHost::default();
        let mut held: Vec<(MatchOrder, HttpMatch)> = Vec::new();
        for (found, order, is_added) in steps {
            let order = MatchOrder::of_position(order);
            // An order belongs to one match.
            if let Some(position) = held.iter().position(|(known, _)| *known == order) {
                let (order, known) = held.remove(position);
                host.remove(&order, &known.conditions.path);
            }
            if is_added {
                host.insert(order.clone(), found.clone());
                held.push((order, found));
            }
        }
        held.sort_by(|one, other| one.0.cmp(&other.0));
        let in_order: Vec<&HttpMatch> = held.iter().map(|(_, found)| found).collect();
        prop_assert_eq!(host.matches(), in_order);
        let mut fresh = VirtualHost::default();
        for (order, found) in held {
            fresh.insert(order, found);
        }
        prop_assert_eq!(host, fresh);
    }
}
