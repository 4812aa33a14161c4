//! Reads a connection up to the end of its ClientHello.

use std::io;

use tokio::net::TcpStream;

use super::super::limits::HELLO_RAW_BYTES;
use super::super::pool::Chunk;
use super::hello::{Hello, Invalid, Parser, Progress};

/// Why a connection ended before it was routed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unrouted {
    #[error("no complete ClientHello within the deadline")]
    Deadline,
    #[error("the client ended within its ClientHello")]
    Truncated,
    #[error("more than 64 KiB without a complete ClientHello")]
    TooManyRecords,
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
}

/// First allocation for a hello: most fit. Nothing is allocated for a client that is silent.
const FIRST_READ_BYTES: usize = 2 * 1024;

/// Reads until the hello is whole. `None`: the client left without a byte. Cancellation loses what was read.
pub(super) async fn read_hello(client: &TcpStream) -> Result<Option<(Hello, Chunk)>, Unrouted> {
    let mut parser = Parser::default();
    let mut raw = Vec::new();
    let mut len = 0;
    loop {
        client.readable().await?;
        if len == raw.len() {
            if len >= HELLO_RAW_BYTES {
                return Err(Unrouted::TooManyRecords);
            }
            raw.resize((2 * len).clamp(FIRST_READ_BYTES, HELLO_RAW_BYTES), 0);
        }
        let n = match client.try_read(raw.get_mut(len..).unwrap_or_default()) {
            Ok(0) if len == 0 => return Ok(None),
            Ok(0) => return Err(Unrouted::Truncated),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        };
        let fresh = raw.get(len..len + n).unwrap_or_default();
        len += n;
        match parser.feed(fresh) {
            Progress::NeedMore => {}
            Progress::Hello(hello) => return Ok(Some((hello, Chunk::new(raw, len)))),
            Progress::Invalid(invalid) => return Err(invalid.into()),
        }
    }
}
