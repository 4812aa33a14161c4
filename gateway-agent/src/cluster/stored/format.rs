//! The file of `--state-dir`: a header and batches of changes, each of which holds as a whole or not at all.
//!
//! A change is a line `KIND NAMESPACE NAME BYTES HASH` and the object as JSON, or a line `KIND NAMESPACE NAME gone HASH`;
//! the hash is over all of it. A batch ends with the number of its changes. The first is every object that there was when
//! the file was made. A later one that is cut off or damaged, which is what a crash leaves, ends what is read; where the
//! first one is not whole the file is refused, as is another version's.
//!
//! **Invariant:** reads what it is given, and nothing else.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, Read as _};

use crate::api::{Kind, ObjectId};
use crate::cluster::kinds::{WATCHED, resource};
use crate::snapshot::ObjectName;

/// Grows with every change of the format or of what is pruned.
pub(super) const HEADER: &str = "gateway-agent state 2\n";

/// Stands for "in no namespace", which is no name of one.
const NONE: &str = "-";

/// In the place of a length.
const GONE: &str = "gone";

/// A line: a kind, two names of at most 253 characters each, two numbers.
const MAX_LINE: u64 = 1024;

#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error("it is not of this version of the agent")]
    Version,
    #[error("it was cut off")]
    Truncated,
    #[error("it is damaged at byte {0}")]
    Damaged(u64),
    #[error("it cannot be read")]
    Io(#[from] io::Error),
}

/// Where an object's JSON lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub start: u64,
    pub len: u32,
    /// Of the object.
    pub hash: u64,
}

pub(super) type Places = BTreeMap<ObjectId, Place>;

/// What a file holds.
#[derive(Debug)]
pub(super) struct Contents {
    pub objects: Places,
    /// Bytes up to the end of the last batch that is whole.
    pub len: u64,
    /// Why not all batches were read.
    pub cut: Option<FormatError>,
}

/// One change as it is written; `None`: the object is gone.
pub(super) fn put(to: &mut Vec<u8>, id: &ObjectId, json: Option<&[u8]>) {
    let kind = id.kind.as_str();
    let namespace = if id.name.namespace.is_empty() { NONE } else { &id.name.namespace };
    let mut line = format!("{kind} {namespace} {} ", id.name.name);
    // Writing to a String cannot fail.
    let _infallible = match json {
        Some(json) => write!(line, "{}", json.len()),
        None => line.write_str(GONE),
    };
    let json = json.unwrap_or_default();
    let sum = proceed(hash(line.as_bytes()), json);
    to.extend_from_slice(line.as_bytes());
    to.extend_from_slice(format!(" {sum:016x}\n").as_bytes());
    to.extend_from_slice(json);
    if !json.is_empty() {
        to.push(b'\n');
    }
}

/// What ends a batch of `count` changes.
pub(super) fn end(to: &mut Vec<u8>, count: usize) {
    to.extend_from_slice(format!("end {count}\n").as_bytes());
}

/// FNV-1a, 64 bits: damage on the way to a disk is found, intent is not.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    proceed(0xcbf2_9ce4_8422_2325, bytes)
}

fn proceed(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Finds every object.
pub(super) fn read(input: &mut impl BufRead) -> Result<Contents, FormatError> {
    let mut reader = Reader { input, at: 0, line: Vec::new(), json: Vec::new() };
    reader.read_line()?;
    if reader.line != HEADER.as_bytes() {
        return Err(FormatError::Version);
    }
    let mut contents = Contents { objects: Places::new(), len: 0, cut: None };
    let mut is_first = true;
    loop {
        match reader.batch() {
            Ok(Some(changes)) => {
                for (id, place) in changes {
                    match place {
                        Some(place) => contents.objects.insert(id, place),
                        None => contents.objects.remove(&id),
                    };
                }
                contents.len = reader.at;
                is_first = false;
            }
            Ok(None) if is_first => return Err(FormatError::Truncated),
            Ok(None) => return Ok(contents),
            Err(error) if is_first => return Err(error),
            Err(error) => {
                contents.cut = Some(error);
                return Ok(contents);
            }
        }
    }
}

type Change = (ObjectId, Option<Place>);

struct Reader<'a, R> {
    input: &'a mut R,
    at: u64,
    line: Vec<u8>,
    json: Vec<u8>,
}

