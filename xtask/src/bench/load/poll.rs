//! epoll(7), level-triggered, for sockets named by a number.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};
use std::time::Duration;

pub(super) struct Poll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    Read,
    Write,
}

impl Poll {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: takes a flag and returns a descriptor.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; 256] })
    }

    pub(super) fn add(&self, socket: &impl AsRawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, token, interest)
    }

    pub(super) fn change(&self, socket: &impl AsRawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, token, interest)
    }

    fn control(
        &self,
        operation: libc::c_int,
        socket: &impl AsRawFd,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let events = match interest {
            Interest::Read => libc::EPOLLIN,
            Interest::Write => libc::EPOLLOUT,
        };
        let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: token };
        // SAFETY: both descriptors are open, and the event is a live local.
        let outcome =
            unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, socket.as_raw_fd(), &raw mut event) };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The tokens of the sockets that can go on.
    pub(super) fn wait(&mut self, timeout: Duration, ready: &mut Vec<u64>) -> io::Result<()> {
        ready.clear();
        let size = libc::c_int::try_from(self.events.len()).unwrap_or(libc::c_int::MAX);
        let millis = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the buffer is live and of the given length.
        let count = unsafe { libc::epoll_wait(self.fd.as_raw_fd(), self.events.as_mut_ptr(), size, millis) };
        match usize::try_from(count) {
            Ok(count) => {
                ready.extend(self.events.iter().take(count).map(|event| event.u64));
                Ok(())
            }
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
                error => Err(error),
            },
        }
    }
}

/// This thread stays on one cpu from now on.
pub(super) fn pin(cpu: usize) -> nix::Result<()> {
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu)?;
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)
}
