//! Requests: checked, and read by routing through [`RequestView`].
//!
//! Does not choose the answer to what it refuses.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE};
use http::request::Parts;
use http::{Method, Uri};

use super::{fields, grpc};
use crate::proxy::h1::field::Meaning;
use crate::proxy::h1::limits::FIELDS_MAX;
use crate::proxy::h1::request::{Asked, MethodKind};
use crate::proxy::h1::{Framing, HeadError, RequestHead, host};
use crate::snapshot::{RequestView, Rewrite};
use crate::syntax::path::{self, BadPath};

/// One request without its body.
#[derive(Clone, Debug)]
pub struct Request {
    pub asked: Asked,
    pub method: Method,
    pub method_kind: MethodKind,
    /// `Framing::Chunked` stands for a body whose length is not known.
    pub framing: Framing,
    pub expects_continue: bool,
    /// `TE: trailers`, which belongs to a connection and is said anew on the next.
    pub accepts_trailers: bool,
    /// A gRPC request, by its content type: answered in gRPC's way.
    pub is_grpc: bool,
    /// As the client named it; empty in HTTP/1.0 without `Host`.
    pub(super) authority: String,
    /// End-to-end fields, `Content-Length` among them.
    pub(super) fields: HeaderMap,
    /// What the client says of where the request comes from.
    pub(super) claims: HeaderMap,
    host: String,
    path: String,
    query: Option<String>,
    /// Bytes of the head, about.
    n_head: usize,
}

impl Request {
    /// Of HTTP/2. `has_ended`: no body follows. The codec has refused what RFC 9113 section 8.2 calls malformed; what
    /// HTTP/1 would read in another way is refused here.
    pub fn of_h2(parts: Parts, has_ended: bool) -> Result<Self, HeadError> {
        let Parts { method, uri, headers, .. } = parts;
        if method == Method::CONNECT {
            return Err(HeadError::Connect);
        }
        if headers.len() > FIELDS_MAX {
            return Err(HeadError::TooManyFields);
        }
        if uri.scheme_str().is_some_and(|scheme| !matches!(scheme, "http" | "https")) {
            return Err(HeadError::Target);
        }
        let authority = authority(&uri, &headers)?;
        let mut host = String::new();
        host::normalise(authority.as_bytes(), &mut host)?;
        let (asked, path) = target(&method, uri.path())?;
        let mut request = Self {
            asked,
            method_kind: kind(&method),
            method,
            framing: Framing::None,
            expects_continue: false,
            accepts_trailers: false,
            is_grpc: grpc::is_grpc(headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes)),
            authority,
            fields: HeaderMap::new(),
            claims: HeaderMap::new(),
            host,
            path,
            query: uri.query().map(str::to_owned),
            n_head: size(&headers) + uri.path().len(),
        };
        request.framing = request.take_fields(headers, has_ended)?;
        Ok(request)
    }

    /// Of HTTP/1. `head` is what `request` was parsed of.
    pub fn of_h1(request: &RequestHead, head: &[u8]) -> Result<Self, HeadError> {
        let method = Method::from_bytes(request.method(head)).map_err(|_invalid| HeadError::Syntax)?;
        let head = Bytes::copy_from_slice(head);
        let is_passed_on = |(name, _): &(&[u8], &[u8])| {
            matches!(
                Meaning::of(name),
                Meaning::EndToEnd | Meaning::ContentLength | Meaning::Expect | Meaning::Trace
            )
        };
        let fields = fields::of_lines(request.kept(&head).filter(is_passed_on), &head)?;
        let claims = fields::of_lines(request.claims(&head), &head)?;
        let head = &head[..];
        Ok(Self {
            asked: request.asked,
            method_kind: request.method_kind,
            method,
            framing: request.framing,
            expects_continue: request.expects_continue,
            // Said of the connection to the client; trailers that come are dropped where it cannot read them.
            accepts_trailers: false,
            is_grpc: grpc::is_grpc(fields.get(CONTENT_TYPE).map(HeaderValue::as_bytes)),
            authority: request.authority(head).unwrap_or_default().to_owned(),
            fields,
            claims,
            host: request.host().to_owned(),
            path: request.path(head).to_owned(),
            query: request.query(head).map(str::to_owned),
            n_head: head.len(),
        })
    }

    /// In the form that is matched.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn field(&self, name: &HeaderName) -> Option<&HeaderValue> {
        self.fields.get(name)
    }

    /// Values of what the client says under `name` of where the request comes from, or of the trace that it belongs to.
    pub fn values<'a>(&'a self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.claims.get_all(name).iter().chain(self.fields.get_all(name)).map(HeaderValue::as_bytes)
    }

    /// Does not pass on the fields called `name`.
    pub fn withhold(&mut self, name: &HeaderName) {
        self.fields.remove(name);
    }

    pub const fn n_head(&self) -> usize {
        self.n_head
    }

    /// Path and query as they are sent.
    pub(super) fn target(&self, rewrite: &Rewrite) -> String {
        let mut target = rewrite.path(&self.path).concat();
        if let Some(query) = &self.query {
            target.push('?');
            target.push_str(query);
        }
        target
    }

    /// Keeps what is end-to-end. Returns the body's length.
    fn take_fields(&mut self, mut headers: HeaderMap, has_ended: bool) -> Result<Framing, HeadError> {
        let mut length = None;
        let mut n_crumbs = 0;
        // Few if any, so that the map is kept as it came.
        let mut gone = Vec::new();
        for (name, value) in &headers {
            fields::check_name(name)?;
            match Meaning::of(name.as_str().as_bytes()) {
                Meaning::EndToEnd | Meaning::Trace => n_crumbs += u32::from(name == COOKIE),
                Meaning::Forwarded => {
                    self.claims.append(name.clone(), value.clone());
                    gone.push(name.clone());
                }
                // The only coding that HTTP/2 may name (RFC 9113 section 8.2.2).
                Meaning::HopByHop if name == TE => {
                    if value != "trailers" {
                        return Err(HeadError::TransferEncoding);
                    }
                    self.accepts_trailers = true;
                    gone.push(TE);
                }
                Meaning::Host | Meaning::HopByHop => gone.push(name.clone()),
                Meaning::Connection | Meaning::Upgrade => return Err(HeadError::ConnectionOptions),
                Meaning::TransferEncoding => return Err(HeadError::TransferEncoding),
                Meaning::ContentLength => {
                    if length.replace(number(value)?).is_some() {
                        return Err(HeadError::ContentLength);
                    }
                }
                Meaning::Expect => {
                    if !value.as_bytes().eq_ignore_ascii_case(b"100-continue") {
                        return Err(HeadError::Expectation);
                    }
                    self.expects_continue = true;
                }
            }
        }
        for name in gone {
            headers.remove(name);
        }
        if self.expects_continue {
            // Once, however often it came.
            headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        if n_crumbs > 1 {
            join_cookies(&mut headers)?;
        }
        self.fields = headers;
        match (length, has_ended) {
            (None | Some(0), true) => Ok(Framing::None),
            (Some(_), true) => Err(HeadError::ContentLength),
            (Some(length), false) => Ok(Framing::Length(length)),
            (None, false) => Ok(Framing::Chunked),
        }
    }
}

