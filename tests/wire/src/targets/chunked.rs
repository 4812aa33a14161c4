//! Chunked bodies: the end and the data do not depend on how they arrive.

use super::arrivals;
use crate::proxy::h1::BodyError;
use crate::proxy::h1::chunked::Decoder;
use crate::proxy::message::{encode, fields};
use crate::syntax::field::{is_forbidden_trailer, is_value};

/// Data, bytes that belong to the body, and the trailer section once the body is whole.
type Decoded = (Vec<u8>, usize, Option<Vec<u8>>);

pub(super) fn run(body: &[u8]) {
    let [at_once, pieces @ ..] = arrivals(body);
    let whole = decode(body, &at_once);
    for ends in &pieces {
        assert_eq!(decode(body, ends), whole, "pieces {ends:?}");
    }
    let Ok((data, n, trailers)) = whole else { return };
    let Some(section) = trailers else {
        assert_eq!(n, body.len());
        return;
    };
    // What follows is the next message's.
    let (own, rest) = body.split_at(n);
    assert_eq!(decode(own, &[n]), Ok((data.clone(), n, Some(section.clone()))));
    // One byte less is no whole body: no beginning of a body is a body.
    let less = decode(own, &[n - 1]).expect("a beginning of a body is sound");
    assert_eq!(less.2, None);
    let trailers = fields::trailers(&section);
    for (name, value) in &trailers {
        assert!(!is_forbidden_trailer(name.as_str().as_bytes()) && is_value(value.as_bytes()));
    }
    // Framed anew, as for a server of another version.
    let mut out = Vec::new();
    if !data.is_empty() {
        out.extend(format!("{:X}\r\n", data.len()).bytes());
        out.extend(&data);
        out.extend(b"\r\n");
    }
    out.extend(b"0\r\n");
    encode::trailers_to_h1(Some(&trailers), &mut out);
    let n_own = out.len();
    out.extend(rest);
    let (again, n_again, section) = decode(&out, &[out.len()]).expect("what is written is read");
    assert_eq!((again, n_again), (data, n_own));
    assert_eq!(fields::trailers(&section.expect("whole")), trailers);
}

fn decode(body: &[u8], ends: &[usize]) -> Result<Decoded, BodyError> {
    let mut decoder = Decoder::keeping_trailers();
    let mut data = Vec::new();
    let mut at = 0;
    for end in ends {
        while at < *end && !decoder.is_done() {
            let segment = decoder.next(&body[at..*end])?;
            let n = segment.framing + segment.data;
            assert!(n > 0 && n <= end - at, "{segment:?} of {}", end - at);
            data.extend(&body[at + segment.framing..at + n]);
            at += n;
        }
    }
    let section = decoder.is_done().then(|| decoder.section().to_vec());
    Ok((data, at, section))
}
