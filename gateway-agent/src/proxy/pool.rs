//! Relay buffers of one worker, recycled.
//!
//! **Invariant:** no I/O. A connection holds a buffer only while bytes wait in it, so idle connections cost none.

use std::cell::RefCell;

use super::limits::{BUFFER_BYTES, IDLE_BUFFERS};

/// Buffers of [`BUFFER_BYTES`].
#[derive(Debug, Default)]
pub(super) struct Buffers {
    idle: RefCell<Vec<Vec<u8>>>,
}

impl Buffers {
    /// A buffer with `len` = [`BUFFER_BYTES`] and any content.
    pub(super) fn take(&self) -> Vec<u8> {
        self.idle.borrow_mut().pop().unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    /// Keeps `buffer` for later unless it is of another size or enough are kept.
    pub(super) fn put(&self, buffer: Vec<u8>) {
        let mut idle = self.idle.borrow_mut();
        if buffer.len() == BUFFER_BYTES && idle.len() < IDLE_BUFFERS {
            idle.push(buffer);
        }
    }

    #[cfg(test)]
    fn idle(&self) -> usize {
        self.idle.borrow().len()
    }
}

/// Bytes on their way: `data[start..end]` is still to be written.
#[derive(Debug)]
pub(super) struct Chunk {
    data: Vec<u8>,
    start: usize,
    end: usize,
}

impl Chunk {
    /// The first `len` bytes of `data`.
    pub(super) fn new(data: Vec<u8>, len: usize) -> Self {
        let end = len.min(data.len());
        Self { data, start: 0, end }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.data.get(self.start..self.end).unwrap_or_default()
    }

    /// Marks `n` bytes as written. True when none is left.
    pub(super) fn advance(&mut self, n: usize) -> bool {
        self.start = (self.start + n).min(self.end);
        self.start == self.end
    }

    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.data
    }
}

#[cfg(test)]
mod tests {
    use super::{BUFFER_BYTES, Buffers, Chunk, IDLE_BUFFERS};

    #[test]
    fn buffers_are_reused_up_to_the_bound() {
        let buffers = Buffers::default();
        let taken: Vec<_> = (0..IDLE_BUFFERS + 10).map(|_| buffers.take()).collect();
        taken.into_iter().for_each(|buffer| buffers.put(buffer));
        assert_eq!(buffers.idle(), IDLE_BUFFERS);
        assert_eq!(buffers.take().len(), BUFFER_BYTES);
        assert_eq!(buffers.idle(), IDLE_BUFFERS - 1);
    }

    #[test]
    fn buffers_of_another_size_are_not_kept() {
        let buffers = Buffers::default();
        buffers.put(vec![0; 100]);
        assert_eq!(buffers.idle(), 0);
    }

    #[test]
    fn chunk_ends_when_all_is_written() {
        let mut chunk = Chunk::new(vec![1, 2, 3, 0, 0], 3);
        assert!(!chunk.advance(2));
        assert_eq!(chunk.bytes(), [3]);
        assert!(chunk.advance(1));
        assert!(chunk.bytes().is_empty());
    }
}
