//! The file and its ways: what changes is appended, so that a change costs what changed; once a third of the file was
//! appended, or where a Secret changes, it is written anew beside the old one and put in its place in one step.
//!
//! A crash leaves the changes up to some write. In memory there is nothing of what is in the file.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::format::{Contents, FormatError, HEADER, Place, Places, end, put, read};
use crate::api::{Kind, ObjectId};

const FILE: &str = "objects";
const NEXT: &str = "objects.next";

/// 5,000 routes with their Services and endpoints are under 15 MB. A volume (`deploy/`) has to hold the objects two and a
/// half times: once and a half in the file, once beside it.
const MAX_FILE: u64 = 64 << 20;

/// So much may be appended in any case: some 200 changes.
const SLACK: u64 = 256 << 10;

#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    #[error("cannot use {0}")]
    Io(PathBuf, #[source] io::Error),
    #[error("{0} is not used")]
    Unusable(PathBuf, #[source] FormatError),
    #[error("{0} is used but for its last changes")]
    Cut(PathBuf, #[source] FormatError),
    #[error("{0} was damaged: nothing is recorded until the agent starts again")]
    Damaged(PathBuf, #[source] FormatError),
    #[error("{0} would be {1} bytes long, which is more than {MAX_FILE}; the last one that was not stays")]
    TooLarge(PathBuf, u64),
}

/// Each object's JSON, or that it is gone.
pub(super) type Changes = BTreeMap<ObjectId, Option<Vec<u8>>>;

pub(super) struct StateFile {
    dir: PathBuf,
    current: Option<Current>,
}

struct Current {
    file: File,
    len: u64,
    /// Of `len`: behind the first batch.
    appended: u64,
    /// Nothing may be appended.
    is_closed: bool,
}

impl StateFile {
    /// In a folder that is made if need be, and what is in it. `Err` is about the folder; what of a file cannot be used is
    /// said in the last value.
    pub(super) fn open(dir: &Path) -> Result<(Self, Places, Option<StoredError>), StoredError> {
        let failed = |error| StoredError::Io(dir.to_owned(), error);
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        let mut this = Self { dir: dir.to_owned(), current: None };
        let path = dir.join(FILE);
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((this, Places::new(), None));
            }
            Err(error) => return Ok((this, Places::new(), Some(StoredError::Io(path, error)))),
        };
        match contents(&file, MAX_FILE) {
            Ok(Contents { objects, len, cut }) => {
                // Where the first batch ends is not known any more: it is written anew soon.
                this.current = Some(Current { file, len, appended: len / 2, is_closed: cut.is_some() });
                Ok((this, objects, cut.map(|cut| StoredError::Cut(path, cut))))
            }
            Err(error) => Ok((this, Places::new(), Some(StoredError::Unusable(path, error)))),
        }
    }

    /// The JSON of an object that was found there.
    pub(super) fn object(&self, place: Place) -> io::Result<Vec<u8>> {
        let mut json = Vec::new();
        self.copy(place, &mut json)?;
        Ok(json)
    }

    /// Bytes.
    pub(super) fn len(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.len)
    }

    /// Gives how many bytes were written. After an error the file is as it was.
    pub(super) fn write(&mut self, changes: &Changes) -> Result<u64, StoredError> {
        let mut batch = Vec::new();
        for (id, json) in changes {
            put(&mut batch, id, json.as_deref());
        }
        end(&mut batch, changes.len());
        let path = self.dir.join(FILE);
        match &mut self.current {
            Some(current) if !leaves_secrets(changes) && current.takes(&path, batch.len() as u64) => {
                current.append(&batch).map_err(|error| StoredError::Io(path, error))?;
                Ok(batch.len() as u64)
            }
            _ => {
                let result = self.renew(changes);
                if result.is_err() {
                    // It may fill the disk that others need; if it cannot be removed, the next write tries.
                    let _best_effort = fs::remove_file(self.dir.join(NEXT));
                }
                result
            }
        }
    }

    /// Writes the file anew with `changes`.
    fn renew(&mut self, changes: &Changes) -> Result<u64, StoredError> {
        let path = self.dir.join(FILE);
        let next = self.dir.join(NEXT);
        let failed = |error| StoredError::Io(next.clone(), error);
        let mut kept = match &self.current {
            Some(current) => match contents(&current.file, current.len) {
                Ok(Contents { objects, cut: None, .. }) => objects,
                Ok(Contents { cut: Some(error), .. }) | Err(error) => {
                    return Err(StoredError::Damaged(path, error));
                }
            },
            None => Places::new(),
        };
        kept.retain(|id, _| !changes.contains_key(id));
        let mut output = Output::create(&next).map_err(failed)?;
        output.put(HEADER.as_bytes()).map_err(failed)?;
        let (mut record, mut json) = (Vec::new(), Vec::new());
        let added = changes.iter().filter_map(|(id, json)| Some((id, json.as_deref()?)));
        let count = kept.len() + added.clone().count();
        for (id, place) in &kept {
            self.copy(*place, &mut json).map_err(failed)?;
            put(&mut record, id, Some(&json));
            output.put(&record).map_err(failed)?;
            record.clear();
        }
        for (id, json) in added {
            put(&mut record, id, Some(json));
            output.put(&record).map_err(failed)?;
            record.clear();
            if output.len > MAX_FILE {
                return Err(StoredError::TooLarge(path, output.len));
            }
        }
        end(&mut record, count);
        output.put(&record).map_err(failed)?;
        let len = output.len;
        let file = output.file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_data().map_err(failed)?;
        fs::rename(&next, path).map_err(failed)?;
        self.current = Some(Current { file, len, appended: 0, is_closed: false });
        Ok(len)
    }

    fn copy(&self, place: Place, to: &mut Vec<u8>) -> io::Result<()> {
        let current = self.current.as_ref().ok_or(io::ErrorKind::NotFound)?;
        to.resize(place.len as usize, 0);
        current.file.read_exact_at(to, place.start)
    }
}

