//! Cross-origin resource sharing: `HTTPCORSFilter`, as its fields are documented.
//!
//! Decides and gives header fields; neither reads nor writes messages, so that every version of HTTP has the same.

use std::sync::Arc;

use crate::snapshot::RequestView;
use crate::syntax::field::{is_token, is_value};

/// What a rule shares with other origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    origins: Origins,
    allows_credentials: bool,
    methods: Names,
    headers: Names,
    exposed: Names,
    max_age: Arc<str>,
}

/// The filter as it is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct CorsSpec<'a> {
    pub origins: &'a [String],
    pub allows_credentials: bool,
    pub methods: &'a [String],
    pub headers: &'a [String],
    pub exposed: &'a [String],
    /// In seconds; 5 where absent.
    pub max_age: Option<i32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Origins {
    Any,
    Listed(Arc<[Origin]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    is_https: bool,
    host: HostMatch,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostMatch {
    Any,
    /// In lower case.
    Exact(Arc<str>),
    /// Ends like this, which begins with a dot. In lower case.
    Suffix(Arc<str>),
}

/// Methods or header names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    Any,
    None,
    /// As they are said, separated by commas.
    Listed(Arc<str>),
}

const ALLOW_CREDENTIALS: &str = "Access-Control-Allow-Credentials";
const ALLOW_HEADERS: &str = "Access-Control-Allow-Headers";
const ALLOW_METHODS: &str = "Access-Control-Allow-Methods";
const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";
const EXPOSE_HEADERS: &str = "Access-Control-Expose-Headers";
const MAX_AGE: &str = "Access-Control-Max-Age";

/// The documented default of `maxAge`, in seconds.
const MAX_AGE_DEFAULT: i32 = 5;

impl Cors {
    /// The error names the value that cannot be served.
    pub fn new(spec: CorsSpec<'_>) -> Result<Self, String> {
        let origins = if spec.origins.iter().any(|origin| origin == "*") {
            Origins::Any
        } else {
            let parse = |text: &String| Origin::configured(text).ok_or_else(|| format!("origin {text:?}"));
            Origins::Listed(spec.origins.iter().map(parse).collect::<Result<_, _>>()?)
        };
        Ok(Self {
            origins,
            allows_credentials: spec.allows_credentials,
            methods: Names::new(spec.methods)?,
            headers: Names::new(spec.headers)?,
            exposed: Names::new(spec.exposed)?,
            max_age: spec.max_age.unwrap_or(MAX_AGE_DEFAULT).to_string().into(),
        })
    }

    /// Whether a field of a backend's answer is this filter's to say.
    pub fn owns(name: &[u8]) -> bool {
        let all = [ALLOW_CREDENTIALS, ALLOW_HEADERS, ALLOW_METHODS, ALLOW_ORIGIN, EXPOSE_HEADERS, MAX_AGE];
        name.len() >= MAX_AGE.len() && all.iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes()))
    }

    /// Whether the request is a preflight, which the gateway answers itself (Fetch, section "CORS-preflight request").
    pub fn is_preflight<R: RequestView>(request: &R) -> bool {
        request.method() == "OPTIONS"
            && request.header("origin").is_some()
            && request.header("access-control-request-method").is_some()
    }

    /// Gives the fields of the answer to a preflight to `write`. False: the origin is not allowed, and nothing is said
    /// but what the answer varies by.
    pub fn preflight<R: RequestView>(&self, request: &R, mut write: impl FnMut(&'static str, &[u8])) -> bool {
        let is_allowed = self.shared(request, &mut write);
        if is_allowed {
            let asked = |name| request.header(name).filter(|value| is_value(value));
            self.methods.say(ALLOW_METHODS, asked("access-control-request-method"), &mut write);
            self.headers.say(ALLOW_HEADERS, asked("access-control-request-headers"), &mut write);
            write(MAX_AGE, self.max_age.as_bytes());
        }
        write("Vary", b"Access-Control-Request-Method, Access-Control-Request-Headers");
        is_allowed
    }

    /// Gives the fields of any other answer to `write`.
    pub fn answer<R: RequestView>(&self, request: &R, mut write: impl FnMut(&'static str, &[u8])) {
        self.shared(request, &mut write);
    }

    /// What every answer says. False: the request names no origin that is allowed.
    fn shared<R: RequestView>(&self, request: &R, write: &mut impl FnMut(&'static str, &[u8])) -> bool {
        let says_any = self.origins == Origins::Any && !self.allows_credentials;
        if !says_any {
            // Also where no origin was named: another request for the same may name one.
            write("Vary", b"Origin");
        }
        let Some(origin) = request.header("origin").filter(|origin| self.allows(origin)) else {
            return false;
        };
        write(ALLOW_ORIGIN, if says_any { b"*" } else { origin });
        if self.allows_credentials {
            write(ALLOW_CREDENTIALS, b"true");
        }
        match &self.exposed {
            // With credentials the asterisk would be taken for a name, and what the answer holds is not known here.
            Names::Any if self.allows_credentials => {}
            exposed => exposed.say(EXPOSE_HEADERS, None, write),
        }
        true
    }

    fn allows(&self, origin: &[u8]) -> bool {
        match &self.origins {
            Origins::Any => is_value(origin),
            Origins::Listed(origins) => str::from_utf8(origin)
                .ok()
                .and_then(split)
                .is_some_and(|asked| origins.iter().any(|allowed| allowed.matches(asked))),
        }
    }
}

/// Scheme, host and port of an origin.
type Parts<'a> = (bool, &'a str, u16);

/// `None`: not an origin that a filter can name, `null` for one.
fn split(origin: &str) -> Option<Parts<'_>> {
    let (scheme, rest) = origin.split_once("://")?;
    let is_https = match scheme {
        _ if scheme.eq_ignore_ascii_case("https") => true,
        _ if scheme.eq_ignore_ascii_case("http") => false,
        _ => return None,
    };
    let default = if is_https { 443 } else { 80 };
    let end = if rest.starts_with('[') { rest.find(']')? + 1 } else { rest.find(':').unwrap_or(rest.len()) };
    let (host, port) = rest.split_at_checked(end)?;
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => default,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
        _ => return None,
    };
    (!host.is_empty() && port != 0).then_some((is_https, host, port))
}