impl<R: BufRead> Reader<'_, R> {
    /// Up to and with the newline; empty at the end of the file.
    fn read_line(&mut self) -> Result<(), FormatError> {
        self.line.clear();
        self.at += self.input.by_ref().take(MAX_LINE).read_until(b'\n', &mut self.line)? as u64;
        Ok(())
    }

    /// The next batch; `None` at the end of the file.
    fn batch(&mut self) -> Result<Option<Vec<Change>>, FormatError> {
        let mut changes = Vec::new();
        loop {
            let start = self.at;
            self.read_line()?;
            if self.line.is_empty() && changes.is_empty() {
                return Ok(None);
            }
            let line = self.line.strip_suffix(b"\n").ok_or(FormatError::Truncated)?;
            let line = str::from_utf8(line).map_err(|_not_text| FormatError::Damaged(start))?;
            if let Some(count) = line.strip_prefix("end ") {
                let is_whole = count.parse() == Ok(changes.len());
                return if is_whole { Ok(Some(changes)) } else { Err(FormatError::Damaged(start)) };
            }
            let head = Head::parse(line).ok_or(FormatError::Damaged(start))?;
            let sum = hash(head.covered.as_bytes());
            let (id, is_gone, len, expected) = (head.id, head.is_gone, head.len, head.hash);
            let json_at = self.at;
            self.read_json(len)?;
            if proceed(sum, &self.json) != expected {
                return Err(FormatError::Damaged(start));
            }
            let place = Place { start: json_at, len, hash: hash(&self.json) };
            changes.push((id, (!is_gone).then_some(place)));
        }
    }

    /// And the newline behind it.
    fn read_json(&mut self, len: u32) -> Result<(), FormatError> {
        self.json.clear();
        if len == 0 {
            return Ok(());
        }
        // Grows by what is there: a length that was damaged asks for no memory.
        let wanted = u64::from(len) + 1;
        self.at += self.input.by_ref().take(wanted).read_to_end(&mut self.json)? as u64;
        if (self.json.len() as u64) < wanted {
            return Err(FormatError::Truncated);
        }
        if self.json.pop() == Some(b'\n') { Ok(()) } else { Err(FormatError::Damaged(self.at)) }
    }
}

/// The line before an object.
struct Head<'a> {
    id: ObjectId,
    is_gone: bool,
    len: u32,
    hash: u64,
    /// What of the line the hash is over.
    covered: &'a str,
}

impl<'a> Head<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (covered, hash) = line.rsplit_once(' ')?;
        let hash = u64::from_str_radix(hash, 16).ok()?;
        let mut words = covered.split(' ');
        let kind = kind(words.next()?)?;
        let (namespace, name, what) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() || name.is_empty() {
            return None;
        }
        let is_gone = what == GONE;
        let len = if is_gone { 0 } else { what.parse().ok()? };
        let name = ObjectName::new(if namespace == NONE { "" } else { namespace }, name);
        Some(Self { id: ObjectId { kind, name }, is_gone, len, hash, covered })
    }
}

fn kind(name: &str) -> Option<Kind> {
    WATCHED.into_iter().chain([Kind::Namespace]).find(|kind| resource(*kind).kind == name)
}

#[cfg(test)]
mod tests {
    use super::{Contents, FormatError, HEADER, Place, end, hash, put, read};
    use crate::api::{Kind, ObjectId};
    use crate::snapshot::ObjectName;

