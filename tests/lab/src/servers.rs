//! Small servers in threads of this process that live in a namespace: echo over TCP and UDP, HTTP, and whatever a test
//! scripts over a raw connection.
//!
//! Each says who it is and whom it sees, so that tests can tell which backend answered and from which source port.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use socket2::{Domain, Protocol, Socket, Type};

use crate::Netns;
use crate::http::{Request, read_request};

/// A silent peer must not keep a server thread for ever.
const IDLE: Duration = Duration::from_secs(60);

/// How often a UDP server looks whether it should end.
const UDP_POLL: Duration = Duration::from_millis(100);

/// A TCP server with a thread per connection; ends, with its connections, when dropped.
#[derive(Debug)]
pub struct TcpServer {
    address: SocketAddr,
    listener: Arc<Socket>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stopping: AtomicBool,
    accepted: AtomicUsize,
    connections: Mutex<Vec<TcpStream>>,
}

/// The address that listens to both families at `port`.
pub const fn any(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)
}

fn bind(netns: &Netns, address: SocketAddr, kind: Type) -> Result<Socket> {
    let (domain, protocol) =
        (Domain::for_address(address), if kind == Type::STREAM { Protocol::TCP } else { Protocol::UDP });
    netns.try_run(|| {
        let socket = Socket::new(domain, kind, Some(protocol))?;
        if address.is_ipv6() {
            socket.set_only_v6(address.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED))?;
        }
        if kind == Type::STREAM {
            socket.set_reuse_address(true)?;
        }
        socket.bind(&address.into()).with_context(|| format!("bind {address} in {}", netns.name()))?;
        Ok(socket)
    })
}

impl TcpServer {
    /// `serve` gets each connection and the peer's address, IPv4 in its own form.
    pub fn start(
        netns: &Netns,
        address: SocketAddr,
        serve: impl Fn(TcpStream, SocketAddr) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Self> {
        let socket = bind(netns, address, Type::STREAM)?;
        socket.listen(4096)?;
        let address = socket.local_addr()?.as_socket().context("not an IP socket")?;
        let listener = Arc::new(socket);
        let shared = Arc::new(Shared::default());
        let acceptor = {
            let listener = TcpListener::from(listener.try_clone()?);
            let shared = Arc::clone(&shared);
            let serve = Arc::new(serve);
            std::thread::Builder::new()
                .name("lab-tcp".into())
                .spawn(move || accept(&listener, &shared, &serve))?
        };
        Ok(Self { address, listener, shared, acceptor: Some(acceptor) })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

fn accept<F>(listener: &TcpListener, shared: &Arc<Shared>, serve: &Arc<F>)
where
    F: Fn(TcpStream, SocketAddr) -> Result<()> + Send + Sync + 'static,
{
    while let Ok((stream, peer)) = listener.accept() {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        let prepared = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(IDLE)));
        let (Ok(()), Ok(copy)) = (prepared, stream.try_clone()) else { continue };
        let mut connections = shared.connections.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that ended have no peer any more; without this the copies would keep their descriptors open.
        connections.retain(|connection| connection.peer_addr().is_ok());
        connections.push(copy);
        drop(connections);
        let (serve, shared) = (Arc::clone(serve), Arc::clone(shared));
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let thread = std::thread::Builder::new().name("lab-conn".into()).spawn(move || {
            let local = stream.peer_addr().ok();
            // A connection that breaks is the peer's business: tests look at what the client saw.
            drop(serve(stream, peer));
            let mut connections = shared.connections.lock().unwrap_or_else(PoisonError::into_inner);
            connections.retain(|connection| connection.peer_addr().ok() != local);
        });
        drop(thread);
    }
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes accept(2).
        drop(self.listener.shutdown(Shutdown::Both));
        for connection in self.shared.connections.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            drop(connection.shutdown(Shutdown::Both));
        }
        if let Some(acceptor) = self.acceptor.take() {
            drop(acceptor.join());
        }
    }
}

/// Greets with `ID PEER\n`, then echoes until the client's end of stream, then says `end N\n` with the bytes counted.
pub fn tcp_echo(netns: &Netns, port: u16, identity: &str) -> Result<TcpServer> {
    let identity = identity.to_owned();
    TcpServer::start(netns, any(port), move |mut stream, peer| {
        writeln!(stream, "{identity} {peer}")?;
        let mut buffer = vec![0; 64 * 1024];
        let mut total = 0;
        loop {
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            total += count;
            stream.write_all(&buffer[..count])?;
        }
        writeln!(stream, "end {total}")?;
        stream.shutdown(Shutdown::Write)?;
        Ok(())
    })
}

/// A UDP server; ends when dropped.
#[derive(Debug)]
pub struct UdpServer {
    stopping: Arc<AtomicBool>,
    received: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl UdpServer {
    /// `answer` maps a datagram and its sender to the reply, if any.
    pub fn start(
        netns: &Netns,
        address: SocketAddr,
        answer: impl Fn(&[u8], SocketAddr) -> Option<Vec<u8>> + Send + 'static,
    ) -> Result<Self> {
        let socket = UdpSocket::from(bind(netns, address, Type::DGRAM)?);
        socket.set_read_timeout(Some(UDP_POLL))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let received = Arc::new(AtomicUsize::new(0));
        let thread = {
            let (stopping, received) = (Arc::clone(&stopping), Arc::clone(&received));
            std::thread::Builder::new().name("lab-udp".into()).spawn(move || {
                let mut buffer = vec![0; 65_536];
                while !stopping.load(Ordering::SeqCst) {
                    let Ok((count, peer)) = socket.recv_from(&mut buffer) else { continue };
                    received.fetch_add(1, Ordering::SeqCst);
                    let seen = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                    if let Some(reply) = answer(&buffer[..count], seen) {
                        drop(socket.send_to(&reply, peer));
                    }
                }
            })?
        };
        Ok(Self { stopping, received, thread: Some(thread) })
    }

    /// Datagrams that arrived so far.
    pub fn received(&self) -> usize {
        self.received.load(Ordering::SeqCst)
    }
}

impl Drop for UdpServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Replies `ID PEER PAYLOAD`.
pub fn udp_echo(netns: &Netns, port: u16, identity: &str) -> Result<UdpServer> {
    let identity = identity.to_owned();
    UdpServer::start(netns, any(port), move |payload, peer| {
        let mut reply = format!("{identity} {peer} ").into_bytes();
        reply.extend_from_slice(payload);
        Some(reply)
    })
}

/// An HTTP/1.1 server that keeps connections alive: `answer` gives the raw bytes of each response.
///
/// The requests it saw are kept, heads as they came.
#[derive(Debug)]
pub struct HttpServer {
    server: TcpServer,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl HttpServer {
    pub fn start(
        netns: &Netns,
        port: u16,
        answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static,
    ) -> Result<Self> {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let server = TcpServer::start(netns, any(port), move |mut stream, _| {
            let mut buffered = Vec::new();
            while let Some(request) = read_request(&mut stream, &mut buffered)? {
                let reply = answer(&request);
                let close =
                    request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                stream.write_all(&reply)?;
                if close {
                    break;
                }
            }
            Ok(())
        })?;
        Ok(Self { server, requests })
    }

    /// Answers 200 with `ID METHOD TARGET\n`.
    pub fn identity(netns: &Netns, port: u16, identity: &str) -> Result<Self> {
        let identity = identity.to_owned();
        Self::start(netns, port, move |request| {
            ok(&format!("{identity} {} {}\n", request.method, request.target))
        })
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn connections(&self) -> usize {
        self.server.accepted()
    }
}

/// A 200 response with a body.
pub fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}
