//! `--state-dir`: the objects as they were accepted last, for a start while the API is away.
//!
//! Changes are gathered and written in the background ([`mod@file`]). Secrets are in it, since nothing is served without them:
//! mode 0600, and in a pod a memory-backed volume.

mod file;
mod format;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_blocking, spawn_local};
use tokio::time::sleep;

pub use self::file::StoredError;
use self::file::{Changes, StateFile};
use self::format::hash;
use super::Scope;
use super::board::Board;
use super::decode::prune;
use crate::api::Object;
use crate::api::{Kind, ObjectId};
use crate::snapshot::ObjectName;

/// Between two writes at least: endpoints of a busy namespace change several times a second.
const PACE: Duration = Duration::from_secs(1);

/// And so much more for each byte that was written, of which a megabyte takes some 5 ms of CPU, so that recording stays
/// below 1 % of a core.
const PACE_PER_BYTE: Duration = Duration::from_micros(1);

/// After a write that failed: the disk is full or gone, which takes a while to mend.
const PACE_AFTER_FAILURE: Duration = Duration::from_secs(30);

/// What a state folder holds.
pub(super) struct Stored {
    file: StateFile,
    /// In the order of their names.
    pub objects: Vec<Object>,
    hashes: BTreeMap<ObjectId, u64>,
    /// In the file, and of no use any more.
    strangers: Vec<ObjectId>,
}

/// Reads the folder, making it if need be. What is not of `scope` is not used. `Err` is about the folder; what of its file
/// cannot be used is said in the second value.
pub(super) fn open(dir: &Path, scope: &Scope) -> Result<(Stored, Option<StoredError>), StoredError> {
    let (file, places, mut trouble) = StateFile::open(dir)?;
    let mut stored = Stored { file, objects: Vec::new(), hashes: BTreeMap::new(), strangers: Vec::new() };
    for (id, place) in places {
        let json = match stored.file.object(place) {
            Ok(json) => json,
            Err(error) => {
                // It stays in the file, and is recorded anew when it is told.
                trouble.get_or_insert_with(|| StoredError::Io(dir.to_owned(), error));
                continue;
            }
        };
        match read(&id, &json).filter(|_| scope.holds(&id)) {
            Some(object) => {
                stored.hashes.insert(id, place.hash);
                stored.objects.push(object);
            }
            None => stored.strangers.push(id),
        }
    }
    Ok((stored, trouble))
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
    changes: Changes,
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
        // Namespaces are the first thing in the order of names.
        let first = ObjectId { kind, name: ObjectName::new(namespace.unwrap_or_default(), "") };
        let is_meant = |id: &&ObjectId| {
            id.kind == kind && namespace.is_none_or(|namespace| *id.name.namespace == *namespace)
        };
        let gone: Vec<ObjectId> = {
            let pending = self.0.pending.borrow();
            let listed = pending.known.range(first..).map(|(id, _)| id).take_while(is_meant);
            listed.filter(|id| !names.contains(&id.name)).cloned().collect()
        };
        for id in gone {
            self.deleted(id);
        }
    }
}

