//! Copies of objects that wait for their status, so that most writes need no read first.
//!
//! **Invariant:** pure. Never more than [`MAX_BYTES`]: the oldest give way, and are read again when their turn comes.

use std::collections::BTreeMap;

/// Some 3,000 routes of the usual size: what one burst brings. In the long run there are none.
const MAX_BYTES: usize = 2 << 20;

/// One object may take an eighth of it.
const MAX_COPY: usize = MAX_BYTES / 8;

/// By age, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Copies {
    by_age: BTreeMap<u64, Box<[u8]>>,
    n_bytes: usize,
    next: u64,
}

/// Where an object's copy is, if it has not given way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

impl Copies {
    pub(super) fn put(&mut self, copy: Box<[u8]>) -> Option<Place> {
        if copy.len() > MAX_COPY {
            return None;
        }
        self.n_bytes += copy.len();
        self.next += 1;
        self.by_age.insert(self.next, copy);
        while self.n_bytes > MAX_BYTES {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            self.n_bytes -= oldest.len();
        }
        Some(Place(self.next))
    }

    pub(super) fn take(&mut self, place: Place) -> Option<Box<[u8]>> {
        let copy = self.by_age.remove(&place.0)?;
        self.n_bytes -= copy.len();
        Some(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_copies_give_way() {
        let mut copies = Copies::default();
        let copy = || vec![0; MAX_COPY].into_boxed_slice();
        let places: Vec<Place> = (0..9).filter_map(|_| copies.put(copy())).collect();
        assert_eq!(places.len(), 9);
        assert_eq!(copies.n_bytes, MAX_BYTES);
        assert_eq!(copies.take(places[0]), None);
        assert!(places[1..].iter().all(|place| copies.take(*place).is_some()));
        assert_eq!((copies.n_bytes, copies.by_age.len()), (0, 0));
    }

    #[test]
    fn a_huge_object_is_not_kept() {
        assert_eq!(Copies::default().put(vec![0; MAX_COPY + 1].into_boxed_slice()), None);
    }
}
