//! What filters do to a message: changes of header fields, rewrites, redirects, CORS, mirrors.
//!
//! **Invariant:** what is in here can be written into a head without changing how it is framed: names and values were
//! checked when it was made ([`RefusedHeader`]).

mod cors;
mod rewrite;

use std::ops::Deref;
use std::sync::{Arc, LazyLock};

pub use cors::{Cors, CorsSpec};
pub use rewrite::{PathChange, Rewrite};

use super::{EndpointSet, MessageHeaders};
use crate::syntax::field::{Meaning, is_token, is_value};

/// `http` or `https`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    #[default]
    Http,
    Https,
}

impl Scheme {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that a URL of this scheme need not name.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

// === Header fields ===

/// Changes of the fields of one head, one per name. Empty ones cost nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderChanges(Arc<[HeaderChange]>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderChange {
    /// In lower case.
    pub name: Arc<str>,
    /// Whether the fields that the message has stay.
    pub keeps: bool,
    /// Added after what stays, in order.
    pub values: Arc<[Arc<str>]>,
}

/// A header field that no filter may write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedHeader {
    #[error("{0:?} is not a header name")]
    Name(String),
    /// Fields that say where a message ends, belong to one connection, or choose the route.
    #[error("header {0} belongs to the proxy and cannot be modified")]
    Reserved(String),
    #[error("the value for header {0} holds characters that end the field")]
    Value(String),
}

impl HeaderChanges {
    /// The changes of one filter. Within it fields are removed first, then set, then added to, so that each of the
    /// three has an effect whatever the others name.
    pub fn new<'a>(
        remove: impl IntoIterator<Item = &'a str>,
        set: impl IntoIterator<Item = (&'a str, &'a str)>,
        add: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, RefusedHeader> {
        let mut changes = Vec::new();
        for name in remove {
            change(&mut changes, name)?.replace(None);
        }
        for (name, value) in set {
            let value = checked_value(name, value)?;
            change(&mut changes, name)?.replace(Some(value));
        }
        for (name, value) in add {
            let value = checked_value(name, value)?;
            change(&mut changes, name)?.values.push(value);
        }
        Ok(Self(changes.into_iter().map(Draft::finish).collect()))
    }

    /// What `self` and then `later` do.
    #[must_use]
    pub fn then(&self, later: &Self) -> Self {
        let mut changes: Vec<HeaderChange> = self.0.to_vec();
        for further in later.iter() {
            match changes.iter_mut().find(|change| change.name == further.name) {
                None => changes.push(further.clone()),
                Some(change) if further.keeps => {
                    change.values = change.values.iter().chain(further.values.iter()).cloned().collect();
                }
                Some(change) => *change = further.clone(),
            }
        }
        Self(changes.into())
    }
}

impl Deref for HeaderChanges {
    type Target = [HeaderChange];

    fn deref(&self) -> &[HeaderChange] {
        &self.0
    }
}

struct Draft {
    name: String,
    keeps: bool,
    values: Vec<Arc<str>>,
}

impl Draft {
    fn replace(&mut self, value: Option<Arc<str>>) {
        self.keeps = false;
        self.values = value.into_iter().collect();
    }

    fn finish(self) -> HeaderChange {
        HeaderChange { name: self.name.into(), keeps: self.keeps, values: self.values.into() }
    }
}

/// The draft for `name`, new where there is none.
fn change<'d>(changes: &'d mut Vec<Draft>, name: &str) -> Result<&'d mut Draft, RefusedHeader> {
    if !is_token(name.as_bytes()) {
        return Err(RefusedHeader::Name(name.to_owned()));
    }
    // `Forwarded` fields are this proxy's word, and its owner's to change.
    let meaning = Meaning::of(name.as_bytes());
    if !matches!(meaning, Meaning::EndToEnd | Meaning::Forwarded | Meaning::Trace) {
        return Err(RefusedHeader::Reserved(name.to_owned()));
    }
    let name = name.to_ascii_lowercase();
    let position = changes.iter().position(|change| change.name == name).unwrap_or(changes.len());
    if position == changes.len() {
        changes.push(Draft { name, keeps: true, values: Vec::new() });
    }
    Ok(&mut changes[position])
}

fn checked_value(name: &str, value: &str) -> Result<Arc<str>, RefusedHeader> {
    if is_value(value.as_bytes()) { Ok(value.into()) } else { Err(RefusedHeader::Value(name.to_owned())) }
}

// === Redirects ===

/// `HTTPRequestRedirectFilter`: what is absent is taken from the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    pub scheme: Option<Scheme>,
    /// In lower case.
    pub hostname: Option<Arc<str>>,
    pub port: Option<u16>,
    pub path: Option<PathChange>,
}

impl Redirect {
    /// The port that the target names, for a request that came to a listener of this scheme and port. `None`: the
    /// scheme's own (`HTTPRequestRedirectFilter.port` in `httproute_types.go`).
    pub fn target_port(&self, listener: (Scheme, u16)) -> Option<u16> {
        let scheme = self.scheme.unwrap_or(listener.0);
        let port = self.port.or_else(|| self.scheme.map(Scheme::default_port)).unwrap_or(listener.1);
        (port != scheme.default_port()).then_some(port)
    }
}

// === All of them ===

/// What the filters of a rule do, or those of a rule and one of its backends together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    pub headers: MessageHeaders,
    pub rewrite: Rewrite,
    pub cors: Option<Arc<Cors>>,
    /// Of a rule: its own. Of a backend: those of the backend alone, for those of the rule are sent another head.
    pub mirrors: Arc<[Mirror]>,
    /// Of a backend only; that of a rule is its action.
    pub redirect: Option<Arc<Redirect>>,
}

