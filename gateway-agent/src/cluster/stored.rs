//! `--state-dir`: the objects as they were accepted last, for a start while the API is away.
//!
//! Changes are gathered and written in the background, the whole file anew each time and put in place of the old one in
//! one step, so that a crash leaves the one or the other. What did not change is copied from the old file: in memory
//! there is only where each object lies. Secrets are in it, since nothing is served without them: mode 0600, and in a pod
//! a memory-backed volume.

mod format;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_blocking, spawn_local};
use tokio::time::sleep;

use self::format::{Entry, FormatError, HEADER, hash, head, parse, tail};
use super::Scope;
use super::board::Board;
use super::decode::prune;
use crate::api::Object;
use crate::api::{Kind, ObjectId};
use crate::snapshot::ObjectName;

const FILE: &str = "objects";
const NEXT: &str = "objects.next";

/// 5,000 routes with their Services and endpoints are under 15 MB. A volume in memory has to hold the file twice.
const MAX_FILE: u64 = 64 << 20;

/// Between two writes at least: endpoints of a busy namespace change several times a second.
const PACE: Duration = Duration::from_secs(1);

/// And so much more for each byte: every write is the whole file, of which a megabyte takes some 5 ms of CPU, so that
/// recording stays below 1 % of a core. A crash loses a second's changes of ten routes, four seconds' of 3,000, and only
/// where the API is away when the agent comes back.
const PACE_PER_BYTE: Duration = Duration::from_micros(1);

