//! What holder and worker say to each other over a `SOCK_SEQPACKET` socket pair.
//!
//! The worker asks, the holder answers each request with one message, so neither can fill the other's queue. A message
//! is one byte that says what it is, then a name or a number; at most one descriptor travels with it.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// The longest name; `link/tcx/4294967295` has 19 bytes, `map/` and a map's name at most 19 too.
pub(super) const NAME_LEN_MAX: usize = 64;
/// Maps, and one link for each interface. Below the usual limit of 1,024 descriptors per process.
pub(super) const DESCRIPTORS_MAX: usize = 768;

const MESSAGE_LEN_MAX: usize = 1 + NAME_LEN_MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Keep the descriptor that comes along, in place of any of that name.
    Put(String),
    Remove(String),
    /// The held descriptor at this position, in the order of names.
    Take(u32),
    /// How often a worker was started anew.
    Restarts,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Done,
    /// With the descriptor.
    Held(String),
    /// No descriptor at that position.
    End,
    /// Not kept: [`DESCRIPTORS_MAX`] are.
    Full,
    Restarts(u32),
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Put(name) => message(b'P', name.as_bytes()),
            Self::Remove(name) => message(b'R', name.as_bytes()),
            Self::Take(index) => message(b'T', &index.to_be_bytes()),
            Self::Restarts => message(b'N', &[]),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            b'P' => name(rest).map(Self::Put),
            b'R' => name(rest).map(Self::Remove),
            b'T' => Some(Self::Take(u32::from_be_bytes(rest.try_into().ok()?))),
            b'N' if rest.is_empty() => Some(Self::Restarts),
            _ => None,
        }
    }
}

impl Reply {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Done => message(b'D', &[]),
            Self::Held(name) => message(b'H', name.as_bytes()),
            Self::End => message(b'E', &[]),
            Self::Full => message(b'F', &[]),
            Self::Restarts(count) => message(b'N', &count.to_be_bytes()),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            b'D' if rest.is_empty() => Some(Self::Done),
            b'H' => name(rest).map(Self::Held),
            b'E' if rest.is_empty() => Some(Self::End),
            b'F' if rest.is_empty() => Some(Self::Full),
            b'N' => Some(Self::Restarts(u32::from_be_bytes(rest.try_into().ok()?))),
            _ => None,
        }
    }
}

fn message(kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + rest.len());
    bytes.push(kind);
    bytes.extend_from_slice(rest);
    bytes
}

fn name(bytes: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(bytes).ok()?;
    is_name(name).then(|| name.to_owned())
}

pub(super) fn is_name(name: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

pub(super) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let descriptors: Vec<RawFd> = descriptor.iter().map(|fd| fd.as_raw_fd()).collect();
    let control = [ControlMessage::ScmRights(&descriptors)];
    let control = if descriptors.is_empty() { &control[..0] } else { &control[..] };
    let parts = [IoSlice::new(bytes)];
    // MSG_NOSIGNAL: the other end's death is an error, not SIGPIPE.
    sendmsg::<()>(socket.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// One message and the descriptor that came along; `None` when the other end is closed.
pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut buffer = [0u8; MESSAGE_LEN_MAX];
    let mut control = nix::cmsg_space!([RawFd; 1]);
    let (length, flags, descriptors) = {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let received = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
        let mut descriptors = Vec::new();
        for message in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = message {
                // SAFETY: the kernel has just made these descriptors for this message; nobody else owns them.
                descriptors.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        (received.bytes, received.flags, descriptors)
    };
    if flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC) || descriptors.len() > 1 {
        return Err(io::Error::other("message is too long or has too many descriptors"));
    }
    let Some(bytes) = buffer.get(..length).filter(|bytes| !bytes.is_empty()) else {
        return Ok(None);
    };
    Ok(Some((bytes.to_vec(), descriptors.into_iter().next())))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use proptest::prelude::*;

    use super::{MESSAGE_LEN_MAX, NAME_LEN_MAX, Reply, Request, receive, send};

    fn request() -> impl Strategy<Value = Request> {
        prop_oneof![
            "[!-~]{1,64}".prop_map(Request::Put),
            "[!-~]{1,64}".prop_map(Request::Remove),
            any::<u32>().prop_map(Request::Take),
            Just(Request::Restarts),
        ]
    }

    fn reply() -> impl Strategy<Value = Reply> {
        prop_oneof![
            Just(Reply::Done),
            "[!-~]{1,64}".prop_map(Reply::Held),
            Just(Reply::End),
            Just(Reply::Full),
            any::<u32>().prop_map(Reply::Restarts),
        ]
    }

    proptest! {
        #[test]
        fn decoding_gives_what_was_encoded(request in request(), reply in reply()) {
            prop_assert_eq!(Request::decode(&request.encode()), Some(request));
            prop_assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }

        #[test]
        fn any_bytes_are_decoded_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = (Request::decode(&bytes), Reply::decode(&bytes));
        }
    }

    #[test]
    fn name_that_is_empty_or_too_long_is_refused() {
        assert_eq!(Request::decode(b"P"), None);
        assert_eq!(Request::decode(&[&b"P"[..], &[b'x'; NAME_LEN_MAX + 1]].concat()), None);
        assert!(Request::decode(&[&b"P"[..], &[b'x'; NAME_LEN_MAX]].concat()).is_some());
    }

    #[test]
    fn message_beyond_the_bounds_is_an_error_and_leaks_no_descriptor() {
        let (near, far) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        send(near.as_fd(), &[b'P'; MESSAGE_LEN_MAX + 1], Some(near.as_fd())).unwrap();
        assert!(receive(far.as_fd()).is_err());
        drop(near);
        // Were the descriptor of `near` still open somewhere, this would wait for ever.
        assert!(receive(far.as_fd()).unwrap().is_none());
    }
}