    type Objects<'a> = &'a [(Kind, &'a str, &'a str, Option<&'a str>)];

    fn batch(file: &mut Vec<u8>, changes: Objects<'_>) {
        for (kind, namespace, name, json) in changes {
            let id = ObjectId { kind: *kind, name: ObjectName::new(*namespace, *name) };
            put(file, &id, json.map(str::as_bytes));
        }
        end(file, changes.len());
    }

    const FIRST: Objects<'_> = &[
        (Kind::Gateway, "ns", "gw", Some("{\"a\":\n1}")),
        (Kind::Namespace, "", "ns", Some("{}")),
        (Kind::Secret, "ns", "tls.example.com", Some("")),
    ];
    const SECOND: Objects<'_> =
        &[(Kind::Gateway, "ns", "gw", Some("{\"b\": 2}")), (Kind::Secret, "ns", "tls.example.com", None)];

    /// The file, and where its first batch ends.
    fn sample() -> (Vec<u8>, usize) {
        let mut file = HEADER.as_bytes().to_vec();
        batch(&mut file, FIRST);
        let len = file.len();
        batch(&mut file, SECOND);
        (file, len)
    }

    fn shown(file: &[u8], contents: &Contents) -> Vec<String> {
        let show = |(id, Place { start, len, hash: sum }): (&ObjectId, &Place)| {
            let json = &file[*start as usize..][..*len as usize];
            assert_eq!(hash(json), *sum);
            format!("{} {} {}", id.kind.as_str(), id.name, String::from_utf8_lossy(json))
        };
        contents.objects.iter().map(show).collect()
    }

    const AFTER_FIRST: [&str; 3] =
        ["Gateway ns/gw {\"a\":\n1}", "Namespace /ns {}", "Secret ns/tls.example.com "];
    const AFTER_BOTH: [&str; 2] = ["Gateway ns/gw {\"b\": 2}", "Namespace /ns {}"];

    #[test]
    fn what_is_written_is_read() {
        let (file, first) = sample();
        let contents = read(&mut &file[..]).expect("whole");
        assert_eq!(shown(&file, &contents), AFTER_BOTH);
        assert_eq!((contents.len, contents.cut.is_none()), (file.len() as u64, true));
        let contents = read(&mut &file[..first]).expect("whole");
        assert_eq!(shown(&file, &contents), AFTER_FIRST);
        let mut empty = HEADER.as_bytes().to_vec();
        batch(&mut empty, &[]);
        assert!(read(&mut &empty[..]).expect("whole").objects.is_empty());
    }

    #[test]
    fn of_a_file_that_was_cut_off_the_batches_before_are_read() {
        let (file, first) = sample();
        for len in 0..file.len() {
            let contents = read(&mut &file[..len]);
            if len < first {
                assert!(contents.is_err(), "{len}");
                continue;
            }
            let contents = contents.expect("the first batch is whole");
            assert_eq!(shown(&file, &contents), AFTER_FIRST, "{len}");
            assert_eq!(contents.len, first as u64);
            assert_eq!(contents.cut.is_some(), len > first, "{len}");
        }
    }

    #[test]
    fn of_a_file_that_was_damaged_the_batches_before_are_read() {
        let (file, first) = sample();
        for (at, bit) in (0..file.len()).flat_map(|at| [0x01, 0x20, 0x80].map(|bit| (at, bit))) {
            let mut damaged = file.clone();
            damaged[at] ^= bit;
            let contents = read(&mut &damaged[..]);
            // An `F` of a hash is an `f`.
            if let Ok(Contents { cut: None, .. }) = &contents {
                assert_eq!(damaged.to_ascii_lowercase(), file.to_ascii_lowercase(), "{at}");
            } else if at < first {
                assert!(contents.is_err(), "{at}");
            } else {
                assert_eq!(shown(&damaged, &contents.expect("the first is whole")), AFTER_FIRST, "{at}");
            }
        }
    }

    #[test]
    fn another_version_is_another_version() {
        for file in [&b"gateway-agent state 1\nend 0\n"[..], b""] {
            assert!(matches!(read(&mut &file[..]), Err(FormatError::Version)));
        }
    }
}
