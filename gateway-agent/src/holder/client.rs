//! The worker's end of the holder's socket.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::socket::sockopt::{ReceiveTimeout, SendTimeout, SockType as SockTypeOption};
use nix::sys::socket::{SockType, getsockopt, setsockopt};
use nix::sys::time::TimeVal;

use super::protocol::{DESCRIPTORS_MAX, Reply, Request, is_name, receive, send};

/// The holder answers in microseconds; it may be stopped for a moment, not longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum HolderError {
    #[error("--holder-fd {0} is not a socket of a holder process; the option is set by that process alone")]
    NotAHolder(RawFd),
    #[error("the holder process is gone or does not answer")]
    Gone(#[source] io::Error),
    #[error("the holder process answered something unexpected")]
    Unexpected,
    #[error("the holder process keeps {DESCRIPTORS_MAX} descriptors already and takes no more")]
    Full,
    #[error("`{0}` cannot be the name of a descriptor")]
    Name(String),
}

/// Blocking, for each call is one round trip between two processes of one machine. Usable from any thread.
#[derive(Debug)]
pub struct Client {
    socket: Mutex<OwnedFd>,
}

impl Client {
    /// Takes over the descriptor of `--holder-fd`, and arranges that this process is killed when the holder dies: what
    /// started the holder believes the agent dead then, and may start the next one.
    ///
    /// Call it once, from the main thread.
    pub fn from_raw_fd(descriptor: RawFd) -> Result<Self, HolderError> {
        let not_a_holder = |_: nix::Error| HolderError::NotAHolder(descriptor);
        // SAFETY: used for the following checks only, and that a number is no open descriptor is one of them.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor.max(0)) };
        if descriptor <= 2
            || getsockopt(&borrowed, SockTypeOption).map_err(not_a_holder)? != SockType::SeqPacket
        {
            return Err(HolderError::NotAHolder(descriptor));
        }
        fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(not_a_holder)?;
        // SAFETY: the descriptor is open, see above, and by the contract of this function nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let timeout = TimeVal::new(ANSWER_TIMEOUT.as_secs().cast_signed(), 0);
        setsockopt(&socket, ReceiveTimeout, &timeout).map_err(not_a_holder)?;
        setsockopt(&socket, SendTimeout, &timeout).map_err(not_a_holder)?;

        // Not left to the holder's side of `exec`, which resets it for a binary with file capabilities.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|error| HolderError::Gone(error.into()))?;
        if is_hung_up(&socket) {
            return Err(HolderError::Gone(io::ErrorKind::BrokenPipe.into()));
        }
        Ok(Self { socket: Mutex::new(socket) })
    }

    /// All descriptors that are held, in the order of their names. They stay held.
    pub fn take_all(&self) -> Result<Vec<(String, OwnedFd)>, HolderError> {
        let mut held = Vec::new();
        for index in 0..=DESCRIPTORS_MAX {
            let index = u32::try_from(index).map_err(|_too_large| HolderError::Unexpected)?;
            match self.ask(&Request::Take(index), None)? {
                (Reply::Held(name), Some(descriptor)) => held.push((name, descriptor)),
                (Reply::End, None) => return Ok(held),
                _ => return Err(HolderError::Unexpected),
            }
        }
        Err(HolderError::Unexpected)
    }

    /// Has a copy of the descriptor held, in place of any of that name. Returns when it is.
    pub fn put(&self, name: &str, descriptor: BorrowedFd<'_>) -> Result<(), HolderError> {
        match self.ask(&Request::Put(checked(name)?), Some(descriptor))? {
            (Reply::Done, None) => Ok(()),
            (Reply::Full, None) => Err(HolderError::Full),
            _ => Err(HolderError::Unexpected),
        }
    }

    /// Has the holder close its copy; unknown names are ignored.
    pub fn remove(&self, name: &str) -> Result<(), HolderError> {
        match self.ask(&Request::Remove(checked(name)?), None)? {
            (Reply::Done, None) => Ok(()),
            _ => Err(HolderError::Unexpected),
        }
    }

    /// How often a worker was started anew since the holder began.
    pub fn restarts(&self) -> Result<u32, HolderError> {
        match self.ask(&Request::Restarts, None)? {
            (Reply::Restarts(count), None) => Ok(count),
            _ => Err(HolderError::Unexpected),
        }
    }

    fn ask(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(Reply, Option<OwnedFd>), HolderError> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        send(socket.as_fd(), &request.encode(), descriptor).map_err(HolderError::Gone)?;
        let received = receive(socket.as_fd()).map_err(HolderError::Gone)?;
        let (bytes, descriptor) =
            received.ok_or_else(|| HolderError::Gone(io::ErrorKind::BrokenPipe.into()))?;
        Ok((Reply::decode(&bytes).ok_or(HolderError::Unexpected)?, descriptor))
    }
}

fn checked(name: &str) -> Result<String, HolderError> {
    if is_name(name) { Ok(name.to_owned()) } else { Err(HolderError::Name(name.to_owned())) }
}

fn is_hung_up(socket: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    let answered = poll(&mut polled, PollTimeout::ZERO);
    debug_assert!(answered.is_ok(), "poll of {}", socket.as_raw_fd());
    polled[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
}

#[cfg(test)]
mod tests {
    use super::{Client, HolderError};

    #[test]
    fn descriptor_that_is_no_holder_is_refused() {
        for descriptor in [-1, 0, 2, 1_000_000] {
            assert!(
                matches!(Client::from_raw_fd(descriptor), Err(HolderError::NotAHolder(_))),
                "{descriptor}"
            );
        }
    }
}
