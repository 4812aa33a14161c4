//! Answers: without what belongs to the connection that they came by.

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, response};

use super::fields::check_name;
use super::request::number;
use crate::proxy::h1::field::Meaning;
use crate::proxy::h1::{HeadError, ResponseHead};

/// The head of one answer, interim or final.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: StatusCode,
    /// End-to-end fields, `Content-Length` among them.
    pub fields: HeaderMap,
}

impl Response {
    /// Of HTTP/1. `head` is what `response` was parsed of.
    pub fn of_h1(response: &ResponseHead, head: &[u8]) -> Result<Self, HeadError> {
        let mut fields = HeaderMap::new();
        for (name, value) in response.kept(head) {
            if Meaning::of(name) == Meaning::TransferEncoding {
                continue;
            }
            let name = HeaderName::from_bytes(name).map_err(|_invalid| HeadError::Syntax)?;
            fields.append(name, HeaderValue::from_bytes(value).map_err(|_invalid| HeadError::Syntax)?);
        }
        Ok(Self {
            status: StatusCode::from_u16(response.status).map_err(|_invalid| HeadError::Status)?,
            fields,
        })
    }

    /// As HTTP/1 would spell it, about.
    pub fn size(&self) -> usize {
        let line = "HTTP/1.1 200 OK\r\n".len();
        line + self.fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>()
    }

    /// Of HTTP/2.
    pub fn of_h2(parts: response::Parts) -> Result<Self, HeadError> {
        let response::Parts { status, headers, .. } = parts;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            // There is none in HTTP/2 (RFC 9113 section 8.6), and a client of HTTP/1 would take what follows for the
            // other protocol.
            return Err(HeadError::Status);
        }
        let mut fields = HeaderMap::new();
        let mut length = None;
        for (name, value) in &headers {
            check_name(name)?;
            match Meaning::of(name.as_str().as_bytes()) {
                Meaning::EndToEnd | Meaning::Forwarded | Meaning::Host | Meaning::Expect | Meaning::Trace => {
                    fields.append(name.clone(), value.clone());
                }
                // It may be repeated (RFC 9110 section 8.6). The codec has compared them; this is what a message
                // promises, whoever makes it.
                Meaning::ContentLength => {
                    let number = number(value)?;
                    if length.replace(number).is_some_and(|earlier| earlier != number) {
                        return Err(HeadError::ContentLength);
                    }
                    fields.insert(CONTENT_LENGTH, value.clone());
                }
                Meaning::Connection | Meaning::HopByHop | Meaning::TransferEncoding | Meaning::Upgrade => {}
            }
        }
        if status.is_informational() || status == StatusCode::NO_CONTENT {
            // RFC 9110 section 8.6.
            fields.remove(CONTENT_LENGTH);
        }
        Ok(Self { status, fields })
    }
}
