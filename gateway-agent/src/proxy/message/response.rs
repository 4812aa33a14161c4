//! Answers: without what belongs to the connection that they came by.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderMap};
use http::{StatusCode, response};

use super::fields::{check_name, of_lines};
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
        let head = Bytes::copy_from_slice(head);
        let lines = response.kept(&head).filter(|(name, _)| Meaning::of(name) != Meaning::TransferEncoding);
        Ok(Self {
            status: StatusCode::from_u16(response.status).map_err(|_invalid| HeadError::Status)?,
            fields: of_lines(lines, &head)?,
        })
    }

    /// As HTTP/1 would spell it, about.
    pub fn size(&self) -> usize {
        let line = "HTTP/1.1 200 OK\r\n".len();
        line + self.fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>()
    }

    /// Of HTTP/2.
    pub fn of_h2(parts: response::Parts) -> Result<Self, HeadError> {
        let response::Parts { status, headers: mut fields, .. } = parts;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            // There is none in HTTP/2 (RFC 9113 section 8.6), and a client of HTTP/1 would take what follows for the
            // other protocol.
            return Err(HeadError::Status);
        }
        let (mut length, mut n_lengths) = (None, 0);
        // Few if any, so that the map is kept as it came.
        let mut gone = Vec::new();
        for (name, value) in &fields {
            check_name(name)?;
            match Meaning::of(name.as_str().as_bytes()) {
                Meaning::EndToEnd | Meaning::Forwarded | Meaning::Host | Meaning::Expect | Meaning::Trace => {
                }
                // It may be repeated (RFC 9110 section 8.6). The codec has compared them; this is what a message
                // promises, whoever makes it.
                Meaning::ContentLength => {
                    let number = number(value)?;
                    if length.replace(number).is_some_and(|earlier| earlier != number) {
                        return Err(HeadError::ContentLength);
                    }
                    n_lengths += 1;
                }
                Meaning::Connection | Meaning::HopByHop | Meaning::TransferEncoding | Meaning::Upgrade => {
                    gone.push(name.clone());
                }
            }
        }
        for name in gone {
            fields.remove(name);
        }
        if n_lengths > 1
            && let Some(one) = fields.get(CONTENT_LENGTH).cloned()
        {
            fields.insert(CONTENT_LENGTH, one);
        }
        if status.is_informational() || status == StatusCode::NO_CONTENT {
            // RFC 9110 section 8.6.
            fields.remove(CONTENT_LENGTH);
        }
        Ok(Self { status, fields })
    }
}