/// Those of every rule without any.
static NONE: LazyLock<Arc<Filters>> = LazyLock::new(Arc::default);

impl Filters {
    /// No filters: kept once.
    pub fn none() -> Arc<Self> {
        NONE.clone()
    }

    /// What `self`, those of a rule, and then `backend` do.
    #[must_use]
    pub fn then(&self, backend: &Self) -> Self {
        Self {
            headers: MessageHeaders {
                request: self.headers.request.then(&backend.headers.request),
                response: self.headers.response.then(&backend.headers.response),
            },
            rewrite: self.rewrite.then(&backend.rewrite),
            cors: backend.cors.as_ref().or(self.cors.as_ref()).cloned(),
            mirrors: backend.mirrors.clone(),
            redirect: backend.redirect.clone(),
        }
    }
}

/// Copies of some of the requests go to one endpoint of this set; its answers are thrown away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    pub endpoints: Arc<EndpointSet>,
    /// Of `denominator` requests.
    pub numerator: u32,
    /// Never 0.
    pub denominator: u32,
}

#[cfg(test)]
mod tests {
    use super::{HeaderChanges, Redirect, RefusedHeader, Scheme};

    /// As `name keeps values`.
    fn shown(changes: &HeaderChanges) -> Vec<String> {
        let show = |change: &super::HeaderChange| {
            let sign = if change.keeps { '+' } else { '=' };
            format!("{}{sign}{}", change.name, change.values.join(","))
        };
        changes.iter().map(show).collect()
    }

    #[test]
    fn one_filter_removes_then_sets_then_adds() {
        let changes = HeaderChanges::new(
            ["X-Gone", "x-both"],
            [("X-Both", "1"), ("x-set", "2")],
            [("x-set", "3"), ("x-add", "4"), ("X-ADD", "5")],
        );
        assert_eq!(shown(&changes.unwrap()), ["x-gone=", "x-both=1", "x-set=2,3", "x-add+4,5"]);
    }

    #[test]
    fn backend_changes_follow_those_of_the_rule() {
        let rule = HeaderChanges::new(["a"], [("b", "1"), ("c", "1")], [("d", "1"), ("e", "1")]).unwrap();
        let backend =
            HeaderChanges::new(["b", "e"], [("d", "2"), ("f", "2")], [("a", "2"), ("c", "2")]).unwrap();
        assert_eq!(shown(&rule.then(&backend)), ["a=2", "b=", "c=1,2", "d=2", "e=", "f=2"]);
    }

    #[test]
    fn what_frames_or_routes_a_message_cannot_be_changed() {
        for name in [
            "Host",
            "content-length",
            "Transfer-Encoding",
            "Connection",
            "Upgrade",
            "TE",
            "Keep-Alive",
            "Expect",
            "Proxy-Connection",
            "proxy-authorization",
            "HTTP2-Settings",
        ] {
            let reserved = Err(RefusedHeader::Reserved(name.to_owned()));
            assert_eq!(HeaderChanges::new([name], [], []), reserved);
            assert_eq!(HeaderChanges::new([], [(name, "1")], []), reserved);
            assert_eq!(HeaderChanges::new([], [], [(name, "1")]), reserved);
        }
        assert!(HeaderChanges::new([], [("X-Forwarded-Proto", "https"), ("Date", "x")], []).is_ok());
    }

    #[test]
    fn nothing_that_ends_a_field_gets_in() {
        for value in ["a\r\nb: c", "a\nb", "a\rb", "a\0b", "\u{7f}"] {
            let refused = Err(RefusedHeader::Value("x".into()));
            assert_eq!(HeaderChanges::new([], [("x", value)], []), refused, "{value:?}");
            assert_eq!(HeaderChanges::new([], [], [("x", value)]), refused, "{value:?}");
        }
        for name in ["", "a b", "a:", "a\r\nb", "é"] {
            assert_eq!(HeaderChanges::new([name], [], []), Err(RefusedHeader::Name(name.into())), "{name:?}");
        }
        assert!(HeaderChanges::new([], [("x", "a\tb é \"quoted\"")], []).is_ok());
    }

    // `HTTPRequestRedirectFilter.port`.
    #[test]
    fn port_follows_the_scheme_then_the_listener() {
        let (http, https) = (Some(Scheme::Http), Some(Scheme::Https));
        for (scheme, port, listener, expected) in [
            (None, None, (Scheme::Http, 80), None),
            (None, None, (Scheme::Http, 8080), Some(8080)),
            (None, None, (Scheme::Https, 443), None),
            (None, None, (Scheme::Https, 8443), Some(8443)),
            (https, None, (Scheme::Http, 8080), None),
            (http, None, (Scheme::Https, 8443), None),
            (https, Some(443), (Scheme::Http, 80), None),
            (https, Some(80), (Scheme::Http, 80), Some(80)),
            (http, Some(80), (Scheme::Https, 443), None),
            (None, Some(80), (Scheme::Http, 8080), None),
            (None, Some(8083), (Scheme::Http, 80), Some(8083)),
            (https, Some(8443), (Scheme::Http, 80), Some(8443)),
        ] {
            let redirect = Redirect { status: 302, scheme, hostname: None, port, path: None };
            assert_eq!(redirect.target_port(listener), expected, "{scheme:?} {port:?} {listener:?}");
        }
    }
}
