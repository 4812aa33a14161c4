//! Request heads: parsed in place, checked, and read by routing through [`View`].
//!
//! Does not choose the answer to what it refuses.

use std::mem::MaybeUninit;

use super::error::HeadError;
use super::field::{Connection, Field, Meaning, Span};
use super::framing::{Framing, FramingFields};
use super::host;
use super::limits::FIELDS_MAX;
use super::target::Target;
use crate::snapshot::RequestView;
use crate::syntax::path::{self, BadPath};

/// What the target asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// `OPTIONS *`: the server itself.
    Server,
    #[default]
    Path,
}

/// What a proxy needs to know of a method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MethodKind {
    Head,
    /// May be sent twice (RFC 9110 section 9.2.2).
    Idempotent,
    #[default]
    Other,
}

impl MethodKind {
    pub fn of(method: &str) -> Self {
        match method {
            "HEAD" => Self::Head,
            "GET" | "OPTIONS" | "TRACE" | "PUT" | "DELETE" => Self::Idempotent,
            _ => Self::Other,
        }
    }
}

/// One parsed head. Recycled: parsing the next one allocates only where that one is larger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    pub asked: Asked,
    pub method_kind: MethodKind,
    pub framing: Framing,
    /// The client takes another answer on this connection.
    pub keep_alive: bool,
    pub is_http_1_0: bool,
    pub expects_continue: bool,
    /// The value of `Upgrade` where an upgrade is asked for and may be passed on.
    pub upgrade: Option<Span>,
    /// A trace context is among the fields.
    pub has_trace: bool,
    pub(super) method: Span,
    pub(super) query: Option<Span>,
    pub(super) fields: Vec<Field>,
    /// Where the lines of the last field end.
    pub(super) fields_end: usize,
    /// The authority of an absolute-form target: replaces `Host` (RFC 9112 section 3.2.2).
    pub(super) authority: Option<Span>,
    pub(super) host_field: Option<Span>,
    raw_path: Span,
    /// Normal form where it differs from what came.
    normal_path: String,
    has_normal_path: bool,
    host: String,
}

