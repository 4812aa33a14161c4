//! The statuses of all objects, each object once, in kind, namespace and name order.
//!
//! Sorted chunks behind pointers: a new version makes those chunks anew in which something changed, and shares the others
//! with the one before. So of thousands of statuses nothing is touched but the neighbours of what changed, and
//! [`super::differences`] passes over whatever is the same in memory.
//!
//! **Invariant:** pure. No chunk is empty.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::ObjectStatus;
use crate::snapshot::ObjectName;

/// Statuses in one chunk. A change copies the pointers of a chunk, and those to all chunks: for thousands of statuses
/// that is least where both are some dozens.
const MAX: usize = 64;

/// A chunk that shrinks below this takes in a neighbour: what comes and goes must not leave ever more small chunks.
const MIN: usize = MAX / 4;

pub(super) type Chunk = Arc<[Arc<ObjectStatus>]>;

/// What becomes of objects: their new status, or `None` where they have none of ours any more.
pub type StatusChanges = BTreeMap<(&'static str, ObjectName), Option<Arc<ObjectStatus>>>;

/// A copy is one pointer.
#[derive(Clone, Debug, Default)]
pub struct StatusList {
    chunks: Arc<Vec<Chunk>>,
}

impl StatusList {
    /// Brings the list up to date.
    pub fn apply(&mut self, changes: StatusChanges) {
        if changes.is_empty() {
            return;
        }
        let chunks = Arc::make_mut(&mut self.chunks);
        let mut changes = changes.into_iter().peekable();
        while let Some(((kind, name), _)) = changes.peek() {
            let place = place(chunks, kind, name);
            let old = chunks.get(place).cloned().unwrap_or_default();
            let next = chunks.get(place + 1).and_then(|next| next.first()).cloned();
            let is_here = |kind: &str, name: &ObjectName| {
                next.as_ref().is_none_or(|next| order(next, kind, name) == Ordering::Greater)
            };
            let here = std::iter::from_fn(|| changes.next_if(|((kind, name), _)| is_here(kind, name)));
            put(chunks, place, merged(&old, here));
        }
    }

    /// The status of an object.
    pub fn find(&self, kind: &str, name: &ObjectName) -> Option<&Arc<ObjectStatus>> {
        let chunk = self.chunks.get(place(&self.chunks, kind, name))?;
        let position = chunk.binary_search_by(|status| order(status, kind, name)).ok()?;
        chunk.get(position)
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ObjectStatus>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// Those of one kind, without going through the others.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Arc<ObjectStatus>> {
        let is_before = |chunk: &Chunk| chunk.last().is_some_and(|last| last.kind < kind);
        let first = self.chunks.partition_point(is_before);
        let all = self.chunks.iter().skip(first).flat_map(|chunk| chunk.iter());
        all.skip_while(move |status| status.kind < kind).take_while(move |status| status.kind == kind)
    }

    /// Whether it is the very same in memory.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.chunks, &other.chunks)
    }

    pub(super) fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }
}

/// Where the chunks begin and end does not matter.
impl PartialEq for StatusList {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.iter().eq(other.iter())
    }
}

impl Eq for StatusList {}

/// Of an object that is there twice, the last status counts.
impl FromIterator<Arc<ObjectStatus>> for StatusList {
    fn from_iter<I: IntoIterator<Item = Arc<ObjectStatus>>>(statuses: I) -> Self {
        let mut list = Self::default();
        list.apply(
            statuses.into_iter().map(|status| ((status.kind, status.name.clone()), Some(status))).collect(),
        );
        list
    }
}

/// How `status` stands to an object of that name.
pub(super) fn order(status: &ObjectStatus, kind: &str, name: &ObjectName) -> Ordering {
    (status.kind, &status.name).cmp(&(kind, name))
}

/// The chunk in which the status of an object is, or would have to be.
fn place(chunks: &[Chunk], kind: &str, name: &ObjectName) -> usize {
    let is_before =
        |chunk: &Chunk| chunk.first().is_some_and(|first| order(first, kind, name) != Ordering::Greater);
    chunks.partition_point(is_before).saturating_sub(1)
}

/// Both in order: what `changes` says in the place of the old ones.
fn merged(
    old: &[Arc<ObjectStatus>],
    changes: impl Iterator<Item = ((&'static str, ObjectName), Option<Arc<ObjectStatus>>)>,
) -> Vec<Arc<ObjectStatus>> {
    let mut all = Vec::with_capacity(old.len() + 1);
    let mut old = old.iter().peekable();
    for ((kind, name), status) in changes {
        while let Some(before) = old.next_if(|one| order(one, kind, &name) == Ordering::Less) {
            all.push(before.clone());
        }
        old.next_if(|one| order(one, kind, &name) == Ordering::Equal);
        all.extend(status);
    }
    all.extend(old.cloned());
    all
}

/// Puts `statuses` in the place of a chunk, as so many chunks as they need.
fn put(chunks: &mut Vec<Chunk>, place: usize, mut statuses: Vec<Arc<ObjectStatus>>) {
    let mut replaced = place..chunks.len().min(place + 1);
    if statuses.len() < MIN {
        if let Some(next) = chunks.get(place + 1) {
            statuses.extend(next.iter().cloned());
            replaced.end += 1;
        } else if let Some(before) = place.checked_sub(1).and_then(|before| chunks.get(before)) {
            statuses.splice(0..0, before.iter().cloned());
            replaced.start -= 1;
        }
    }
    // Of about the same size, so that none is full at once.
    let n_chunks = statuses.len().div_ceil(MAX).max(1);
    let size = statuses.len().div_ceil(n_chunks).max(1);
    chunks.splice(replaced, statuses.chunks(size).map(Chunk::from));
}

#[cfg(test)]
pub(super) mod tests;
