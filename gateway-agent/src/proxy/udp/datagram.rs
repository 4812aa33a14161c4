//! Datagrams with the local address they arrived at or leave from.
//!
//! Does not know flows. One socket may serve every address of the network namespace, and a client takes an answer only
//! from the address that it asked.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrStorage, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Where a datagram came from and went to, as the socket tells: IPv4 is v4-mapped on a dual-stack socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub peer: SocketAddr,
    pub local: IpAddr,
}

/// Receives one datagram into `buffer`, which has to hold the largest. Never waits.
pub(super) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, Ends)> {
    socket.try_io(Interest::READABLE, || receive_from(socket.as_fd(), buffer))
}

fn receive_from(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Ends)> {
    // IP_PKTINFO's structure is the smaller one.
    let mut space = nix::cmsg_space!(libc::in6_pktinfo);
    let mut slices = [IoSliceMut::new(buffer)];
    let message = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut slices,
        Some(&mut space),
        MsgFlags::MSG_DONTWAIT,
    )?;
    let local = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr))))
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr))),
        _ => None,
    });
    let peer = message.address.as_ref().and_then(socket_address);
    let (Some(peer), Some(local)) = (peer, local) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "datagram without addresses"));
    };
    Ok((message.bytes, Ends { peer, local }))
}

fn socket_address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddr::V4((*v4).into()));
    }
    storage.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into()))
}

/// Sends one datagram from `ends.local` to `ends.peer`. Never waits; with a full socket buffer that is an error.
pub(super) fn send(socket: &UdpSocket, payload: &[u8], ends: Ends) -> io::Result<usize> {
    let fd = socket.as_raw_fd();
    let slices = [IoSlice::new(payload)];
    let flags = MsgFlags::MSG_DONTWAIT;
    // The interface is the routing table's choice, or the scope of a link-local peer's address.
    let sent = match (ends.local, ends.peer) {
        (IpAddr::V4(local), SocketAddr::V4(peer)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from(local).to_be() },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            let control = [ControlMessage::Ipv4PacketInfo(&info)];
            sendmsg(fd, &slices, &control, flags, Some(&SockaddrIn::from(peer)))?
        }
        (IpAddr::V6(local), SocketAddr::V6(peer)) => {
            let info =
                libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: local.octets() }, ipi6_ifindex: 0 };
            let control = [ControlMessage::Ipv6PacketInfo(&info)];
            sendmsg(fd, &slices, &control, flags, Some(&SockaddrIn6::from(peer)))?
        }
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "addresses of two families")),
    };
    Ok(sent)
}
