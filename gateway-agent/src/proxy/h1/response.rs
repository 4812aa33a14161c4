//! Response heads: parsed in place and checked.

use std::mem::MaybeUninit;

use super::error::HeadError;
use super::field::{Connection, Field, Meaning, Span};
use super::framing::{Framing, FramingFields};
use super::limits::FIELDS_MAX;
use super::request::MethodKind;

/// One parsed head. Recycled like [`super::RequestHead`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseHead {
    pub status: u16,
    pub framing: Framing,
    /// The server takes another request on this connection.
    pub keep_alive: bool,
    /// The value of `Upgrade` in a 101.
    pub upgrade: Option<Span>,
    pub(super) reason: Span,
    pub(super) fields: Vec<Field>,
    pub(super) fields_end: usize,
}

impl ResponseHead {
    /// Parses `head`, which [`super::Scanner`] has delimited, as an answer to a request of this kind.
    pub fn parse(&mut self, head: &[u8], method: MethodKind) -> Result<(), HeadError> {
        let mut headers = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        match config.parse_response_with_uninit_headers(&mut response, head, &mut headers) {
            Ok(httparse::Status::Complete(length)) if length == head.len() => {}
            Ok(_) => return Err(HeadError::Syntax),
            Err(httparse::Error::Version) => return Err(HeadError::Version),
            Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooManyFields),
            Err(_) => return Err(HeadError::Syntax),
        }
        let status = response.code.ok_or(HeadError::Syntax)?;
        if status < 100 {
            return Err(HeadError::Status);
        }
        self.fields.clear();
        *self = Self {
            status,
            reason: response
                .reason
                .filter(|reason| !reason.is_empty())
                .map_or_else(Span::default, |reason| Span::of(head, reason.as_bytes())),
            fields: std::mem::take(&mut self.fields),
            fields_end: head.len().saturating_sub(2),
            ..Self::default()
        };
        self.read_fields(head, response.headers, method, response.version == Some(0))
    }

    /// 1xx but 101: another head follows (RFC 9110 section 15.2).
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// Names and values of the fields that are passed on.
    pub fn kept<'a>(&self, head: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        super::field::kept(&self.fields, head)
    }

    /// For a client of HTTP/1.0, which knows no transfer coding: the body is sent bare and ended by close.
    pub fn drop_coding(&mut self, head: &[u8]) {
        for field in &mut self.fields {
            field.keep &= Meaning::of(field.name.bytes(head)) != Meaning::TransferEncoding;
        }
    }

    fn read_fields(
        &mut self,
        head: &[u8],
        headers: &[httparse::Header<'_>],
        method: MethodKind,
        is_http_1_0: bool,
    ) -> Result<(), HeadError> {
        // RFC 9112 section 6.3: these end with the head, whatever it says.
        let is_bodyless = self.status < 200 || matches!(self.status, 204 | 304) || method == MethodKind::Head;
        let keeps_length = self.status >= 200 && self.status != 204;
        let mut connection = Connection::default();
        let mut framing = FramingFields::default();
        for header in headers {
            let value = Span::of(head, header.value);
            let keep = match Meaning::of(header.name.as_bytes()) {
                Meaning::Connection => {
                    if !connection.add(header.value) {
                        return Err(HeadError::ConnectionOptions);
                    }
                    false
                }
                Meaning::ContentLength => framing.add_length(header.value, true)? && keeps_length,
                Meaning::TransferEncoding => {
                    framing.add_coding(header.value)?;
                    !is_bodyless
                }
                Meaning::Upgrade => {
                    self.upgrade = Some(value);
                    false
                }
                Meaning::HopByHop => false,
                Meaning::EndToEnd | Meaning::Expect | Meaning::Forwarded | Meaning::Host | Meaning::Trace => {
                    true
                }
            };
            self.fields.push(Field { name: Span::of(head, header.name.as_bytes()), value, keep });
        }
        framing.check(is_http_1_0)?;
        connection.drop_named(head, &mut self.fields);
        self.framing = if is_bodyless { Framing::None } else { framing.framing(Framing::UntilClose) };
        self.keep_alive = !connection.close
            && (!is_http_1_0 || connection.keep_alive)
            && self.framing != Framing::UntilClose;
        if self.status != 101 {
            self.upgrade = None;
        }
        Ok(())
    }
}
