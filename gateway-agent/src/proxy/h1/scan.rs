//! Finds the end of a head. Looks at each byte once, however the head is cut, and refuses early what is too large.
//!
//! Does not parse: that is done once, when the head is whole.

use std::ops::Range;

use super::error::HeadError;
use super::limits::{FIELDS_MAX, HEAD_BYTES_MAX, LEADING_EMPTY_LINES_MAX, REQUEST_LINE_BYTES_MAX};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Request,
    Response,
}

/// Remembers how far one head was looked at.
#[derive(Clone, Debug)]
pub struct Scanner {
    side: Side,
    /// Where the head begins, after empty lines.
    start: usize,
    line_start: usize,
    scanned: usize,
    n_lines: usize,
    n_empty: usize,
}

impl Scanner {
    pub const fn request() -> Self {
        Self::new(Side::Request)
    }

    pub const fn response() -> Self {
        Self::new(Side::Response)
    }

    const fn new(side: Side) -> Self {
        Self { side, start: 0, line_start: 0, scanned: 0, n_lines: 0, n_empty: 0 }
    }

    /// Looks at what was added to `buf` since the last call. `Some` when the head is whole: its place, with its
    /// empty last line.
    pub fn scan(&mut self, buf: &[u8]) -> Result<Option<Range<usize>>, HeadError> {
        let fresh = buf.get(self.scanned..).unwrap_or_default();
        for offset in memchr::memchr_iter(b'\n', fresh) {
            let feed = self.scanned + offset;
            let line = buf.get(self.line_start..feed).unwrap_or_default();
            if line.last() != Some(&b'\r') {
                return Err(HeadError::BareLineFeed);
            }
            let is_empty = line.len() == 1;
            if is_empty && self.n_lines > 0 {
                return self.within(feed + 1).map(|()| Some(self.start..feed + 1));
            }
            self.line_start = feed + 1;
            if is_empty {
                self.skip_empty(feed + 1)?;
                continue;
            }
            if self.n_lines == 0 {
                self.first_line_within(feed + 1)?;
            }
            self.n_lines += 1;
            if self.n_lines > FIELDS_MAX + 1 {
                return Err(HeadError::TooManyFields);
            }
        }
        self.scanned = buf.len();
        self.plausible(buf)?;
        if self.n_lines == 0 {
            self.first_line_within(buf.len())?;
        }
        self.within(buf.len())?;
        Ok(None)
    }

    fn skip_empty(&mut self, end: usize) -> Result<(), HeadError> {
        self.n_empty += 1;
        self.start = end;
        match self.side {
            Side::Request if self.n_empty <= LEADING_EMPTY_LINES_MAX => Ok(()),
            _ => Err(HeadError::Syntax),
        }
    }

    fn first_line_within(&self, end: usize) -> Result<(), HeadError> {
        match self.side {
            Side::Request if end - self.start > REQUEST_LINE_BYTES_MAX => Err(HeadError::RequestLineTooLong),
            _ => Ok(()),
        }
    }

    fn within(&self, end: usize) -> Result<(), HeadError> {
        if end - self.start > HEAD_BYTES_MAX { Err(HeadError::HeadTooLarge) } else { Ok(()) }
    }

    /// Refuses at once what cannot become a head, such as a TLS hello, rather than at the deadline.
    fn plausible(&self, buf: &[u8]) -> Result<(), HeadError> {
        match buf.get(self.start) {
            Some(b'\r') if self.side == Side::Request => Ok(()),
            Some(first) if !first.is_ascii_graphic() => Err(HeadError::Syntax),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Scanner;
    use crate::proxy::h1::HeadError;

    #[test]
    fn head_is_found_however_it_is_cut() {
        let message = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
        for cut in 0..=message.len() {
            let mut scanner = Scanner::request();
            let early = scanner.scan(&message[..cut]).unwrap();
            let found = if early.is_some() { early } else { scanner.scan(message).unwrap() };
            assert_eq!(found, Some(2..message.len() - 4), "cut at {cut}");
        }
    }

    #[test]
    fn one_byte_at_a_time_is_as_good_as_all_at_once() {
        let message = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n";
        let mut scanner = Scanner::response();
        for end in 0..message.len() {
            assert_eq!(scanner.scan(&message[..end]).unwrap(), None);
        }
        assert_eq!(scanner.scan(message).unwrap(), Some(0..message.len()));
    }

    // O18, O25
    #[test]
    fn what_cannot_become_a_head_is_refused_early() {
        let check = |bytes: &[u8], error| assert_eq!(Scanner::request().scan(bytes), Err(error));
        check(b"GET / HTTP/1.1\n", HeadError::BareLineFeed);
        check(b"GET / HTTP/1.1\r\nA: b\n\r\n", HeadError::BareLineFeed);
        check(b"\r\n\r\n", HeadError::Syntax);
        check(b"\x16\x03\x01\x02\x00", HeadError::Syntax);
        check(&[b'a'; 9000], HeadError::RequestLineTooLong);
        let mut large = b"GET / HTTP/1.1\r\nA: ".to_vec();
        large.resize(65 * 1024, b'a');
        check(&large, HeadError::HeadTooLarge);
        let mut many = b"GET / HTTP/1.1\r\n".to_vec();
        many.extend(b"A: b\r\n".repeat(257));
        check(&many, HeadError::TooManyFields);
    }
}