impl Current {
    /// Whether a batch of `len` bytes may be appended.
    fn takes(&self, path: &Path, len: u64) -> bool {
        let first = self.len - self.appended;
        !self.is_closed
            && self.appended + len <= SLACK.max(first / 2)
            && self.len + len <= MAX_FILE
            // Somebody may have emptied the folder, or the file.
            && fs::metadata(path).is_ok_and(|there| {
                let ours = self.file.metadata();
                ours.is_ok_and(|ours| (there.dev(), there.ino()) == (ours.dev(), ours.ino()))
                    && there.len() == self.len
            })
    }

    fn append(&mut self, batch: &[u8]) -> io::Result<()> {
        let written = self.file.write_all_at(batch, self.len).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // What was written of it is taken back, for it may fill the disk that others need; if that fails too, readers
            // leave out what is not whole.
            let _best_effort = self.file.set_len(self.len);
            self.is_closed = true;
            return written;
        }
        self.len += batch.len() as u64;
        self.appended += batch.len() as u64;
        Ok(())
    }
}

/// Whether, appended, they could leave something behind that is to be seen no more.
fn leaves_secrets(changes: &Changes) -> bool {
    changes.keys().any(|id| id.kind == Kind::Secret)
}

/// Of the first `len` bytes.
fn contents(mut file: &File, len: u64) -> Result<Contents, FormatError> {
    file.rewind()?;
    read(&mut BufReader::new(file.take(len)))
}

struct Output {
    file: BufWriter<File>,
    len: u64,
}

impl Output {
    fn create(path: &Path) -> io::Result<Self> {
        // A leftover of a crash may have another mode.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Self { file: BufWriter::new(file), len: 0 })
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.len += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::{Changes, FILE, NEXT, SLACK, StateFile, StoredError};
    use crate::api::{Kind, ObjectId};
    use crate::snapshot::ObjectName;

    fn id(name: &str) -> ObjectId {
        ObjectId { kind: Kind::Service, name: ObjectName::new("ns", name) }
    }

    fn change(name: &str, json: &str) -> (ObjectId, Option<Vec<u8>>) {
        (id(name), Some(json.into()))
    }

    /// Each object as `name json`.
    fn stored(dir: &Path) -> (Vec<String>, Option<StoredError>) {
        let (file, objects, trouble) = StateFile::open(dir).expect("a folder");
        let show = |(id, place): (&ObjectId, &_)| {
            let json = file.object(*place).expect("there");
            format!("{} {}", id.name.name, String::from_utf8(json).expect("text"))
        };
        (objects.iter().map(show).collect(), trouble)
    }

    fn new(dir: &Path) -> StateFile {
        StateFile::open(dir).expect("made").0
    }

    #[test]
    fn changes_are_appended_and_the_last_of_an_object_counts() {
        let dir = tempfile::tempdir().expect("a folder");
        let state = dir.path().join("state");
        let mut file = new(&state);
        let all = file.write(&[change("a", "1"), change("b", "2")].into()).expect("written");
        let more =
            file.write(&[(id("a"), None), change("b", "3"), change("c", "4")].into()).expect("appended");
        assert_eq!(fs::metadata(state.join(FILE)).expect("a file").len(), all + more);
        assert_eq!(file.len(), all + more);
        assert_eq!(fs::metadata(state.join(FILE)).expect("a file").permissions().mode() & 0o777, 0o600);
        let (objects, trouble) = stored(&state);
        assert_eq!((objects, trouble.is_none()), (vec!["b 3".to_owned(), "c 4".to_owned()], true));
    }

    #[test]
    fn a_file_grows_to_half_as_much_again_and_is_then_written_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut file = new(dir.path());
        let text = "x".repeat(10_000);
        let all: Changes = (0..100).map(|n| change(&format!("o{n:02}"), &text)).collect();
        let first = file.write(&all).expect("written");
        assert!(first / 2 > SLACK);
        let (mut written, mut longest, mut n_renewed) = (0, 0, 0);
        for n in 0..300 {
            let bytes = file.write(&[change("o50", &format!("{n:05}{text}"))].into()).expect("written");
            written += bytes;
            n_renewed += usize::from(bytes >= first);
            longest = longest.max(file.len());
        }
        assert!(longest <= first + first / 2, "{longest} of {first}");
        assert!(n_renewed > 3 && written < 300 * 40_000, "{n_renewed} times, {written} bytes");
        let (objects, trouble) = stored(dir.path());
        assert_eq!((objects.len(), trouble.is_none()), (100, true));
        assert!(objects[50].starts_with("o50 00299x"));
    }

