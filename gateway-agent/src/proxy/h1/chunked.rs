//! Chunked bodies (RFC 9112 section 7.1): where they end and what in them is data. Nothing is rewritten: a proxy
//! that passes chunks on needs to know the end only.
//!
//! Strict: CR LF everywhere, no white space around sizes, no control bytes in extensions, bounded lines.

use super::error::BodyError;
use super::limits::{CHUNK_EXTENSION_BYTES_SPARE, CHUNK_LINE_BYTES_MAX, TRAILER_BYTES_MAX};
use crate::syntax::field::is_forbidden_trailer;

/// What the next bytes of the input are: first `framing` of the transfer coding, then `data`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    pub framing: usize,
    pub data: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    SizeStart,
    Size,
    Extension,
    SizeFeed,
    Data,
    DataReturn,
    DataFeed,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerFeed,
    EndFeed,
    Done,
}

/// Reads one chunked body, in pieces of any size.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
    /// Of the present chunk, data not yet seen.
    remaining: u64,
    /// Bytes of the present size line, or of all trailers.
    line_bytes: u32,
    data_bytes: u64,
    extension_bytes: u64,
    trailer_name: TrailerName,
    /// The trailer section as it came, where somebody wants it.
    section: Option<Vec<u8>>,
}

/// The beginning of a trailer's name in lower case: enough to know those that must not be there.
#[derive(Clone, Debug, Default)]
struct TrailerName {
    bytes: [u8; 20],
    length: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            state: State::SizeStart,
            remaining: 0,
            line_bytes: 0,
            data_bytes: 0,
            extension_bytes: 0,
            trailer_name: TrailerName::default(),
            section: None,
        }
    }
}

