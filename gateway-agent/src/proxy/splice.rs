//! Pipes between two sockets: the kernel moves pages, user space never sees the bytes.
//!
//! Does not decide when to use one and knows nothing of connections; see `copy`.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::rc::Rc;

use nix::fcntl::OFlag;

use super::limits::PIPE_BYTES;

/// The length asked for in one call. The pipe's slots are the real bound.
const SPLICE_BYTES: usize = 1024 * 1024;

/// A pipe and what it holds.
#[derive(Debug)]
pub(super) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
    live: Rc<Cell<usize>>,
}

impl Pipe {
    fn new(live: &Rc<Cell<usize>>) -> io::Result<Self> {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        // Beyond the user's share of pipe memory the kernel refuses; the default capacity does as well.
        if let Err(error) = nix::fcntl::fcntl(&write, nix::fcntl::FcntlArg::F_SETPIPE_SZ(PIPE_BYTES)) {
            tracing::trace!(%error, "pipe keeps its default size");
        }
        live.set(live.get() + 1);
        Ok(Self { read, write, held: 0, live: live.clone() })
    }

    /// Bytes inside.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// Takes what `source` has to read, as far as there is room. Only for an empty pipe: then `WouldBlock` means that
    /// the socket has nothing, and not that the pipe is full. 0: the source ended.
    pub(super) fn fill(&mut self, source: BorrowedFd<'_>) -> io::Result<usize> {
        debug_assert_eq!(self.held, 0);
        let n = splice(source, self.write.as_fd())?;
        // More than the capacity is possible: a fragment of any size takes one slot.
        self.held += n;
        Ok(n)
    }

    /// Gives what is inside to `sink`, as far as it takes it.
    pub(super) fn drain(&mut self, sink: BorrowedFd<'_>) -> io::Result<usize> {
        let n = splice(self.read.as_fd(), sink)?;
        self.held = self.held.saturating_sub(n);
        Ok(n)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.live.set(self.live.get().saturating_sub(1));
    }
}

fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<usize> {
    // Not SPLICE_F_MORE: it would hold the last segment back for up to 200 ms. The kernel sets MSG_MORE by itself while
    // more of the same pipe follows.
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    // SAFETY: both descriptors are open for the length of the call, being borrowed; null offsets are what sockets and
    // pipes need; the call writes to no memory of ours.
    let n = unsafe {
        libc::splice(from.as_raw_fd(), ptr::null_mut(), to.as_raw_fd(), ptr::null_mut(), SPLICE_BYTES, flags)
    };
    usize::try_from(n).map_err(|_negative| io::Error::last_os_error())
}

/// The pipes of one worker.
#[derive(Debug)]
pub(super) struct Pipes {
    idle: RefCell<Vec<Pipe>>,
    live: Rc<Cell<usize>>,
    max: usize,
}

impl Pipes {
    pub(super) fn new(max: usize) -> Self {
        Self { idle: RefCell::default(), live: Rc::default(), max }
    }

    /// Pipes that were made and live.
    #[cfg(test)]
    pub(super) fn live(&self) -> usize {
        self.live.get()
    }

    /// An empty pipe, or `None` when all are in use or the system gives none: the caller goes on by copy.
    pub(super) fn take(&self) -> Option<Pipe> {
        if let Some(pipe) = self.idle.borrow_mut().pop() {
            return Some(pipe);
        }
        if self.live.get() >= self.max {
            return None;
        }
        Pipe::new(&self.live).ok()
    }

    /// Takes `pipe` back; one with bytes inside is closed, for they belong to a connection that is gone.
    pub(super) fn put(&self, pipe: Pipe) {
        if pipe.held == 0 {
            self.idle.borrow_mut().push(pipe);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::Pipes;

    #[test]
    fn pipes_are_bounded_and_come_back() {
        let pipes = Pipes::new(2);
        let first = pipes.take().expect("first");
        let second = pipes.take().expect("second");
        assert!(pipes.take().is_none());
        pipes.put(first);
        drop(second);
        assert!(pipes.take().is_some());
        assert!(pipes.take().is_some());
    }

    #[test]
    fn pipe_with_bytes_is_not_used_again() {
        let pipes = Pipes::new(1);
        let (mut writer, source) = UnixStream::pair().expect("pair");
        writer.write_all(b"left").expect("write");
        let mut pipe = pipes.take().expect("pipe");
        assert_eq!(pipe.fill(source.as_fd()).expect("fill"), 4);
        pipes.put(pipe);
        let mut fresh = pipes.take().expect("a new one");
        assert_eq!(fresh.held(), 0);
        writer.write_all(b"x").expect("write");
        fresh.fill(source.as_fd()).expect("fill");
        let (mut reader, sink) = UnixStream::pair().expect("pair");
        assert_eq!(fresh.drain(sink.as_fd()).expect("drain"), 1);
        let mut byte = [0];
        reader.read_exact(&mut byte).expect("read");
        assert_eq!(&byte, b"x");
    }
}
