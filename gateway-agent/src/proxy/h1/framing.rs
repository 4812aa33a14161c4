//! How long a body is (RFC 9112 section 6), and reading it to its end.

use super::chunked::{self, Segment};
use super::error::{BodyError, HeadError};

/// How a head says its body is delimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    Chunked,
    Length(u64),
    #[default]
    None,
    /// Responses only.
    UntilClose,
}

/// The framing fields of one head, gathered field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FramingFields {
    pub(super) length: Option<u64>,
    pub(super) chunked: bool,
}

impl FramingFields {
    /// One number, digits only. A second field is refused, with the same number too, in a request; a response may
    /// repeat the number (RFC 9110 section 8.6). True: the field is the first one.
    pub(super) fn add_length(&mut self, value: &[u8], may_repeat: bool) -> Result<bool, HeadError> {
        let is_number = !value.is_empty() && value.len() <= 18 && value.iter().all(u8::is_ascii_digit);
        if !is_number {
            return Err(HeadError::ContentLength);
        }
        let length = value.iter().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        match self.length.replace(length) {
            None => Ok(true),
            Some(earlier) if may_repeat && earlier == length => Ok(false),
            Some(_) => Err(HeadError::ContentLength),
        }
    }

    /// Exactly one field that says exactly `chunked`. Other codings would have to be understood to know the end, and
    /// nobody sends them.
    pub(super) fn add_coding(&mut self, value: &[u8]) -> Result<(), HeadError> {
        if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(HeadError::TransferEncoding);
        }
        self.chunked = true;
        Ok(())
    }

    /// Both, or a coding in HTTP/1.0, is faulty framing (RFC 9112 section 6.1).
    pub(super) fn check(self, is_http_1_0: bool) -> Result<(), HeadError> {
        if self.chunked && (self.length.is_some() || is_http_1_0) {
            return Err(HeadError::TransferEncoding);
        }
        Ok(())
    }

    pub(super) fn framing(self, without: Framing) -> Framing {
        match self {
            Self { chunked: true, .. } => Framing::Chunked,
            Self { length: Some(0), .. } => Framing::None,
            Self { length: Some(length), .. } => Framing::Length(length),
            Self { .. } => without,
        }
    }
}

/// Reads one body to its end.
#[derive(Clone, Debug)]
pub enum Body {
    Chunked(chunked::Decoder),
    Done,
    /// Bytes to come.
    Length(u64),
    UntilClose,
}

impl Body {
    pub fn new(framing: Framing) -> Self {
        match framing {
            Framing::Chunked => Self::Chunked(chunked::Decoder::default()),
            Framing::Length(0) | Framing::None => Self::Done,
            Framing::Length(length) => Self::Length(length),
            Framing::UntilClose => Self::UntilClose,
        }
    }

    pub fn is_done(&self) -> bool {
        match self {
            Self::Chunked(decoder) => decoder.is_done(),
            Self::Done => true,
            Self::Length(_) | Self::UntilClose => false,
        }
    }

    /// Takes in the beginning of `input`. An empty segment: done, or `input` is empty.
    pub fn next(&mut self, input: &[u8]) -> Result<Segment, BodyError> {
        match self {
            Self::Chunked(decoder) => decoder.next(input),
            Self::Done => Ok(Segment::default()),
            Self::Length(length) => {
                let data = usize::try_from(*length).map_or(input.len(), |length| length.min(input.len()));
                *length -= data as u64;
                if *length == 0 {
                    *self = Self::Done;
                }
                Ok(Segment { framing: 0, data })
            }
            Self::UntilClose => Ok(Segment { framing: 0, data: input.len() }),
        }
    }

    /// Takes in all of `input` that belongs to the body, and says how much that is.
    pub fn take(&mut self, input: &[u8]) -> Result<usize, BodyError> {
        let mut taken = 0;
        loop {
            let Segment { framing, data } = self.next(input.get(taken..).unwrap_or_default())?;
            if framing + data == 0 {
                return Ok(taken);
            }
            taken += framing + data;
        }
    }

    /// The sender closed. An error where more was announced.
    pub fn end(&mut self) -> Result<(), BodyError> {
        match self {
            Self::UntilClose => {
                *self = Self::Done;
                Ok(())
            }
            _ if self.is_done() => Ok(()),
            _ => Err(BodyError::Truncated),
        }
    }
}