/// After a write that failed: the disk is full or gone, which takes a while to mend.
const PACE_AFTER_FAILURE: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    #[error("cannot use {0}")]
    Io(PathBuf, #[source] io::Error),
    #[error("{0} is not used: {1}")]
    Format(PathBuf, #[source] FormatError),
    #[error("{0} would be {1} bytes long, which is more than {MAX_FILE}; the last one that was not stays")]
    TooLarge(PathBuf, u64),
}

/// What a state folder holds.
pub(super) struct Stored {
    writer: Writer,
    /// In the order of the file.
    pub objects: Vec<Object>,
    hashes: BTreeMap<ObjectId, u64>,
    /// In the file, and of no use any more.
    strangers: Vec<ObjectId>,
}

/// Reads the folder, making it if need be. What is not of `scope` is not used. `Err` is about the folder; a file that
/// cannot be used is said in the second value.
pub(super) fn open(dir: &Path, scope: &Scope) -> Result<(Stored, Option<StoredError>), StoredError> {
    let failed = |error| StoredError::Io(dir.to_owned(), error);
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    let path = dir.join(FILE);
    let mut stored = Stored {
        writer: Writer { dir: dir.to_owned(), old: None, index: BTreeMap::new() },
        objects: Vec::new(),
        hashes: BTreeMap::new(),
        strangers: Vec::new(),
    };
    let bytes = match fs::metadata(&path) {
        Ok(metadata) if metadata.len() > MAX_FILE => {
            return Ok((stored, Some(StoredError::TooLarge(path, metadata.len()))));
        }
        Ok(_) => match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => return Ok((stored, Some(StoredError::Io(path, error)))),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((stored, None)),
        Err(error) => return Ok((stored, Some(StoredError::Io(path, error)))),
    };
    let entries = match parse(&bytes) {
        Ok(entries) => entries,
        Err(error) => return Ok((stored, Some(StoredError::Format(path, error)))),
    };
    stored.writer.old = Some(File::open(&path).map_err(failed)?);
    for Entry { id, hash, range } in entries {
        let object = bytes.get(range.clone()).and_then(|json| read(&id, json));
        stored.writer.index.insert(id.clone(), Place::new(&range));
        match object.filter(|_| scope.holds(&id)) {
            Some(object) => {
                stored.hashes.insert(id, hash);
                stored.objects.push(object);
            }
            None => stored.strangers.push(id),
        }
    }
    Ok((stored, None))
}

fn read(id: &ObjectId, json: &[u8]) -> Option<Object> {
    let raw = prune(id.kind, "v1", serde_json::from_slice(json).ok()?)?;
    if raw.id != *id {
        return None;
    }
    raw.into_object().ok()
}

/// Takes what the watches learn. Cloned into all of them; they run on one thread.
#[derive(Clone)]
pub(super) struct Recorder(Rc<Shared>);

struct Shared {
    pending: RefCell<Pending>,
    wake: Notify,
}

#[derive(Default)]
struct Pending {
    /// What changed since the last write; `None`: gone.
    changes: BTreeMap<ObjectId, Option<Vec<u8>>>,
    /// Everything that is recorded or about to be, by a hash of its content.
    known: BTreeMap<ObjectId, u64>,
}

impl Recorder {
    pub(super) fn applied(&self, id: ObjectId, bytes: Vec<u8>) {
        let mut pending = self.0.pending.borrow_mut();
        let hash = hash(&bytes);
        if pending.known.insert(id.clone(), hash) == Some(hash) {
            return;
        }
        pending.changes.insert(id, Some(bytes));
        self.0.wake.notify_one();
    }

    pub(super) fn deleted(&self, id: ObjectId) {
        let mut pending = self.0.pending.borrow_mut();
        if pending.known.remove(&id).is_some() {
            pending.changes.insert(id, None);
            self.0.wake.notify_one();
        }
    }

    /// What is not in a list is gone.
    pub(super) fn listed(&self, kind: Kind, namespace: Option<&str>, names: &BTreeSet<ObjectName>) {
        let is_gone = |id: &&ObjectId| {
            id.kind == kind
                && namespace.is_none_or(|namespace| *id.name.namespace == *namespace)
                && !names.contains(&id.name)
        };
        let gone: Vec<ObjectId> = self.0.pending.borrow().known.keys().filter(is_gone).cloned().collect();
        for id in gone {
            self.deleted(id);
        }
    }
}

/// Starts to record. The task ends with the last write after [`Recording::finish`].
pub(super) fn record(stored: Stored, board: Rc<RefCell<Board>>) -> (Recorder, Recording) {
    let Stored { writer, objects: _, hashes, strangers } = stored;
    let changes = strangers.into_iter().map(|id| (id, None)).collect();
    let shared =
        Rc::new(Shared { pending: RefCell::new(Pending { changes, known: hashes }), wake: Notify::new() });
    let stop = Rc::new(Notify::new());
    let task = spawn_local(run(writer, shared.clone(), board, stop.clone()));
    (Recorder(shared), Recording { task, stop })
}

/// The task that writes.
pub(super) struct Recording {
    task: JoinHandle<()>,
    stop: Rc<Notify>,
}

impl Recording {
    /// Writes what is pending and ends.
    pub(super) async fn finish(self) {
        self.stop.notify_one();
        if self.task.await.is_err() {
            tracing::warn!("the record of --state-dir ended badly");
        }
    }
}

async fn run(mut writer: Writer, shared: Rc<Shared>, board: Rc<RefCell<Board>>, stop: Rc<Notify>) {
    let mut is_last = false;
    while !is_last {
        tokio::select! {
            () = shared.wake.notified() => {}
            () = stop.notified() => is_last = true,
        }
        let changes = std::mem::take(&mut shared.pending.borrow_mut().changes);
        if changes.is_empty() {
            continue;
        }
        let written = spawn_blocking(move || {
            let result = writer.write(&changes);
            (writer, changes, result)
        });
        let Ok((back, changes, result)) = written.await else { return };
        writer = back;
        let is_written = result.is_ok();
        let pace = note(&board, result);
        if !is_written {
            // What changed again meanwhile is newer.
            let mut pending = shared.pending.borrow_mut();
            for (id, change) in changes {
                pending.changes.entry(id).or_insert(change);
            }
            shared.wake.notify_one();
        }
        if !is_last {
            tokio::select! {
                () = sleep(pace) => {}
                () = stop.notified() => {
                    is_last = true;
                    let changes = std::mem::take(&mut shared.pending.borrow_mut().changes);
                    if !changes.is_empty() {
                        let written = spawn_blocking(move || writer.write(&changes)).await;
                        if let Ok(result) = written {
                            note(&board, result);
                        }
                        return;
                    }
                }
            }
        }
    }
}

/// Says how a write went; how long to wait before the next.
fn note(board: &RefCell<Board>, result: Result<Written, StoredError>) -> Duration {
    let mut board = board.borrow_mut();
    let record = board.stored_mut();
    match result {
        Ok(Written { objects, bytes }) => {
            record.objects = objects;
            record.bytes = bytes;
            record.written_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            if record.trouble.take().is_some() {
                tracing::info!("--state-dir can be written again");
            }
            pace(bytes)
        }
        Err(error) => {
            record.failures += 1;
            let text = chain(&error);
            if record.trouble.is_none() {
                tracing::warn!(error = %text, "cannot write --state-dir, the last state stays there");
            }
            record.trouble = Some(text);
            PACE_AFTER_FAILURE
        }
    }
}

/// Until the next write after one of `bytes`.
fn pace(bytes: u64) -> Duration {
    let bytes = u32::try_from(bytes.min(MAX_FILE)).unwrap_or(u32::MAX);
    PACE + PACE_PER_BYTE * bytes
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Where an object lies in the file.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: u64,
    len: u32,
}

impl Place {
    /// The file is bounded by [`MAX_FILE`], so that both fit.
    fn new(range: &Range<usize>) -> Self {
        Self { start: range.start as u64, len: u32::try_from(range.len()).unwrap_or(u32::MAX) }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Written {
    objects: u64,
    bytes: u64,
}

struct Writer {
    dir: PathBuf,
    old: Option<File>,
    index: BTreeMap<ObjectId, Place>,
}

impl Writer {
    /// Writes the file anew with `changes`. After an error nothing has changed.
    fn write(&mut self, changes: &BTreeMap<ObjectId, Option<Vec<u8>>>) -> Result<Written, StoredError> {
        let result = self.replace(changes);
        if result.is_err() {
            // It may fill the disk that others need; if it cannot be removed, the next write tries.
            let _best_effort = fs::remove_file(self.dir.join(NEXT));
        }
        result
    }

    fn replace(&mut self, changes: &BTreeMap<ObjectId, Option<Vec<u8>>>) -> Result<Written, StoredError> {
        let next = self.dir.join(NEXT);
        let failed = |error| StoredError::Io(next.clone(), error);
        // A leftover of a crash may have another mode.
        if let Err(error) = fs::remove_file(&next)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(failed(error));
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&next)
            .map_err(failed)?;
        let mut output = Output { file: BufWriter::new(file), at: 0 };
        let mut index = BTreeMap::new();
        let mut copy = Vec::new();
        output.put(HEADER.as_bytes()).map_err(failed)?;
        let kept = self.index.keys().filter(|id| !changes.contains_key(*id));
        let added = changes.iter().filter(|(_, change)| change.is_some()).map(|(id, _)| id);
        for id in kept.chain(added) {
            let json = match changes.get(id) {
                Some(Some(json)) => json.as_slice(),
                _ => {
                    self.copy(id, &mut copy).map_err(failed)?;
                    copy.as_slice()
                }
            };
            output.put(head(id, json.len(), hash(json)).as_bytes()).map_err(failed)?;
            let len = u32::try_from(json.len()).unwrap_or(u32::MAX);
            index.insert(id.clone(), Place { start: output.at, len });
            output.put(json).map_err(failed)?;
            output.put(b"\n").map_err(failed)?;
            if output.at > MAX_FILE {
                return Err(StoredError::TooLarge(self.dir.join(FILE), output.at));
            }
        }
        output.put(tail(index.len()).as_bytes()).map_err(failed)?;
        let bytes = output.at;
        let file = output.file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_data().map_err(failed)?;
        fs::rename(&next, self.dir.join(FILE)).map_err(failed)?;
        let objects = index.len() as u64;
        self.old = Some(file);
        self.index = index;
        Ok(Written { objects, bytes })
    }

    fn copy(&self, id: &ObjectId, to: &mut Vec<u8>) -> io::Result<()> {
        let (Some(old), Some(place)) = (&self.old, self.index.get(id)) else {
            return Err(io::Error::other("an object is not where it was"));
        };
        to.resize(place.len as usize, 0);
        old.read_exact_at(to, place.start)
    }
}

struct Output {
    file: BufWriter<File>,
    at: u64,
}

impl Output {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use serde_json::json;

    use super::{FILE, MAX_FILE, NEXT, Scope, Stored, StoredError, open, pace};
    use crate::api::{Kind, ObjectId};
    use crate::snapshot::ObjectName;

    fn id(namespace: &str, name: &str) -> ObjectId {
        let name = ObjectName::new(namespace, name);
        ObjectId { kind: Kind::Service, name }
    }

    fn service(namespace: &str, name: &str, port: u16) -> (ObjectId, Option<Vec<u8>>) {
        let value = json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"ports": [{"port": port}]},
        });
        (id(namespace, name), Some(value.to_string().into_bytes()))
    }

    fn names(stored: &Stored) -> Vec<String> {
        stored.hashes.keys().map(|id| id.name.to_string()).collect()
    }

    #[test]
    fn large_files_are_written_less_often() {
        assert_eq!(pace(10_000), Duration::from_millis(1_010));
        assert_eq!(pace(3_000_000), Duration::from_secs(4));
        assert_eq!(pace(u64::MAX), pace(MAX_FILE));
    }

    #[test]
    fn what_was_written_is_there_at_the_next_start() {
        let dir = tempfile::tempdir().expect("a folder");
        let state = dir.path().join("state");
        let scope = Scope::Namespaces(["ns".into()].into());
        let (mut stored, trouble) = open(&state, &scope).expect("made");
        assert!(stored.objects.is_empty() && trouble.is_none());
        let changes =
            BTreeMap::from([service("ns", "a", 80), service("ns", "b", 80), service("other", "c", 80)]);
        stored.writer.write(&changes).expect("written");
        let changes = BTreeMap::from([(id("ns", "a"), None), service("ns", "d", 81)]);
        stored.writer.write(&changes).expect("written again");

        let (mut stored, trouble) = open(&state, &scope).expect("there");
        assert!(trouble.is_none());
        assert_eq!(names(&stored), ["ns/b", "ns/d"]);
        assert_eq!(stored.strangers, [id("other", "c")], "a namespace that is watched no longer");
        let file = state.join(FILE);
        assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
        stored.writer.write(&BTreeMap::from([(id("other", "c"), None)])).expect("written");
        assert!(!fs::read_to_string(&file).expect("text").contains("other"));
    }

    #[test]
    fn a_damaged_file_is_said_and_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        let (mut stored, _) = open(dir.path(), &Scope::All).expect("made");
        stored.writer.write(&BTreeMap::from([service("ns", "a", 80)])).expect("written");
        let file = dir.path().join(FILE);
        let text = fs::read_to_string(&file).expect("text");
        fs::write(&file, text.replace("80", "81")).expect("damaged");
        fs::write(dir.path().join(NEXT), "half of a").expect("a leftover");
        let (mut stored, trouble) = open(dir.path(), &Scope::All).expect("there");
        assert!(matches!(trouble, Some(StoredError::Format(..))));
        assert!(stored.objects.is_empty());
        stored.writer.write(&BTreeMap::from([service("ns", "b", 80)])).expect("written");
        assert_eq!(names(&open(dir.path(), &Scope::All).expect("there").0), ["ns/b"]);
    }

    #[test]
    fn a_state_that_is_too_large_leaves_the_last_one_that_was_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let (mut stored, _) = open(dir.path(), &Scope::All).expect("made");
        stored.writer.write(&BTreeMap::from([service("ns", "a", 80)])).expect("written");
        let large: BTreeMap<_, _> =
            (0..70).map(|n| (id("ns", &format!("l{n}")), Some(vec![b' '; 1 << 20]))).collect();
        assert!(matches!(stored.writer.write(&large), Err(StoredError::TooLarge(..))));
        assert_eq!(names(&open(dir.path(), &Scope::All).expect("there").0), ["ns/a"]);
        stored.writer.write(&BTreeMap::from([service("ns", "b", 80)])).expect("and goes on");
    }
}