impl RequestView for Request {
    fn path(&self) -> &str {
        &self.path
    }

    fn method(&self) -> &str {
        self.method.as_str()
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        if name == "host" {
            return Some(self.authority.as_bytes());
        }
        self.fields.get(name).map(HeaderValue::as_bytes)
    }

    fn claimed(&self, name: &str) -> Option<&[u8]> {
        self.claims.get(name).map(HeaderValue::as_bytes)
    }

    fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }
}

/// `:authority`, else `Host`: at least one of them, and the same where both are there (O32).
fn authority(uri: &Uri, headers: &HeaderMap) -> Result<String, HeadError> {
    let mut hosts = headers.get_all(HOST).iter();
    let (host, further) = (hosts.next(), hosts.next());
    if further.is_some() {
        return Err(HeadError::Host);
    }
    let host = host.map(|host| host.to_str().map_err(|_invalid| HeadError::Host)).transpose()?;
    match (uri.authority(), host) {
        (Some(authority), Some(host)) if !authority.as_str().eq_ignore_ascii_case(host) => {
            Err(HeadError::Host)
        }
        (Some(authority), _) => Ok(authority.as_str().to_owned()),
        (None, Some(host)) => Ok(host.to_owned()),
        (None, None) => Err(HeadError::Host),
    }
}

/// HTTP/2 may send the crumbs of a cookie one by one; HTTP/1 knows one field (RFC 9113 section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) -> Result<(), HeadError> {
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    let joined = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])).map_err(|_invalid| HeadError::Syntax)?;
    headers.insert(COOKIE, joined);
    Ok(())
}

fn target(method: &Method, path: &str) -> Result<(Asked, String), HeadError> {
    if path == "*" {
        let is_options = method == Method::OPTIONS;
        return if is_options { Ok((Asked::Server, "*".to_owned())) } else { Err(HeadError::Target) };
    }
    let mut normal = String::new();
    let has_changed = path::normalise(path, &mut normal).map_err(|BadPath| HeadError::Target)?;
    Ok((Asked::Path, if has_changed { normal } else { path.to_owned() }))
}

fn kind(method: &Method) -> MethodKind {
    MethodKind::of(method.as_str())
}

/// Digits only, and no more than a number of 64 bits holds.
pub(super) fn number(value: &HeaderValue) -> Result<u64, HeadError> {
    let digits = value.as_bytes();
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(HeadError::ContentLength);
    }
    Ok(digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// As HTTP/1 would spell them, about.
fn size(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}