    #[test]
    fn changes_that_a_crash_cut_off_are_left_out_and_said() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut file = new(dir.path());
        file.write(&[change("a", "1")].into()).expect("written");
        file.write(&[change("b", "2")].into()).expect("appended");
        let len = file.len();
        file.write(&[change("a", "3"), change("c", "4")].into()).expect("appended");
        let path = dir.path().join(FILE);
        OpenOptions::new().write(true).open(&path).expect("a file").set_len(file.len() - 3).expect("cut");

        let (mut file, _, trouble) = StateFile::open(dir.path()).expect("there");
        assert!(matches!(trouble, Some(StoredError::Cut(..))));
        assert_eq!((stored(dir.path()).0, file.len()), (vec!["a 1".to_owned(), "b 2".to_owned()], len));
        file.write(&[change("d", "5")].into()).expect("anew");
        let (objects, trouble) = stored(dir.path());
        assert_eq!((objects.join(", "), trouble.is_none()), ("a 1, b 2, d 5".to_owned(), true));
    }

    #[test]
    fn a_damaged_file_is_said_and_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        new(dir.path()).write(&[change("a", "80")].into()).expect("written");
        let path = dir.path().join(FILE);
        let text = fs::read_to_string(&path).expect("text");
        fs::write(&path, text.replace("80", "81")).expect("damaged");
        fs::write(dir.path().join(NEXT), "half of a").expect("a leftover");
        let (mut file, objects, trouble) = StateFile::open(dir.path()).expect("there");
        assert!(matches!(trouble, Some(StoredError::Unusable(..))));
        assert!(objects.is_empty());
        file.write(&[change("b", "1")].into()).expect("written");
        assert_eq!(stored(dir.path()).0, ["b 1"]);
    }

    #[test]
    fn nothing_is_left_of_a_secret_that_changed_or_went() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut file = new(dir.path());
        let secret = ObjectId { kind: Kind::Secret, name: ObjectName::new("ns", "s") };
        file.write(&[(secret.clone(), Some(b"first".into())), change("a", "1")].into()).expect("written");
        let has = |text| fs::read_to_string(dir.path().join(FILE)).expect("text").contains(text);
        assert!(has("first"));
        file.write(&[(secret.clone(), Some(b"second".into()))].into()).expect("written");
        assert!(has("second") && !has("first"));
        file.write(&[(secret, None)].into()).expect("written");
        assert!(!has("second"));
        assert_eq!(stored(dir.path()).0, ["a 1"]);
    }

    #[test]
    fn a_file_that_was_taken_away_is_made_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut file = new(dir.path());
        file.write(&[change("a", "1")].into()).expect("written");
        fs::remove_file(dir.path().join(FILE)).expect("removed");
        file.write(&[change("b", "2")].into()).expect("anew");
        assert_eq!(stored(dir.path()).0, ["a 1", "b 2"]);
    }

    #[test]
    fn a_file_that_others_changed_is_not_appended_to_and_that_is_said() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut file = new(dir.path());
        file.write(&[change("a", "1")].into()).expect("written");
        OpenOptions::new()
            .write(true)
            .open(dir.path().join(FILE))
            .expect("a file")
            .set_len(0)
            .expect("emptied");
        let result = file.write(&[change("b", "2")].into());
        assert!(matches!(result, Err(StoredError::Damaged(..))));
    }

    #[test]
    fn a_state_that_is_too_large_leaves_the_last_one_that_was_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut file = new(dir.path());
        file.write(&[change("a", "1")].into()).expect("written");
        let large: Changes = (0..70).map(|n| (id(&format!("l{n}")), Some(vec![b' '; 1 << 20]))).collect();
        assert!(matches!(file.write(&large), Err(StoredError::TooLarge(..))));
        assert!(!dir.path().join(NEXT).exists());
        assert_eq!(stored(dir.path()).0, ["a 1"]);
        file.write(&[change("b", "2")].into()).expect("and goes on");
        assert_eq!(stored(dir.path()).0, ["a 1", "b 2"]);
    }
}
