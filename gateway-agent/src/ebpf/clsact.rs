//! Filters of the clsact qdisc, for kernels without TCX (before 6.6).
//!
//! A filter is known by its fixed priority and handle alone and lives as long as its interface: a successor replaces it
//! in place, and nobody has to keep it.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// After filters of whoever wants to be first, before those that take the priorities that the kernel gives out (from
/// 49152 downwards).
const PRIORITY: u16 = 0x6761;
const HANDLE: u32 = 1;

/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`.
const CLSACT_INGRESS: u32 = 0xffff_fff2;
const TC_H_CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
/// The program's return value is the verdict.
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;

/// Puts the program into the interface's ingress, in place of an earlier one of ours.
pub(super) fn attach(program: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    let create = libc::NLM_F_CREATE as u16;
    let mut kind = attribute(TCA_KIND, b"clsact\0");
    match ask(
        libc::RTM_NEWQDISC,
        create | libc::NLM_F_EXCL as u16,
        &header(interface, CLSACT_HANDLE, TC_H_CLSACT, 0),
        &kind,
    ) {
        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => return Err(error),
        _ => {}
    }
    let mut options = attribute(TCA_BPF_FD, &program.as_raw_fd().to_ne_bytes());
    options.extend(attribute(TCA_BPF_NAME, b"gateway-agent\0"));
    options.extend(attribute(TCA_BPF_FLAGS, &TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes()));
    kind = attribute(TCA_KIND, b"bpf\0");
    kind.extend(attribute(TCA_OPTIONS, &options));
    ask(libc::RTM_NEWTFILTER, create, &filter(interface), &kind)
}

/// Removes our filter, and leaves the qdisc, which may hold others'. One that is gone is as good as removed.
pub(super) fn detach(interface: u32) -> io::Result<()> {
    match ask(libc::RTM_DELTFILTER, 0, &filter(interface), &attribute(TCA_KIND, b"bpf\0")) {
        Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::EINVAL)) => {
            Err(error)
        }
        _ => Ok(()),
    }
}

fn filter(interface: u32) -> Vec<u8> {
    let protocol = u32::from((libc::ETH_P_ALL as u16).to_be());
    header(interface, HANDLE, CLSACT_INGRESS, u32::from(PRIORITY) << 16 | protocol)
}

/// `struct tcmsg`.
fn header(interface: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    let words = [0, interface, handle, parent, info];
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    // Values here are a few dozen bytes.
    let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn ask(kind: u16, flags: u16, header: &[u8], attributes: &[u8]) -> io::Result<()> {
    const NETLINK_HEADER: usize = 16;
    let length = NETLINK_HEADER + header.len() + attributes.len();
    let flags = flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    // Below 200 bytes.
    let mut message = (length as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(header);
    message.extend(attributes);
    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.send_to(&message, &SocketAddr::new(0, 0), 0)?;
    let mut answer = Vec::with_capacity(4096);
    // The kernel has answered when the request's `send` returns.
    socket.recv(&mut answer, libc::MSG_DONTWAIT)?;
    errno(&answer)
}

/// Of an `NLMSG_ERROR`, which an acknowledgement is too.
fn errno(answer: &[u8]) -> io::Result<()> {
    let word =
        |offset: usize| answer.get(offset..offset + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    let is_error = answer.get(4..6) == Some(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
    match word(16).filter(|_| is_error).map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}
