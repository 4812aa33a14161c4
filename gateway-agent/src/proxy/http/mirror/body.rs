//! Bodies that were kept, in the form that a mirror is sent them in.

use super::super::kept::Kept;
use crate::proxy::h1::{Body, Framing};

/// What was sent of a request's body, all of it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Sent<'a> {
    Nothing,
    /// As HTTP/1 framed it.
    Framed(&'a Kept),
    /// Data only.
    Plain(&'a Kept),
}

impl Sent<'_> {
    /// `None`: too much. `Some(None)`: there is none.
    pub(super) fn for_h1(self, framing: Framing) -> Option<Option<Kept>> {
        match self {
            Self::Nothing => Some(None),
            Self::Plain(kept) if framing == Framing::Chunked => chunked(kept).map(Some),
            Self::Framed(kept) | Self::Plain(kept) => kept.copy().map(Some),
        }
    }

    /// The same.
    pub(super) fn for_h2(self, framing: Framing) -> Option<Option<Kept>> {
        match self {
            Self::Nothing => Some(None),
            Self::Framed(kept) if framing == Framing::Chunked => data(kept).map(Some),
            Self::Framed(kept) | Self::Plain(kept) => kept.copy().map(Some),
        }
    }
}

/// In one chunk.
fn chunked(kept: &Kept) -> Option<Kept> {
    let data = kept.bytes()?;
    let mut framed = kept.empty();
    if !data.is_empty() {
        framed.push(format!("{:X}\r\n", data.len()).as_bytes());
        framed.push(data);
        framed.push(b"\r\n");
    }
    framed.push(b"0\r\n\r\n");
    framed.bytes().is_some().then_some(framed)
}

/// What is in the chunks.
fn data(kept: &Kept) -> Option<Kept> {
    let mut rest = kept.bytes()?;
    let mut plain = kept.empty();
    let mut body = Body::new(Framing::Chunked);
    while !body.is_done() {
        let segment = body.next(rest).ok()?;
        let end = segment.framing + segment.data;
        if end == 0 {
            // It was sent whole.
            return None;
        }
        plain.push(rest.get(segment.framing..end)?);
        rest = rest.get(end..)?;
    }
    plain.bytes().is_some().then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::super::super::kept::{Kept, Total};
    use super::Sent;
    use crate::proxy::h1::Framing;

    fn kept(bytes: &str) -> Kept {
        let mut kept = Kept::new(&Total::default());
        kept.push(bytes.as_bytes());
        kept
    }

    fn text(body: Option<Option<Kept>>) -> String {
        String::from_utf8(body.unwrap().unwrap().bytes().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn bodies_are_framed_as_the_mirror_reads_them() {
        let chunks = kept("3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nx: y\r\n\r\n");
        assert_eq!(text(Sent::Framed(&chunks).for_h2(Framing::Chunked)), "abcde");
        assert_eq!(
            text(Sent::Framed(&chunks).for_h1(Framing::Chunked)),
            "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nx: y\r\n\r\n"
        );
        let plain = kept("abcde");
        assert_eq!(text(Sent::Plain(&plain).for_h1(Framing::Chunked)), "5\r\nabcde\r\n0\r\n\r\n");
        assert_eq!(text(Sent::Plain(&kept("")).for_h1(Framing::Chunked)), "0\r\n\r\n");
        assert_eq!(text(Sent::Plain(&plain).for_h1(Framing::Length(5))), "abcde");
        assert_eq!(text(Sent::Plain(&plain).for_h2(Framing::Chunked)), "abcde");
        assert_eq!(text(Sent::Framed(&plain).for_h2(Framing::Length(5))), "abcde");
        assert!(Sent::Nothing.for_h1(Framing::None).unwrap().is_none());
        assert!(Sent::Framed(&kept("3\r\nab")).for_h2(Framing::Chunked).is_none());
    }
}
