//! The routing table of one hostname.
//!
//! Versions of it share what they have in common: one match more or less among thousands costs what it takes to find its
//! path. Finds the matches whose path holds without looking at the others.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{HttpMatch, HttpRouteMatch, HttpRule, PathMatch, RequestView};
use crate::snapshot::{ObjectName, SharedMap};

/// Where a match stands among those of its hostname: the lesser is tried first, compared field by field. No two have the
/// same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MatchOrder {
    /// By what it is like.
    pub rank: u64,
    /// How old its route is: seconds and nanoseconds, from whenever.
    pub age_s: u64,
    pub age_ns: u32,
    /// `None`: what stands in a list of no route.
    pub route: Option<ObjectName>,
    /// Among those of its route.
    pub position: u32,
}

/// The matches of one effective hostname.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VirtualHost {
    exact: SharedMap<Candidates>,
    prefix: SharedMap<Candidates>,
    /// Those with an expression for a path, in order: each is looked at, so that they cost what they are many. A change
    /// copies the list.
    regex: Candidates,
    method: SharedMap<Candidates>,
    /// Bytes of the longest prefix: longer beginnings of a request's path need no look.
    prefix_bytes_max: usize,
    /// Prefixes that are as long: only when the last of them goes, all are looked at.
    n_longest: usize,
}

/// Those with one path, in order. Nearly always one.
type Candidates = Arc<[Candidate]>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    order: MatchOrder,
    found: HttpMatch,
}

// === impl MatchOrder ===

impl MatchOrder {
    /// That of a place in a list.
    pub(super) const fn of_position(position: usize) -> Self {
        Self { rank: position as u64, age_s: 0, age_ns: 0, route: None, position: 0 }
    }
}

// === impl VirtualHost ===

impl VirtualHost {
    /// `matches` in the order in which they are to be tried.
    pub fn new(matches: Vec<HttpMatch>) -> Self {
        let mut host = Self::default();
        for (position, found) in matches.into_iter().enumerate() {
            host.insert(MatchOrder::of_position(position), found);
        }
        host
    }

    /// Adds a match, in the place of the one that has this order and this path.
    pub fn insert(&mut self, order: MatchOrder, found: HttpMatch) {
        let (paths, path) = match &found.conditions.path {
            PathMatch::Exact(path) => (&mut self.exact, path.clone()),
            PathMatch::Method(method) => (&mut self.method, method.clone()),
            PathMatch::Prefix(path) => {
                if self.prefix.get(path).is_none() {
                    self.count_prefix(path.len());
                }
                (&mut self.prefix, path.clone())
            }
            PathMatch::Regex(_) => {
                self.regex = with(&self.regex, Candidate { order, found });
                return;
            }
        };
        let candidates = paths.get(&path).map_or(&[][..], |candidates| candidates);
        let candidates = with(candidates, Candidate { order, found });
        paths.insert(path, candidates);
    }

    /// Takes the match that has this order and this path away.
    pub fn remove(&mut self, order: &MatchOrder, path: &PathMatch) {
        let is_prefix = matches!(path, PathMatch::Prefix(_));
        let (paths, path) = match path {
            PathMatch::Exact(path) => (&mut self.exact, path),
            PathMatch::Method(method) => (&mut self.method, method),
            PathMatch::Prefix(path) => (&mut self.prefix, path),
            PathMatch::Regex(_) => {
                self.regex = without(&self.regex, order);
                return;
            }
        };
        let Some(candidates) = paths.get(path) else { return };
        let rest = without(candidates, order);
        if !rest.is_empty() {
            paths.insert(path.clone(), rest);
            return;
        }
        paths.remove(path);
        if is_prefix && path.len() == self.prefix_bytes_max {
            self.n_longest -= 1;
            if self.n_longest == 0 {
                self.prefix_bytes_max = 0;
                let lengths: Vec<usize> = self.prefix.iter().map(|(path, _)| path.len()).collect();
                lengths.into_iter().for_each(|bytes| self.count_prefix(bytes));
            }
        }
    }