impl Origin {
    fn configured(text: &str) -> Option<Self> {
        let (is_https, host, port) = split(text)?;
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
        };
        let host = match host.strip_prefix('*') {
            Some("") => HostMatch::Any,
            Some(suffix) if suffix.starts_with('.') && is_name(suffix) => {
                HostMatch::Suffix(suffix.to_ascii_lowercase().into())
            }
            None if is_name(host) => HostMatch::Exact(host.to_ascii_lowercase().into()),
            _ => return None,
        };
        Some(Self { is_https, host, port })
    }

    fn matches(&self, (is_https, host, port): Parts<'_>) -> bool {
        let is_host = match &self.host {
            HostMatch::Any => true,
            HostMatch::Exact(own) => host.eq_ignore_ascii_case(own),
            // "Any number of DNS labels": at least one, as the pattern has a dot.
            HostMatch::Suffix(suffix) => {
                let end = host.len().checked_sub(suffix.len()).and_then(|start| host.get(start..));
                host.len() > suffix.len() && end.is_some_and(|end| end.eq_ignore_ascii_case(suffix))
            }
        };
        is_host && self.is_https == is_https && self.port == port
    }
}

impl Names {
    fn new(names: &[String]) -> Result<Self, String> {
        match names {
            [] => Ok(Self::None),
            _ if names.iter().any(|name| name == "*") => Ok(Self::Any),
            _ => match names.iter().find(|name| !is_token(name.as_bytes())) {
                Some(name) => Err(format!("name {name:?}")),
                None => Ok(Self::Listed(names.join(", ").into())),
            },
        }
    }

    /// For all names, what was asked for is repeated: an asterisk says nothing where there are credentials, and does
    /// not hold for `Authorization` otherwise.
    fn say(&self, field: &'static str, asked: Option<&[u8]>, write: &mut impl FnMut(&'static str, &[u8])) {
        match self {
            Self::Any if field == EXPOSE_HEADERS => write(field, b"*"),
            Self::Any => {
                if let Some(asked) = asked {
                    write(field, asked);
                }
            }
            Self::None => {}
            Self::Listed(names) => write(field, names.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests;
