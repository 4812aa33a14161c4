//! Where the watches put what they learn: the channel to the control loop, the board, and the record on disk.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::board::Board;
use super::decode::Raw;
use super::status::Observer;
use super::stored::Recorder;
use super::{Batch, Change};
use crate::api::{Kind, ObjectId};
use crate::interner::Interner;
use crate::snapshot::ObjectName;

/// Batches under way to the control loop. A batch is a page of a list at most; a control loop that falls behind slows the
/// watches down, which read no further meanwhile.
pub(super) const QUEUE: usize = 16;

/// Cloned into every task that watches. All of them run on the control thread.
#[derive(Clone)]
pub(super) struct Feed {
    changes: mpsc::Sender<Batch>,
    board: Rc<RefCell<Board>>,
    recorder: Option<Recorder>,
    /// The writer of status, who wants to know what it has written and what others made of it.
    observer: Option<Observer>,
    idle: Duration,
    /// Of thousands of objects: whoever keeps a name keeps this one of its namespace.
    namespaces: Rc<RefCell<Interner<str>>>,
}

impl Feed {
    pub(super) fn new(
        changes: mpsc::Sender<Batch>,
        board: Rc<RefCell<Board>>,
        recorder: Option<Recorder>,
        idle: Duration,
    ) -> Self {
        Self { changes, board, recorder, observer: None, idle, namespaces: Rc::default() }
    }

    pub(super) fn observed_by(self, observer: Observer) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// An object as the API holds it, read at `version`.
    pub(super) fn observe(&self, raw: &Raw, version: &'static str) {
        if let Some(observer) = &self.observer {
            observer.applied(raw, version);
        }
    }

    pub(super) fn observe_malformed(&self, id: &ObjectId, field: &str, message: &str) {
        if let Some(observer) = &self.observer {
            observer.malformed(id, field, message);
        }
    }

    /// Hands a batch to the control loop, waiting for room. `Err`: it has ended.
    pub(super) async fn send(&self, changes: Vec<Change>) -> Result<(), mpsc::error::SendError<Batch>> {
        self.changes.send(Batch { arrived: Instant::now(), changes }).await
    }

    /// Must not be held over a wait.
    pub(super) fn board(&self) -> RefMut<'_, Board> {
        self.board.borrow_mut()
    }

    /// The same name, to be kept by many.
    pub(super) fn shared(&self, name: &ObjectName) -> ObjectName {
        let namespace = self.namespaces.borrow_mut().intern(name.namespace.clone());
        ObjectName::new(namespace, name.name.clone())
    }

    /// How long a watch may be silent.
    pub(super) const fn idle(&self) -> Duration {
        self.idle
    }

    pub(super) const fn is_recording(&self) -> bool {
        self.recorder.is_some()
    }

    pub(super) fn record(&self, id: &ObjectId, bytes: Vec<u8>) {
        if let Some(recorder) = &self.recorder {
            recorder.applied(id.clone(), bytes);
        }
    }

    pub(super) fn forget(&self, id: &ObjectId) {
        if let Some(observer) = &self.observer {
            observer.deleted(id);
        }
        if let Some(recorder) = &self.recorder {
            recorder.deleted(id.clone());
        }
    }

    pub(super) fn record_list(
        &self,
        kind: Kind,
        namespace: Option<&Arc<str>>,
        names: &std::collections::BTreeSet<ObjectName>,
    ) {
        if let Some(observer) = &self.observer {
            observer.listed(kind, namespace.map(|namespace| &**namespace), names);
        }
        if let Some(recorder) = &self.recorder {
            recorder.listed(kind, namespace.map(|namespace| &**namespace), names);
        }
    }

    /// A kind that is no longer served holds nothing.
    pub(super) fn empty_list(&self, kind: Kind, namespace: Option<Arc<str>>) -> Change {
        let names = std::collections::BTreeSet::new();
        self.record_list(kind, namespace.as_ref(), &names);
        self.board().retain_malformed(kind, namespace.as_deref(), &names);
        tracing::warn!(
            kind = kind.as_str(),
            namespace = namespace.as_deref().unwrap_or("*"),
            "the kind is served no longer, its objects are gone"
        );
        Change::Listed { kind, namespace, names }
    }
}
