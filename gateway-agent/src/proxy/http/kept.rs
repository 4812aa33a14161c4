//! Copies of request bodies as they are sent, framing included: for further tries and for mirrors.
//!
//! Bounded twice, per body and per worker. A body that goes beyond is forgotten: its request is not tried again and not
//! mirrored, and passes as any other.

use std::cell::Cell;
use std::rc::Rc;

use super::limits::{KEPT_BODIES_BYTES_MAX, KEPT_BODY_BYTES_MAX};

/// Bytes that all copies of a worker hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Total(Rc<Cell<usize>>);

#[derive(Debug)]
pub(super) struct Kept {
    bytes: Vec<u8>,
    is_whole: bool,
    total: Total,
}

impl Kept {
    pub(super) fn new(total: &Total) -> Self {
        Self { bytes: Vec::new(), is_whole: true, total: total.clone() }
    }

    /// Appends what was sent.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let total = &self.total.0;
        let fits = self.bytes.len() + bytes.len() <= KEPT_BODY_BYTES_MAX
            && total.get() + bytes.len() <= KEPT_BODIES_BYTES_MAX;
        if self.is_whole && fits {
            self.bytes.extend_from_slice(bytes);
            total.set(total.get() + bytes.len());
        } else {
            self.is_whole = false;
            self.clear();
        }
    }

    /// All that was sent so far; `None`: it was too much.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        self.is_whole.then_some(&self.bytes)
    }

    /// Another one that counts with this one, without anything in it.
    pub(super) fn empty(&self) -> Self {
        Self::new(&self.total)
    }

    /// Another one of the same, where there is room.
    pub(super) fn copy(&self) -> Option<Self> {
        let mut copy = Self::new(&self.total);
        copy.push(self.bytes()?);
        copy.is_whole.then_some(copy)
    }

    fn clear(&mut self) {
        let total = &self.total.0;
        total.set(total.get().saturating_sub(self.bytes.len()));
        self.bytes = Vec::new();
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT_BODIES_BYTES_MAX, KEPT_BODY_BYTES_MAX, Kept, Total};

    #[test]
    fn body_beyond_the_bound_is_forgotten() {
        let total = Total::default();
        let mut kept = Kept::new(&total);
        kept.push(b"ab");
        kept.push(b"c");
        assert_eq!(kept.bytes(), Some(&b"abc"[..]));
        kept.push(&vec![0; KEPT_BODY_BYTES_MAX - 3]);
        assert_eq!(total.0.get(), KEPT_BODY_BYTES_MAX);
        kept.push(b"d");
        assert_eq!((kept.bytes(), total.0.get()), (None, 0));
        kept.push(b"e");
        assert_eq!((kept.bytes(), kept.copy().is_none()), (None, true));
    }

    #[test]
    fn copies_of_a_worker_have_one_bound() {
        let total = Total::default();
        let mut all = Vec::new();
        for _ in 0..KEPT_BODIES_BYTES_MAX / KEPT_BODY_BYTES_MAX {
            let mut kept = Kept::new(&total);
            kept.push(&vec![0; KEPT_BODY_BYTES_MAX]);
            all.push(kept);
        }
        let mut late = Kept::new(&total);
        late.push(b"a");
        assert_eq!(late.bytes(), None);
        assert!(all[0].copy().is_none());
        all.pop();
        assert!(all[0].copy().is_some());
        all.clear();
        assert_eq!(total.0.get(), 0);
    }
}
