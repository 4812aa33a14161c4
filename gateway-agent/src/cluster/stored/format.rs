//! The file of `--state-dir`: a header, one record for each object, an end.
//!
//! A record is a line `KIND NAMESPACE NAME BYTES HASH` and the object as JSON. A file without its end was cut off, one
//! whose hashes do not match was damaged: both are refused as a whole, as is another version's.
//!
//! **Invariant:** pure.

use std::fmt::Write as _;
use std::ops::Range;

use crate::api::{Kind, ObjectId};
use crate::cluster::kinds::{WATCHED, resource};
use crate::snapshot::ObjectName;

/// Grows with every change of the format or of what is pruned.
pub(super) const HEADER: &str = "gateway-agent state 1\n";

/// Stands for "in no namespace", which is no name of one.
const NONE: &str = "-";

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("it is not of this version of the agent")]
    Version,
    #[error("it was cut off")]
    Truncated,
    #[error("it is damaged at byte {0}")]
    Damaged(usize),
}

/// One object in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub id: ObjectId,
    pub hash: u64,
    /// Where its JSON lies.
    pub range: Range<usize>,
}

/// What comes before an object's JSON.
pub(super) fn head(id: &ObjectId, len: usize, hash: u64) -> String {
    let kind = id.kind.as_str();
    let namespace = if id.name.namespace.is_empty() { NONE } else { &id.name.namespace };
    format!("{kind} {namespace} {} {len} {hash:016x}\n", id.name.name)
}

/// What comes after the last object.
pub(super) fn tail(count: usize) -> String {
    let mut tail = String::new();
    // Writing to a String cannot fail.
    let _infallible = writeln!(tail, "end {count}");
    tail
}

/// FNV-1a, 64 bits: damage on the way to a disk is found, intent is not.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Finds every object of a whole file.
pub(super) fn parse(file: &[u8]) -> Result<Vec<Entry>, FormatError> {
    if !file.starts_with(HEADER.as_bytes()) {
        return Err(FormatError::Version);
    }
    let mut entries = Vec::new();
    let mut at = HEADER.len();
    loop {
        let rest = file.get(at..).unwrap_or_default();
        let end = memchr::memchr(b'\n', rest).ok_or(FormatError::Truncated)?;
        let line = rest.get(..end).and_then(|line| std::str::from_utf8(line).ok());
        let line = line.ok_or(FormatError::Damaged(at))?;
        if let Some(count) = line.strip_prefix("end ") {
            let is_whole = count.parse() == Ok(entries.len()) && at + end + 1 == file.len();
            return if is_whole { Ok(entries) } else { Err(FormatError::Damaged(at)) };
        }
        let entry = parse_head(line, at + end + 1).ok_or(FormatError::Damaged(at))?;
        let json = file.get(entry.range.clone()).ok_or(FormatError::Truncated)?;
        if hash(json) != entry.hash || file.get(entry.range.end) != Some(&b'\n') {
            return Err(FormatError::Damaged(at));
        }
        at = entry.range.end + 1;
        entries.push(entry);
    }
}

fn parse_head(line: &str, start: usize) -> Option<Entry> {
    let mut words = line.split(' ');
    let kind = kind(words.next()?)?;
    let namespace = words.next()?;
    let name = words.next()?;
    let len: usize = words.next()?.parse().ok()?;
    let hash = u64::from_str_radix(words.next()?, 16).ok()?;
    if words.next().is_some() || name.is_empty() {
        return None;
    }
    let namespace = if namespace == NONE { "" } else { namespace };
    let name = ObjectName::new(namespace, name);
    Some(Entry { id: ObjectId { kind, name }, hash, range: start..start.checked_add(len)? })
}

fn kind(name: &str) -> Option<Kind> {
    WATCHED.into_iter().chain([Kind::Namespace]).find(|kind| resource(*kind).kind == name)
}

#[cfg(test)]
mod tests {
    use super::{Entry, FormatError, HEADER, hash, head, parse, tail};
    use crate::api::{Kind, ObjectId};
    use crate::snapshot::ObjectName;

    fn file(objects: &[(Kind, &str, &str, &str)]) -> Vec<u8> {
        let mut file = HEADER.to_owned();
        for (kind, namespace, name, json) in objects {
            let name = ObjectName::new(*namespace, *name);
            let id = ObjectId { kind: *kind, name };
            file.push_str(&head(&id, json.len(), hash(json.as_bytes())));
            file.push_str(json);
            file.push('\n');
        }
        file.push_str(&tail(objects.len()));
        file.into_bytes()
    }

    fn sample() -> Vec<u8> {
        file(&[
            (Kind::Gateway, "ns", "gw", "{\"a\":\n1}"),
            (Kind::Namespace, "", "ns", "{}"),
            (Kind::Secret, "ns", "tls.example.com", ""),
        ])
    }

    #[test]
    fn what_is_written_is_read() {
        let file = sample();
        let entries = parse(&file).expect("whole");
        let read: Vec<_> = entries
            .iter()
            .map(|Entry { id, range, .. }| (id.kind, id.name.to_string(), &file[range.clone()]))
            .collect();
        assert_eq!(read[0], (Kind::Gateway, "ns/gw".to_owned(), &b"{\"a\":\n1}"[..]));
        assert_eq!(entries[1].id.name, ObjectName::new("", "ns"));
        assert_eq!(read[2].2, b"");
        assert_eq!(parse(&self::file(&[])), Ok(Vec::new()));
    }

    #[test]
    fn a_file_that_was_cut_off_anywhere_is_refused() {
        let file = sample();
        for len in 0..file.len() {
            assert!(parse(&file[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn a_file_that_was_damaged_anywhere_is_refused() {
        let file = sample();
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 0x01;
            // A name may become another name: what is checked is the object.
            if let Ok(entries) = parse(&damaged) {
                assert_eq!(entries.len(), 3, "{at}");
                assert!(entries.iter().all(|entry| hash(&damaged[entry.range.clone()]) == entry.hash));
            }
        }
        let mut longer = file;
        longer.push(b'\n');
        assert!(parse(&longer).is_err());
    }

    #[test]
    fn another_version_is_another_version() {
        assert_eq!(parse(b"gateway-agent state 2\nend 0\n"), Err(FormatError::Version));
        assert_eq!(parse(b""), Err(FormatError::Version));
    }
}
