//! The HTTP routing table of one listener.

use std::sync::Arc;

use super::{HostTable, ListenerName, RouteName, Split};

/// Host to listener to virtual host. The most specific listener is chosen first and only its routes are looked at
/// (listener isolation, `gateway_types.go` on `Listeners`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpTable {
    pub listeners: HostTable<Arc<HttpVirtualListener>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpVirtualListener {
    pub name: ListenerName,
    pub hosts: HostTable<Arc<VirtualHost>>,
}

/// One match of one rule and what it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpMatch {
    pub path: PathMatch,
    pub method: Option<Arc<str>>,
    pub headers: Arc<[HeaderMatch]>,
    pub query: Arc<[QueryMatch]>,
    pub rule: Arc<HttpRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    Exact(Arc<str>),
    /// By path element; stored without trailing `/`, so that `/` is the empty string.
    Prefix(Arc<str>),
}

/// `name` in lower case; the value is compared byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    pub name: Arc<str>,
    pub value: Arc<str>,
}

/// Both are compared byte for byte, after percent-decoding of what the request holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryMatch {
    pub name: Arc<str>,
    pub value: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRule {
    pub route: RouteName,
    /// Position in `spec.rules`.
    pub index: u16,
    pub action: HttpAction,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpAction {
    /// By weight; an invalid backend's share is 500, an empty one's 503, a total of 0 is 500.
    Forward(Split),
    /// Answered by the proxy itself, without a backend.
    Respond(u16),
}

/// What routing reads of a request. Implemented over the parser's view of the head, so that nothing is copied.
pub trait RequestView {
    /// Normalised path without query.
    fn path(&self) -> &str;
    fn method(&self) -> &str;
    /// First value of the header with this lower-case name.
    fn header(&self, name: &str) -> Option<&[u8]>;
    /// What follows `?`, raw.
    fn query(&self) -> Option<&str>;
}

/// The matches that hold for one effective host, most specific first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VirtualHost {
    matches: Arc<[HttpMatch]>,
}

impl VirtualHost {
    /// `matches` in the order in which they are to be tried: `translate` has sorted them by precedence
    /// (`HTTPRouteRule.matches` in `httproute_types.go`); the first that holds is taken.
    pub fn new(matches: Vec<HttpMatch>) -> Self {
        Self { matches: matches.into() }
    }

    pub fn matches(&self) -> &[HttpMatch] {
        &self.matches
    }

    /// The rule that serves `request`, or `None`: 404.
    pub fn find<R: RequestView>(&self, request: &R) -> Option<&Arc<HttpRule>> {
        self.matches.iter().find(|candidate| candidate.holds(request)).map(|found| &found.rule)
    }
}

impl HttpMatch {
    fn holds<R: RequestView>(&self, request: &R) -> bool {
        let path_holds = match &self.path {
            PathMatch::Exact(path) => request.path() == &**path,
            PathMatch::Prefix(prefix) => request
                .path()
                .strip_prefix(&**prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        };
        path_holds
            && self.method.as_deref().is_none_or(|method| method == request.method())
            && self.headers.iter().all(|header| request.header(&header.name) == Some(header.value.as_bytes()))
            && self.query.is_empty()
    }
}