impl Decoder {
    /// Keeps the trailer section, for those who send it on in another form.
    pub fn keeping_trailers() -> Self {
        Self { section: Some(Vec::new()), ..Self::default() }
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The lines of the trailer section, of a decoder that keeps it; empty where there were none.
    pub fn section(&self) -> &[u8] {
        self.section.as_deref().unwrap_or_default()
    }

    /// Takes in the beginning of `input` up to the end of the first piece of data in it, or to the body's end. An
    /// empty segment: the body is done, or `input` is empty.
    pub fn next(&mut self, input: &[u8]) -> Result<Segment, BodyError> {
        let mut framing = 0;
        while self.state != State::Done {
            if self.state == State::Data {
                let rest = input.len() - framing;
                let data = usize::try_from(self.remaining).map_or(rest, |remaining| remaining.min(rest));
                self.remaining -= data as u64;
                self.data_bytes = self.data_bytes.saturating_add(data as u64);
                if self.remaining == 0 {
                    self.state = State::DataReturn;
                }
                return Ok(Segment { framing, data });
            }
            let Some(byte) = input.get(framing) else { break };
            self.step(*byte)?;
            framing += 1;
        }
        Ok(Segment { framing, data: 0 })
    }

    fn step(&mut self, byte: u8) -> Result<(), BodyError> {
        self.state = match (self.state, byte) {
            (State::SizeStart, _) if byte.is_ascii_hexdigit() => {
                (self.remaining, self.line_bytes) = (0, 0);
                self.size_digit(byte)?
            }
            (State::Size, _) if byte.is_ascii_hexdigit() => self.size_digit(byte)?,
            (State::Size | State::Extension, b'\r') => State::SizeFeed,
            (State::Size, b';') => self.extension_byte()?,
            (State::Extension, b'\t' | b' '..=b'~' | 0x80..) => self.extension_byte()?,
            (State::SizeFeed, b'\n') if self.remaining > 0 => State::Data,
            (State::SizeFeed, b'\n') => {
                self.line_bytes = 0;
                State::TrailerStart
            }
            (State::DataReturn, b'\r') => State::DataFeed,
            (State::DataFeed, b'\n') => State::SizeStart,
            (State::TrailerStart, b'\r') => State::EndFeed,
            (State::EndFeed, b'\n') => State::Done,
            (State::TrailerStart | State::TrailerName | State::TrailerValue | State::TrailerFeed, _) => {
                self.trailer_byte(byte)?
            }
            _ => return Err(BodyError::Chunk),
        };
        Ok(())
    }

    fn size_digit(&mut self, digit: u8) -> Result<State, BodyError> {
        let value = char::from(digit).to_digit(16).ok_or(BodyError::Chunk)?;
        // No more than 16 digits, so that a row of zeros is bounded too.
        self.line_bytes += 1;
        if self.line_bytes > 16 || self.remaining >> 59 != 0 {
            return Err(BodyError::Chunk);
        }
        self.remaining = self.remaining << 4 | u64::from(value);
        Ok(State::Size)
    }

    fn extension_byte(&mut self) -> Result<State, BodyError> {
        self.line_bytes += 1;
        self.extension_bytes += 1;
        let spare = self.data_bytes.saturating_add(CHUNK_EXTENSION_BYTES_SPARE);
        if self.line_bytes > CHUNK_LINE_BYTES_MAX || self.extension_bytes > spare {
            return Err(BodyError::ChunkExtensions);
        }
        Ok(State::Extension)
    }

    fn trailer_byte(&mut self, byte: u8) -> Result<State, BodyError> {
        self.line_bytes += 1;
        if self.line_bytes > TRAILER_BYTES_MAX {
            return Err(BodyError::Trailer);
        }
        if let Some(section) = &mut self.section {
            section.push(byte);
        }
        match (self.state, byte) {
            (State::TrailerStart, _) if is_token(byte) => {
                self.trailer_name.length = 0;
                self.trailer_name.push(byte);
                Ok(State::TrailerName)
            }
            (State::TrailerName, _) if is_token(byte) => {
                self.trailer_name.push(byte);
                Ok(State::TrailerName)
            }
            (State::TrailerName, b':') if !self.trailer_name.is_forbidden() => Ok(State::TrailerValue),
            (State::TrailerValue, b'\r') => Ok(State::TrailerFeed),
            (State::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => Ok(State::TrailerValue),
            (State::TrailerFeed, b'\n') => Ok(State::TrailerStart),
            _ => Err(BodyError::Trailer),
        }
    }
}

impl TrailerName {
    fn push(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.length) {
            *slot = byte.to_ascii_lowercase();
        }
        self.length += 1;
    }

    fn is_forbidden(&self) -> bool {
        self.bytes.get(..self.length).is_some_and(is_forbidden_trailer)
    }
}

/// `tchar` of RFC 9110 section 5.6.2.
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BodyError, Decoder};

    /// Data, bytes of `input` that belong to the body, and whether it ended; fed in pieces that end at `cuts`.
    fn decode(input: &[u8], cuts: &[usize]) -> Result<(Vec<u8>, usize, bool), BodyError> {
        let mut decoder = Decoder::default();
        let mut data = Vec::new();
        let mut at = 0;
        for end in cuts.iter().copied().chain([input.len()]) {
            while at < end && !decoder.is_done() {
                let segment = decoder.next(&input[at..end])?;
                data.extend(&input[at + segment.framing..at + segment.framing + segment.data]);
                at += segment.framing + segment.data;
            }
        }
        Ok((data, at, decoder.is_done()))
    }

    #[test]
    fn body_ends_at_its_terminator_and_not_beyond() {
        let body = b"5;sig=\"a b\"\r\nhello\r\n1\r\n!\r\n0;x\r\nX-Sum: 1\r\n\r\nGET / HTTP/1.1\r\n";
        let (data, end, done) = decode(body, &[]).unwrap();
        assert_eq!((data.as_slice(), done), (&b"hello!"[..], true));
        assert_eq!(&body[end..], b"GET / HTTP/1.1\r\n");
    }

    // O16, O18
    #[test]
    fn each_malformed_framing_is_refused() {
        for body in [
            &b"5\nhello\r\n0\r\n\r\n"[..],
            b"5;a\nb\r\nhello\r\n0\r\n\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"5\r\nhello0\r\n\r\n",
            b"5 \r\nhello\r\n0\r\n\r\n",
            b" 5\r\nhello\r\n0\r\n\r\n",
            b"+5\r\nhello\r\n0\r\n\r\n",
            b"0x5\r\nhello\r\n0\r\n\r\n",
            b"-1\r\n\r\n",
            b"\r\n\r\n",
            b";a\r\n\r\n",
            b"10000000000000000\r\n",
            b"00000000000000000\r\n",
            b"ffffffffffffffff\r\n",
            b"5;a\x00\r\nhello\r\n0\r\n\r\n",
            b"5;a\rb\r\nhello\r\n0\r\n\r\n",
            b"0\r\n\n",
            b"0\r\nA: b\n\r\n",
            b"0\r\n A: b\r\n\r\n",
            b"0\r\nA : b\r\n\r\n",
            b"0\r\nA\r\n\r\n",
            b"0\r\nA: \x00\r\n\r\n",
            b"0\r\nA: b\rc\r\n\r\n",
            b"0\r\nContent-Length: 5\r\n\r\n",
            b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"0\r\nHost: a\r\n\r\n",
        ] {
            assert!(decode(body, &[]).is_err(), "{}", body.escape_ascii());
        }
    }

    #[test]
    fn extensions_and_trailers_are_bounded() {
        let long_line = [b"1;".as_slice(), &[b'a'; 5000]].concat();
        assert_eq!(decode(&long_line, &[]), Err(BodyError::ChunkExtensions));
        let heavy = [b"1;".as_slice(), &[b'a'; 1000], b"\r\nx\r\n"].concat().repeat(20);
        assert_eq!(decode(&heavy, &[]), Err(BodyError::ChunkExtensions));
        let signed = [b"400;".as_slice(), &[b'a'; 80], b"\r\n", &[b'x'; 1024], b"\r\n"].concat().repeat(1000);
        assert_eq!(decode(&signed, &[]).unwrap().0.len(), 1024 * 1000);
        let trailers = [b"0\r\n".as_slice(), &b"A: b\r\n".repeat(4000)].concat();
        assert_eq!(decode(&trailers, &[]), Err(BodyError::Trailer));
    }

    proptest! {
        #[test]
        fn decoding_in_pieces_equals_decoding_at_once(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            cuts in prop::collection::vec(0_usize..300, 0..8),
            damage in prop::option::of((0_usize..300, any::<u8>())),
        ) {
            let mut body = Vec::new();
            for chunk in &chunks {
                body.extend(format!("{:x};n=1\r\n", chunk.len()).bytes());
                body.extend(chunk);
                body.extend(b"\r\n");
            }
            body.extend(b"0\r\nX-T: v\r\n\r\nnext");
            let length = body.len();
            if let Some((at, byte)) = damage {
                body[at % length] = byte;
            }
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut % length).collect();
            cuts.sort_unstable();
            let whole = decode(&body, &[]);
            prop_assert_eq!(&decode(&body, &cuts), &whole);
            if damage.is_none() {
                prop_assert_eq!(whole, Ok((chunks.concat(), length - 4, true)));
            }
        }
    }
}
