//! How connections to a listener's address and port reach its sockets when these are not bound there.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use crate::snapshot::ListenerKey;

/// Implemented by the kernel path's `sk_lookup`; without it the proxy binds.
///
/// TCP only: a UDP answer would leave from the port that the socket is bound to.
pub trait Steering: Send + Sync + fmt::Debug {
    /// From now on, connections to the key's port at its address (or at every address of the network namespace) go to
    /// these listening sockets, one of each family, each a member of its SO_REUSEPORT group.
    fn open(&self, key: ListenerKey, v4: BorrowedFd<'_>, v6: BorrowedFd<'_>) -> io::Result<()>;

    /// Ends it; unknown keys are ignored.
    fn close(&self, key: ListenerKey);
}
