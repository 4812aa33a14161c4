//! Receive buffers, recycled within a worker.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::limits::{LARGE_BUFFER_BYTES, LARGE_BUFFERS_KEPT_MAX, SMALL_BUFFER_BYTES, SMALL_BUFFERS_KEPT_MAX};

/// Bytes received and not yet consumed. Holds no memory until filled, and none after [`Self::release`].
#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// The last read left no room: more is waiting.
    was_filled: bool,
}

/// What buffers are made of while nobody needs them.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    small: RefCell<Vec<Box<[u8]>>>,
    large: RefCell<Vec<Box<[u8]>>>,
}

impl Buffers {
    fn take(&self, length: usize) -> Box<[u8]> {
        let kept = if length == SMALL_BUFFER_BYTES { &self.small } else { &self.large };
        let recycled = kept.borrow_mut().pop();
        recycled.unwrap_or_else(|| vec![0; length].into())
    }

    fn put(&self, bytes: Box<[u8]>) {
        let (kept, max) = match bytes.len() {
            SMALL_BUFFER_BYTES => (&self.small, SMALL_BUFFERS_KEPT_MAX),
            LARGE_BUFFER_BYTES => (&self.large, LARGE_BUFFERS_KEPT_MAX),
            _ => return,
        };
        let mut kept = kept.borrow_mut();
        if kept.len() < max {
            kept.push(bytes);
        }
    }
}

impl Buffer {
    pub(super) fn data(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(super) fn consume(&mut self, length: usize) {
        debug_assert!(length <= self.end - self.start);
        self.start = (self.start + length).min(self.end);
    }

    /// No byte fits any more, whatever is moved or grown.
    pub(super) fn is_full(&self) -> bool {
        self.end - self.start == LARGE_BUFFER_BYTES
    }

    pub(super) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Gives the memory back. What was not consumed is lost.
    pub(super) fn release(&mut self, buffers: &Buffers) {
        self.clear();
        if !self.bytes.is_empty() {
            buffers.put(std::mem::take(&mut self.bytes));
        }
    }

    /// Reads once; 0: the sender has closed. The buffer must not be full.
    pub(super) fn poll_fill<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
        buffers: &Buffers,
    ) -> Poll<io::Result<usize>> {
        debug_assert!(!self.is_full());
        self.make_room(buffers);
        let Some(room) = self.bytes.get_mut(self.end..) else { return Poll::Pending };
        let mut read = ReadBuf::new(room);
        ready!(Pin::new(reader).poll_read(cx, &mut read))?;
        let length = read.filled().len();
        self.was_filled = read.remaining() == 0;
        self.end += length;
        Poll::Ready(Ok(length))
    }

    fn make_room(&mut self, buffers: &Buffers) {
        if self.is_empty() {
            self.clear();
        }
        // A small buffer that one read has filled belongs to a stream; one that holds half a head to a large head.
        let is_small = self.bytes.len() == SMALL_BUFFER_BYTES;
        if self.bytes.is_empty() {
            self.bytes = buffers.take(SMALL_BUFFER_BYTES);
        } else if is_small && (self.was_filled || self.end - self.start == SMALL_BUFFER_BYTES) {
            let mut large = buffers.take(LARGE_BUFFER_BYTES);
            let length = self.end - self.start;
            if let (Some(to), Some(from)) = (large.get_mut(..length), self.bytes.get(self.start..self.end)) {
                to.copy_from_slice(from);
            }
            (self.start, self.end) = (0, length);
            buffers.put(std::mem::replace(&mut self.bytes, large));
        } else if self.end == self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.was_filled = false;
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::{Buffer, Buffers};

    fn fill(buffer: &mut Buffer, buffers: &Buffers, mut source: &[u8]) -> usize {
        let mut cx = Context::from_waker(Waker::noop());
        match buffer.poll_fill(&mut cx, &mut source, buffers) {
            Poll::Ready(result) => result.unwrap(),
            Poll::Pending => 0,
        }
    }

    #[test]
    fn content_survives_moving_and_growing() {
        let buffers = Buffers::default();
        let mut buffer = Buffer::default();
        let bytes: Vec<u8> = (0..70_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        assert_eq!(fill(&mut buffer, &buffers, &bytes[..8000]), 8000);
        buffer.consume(7000);
        assert_eq!(fill(&mut buffer, &buffers, &bytes[8000..8192]), 192);
        assert_eq!(buffer.data(), &bytes[7000..8192]);
        let mut at = 8192;
        while !buffer.is_full() && at < bytes.len() {
            at += fill(&mut buffer, &buffers, &bytes[at..]);
        }
        assert_eq!(buffer.data(), &bytes[7000..at]);
    }

    #[test]
    fn released_memory_is_used_again() {
        let buffers = Buffers::default();
        let mut buffer = Buffer::default();
        fill(&mut buffer, &buffers, b"abc");
        let memory = buffer.data().as_ptr();
        buffer.release(&buffers);
        assert!(buffer.data().is_empty());
        let mut other = Buffer::default();
        fill(&mut other, &buffers, b"def");
        assert_eq!(other.data().as_ptr(), memory);
    }
}
