//! Finds the matches whose path holds without looking at the others. Derived from the list of matches and nothing
//! else; says which may hold, in list order, never which is best.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use super::{HttpMatch, PathMatch};

/// Positions in the list, ascending. Most paths occur once or twice.
type Positions = SmallVec<[u32; 4]>;

type Paths = HashMap<Arc<str>, Positions, FxBuildHasher>;

#[derive(Clone, Debug, Default)]
pub(super) struct PathIndex {
    exact: Paths,
    prefix: Paths,
    /// Bytes of the longest prefix: longer beginnings of a request's path need no look.
    prefix_bytes_max: usize,
}

impl PathIndex {
    pub(super) fn new(matches: &[HttpMatch]) -> Self {
        let mut index = Self::default();
        // A list of more than `u32::MAX` matches does not fit in memory.
        for (position, candidate) in (0_u32..).zip(matches) {
            let (paths, path) = match &candidate.path {
                PathMatch::Exact(path) => (&mut index.exact, path),
                PathMatch::Prefix(path) => {
                    index.prefix_bytes_max = index.prefix_bytes_max.max(path.len());
                    (&mut index.prefix, path)
                }
            };
            paths.entry(path.clone()).or_default().push(position);
        }
        index
    }

    /// The first position in the list whose path holds for `path` and that `holds` otherwise.
    pub(super) fn first(&self, path: &str, holds: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best = None;
        let mut look = |positions: Option<&Positions>| {
            for position in positions.into_iter().flatten() {
                let position = *position as usize;
                if best.is_some_and(|best| best <= position) {
                    return;
                }
                if holds(position) {
                    best = Some(position);
                    return;
                }
            }
        };
        look(self.exact.get(path));
        if !self.prefix.is_empty() {
            // From the longest: it is the most likely to come first, which spares the looks at the others' rests.
            if path.len() <= self.prefix_bytes_max {
                look(self.prefix.get(path));
            }
            let longest = path.len().min(self.prefix_bytes_max + 1);
            let beginning = path.as_bytes().get(..longest).unwrap_or_default();
            for slash in memchr::memrchr_iter(b'/', beginning) {
                look(path.get(..slash).and_then(|prefix| self.prefix.get(prefix)));
            }
        }
        best
    }
}