/// Starts to record. The task ends with the last write after [`Recording::finish`].
pub(super) fn record(stored: Stored, board: Rc<RefCell<Board>>) -> (Recorder, Recording) {
    let Stored { file, objects: _, hashes, strangers } = stored;
    let changes: Changes = strangers.into_iter().map(|id| (id, None)).collect();
    let wake = Notify::new();
    // Secrets of a namespace that is watched no longer may be among them.
    if !changes.is_empty() {
        wake.notify_one();
    }
    let shared = Rc::new(Shared { pending: RefCell::new(Pending { changes, known: hashes }), wake });
    let stop = Rc::new(Notify::new());
    let task = spawn_local(run(file, shared.clone(), board, stop.clone()));
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

async fn run(mut file: StateFile, shared: Rc<Shared>, board: Rc<RefCell<Board>>, stop: Rc<Notify>) {
    let mut is_last = false;
    while !is_last {
        tokio::select! {
            () = shared.wake.notified() => {}
            () = stop.notified() => is_last = true,
        }
        let Some((back, pace)) = write(file, &shared, &board).await else { return };
        file = back;
        let Some(pace) = pace else { continue };
        if !is_last {
            tokio::select! {
                () = sleep(pace) => {}
                () = stop.notified() => {
                    let _last = write(file, &shared, &board).await;
                    return;
                }
            }
        }
    }
}

/// Writes what is pending, if anything. Gives back the file and how long to wait before the next write; `None` where the
/// thread was lost.
async fn write(
    mut file: StateFile,
    shared: &Shared,
    board: &RefCell<Board>,
) -> Option<(StateFile, Option<Duration>)> {
    let (changes, n_objects) = {
        let mut pending = shared.pending.borrow_mut();
        (std::mem::take(&mut pending.changes), pending.known.len())
    };
    if changes.is_empty() {
        return Some((file, None));
    }
    let written = spawn_blocking(move || {
        let result = file.write(&changes);
        (file, changes, result)
    });
    let (file, changes, result) = written.await.ok()?;
    let is_written = result.is_ok();
    let pace = note(board, result, n_objects, &file);
    if !is_written {
        // What changed again meanwhile is newer.
        let mut pending = shared.pending.borrow_mut();
        for (id, change) in changes {
            pending.changes.entry(id).or_insert(change);
        }
        shared.wake.notify_one();
    }
    Some((file, Some(pace)))
}

/// Says how a write went; how long to wait before the next.
fn note(
    board: &RefCell<Board>,
    result: Result<u64, StoredError>,
    n_objects: usize,
    file: &StateFile,
) -> Duration {
    let mut board = board.borrow_mut();
    let record = board.stored_mut();
    match result {
        Ok(written) => {
            record.objects = n_objects as u64;
            record.bytes = file.len();
            record.written_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            if record.trouble.take().is_some() {
                tracing::info!("--state-dir can be written again");
            }
            pace(written)
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

/// Until the next write after one of so many bytes.
fn pace(written: u64) -> Duration {
    PACE + PACE_PER_BYTE * u32::try_from(written).unwrap_or(u32::MAX)
}

pub(super) fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::rc::Rc;
    use std::time::Duration;

    use serde_json::json;
    use tokio::sync::Notify;

    use super::{Recorder, Scope, Shared, Stored, open, pace};
    use crate::api::{Kind, ObjectId};
    use crate::snapshot::ObjectName;

    fn id(namespace: &str, name: &str) -> ObjectId {
        ObjectId { kind: Kind::Service, name: ObjectName::new(namespace, name) }
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
    fn after_much_was_written_the_next_write_waits_longer() {
        assert_eq!(pace(10_000), Duration::from_millis(1_010));
        assert_eq!(pace(3_000_000), Duration::from_secs(4));
    }

    #[test]
    fn what_is_not_in_a_full_list_is_gone_and_nothing_else() {
        let known = ["a/x", "b/x", "b/y", "c/x"].map(|text| text.split_once('/').expect("a name"));
        let recorder = Recorder(Rc::new(Shared { pending: RefCell::default(), wake: Notify::new() }));
        let slice = ObjectId { kind: Kind::EndpointSlice, name: ObjectName::new("b", "x") };
        recorder.applied(slice.clone(), b"{}".to_vec());
        for (namespace, name) in known {
            recorder.applied(id(namespace, name), b"{}".to_vec());
        }
        let gone = || {
            let changes = std::mem::take(&mut recorder.0.pending.borrow_mut().changes);
            changes.into_iter().filter(|(_, json)| json.is_none()).map(|(id, _)| id).collect::<Vec<_>>()
        };
        recorder.listed(Kind::Service, Some("b"), &[ObjectName::new("b", "y")].into());
        assert_eq!(gone(), [id("b", "x")]);
        recorder.listed(Kind::Service, None, &[ObjectName::new("c", "x")].into());
        assert_eq!(gone(), [id("a", "x"), id("b", "y")]);
        recorder.listed(Kind::EndpointSlice, None, &[].into());
        assert_eq!(gone(), [slice]);
    }

    #[test]
    fn what_was_written_is_there_at_the_next_start() {
        let dir = tempfile::tempdir().expect("a folder");
        let scope = Scope::Namespaces(["ns".into()].into());
        let (mut stored, trouble) = open(dir.path(), &scope).expect("made");
        assert!(stored.objects.is_empty() && trouble.is_none());
        let changes = [service("ns", "a", 80), service("ns", "b", 80), service("other", "c", 80)];
        stored.file.write(&changes.into()).expect("written");
        let changes = [(id("ns", "a"), None), service("ns", "d", 81), (id("ns", "e"), Some(b"{}".into()))];
        stored.file.write(&changes.into()).expect("written again");

        let (mut stored, trouble) = open(dir.path(), &scope).expect("there");
        assert!(trouble.is_none());
        assert_eq!(names(&stored), ["ns/b", "ns/d"]);
        let strangers = [id("ns", "e"), id("other", "c")];
        assert_eq!(stored.strangers, strangers, "no Service, and a namespace that is watched no longer");
        stored.file.write(&strangers.map(|id| (id, None)).into()).expect("written");
        let (stored, _) = open(dir.path(), &Scope::All).expect("there");
        assert_eq!((names(&stored).len(), stored.strangers.len()), (2, 0));
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1);
    }
}
