//! Header fields as a map: what filters do to them, and which may be trailers.

use bytes::Bytes;
use http::header::{Entry, HeaderMap, HeaderName, HeaderValue, SET_COOKIE};

use crate::proxy::h1::HeadError;
use crate::snapshot::HeaderChange;
use crate::syntax::field::{is_forbidden_trailer, is_token};

/// Does what filters say. Values are added behind those that stay, with commas as in HTTP/1; those of `Set-Cookie`
/// may hold commas and stay apart (RFC 9110 section 5.3).
pub fn apply(changes: &[HeaderChange], fields: &mut HeaderMap) {
    for change in changes {
        // Both were checked when the change was made.
        let Ok(name) = HeaderName::from_bytes(change.name.as_bytes()) else { continue };
        if !change.keeps {
            fields.remove(&name);
        }
        if change.values.is_empty() {
            continue;
        }
        if name == SET_COOKIE {
            for value in
                change.values.iter().filter_map(|value| HeaderValue::from_bytes(value.as_bytes()).ok())
            {
                fields.append(name.clone(), value);
            }
        } else {
            join(fields, name, &change.values);
        }
    }
}

/// Adds `values` to the last field called `name`; a new one where there is none.
fn join(fields: &mut HeaderMap, name: HeaderName, values: &[std::sync::Arc<str>]) {
    let mut all: Vec<HeaderValue> = fields.get_all(&name).iter().cloned().collect();
    let last = all.pop().filter(|value| !value.is_empty());
    let parts = last.iter().map(HeaderValue::as_bytes).chain(values.iter().map(|value| value.as_bytes()));
    let Ok(joined) = HeaderValue::from_bytes(&parts.collect::<Vec<_>>().join(&b","[..])) else { return };
    all.push(joined);
    match fields.entry(name) {
        Entry::Vacant(vacant) => drop(vacant.insert_entry(all.remove(0))),
        Entry::Occupied(mut occupied) => {
            let mut rest = all.into_iter();
            if let Some(first) = rest.next() {
                occupied.insert_mult(first);
            }
            rest.for_each(|value| occupied.append(value));
        }
    }
}

/// Puts `own` in the place of all fields that are `replaced`.
pub fn replace(fields: &mut HeaderMap, replaced: impl Fn(&HeaderName) -> bool, own: &HeaderMap) {
    let gone: Vec<HeaderName> = fields.keys().filter(|name| replaced(name)).cloned().collect();
    for name in gone {
        fields.remove(name);
    }
    for (name, value) in own {
        fields.append(name.clone(), value.clone());
    }
}

/// The codec of HTTP/2 lets `"` through in names, which HTTP/1 does not know (RFC 9110 section 5.1).
pub fn check_name(name: &HeaderName) -> Result<(), HeadError> {
    if is_token(name.as_str().as_bytes()) { Ok(()) } else { Err(HeadError::Syntax) }
}

/// Drops what must not be a trailer (RFC 9110 section 6.5.1), and what is no field in every version.
pub fn keep_trailers(fields: &mut HeaderMap) {
    let is_dropped =
        |name: &HeaderName| is_forbidden_trailer(name.as_str().as_bytes()) || check_name(name).is_err();
    let forbidden: Vec<HeaderName> = fields.keys().filter(|name| is_dropped(name)).cloned().collect();
    for name in forbidden {
        fields.remove(name);
    }
}

/// The trailer section of a chunked body, which the decoder has checked. Without what must not be there.
pub fn trailers(section: &[u8]) -> HeaderMap {
    let mut fields = lines(section);
    keep_trailers(&mut fields);
    fields
}

/// Fields of a parsed head, whose values share its bytes: one allocation for all of them.
pub fn of_lines<'a>(
    lines: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    head: &Bytes,
) -> Result<HeaderMap, HeadError> {
    let mut fields = HeaderMap::with_capacity(lines.size_hint().1.unwrap_or(0));
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name).map_err(|_invalid| HeadError::Syntax)?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(value));
        fields.append(name, value.map_err(|_invalid| HeadError::Syntax)?);
    }
    Ok(fields)
}

/// Header lines, of those that are well-formed.
pub fn lines(section: &[u8]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in section.split(|byte| *byte == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            fields.append(name, value);
        }
    }
    fields
}
