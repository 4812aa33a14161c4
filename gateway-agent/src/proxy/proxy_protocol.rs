//! The PROXY protocol, versions 1 and 2 (HAProxy, `doc/proxy-protocol.txt`): the header before a connection's first byte
//! in which a proxy says on whose behalf it has connected.
//!
//! **Invariant:** pure. Does not decide who may be believed, and acts upon nothing but the addresses: of what version 2 can
//! say beside them a checksum is verified and all else is passed over.

mod encode;
mod parse;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

pub use encode::encode;
pub use parse::{HEADER_BYTES_MAX, Invalid, Parser};

/// Where a connection comes from and what it was made to, as the client sees it. IPv4 in its own form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub client: SocketAddr,
    pub local: SocketAddr,
}

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The sender has connected for itself, like a health check, or for a client without an address: the connection is
    /// what it looks like.
    Own,
    /// The sender speaks for this client.
    Proxied(Ends),
}

const V1_PREFIX: &[u8] = b"PROXY ";
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Signature, version and command, family, length of the rest.
const V2_HEAD_BYTES: usize = 16;
const V2_PROXY: u8 = 0x21;
const V2_TCP4: u8 = 0x11;
const V2_TCP6: u8 = 0x21;

/// Kinds of what follows the addresses of version 2.
const ADDITION_AUTHORITY: u8 = 0x02;
const ADDITION_CRC32C: u8 = 0x03;
