//! Connections to backends of the TCP and TLS relays.
//!
//! Does not choose the backend and keeps no connection for later.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};

use super::socket::keepalive;

/// Connects to `target`, or fails after `deadline`. Cancellation-safe: a connection under way is given up.
pub(super) async fn connect(target: SocketAddr, deadline: Duration) -> io::Result<TcpStream> {
    let socket =
        Socket::new(Domain::for_address(target), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    keepalive(&socket)?;
    let socket = TcpSocket::from_std_stream(std::net::TcpStream::from(socket));
    match tokio::time::timeout(deadline, socket.connect(target)).await {
        Ok(result) => result,
        Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
    }
}
