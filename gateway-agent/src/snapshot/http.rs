//! The HTTP routing table of one listener.

mod host;
mod pattern;
mod policy;
mod query;

#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

pub use host::{MatchOrder, VirtualHost};
pub use pattern::Pattern;
pub use policy::{BACKOFF_DEFAULT, HttpTimeouts, Retry};

use super::{Filters, HostTable, ListenerName, Provenance, Redirect, RouteName, Scheme, Split};
use crate::certificate::Certificate;

/// Host to listener to virtual host. The most specific listener is chosen first and only its routes are looked at
/// (listener isolation, `gateway_types.go` on `Listeners`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpTable {
    pub listeners: HostTable<Arc<HttpVirtualListener>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpVirtualListener {
    pub name: ListenerName,
    /// As the Gateway has it, which redirects name; where it listens may be another one.
    pub port: u16,
    /// What clients speak.
    pub scheme: Scheme,
    /// Of the Gateway, shown to backends that are spoken to by TLS.
    pub client_certificate: Option<Arc<Certificate>>,
    /// Of the Gateway too.
    pub provenance: Arc<Provenance>,
    pub hosts: HostTable<Arc<VirtualHost>>,
    /// Of GRPCRoutes, which are never merged with the others (`GRPCRouteRule.matches` in `grpcroute_types.go`).
    pub grpc: HostTable<Arc<VirtualHost>>,
}

/// One match of one rule and what it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpMatch {
    /// The same that the route holds.
    pub conditions: Arc<HttpRouteMatch>,
    pub rule: Arc<HttpRule>,
}

/// What a request must be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRouteMatch {
    pub path: PathMatch,
    pub method: Option<Arc<str>>,
    pub headers: Arc<[HeaderMatch]>,
    pub query: Arc<[QueryMatch]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    Exact(Arc<str>),
    /// The last of two segments, whatever the first: a method of gRPC of any service.
    Method(Arc<str>),
    /// By path element; stored without trailing `/`, so that `/` is the empty string.
    Prefix(Arc<str>),
    Regex(Pattern),
}

/// `name` in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    pub name: Arc<str>,
    pub value: TextMatch,
}

/// The name is compared byte for byte. Name and value of the request are percent-decoded before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryMatch {
    pub name: Arc<str>,
    pub value: TextMatch,
}

/// What a value must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextMatch {
    /// Compared byte for byte.
    Exact(Arc<str>),
    Regex(Pattern),
}

impl TextMatch {
    fn holds(&self, value: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => value == exact.as_bytes(),
            Self::Regex(pattern) => pattern.matches(value),
        }
    }
}

impl From<&str> for TextMatch {
    fn from(exact: &str) -> Self {
        Self::Exact(exact.into())
    }
}

impl std::fmt::Display for TextMatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(exact) => f.write_str(exact),
            Self::Regex(pattern) => write!(f, "/{}/", pattern.text()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRule {
    pub route: RouteName,
    /// Position in `spec.rules`.
    pub index: u16,
    /// As the route names it; its position where it does not. Labels metrics and the access log.
    pub name: Arc<str>,
    /// What the rule's filters do, unless the backend that is chosen has [`super::WeightedBackend::filters`]. What they do
    /// to the answer holds for answers of backends and for redirects, and not for errors of the proxy but what CORS says.
    /// [`Filters::none`] for nearly every rule.
    pub filters: Arc<Filters>,
    pub timeouts: HttpTimeouts,
    /// `None`: as the proxy does by itself. No attempts: not even that.
    pub retry: Option<Arc<Retry>>,
    pub action: HttpAction,
}

impl HttpRule {
    /// Without name, filters and policies.
    pub fn new(route: RouteName, index: u16, action: HttpAction) -> Self {
        Self {
            route,
            index,
            name: index_name(index),
            filters: Filters::none(),
            timeouts: HttpTimeouts::default(),
            retry: None,
            action,
        }
    }
}

/// The names of rules by their positions, of which the schema allows 16: nearly every rule has one of these.
static INDEX_NAMES: LazyLock<[Arc<str>; 16]> =
    LazyLock::new(|| std::array::from_fn(|index| index.to_string().into()));

fn index_name(index: u16) -> Arc<str> {
    INDEX_NAMES.get(usize::from(index)).cloned().unwrap_or_else(|| index.to_string().into())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpAction {
    /// By weight; an invalid backend's share is 500, an empty one's 503, a total of 0 is 500.
    Forward(Split),
    /// Answered by the proxy itself, without a backend.
    Redirect(Arc<Redirect>),
    /// The same.
    Respond(u16),
}

/// What routing reads of a request. Implemented over the parser's view of the head, so that nothing is copied.
pub trait RequestView {
    /// Normalised path without query.
    fn path(&self) -> &str;
    fn method(&self) -> &str;
    /// First value of the header with this lower-case name.
    fn header(&self, name: &str) -> Option<&[u8]>;
    /// The same of what the client says of where the request comes from, which [`Self::header`] does not know: it is
    /// believed of some clients only.
    fn claimed(&self, _name: &str) -> Option<&[u8]> {
        None
    }
    /// What follows `?`, raw.
    fn query(&self) -> Option<&str>;
}

impl HttpVirtualListener {
    /// The rule that serves `request` for `host`, or `None`: 404. What no match of the most specific hostname holds
    /// for falls through to the next less specific one. Takes as long for ten thousand paths as for ten.
    pub fn find<R: RequestView>(&self, host: &str, request: &R) -> Option<&Arc<HttpRule>> {
        // At most as many hostnames as `host` has labels, and nearly always one.
        self.hosts.matching(host).find_map(|found| found.find(request))
    }

    /// The rule of a GRPCRoute that serves the call `request`, in the same way.
    pub fn find_call<R: RequestView>(&self, host: &str, request: &R) -> Option<&Arc<HttpRule>> {
        self.grpc.matching(host).find_map(|found| found.find(request))
    }
}

impl HttpRouteMatch {
    /// What holds for every request.
    pub fn every() -> Self {
        Self::by_path(PathMatch::Prefix(Arc::default()))
    }

    /// What holds for every request whose path this holds for.
    pub fn by_path(path: PathMatch) -> Self {
        Self { path, method: None, headers: Arc::default(), query: Arc::default() }
    }

    /// Whether all but the path holds.
    fn holds_beyond_path<R: RequestView>(&self, request: &R) -> bool {
        self.method.as_deref().is_none_or(|method| method == request.method())
            && self
                .headers
                .iter()
                .all(|header| request.header(&header.name).is_some_and(|value| header.value.holds(value)))
            && self.query_holds(request)
    }

    fn query_holds<R: RequestView>(&self, request: &R) -> bool {
        self.query.is_empty()
            || request.query().is_some_and(|raw| {
                self.query.iter().all(|parameter| query::holds(raw, &parameter.name, &parameter.value))
            })
    }
}
