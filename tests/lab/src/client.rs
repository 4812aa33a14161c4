//! Clients: plain sockets opened in a namespace, with timeouts on everything.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use socket2::{Domain, Protocol, Socket, Type};

use crate::http::{Response, exchange};
use crate::{Family, Netns};

/// For one answer; generous, since tests share the machine.
pub const TIMEOUT: Duration = Duration::from_secs(15);

/// A TCP connection made in `netns`, with read and write timeouts.
pub fn connect(netns: &Netns, to: SocketAddr) -> Result<TcpStream> {
    let stream = netns
        .run(|| TcpStream::connect_timeout(&to, TIMEOUT))?
        .with_context(|| format!("connect to {to} from {}", netns.name()))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// As [`connect`], from a chosen source port.
pub fn connect_from(netns: &Netns, from: SocketAddr, to: SocketAddr) -> Result<TcpStream> {
    netns.try_run(|| {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&from.into()).with_context(|| format!("bind {from}"))?;
        socket.connect_timeout(&to.into(), TIMEOUT).with_context(|| format!("connect {from} to {to}"))?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(stream)
    })
}

/// A UDP socket made in `netns`, connected so that ICMP errors show.
pub fn udp(netns: &Netns, to: SocketAddr) -> Result<UdpSocket> {
    let local = SocketAddr::new(if to.is_ipv4() { Family::V4 } else { Family::V6 }.unspecified(), 0);
    udp_from(netns, local, to)
}

pub fn udp_from(netns: &Netns, from: SocketAddr, to: SocketAddr) -> Result<UdpSocket> {
    let socket =
        netns.run(|| UdpSocket::bind(from).and_then(|socket| socket.connect(to).map(|()| socket)))??;
    socket.set_read_timeout(Some(TIMEOUT))?;
    Ok(socket)
}

/// Sends one datagram and waits for the answer; sends again, as clients over UDP do, every half second.
pub fn ask(socket: &UdpSocket, payload: &[u8]) -> Result<Vec<u8>> {
    const TRIES: u32 = 20;
    let mut buffer = vec![0; 65_536];
    // A late answer to what was asked before would be taken for this one's.
    socket.set_nonblocking(true)?;
    while socket.recv(&mut buffer).is_ok() {}
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    for _ in 0..TRIES {
        socket.send(payload)?;
        match socket.recv(&mut buffer) {
            Ok(count) => {
                buffer.truncate(count);
                return Ok(buffer);
            }
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bail!("no answer to {TRIES} datagrams")
}

/// What an echo server of [`crate::servers`] said of itself and of us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    pub identity: String,
    pub peer: SocketAddr,
    pub rest: String,
}

impl Greeting {
    /// `ID PEER[ REST]`.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parts = text.trim_end_matches('\n').splitn(3, ' ');
        let (Some(identity), Some(peer)) = (parts.next(), parts.next()) else {
            bail!("no greeting: {text:?}")
        };
        let peer = peer.parse().with_context(|| format!("no peer address in {text:?}"))?;
        Ok(Self { identity: identity.into(), peer, rest: parts.next().unwrap_or_default().into() })
    }

    pub const fn peer_address(&self) -> IpAddr {
        self.peer.ip()
    }
}

/// A connection to an echo server behind the gateway.
#[derive(Debug)]
pub struct EchoClient {
    reader: BufReader<TcpStream>,
    pub greeting: Greeting,
}

impl EchoClient {
    pub fn new(stream: TcpStream) -> Result<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).context("read the greeting")?;
        Ok(Self { reader, greeting: Greeting::parse(&line)? })
    }

    pub fn connect(netns: &Netns, to: SocketAddr) -> Result<Self> {
        Self::new(connect(netns, to)?)
    }

    pub fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    /// Sends bytes and fails unless the same come back.
    pub fn echo(&mut self, bytes: &[u8]) -> Result<()> {
        self.reader.get_mut().write_all(bytes).context("send")?;
        let mut back = vec![0; bytes.len()];
        self.reader.read_exact(&mut back).context("receive the echo")?;
        if back != bytes {
            bail!("sent {} bytes, other bytes came back", bytes.len());
        }
        Ok(())
    }

    /// Ends our direction and reads what the server still says: `end N\n` with the bytes that it got.
    pub fn finish(mut self) -> Result<String> {
        self.reader.get_mut().shutdown(std::net::Shutdown::Write)?;
        let mut rest = String::new();
        self.reader.read_to_string(&mut rest).context("read after half-close")?;
        Ok(rest)
    }
}

/// One GET on a connection of its own.
pub fn get(netns: &Netns, to: SocketAddr, host: &str, path: &str) -> Result<Response> {
    get_with(netns, to, host, path, &[])
}

pub fn get_with(
    netns: &Netns,
    to: SocketAddr,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Response> {
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += "Connection: close\r\n\r\n";
    exchange(&mut connect(netns, to)?, request.as_bytes())
}