    /// One more prefix of so many bytes.
    fn count_prefix(&mut self, bytes: usize) {
        match bytes.cmp(&self.prefix_bytes_max) {
            Ordering::Less => {}
            Ordering::Equal => self.n_longest += 1,
            Ordering::Greater => (self.prefix_bytes_max, self.n_longest) = (bytes, 1),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefix.is_empty() && self.method.is_empty() && self.regex.is_empty()
    }

    /// All matches, in order. For those who look at the whole: it sorts.
    pub fn matches(&self) -> Vec<&HttpMatch> {
        let all = self.exact.iter().chain(self.prefix.iter()).chain(self.method.iter());
        let all = all.flat_map(|(_, candidates)| candidates.iter());
        let mut all: Vec<&Candidate> = all.chain(self.regex.iter()).collect();
        all.sort_unstable_by(|one, other| one.order.cmp(&other.order));
        all.into_iter().map(|candidate| &candidate.found).collect()
    }

    /// The rule of the first match that holds. Only of this hostname: see [`super::HttpVirtualListener::find`].
    pub fn find<R: RequestView>(&self, request: &R) -> Option<&Arc<HttpRule>> {
        let first = self.first(request.path(), |conditions| conditions.holds_beyond_path(request));
        first.map(|found| &found.rule)
    }

    /// The first match whose path holds for `path` and that `holds` otherwise.
    pub(super) fn first(&self, path: &str, holds: impl Fn(&HttpRouteMatch) -> bool) -> Option<&HttpMatch> {
        let mut best = earlier(None, self.exact.get(path), &holds);
        if !self.method.is_empty()
            && let Some(("", call)) = path.split_once('/')
            && let Some((service, method)) = call.split_once('/')
            && !service.is_empty()
        {
            best = earlier(best, self.method.get(method), &holds);
        }
        if !self.regex.is_empty() {
            best = earlier(best, Some(&self.regex), |conditions: &HttpRouteMatch| match &conditions.path {
                PathMatch::Regex(pattern) => pattern.matches(path.as_bytes()) && holds(conditions),
                PathMatch::Exact(_) | PathMatch::Method(_) | PathMatch::Prefix(_) => false,
            });
        }
        if !self.prefix.is_empty() {
            // From the longest: it is the most likely to come first, which spares the looks at the others' rests.
            if path.len() <= self.prefix_bytes_max {
                best = earlier(best, self.prefix.get(path), &holds);
            }
            let longest = path.len().min(self.prefix_bytes_max + 1);
            let beginning = path.as_bytes().get(..longest).unwrap_or_default();
            for slash in memchr::memrchr_iter(b'/', beginning) {
                let candidates = path.get(..slash).and_then(|prefix| self.prefix.get(prefix));
                best = earlier(best, candidates, &holds);
            }
        }
        best.map(|candidate| &candidate.found)
    }
}

fn with(candidates: &[Candidate], candidate: Candidate) -> Candidates {
    let mut candidates = candidates.to_vec();
    match candidates.binary_search_by(|known| known.order.cmp(&candidate.order)) {
        Ok(position) => candidates[position] = candidate,
        Err(position) => candidates.insert(position, candidate),
    }
    candidates.into()
}

fn without(candidates: &[Candidate], order: &MatchOrder) -> Candidates {
    candidates.iter().filter(|known| known.order != *order).cloned().collect()
}

/// The first of `candidates` that holds, unless `best` comes before it.
fn earlier<'a>(
    best: Option<&'a Candidate>,
    candidates: Option<&'a Candidates>,
    holds: impl Fn(&HttpRouteMatch) -> bool,
) -> Option<&'a Candidate> {
    let candidates = candidates.into_iter().flat_map(|candidates| candidates.iter());
    let mut earlier = candidates.take_while(|candidate| best.is_none_or(|best| candidate.order < best.order));
    earlier.find(|candidate| holds(&candidate.found.conditions)).or(best)
}