impl RequestHead {
    /// Parses `head`, which [`super::Scanner`] has delimited.
    pub fn parse(&mut self, head: &[u8]) -> Result<(), HeadError> {
        let mut headers = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(head, &mut headers) {
            Ok(httparse::Status::Complete(length)) if length == head.len() => {}
            Ok(_) => return Err(HeadError::Syntax),
            Err(httparse::Error::Version) => return Err(HeadError::Version),
            Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooManyFields),
            Err(_) => return Err(HeadError::Syntax),
        }
        let (method, target) = request.method.zip(request.path).ok_or(HeadError::Syntax)?;
        self.reset(head, method);
        self.is_http_1_0 = request.version == Some(0);
        if method == "CONNECT" {
            return Err(HeadError::Connect);
        }
        self.read_target(head, method, target)?;
        self.read_fields(head, request.headers)?;
        self.read_host(head)
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    /// The authority that the client asked for, as it came; `None` in HTTP/1.0 without `Host`.
    pub fn authority<'a>(&self, head: &'a [u8]) -> Option<&'a str> {
        self.authority.or(self.host_field).map(|span| span.text(head))
    }

    pub fn method<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        self.method.bytes(head)
    }

    /// Names and values of the fields that are passed on.
    pub fn kept<'a>(&self, head: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        super::field::kept(&self.fields, head)
    }

    /// What the client says of where the request comes from.
    pub fn claims<'a>(&self, head: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        super::field::claims(&self.fields, head)
    }

    /// Values of the fields called `name`, whether they are passed on or not.
    pub fn values<'a>(&self, head: &'a [u8], name: &str) -> impl Iterator<Item = &'a [u8]> {
        let is_named = move |field: &&Field| field.name.bytes(head).eq_ignore_ascii_case(name.as_bytes());
        self.fields.iter().filter(is_named).map(|field| field.value.bytes(head))
    }

    /// Does not pass on the fields called `name`.
    pub fn withhold(&mut self, head: &[u8], name: &str) {
        let is_named = |field: &&mut Field| field.name.bytes(head).eq_ignore_ascii_case(name.as_bytes());
        self.fields.iter_mut().filter(is_named).for_each(|field| field.keep = false);
    }

    pub fn path<'a>(&'a self, head: &'a [u8]) -> &'a str {
        if self.has_normal_path { &self.normal_path } else { self.raw_path.text(head) }
    }

    /// What follows `?`, raw.
    pub fn query<'a>(&self, head: &'a [u8]) -> Option<&'a str> {
        self.query.map(|query| query.text(head))
    }

    pub fn view<'a>(&'a self, head: &'a [u8]) -> View<'a> {
        View { request: self, head }
    }

    fn reset(&mut self, head: &[u8], method: &str) {
        let method_kind = MethodKind::of(method);
        self.fields.clear();
        self.host.clear();
        *self = Self {
            method: Span::of(head, method.as_bytes()),
            method_kind,
            fields_end: head.len().saturating_sub(2),
            fields: std::mem::take(&mut self.fields),
            host: std::mem::take(&mut self.host),
            normal_path: std::mem::take(&mut self.normal_path),
            ..Self::default()
        };
    }

    fn read_target(&mut self, head: &[u8], method: &str, target: &str) -> Result<(), HeadError> {
        let (path, query) = match Target::parse(target)? {
            Target::Asterisk if method == "OPTIONS" => {
                self.asked = Asked::Server;
                (target, None)
            }
            Target::Asterisk => return Err(HeadError::Target),
            Target::Origin { path, query } => (path, query),
            Target::Absolute { authority, path, query } => {
                self.authority = Some(Span::of(head, authority.as_bytes()));
                (path, query)
            }
        };
        self.query = query.map(|query| Span::of(head, query.as_bytes()));
        if self.asked == Asked::Path {
            let changed = path::normalise(path, &mut self.normal_path);
            self.has_normal_path = changed.map_err(|BadPath| HeadError::Target)?;
        }
        if !self.has_normal_path {
            if path == "/" && !is_part(head, path) {
                // The empty path of `http://host`, which the head does not hold.
                self.normal_path.push('/');
                self.has_normal_path = true;
            } else {
                self.raw_path = Span::of(head, path.as_bytes());
            }
        }
        Ok(())
    }

    fn read_fields(&mut self, head: &[u8], headers: &[httparse::Header<'_>]) -> Result<(), HeadError> {
        let mut connection = Connection::default();
        let mut framing = FramingFields::default();
        let mut n_hosts = 0;
        for header in headers {
            let value = Span::of(head, header.value);
            let meaning = Meaning::of(header.name.as_bytes());
            let keep = match meaning {
                Meaning::EndToEnd => true,
                Meaning::Trace => {
                    self.has_trace = true;
                    true
                }
                Meaning::Connection => {
                    if !connection.add(header.value) {
                        return Err(HeadError::ConnectionOptions);
                    }
                    false
                }
                Meaning::ContentLength => framing.add_length(header.value, false)?,
                Meaning::TransferEncoding => {
                    framing.add_coding(header.value)?;
                    true
                }
                Meaning::Expect => {
                    if !header.value.eq_ignore_ascii_case(b"100-continue") {
                        return Err(HeadError::Expectation);
                    }
                    // RFC 9110 section 10.1.1: to be ignored in HTTP/1.0.
                    self.expects_continue = !self.is_http_1_0;
                    self.expects_continue
                }
                Meaning::Host => {
                    n_hosts += 1;
                    self.host_field = Some(value);
                    self.authority.is_none()
                }
                Meaning::Upgrade => {
                    self.upgrade = Some(value);
                    false
                }
                Meaning::Forwarded | Meaning::HopByHop => false,
            };
            self.fields.push(Field { name: Span::of(head, header.name.as_bytes()), value, keep });
        }
        if n_hosts > 1 || n_hosts == 0 && !self.is_http_1_0 {
            return Err(HeadError::Host);
        }
        framing.check(self.is_http_1_0)?;
        self.framing = framing.framing(Framing::None);
        connection.drop_named(head, &mut self.fields);
        self.keep_alive = !connection.close && (!self.is_http_1_0 || connection.keep_alive);
        self.keep_upgrade(head, connection);
        Ok(())
    }

    /// An upgrade is passed on where the head asks for it in full and no body stands between; `h2c` never is: it
    /// would carry requests past the routes.
    fn keep_upgrade(&mut self, head: &[u8], connection: Connection) {
        let may_pass = connection.upgrade && !self.is_http_1_0 && self.framing == Framing::None;
        let value = self.upgrade.take().filter(|_| may_pass);
        self.upgrade = value.filter(|value| {
            super::field::list(value.bytes(head)).all(|protocol| !protocol.eq_ignore_ascii_case(b"h2c"))
        });
    }

    fn read_host(&mut self, head: &[u8]) -> Result<(), HeadError> {
        // A Host field beside an absolute target is replaced, and yet must be one (RFC 9112 section 3.2).
        if let Some(field) = self.host_field {
            host::normalise(field.bytes(head), &mut self.host)?;
        }
        if let Some(authority) = self.authority {
            host::normalise(authority.bytes(head), &mut self.host)?;
        }
        Ok(())
    }
}

fn is_part(whole: &[u8], part: &str) -> bool {
    whole.as_ptr_range().contains(&part.as_ptr())
}

/// What routing reads.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    request: &'a RequestHead,
    head: &'a [u8],
}

impl<'a> View<'a> {
    /// Name and value of the first field called `name`.
    fn field(&self, name: &str) -> Option<(&'a [u8], &'a [u8])> {
        let all = self.request.fields.iter();
        let mut all = all.map(|field| (field.name.bytes(self.head), field.value.bytes(self.head)));
        all.find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
    }
}

impl RequestView for View<'_> {
    fn path(&self) -> &str {
        self.request.path(self.head)
    }

    fn method(&self) -> &str {
        self.request.method.text(self.head)
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.field(name).filter(|(name, _)| Meaning::of(name) != Meaning::Forwarded).map(|(_, value)| value)
    }

    fn claimed(&self, name: &str) -> Option<&[u8]> {
        self.field(name).filter(|(name, _)| Meaning::of(name) == Meaning::Forwarded).map(|(_, value)| value)
    }

    fn query(&self) -> Option<&str> {
        self.request.query(self.head)
    }
}
