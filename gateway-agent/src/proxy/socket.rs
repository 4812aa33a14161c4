//! Sockets of listeners: made, bound, probed.
//!
//! Does not accept, and knows nothing of snapshots.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::num::NonZeroU16;

use nix::sys::socket::sockopt;
use socket2::{Domain, Protocol, SockFilter, Socket, TcpKeepalive, Type};

use super::limits::{BACKLOG, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES};
use crate::snapshot::{ListenerKey, Transport};

/// Why a listener has no sockets.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocketError {
    #[error("another process or listener of this network namespace uses {key}")]
    InUse { key: ListenerKey },
    #[error(
        "port {port} is privileged: give the agent the capability NET_BIND_SERVICE, or set the pod sysctl \
         net.ipv4.ip_unprivileged_port_start to {port} or less"
    )]
    Privileged { port: NonZeroU16 },
    #[error("address {address} is not assigned to this network namespace")]
    NoSuchAddress { address: IpAddr },
    #[error("cannot open a socket for {key}: {source}")]
    Io {
        key: ListenerKey,
        #[source]
        source: io::Error,
    },
}

impl SocketError {
    fn new(key: ListenerKey, error: io::Error) -> Self {
        match (error.kind(), key.address) {
            (io::ErrorKind::AddrInUse, _) => Self::InUse { key },
            (io::ErrorKind::PermissionDenied, _) => Self::Privileged { port: key.port },
            (io::ErrorKind::AddrNotAvailable, Some(address)) => Self::NoSuchAddress { address },
            _ => Self::Io { key, source: error },
        }
    }

    /// The reason of a listener's condition.
    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::InUse { .. } | Self::Privileged { .. } => "PortUnavailable",
            Self::NoSuchAddress { .. } | Self::Io { .. } => "Pending",
        }
    }
}

/// What one worker listens on for one key.
#[derive(Debug)]
pub(super) enum Sockets {
    /// One dual-stack or single-family socket where bound; one of each family where steered.
    Tcp(Vec<TcpListener>),
    Udp(UdpSocket),
}

/// How what is sent to a listener's address comes here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// An interface has it.
    Assigned,
    /// By a local route, or somebody else's doing: the kernel is not asked whether it knows the address.
    Routed,
}

/// Sockets bound to `key` for `n` workers, all or none.
pub(super) fn bind(key: ListenerKey, reach: Reach, n: usize) -> Result<Vec<Sockets>, SocketError> {
    // Members of one SO_REUSEPORT group; the kernel spreads connections and flows over them.
    (0..n).map(|_| bind_one(key, reach, Sharing::Group).and_then(|socket| listening(key, socket))).collect()
}

/// Whether `key` could be bound by us alone: members of a group would not notice another group of the same user.
pub(super) fn probe(key: ListenerKey, reach: Reach) -> Result<(), SocketError> {
    // Binding is enough: SO_REUSEADDR lets sockets share a port only while none of them listens.
    bind_one(key, reach, Sharing::Alone).map(drop)
}

/// Sockets for `n` workers that steering leads to: bound to loopback ports of the kernel's choice. The second of each
/// pair is absent where the network namespace has no IPv6.
pub(super) fn steered(
    key: ListenerKey,
    n: usize,
) -> Result<Vec<(TcpListener, Option<TcpListener>)>, SocketError> {
    let group = |loopback: IpAddr| -> io::Result<Vec<TcpListener>> {
        let mut group = Vec::with_capacity(n);
        let mut address = SocketAddr::new(loopback, 0);
        for _ in 0..n {
            let socket = tcp_socket(Domain::for_address(address), Sharing::Group)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            let listener = TcpListener::from(socket);
            // The first has the kernel choose the port of all.
            address = listener.local_addr()?;
            group.push(listener);
        }
        Ok(group)
    };
    let v4 = group(Ipv4Addr::LOCALHOST.into()).map_err(|error| SocketError::new(key, error))?;
    let v6 = match group(Ipv6Addr::LOCALHOST.into()) {
        Ok(v6) => v6,
        Err(error) => {
            tracing::debug!(%error, "no IPv6 loopback, steering IPv4 only");
            Vec::new()
        }
    };
    let mut v6 = v6.into_iter();
    Ok(v4.into_iter().map(|v4| (v4, v6.next())).collect())
}

/// Keepalive for connections that may be silent for ever. Accepted sockets inherit it from their listener.
pub(super) fn keepalive(socket: &Socket) -> io::Result<()> {
    let probes = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&probes)
}

/// Has the kernel drop new SYNs for `listener` while handshakes under way can finish. A client whose SYN is dropped
/// sends it again after a second and is refused or served by whoever listens then.
pub(super) fn refuse_new(listener: &impl std::os::fd::AsFd) -> io::Result<()> {
    // The filter sees the segment from its TCP header on; byte 13 holds the flags.
    const FLAGS_AT: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    let filter = [
        SockFilter::new((libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16, 0, 0, FLAGS_AT),
        SockFilter::new((libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16, 0, 0, SYN | ACK),
        SockFilter::new((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, 1, 0, SYN),
        SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, u32::MAX),
        SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0),
    ];
    socket2::SockRef::from(listener).attach_filter(&filter)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    Alone,
    Group,
}

fn bind_one(key: ListenerKey, reach: Reach, sharing: Sharing) -> Result<Socket, SocketError> {
    let port = key.port.get();
    let result = match key.address {
        Some(address) => bound(key.transport, SocketAddr::new(address, port), reach, sharing),
        // One socket for both families; IPv4 alone where the kernel has no IPv6.
        None => {
            match bound(key.transport, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port), reach, sharing) {
                Err(error) if is_family_missing(&error) => {
                    bound(key.transport, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), reach, sharing)
                }
                result => result,
            }
        }
    };
    result.map_err(|error| SocketError::new(key, error))
}

fn is_family_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAFNOSUPPORT) || error.kind() == io::ErrorKind::AddrNotAvailable
}

fn bound(transport: Transport, address: SocketAddr, reach: Reach, sharing: Sharing) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let socket = match transport {
        Transport::Tcp => tcp_socket(domain, sharing)?,
        Transport::Udp => udp_socket(domain, sharing)?,
    };
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    if reach == Reach::Routed {
        // Local routes are enough to bind an IPv4 address, but not an IPv6 one (`__inet6_bind` looks at interfaces).
        if address.is_ipv6() { socket.set_freebind_v6(true)? } else { socket.set_freebind_v4(true)? }
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listening(key: ListenerKey, socket: Socket) -> Result<Sockets, SocketError> {
    match key.transport {
        Transport::Udp => Ok(Sockets::Udp(socket.into())),
        Transport::Tcp => match socket.listen(BACKLOG) {
            Ok(()) => Ok(Sockets::Tcp(vec![socket.into()])),
            Err(error) => Err(SocketError::new(key, error)),
        },
    }
}

/// Not TCP_DEFER_ACCEPT: in some protocols the server speaks first.
fn tcp_socket(domain: Domain, sharing: Sharing) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    // Connections of an earlier listener on the port may live on.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(sharing == Sharing::Group)?;
    // Inherited by accepted connections, which saves the calls there.
    socket.set_tcp_nodelay(true)?;
    keepalive(&socket)?;
    Ok(socket)
}

fn udp_socket(domain: Domain, sharing: Sharing) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))?;
    socket.set_reuse_port(sharing == Sharing::Group)?;
    // The address that the client sent to: the answer must leave from it.
    if domain == Domain::IPV6 {
        nix::sys::socket::setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    } else {
        nix::sys::socket::setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
    }
    Ok(socket)
}
