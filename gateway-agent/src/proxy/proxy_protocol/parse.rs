//! Reads a header, however it is cut, and not a byte of what follows it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::{
    ADDITION_CRC32C, Ends, Header, V1_PREFIX, V2_HEAD_BYTES, V2_PROXY, V2_SIGNATURE, V2_TCP4, V2_TCP6,
};
use crate::proxy::flow::canonical;

/// Longest header taken. Version 1 has 107 bytes at most, the addresses of version 2 with its head 232; of what may follow
/// them the largest in use is a client's certificate, which seldom has more than 2 KiB. The length field could say 64 KiB.
pub const HEADER_BYTES_MAX: usize = 4 * 1024;

/// Longest line of version 1, end included (section 2.1).
const V1_BYTES_MAX: usize = 107;

const V2_LOCAL: u8 = 0x20;
const V2_UNSPECIFIED: u8 = 0x00;
const V2_UNIX_STREAM: u8 = 0x31;

/// Two paths of 108 bytes.
const UNIX_BYTES: usize = 216;

/// Why bytes are no header. The connection is to be given up: nothing that follows can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("no PROXY protocol header")]
    NoHeader,
    #[error("the line of version 1 does not end as it has to")]
    Line,
    #[error("more than {HEADER_BYTES_MAX} bytes, or a line of more than {V1_BYTES_MAX}")]
    TooLong,
    #[error("the line of version 1 has not the fields of its family")]
    Fields,
    #[error("an address is not one of its family")]
    Address,
    #[error("a port is no number of a port")]
    Port,
    #[error("neither version 1 nor 2")]
    Version,
    #[error("an unknown command")]
    Command,
    #[error("an unknown family, or one that is not of streams")]
    Family,
    #[error("shorter than what it holds")]
    Truncated,
    #[error("the checksum is another one")]
    Checksum,
}

/// Takes a header in pieces. Nothing is allocated before the first byte.
#[derive(Debug, Default)]
pub struct Parser {
    taken: Vec<u8>,
}

impl Parser {
    /// How many of `bytes` belong to the header, and the header once it is whole. After an error or a header this is not to
    /// be called again.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Option<Header>), Invalid> {
        let mut n_taken = 0;
        loop {
            let n_wanted = wanted(&self.taken)?;
            if n_wanted == 0 {
                return Ok((n_taken, Some(header(&self.taken)?)));
            }
            let rest = bytes.get(n_taken..).unwrap_or_default();
            let piece = rest.get(..n_wanted.min(rest.len())).unwrap_or_default();
            if piece.is_empty() {
                return Ok((n_taken, None));
            }
            self.taken.extend_from_slice(piece);
            n_taken += piece.len();
        }
    }

    /// Whether nothing has come yet.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }
}

/// How many more bytes are the header's for sure; 0: it is whole.
fn wanted(taken: &[u8]) -> Result<usize, Invalid> {
    match taken.first() {
        None => Ok(1),
        Some(b'P') => wanted_of_line(taken),
        Some(b'\r') => wanted_of_block(taken),
        Some(_) => Err(Invalid::NoHeader),
    }
}

/// One at a time, for the end of a line is known when it is there.
fn wanted_of_line(taken: &[u8]) -> Result<usize, Invalid> {
    if taken.iter().zip(V1_PREFIX).any(|(is, has_to_be)| is != has_to_be) {
        return Err(Invalid::NoHeader);
    }
    match taken {
        [.., b'\r', b'\n'] => Ok(0),
        [.., b'\n'] | [.., b'\r', _] => Err(Invalid::Line),
        _ if taken.len() >= V1_BYTES_MAX => Err(Invalid::TooLong),
        _ => Ok(1),
    }
}

fn wanted_of_block(taken: &[u8]) -> Result<usize, Invalid> {
    if taken.iter().zip(V2_SIGNATURE).any(|(is, has_to_be)| is != has_to_be) {
        return Err(Invalid::NoHeader);
    }
    let Some([.., command, _family, high, low]) = taken.first_chunk::<V2_HEAD_BYTES>() else {
        return Ok(V2_HEAD_BYTES - taken.len());
    };
    match *command {
        V2_LOCAL | V2_PROXY => {}
        other if other >> 4 == 2 => return Err(Invalid::Command),
        _ => return Err(Invalid::Version),
    }
    let length = V2_HEAD_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
    if length > HEADER_BYTES_MAX {
        return Err(Invalid::TooLong);
    }
    Ok(length.saturating_sub(taken.len()))
}

/// Of a whole one.
fn header(header: &[u8]) -> Result<Header, Invalid> {
    match header.split_first_chunk::<V2_HEAD_BYTES>() {
        Some(([first, .., command, family, _high, _low], rest)) if *first == b'\r' => {
            if *command == V2_LOCAL { Ok(Header::Own) } else { block(*family, rest, header) }
        }
        _ => line(header),
    }
}

fn line(line: &[u8]) -> Result<Header, Invalid> {
    let text = line.strip_prefix(V1_PREFIX).and_then(|rest| rest.strip_suffix(b"\r\n"));
    let text = text.ok_or(Invalid::NoHeader)?;
    // Whatever follows has to be passed over.
    if text == b"UNKNOWN" || text.starts_with(b"UNKNOWN ") {
        return Ok(Header::Own);
    }
    let text = std::str::from_utf8(text).map_err(|_not_text| Invalid::Fields)?;
    let fields: Vec<&str> = text.split(' ').collect();
    let [family, client, local, client_port, local_port] = fields.as_slice() else {
        return Err(Invalid::Fields);
    };
    let address = match *family {
        "TCP4" => |text: &str| address::<Ipv4Addr>(text),
        "TCP6" => |text: &str| address::<Ipv6Addr>(text),
        _ => return Err(Invalid::Family),
    };
    let client = SocketAddr::new(address(client)?, port(client_port)?);
    let local = SocketAddr::new(address(local)?, port(local_port)?);
    Ok(proxied(client, local))
}

fn address<A: FromStr + Into<IpAddr>>(text: &str) -> Result<IpAddr, Invalid> {
    text.parse::<A>().map(Into::into).map_err(|_not_one| Invalid::Address)
}

/// Digits without leading zeros; the standard library would take a sign.
fn port(text: &str) -> Result<u16, Invalid> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_canonical = text == "0" || !text.starts_with('0');
    text.parse().ok().filter(|_| is_number && is_canonical).ok_or(Invalid::Port)
}

/// `rest`: what follows the head in `header`.
fn block(family: u8, rest: &[u8], header: &[u8]) -> Result<Header, Invalid> {
    let (addresses, found) = match family {
        V2_TCP4 => {
            let addresses = rest.first_chunk::<12>().ok_or(Invalid::Truncated)?;
            let [a, b, c, d, e, f, g, h, ports @ ..] = *addresses;
            let (client, local) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
            (addresses.len(), with_ports(client.into(), local.into(), ports))
        }
        V2_TCP6 => {
            let (client, after) = rest.split_first_chunk::<16>().ok_or(Invalid::Truncated)?;
            let (local, after) = after.split_first_chunk::<16>().ok_or(Invalid::Truncated)?;
            let ports = after.first_chunk::<4>().ok_or(Invalid::Truncated)?;
            let (client, local) = (Ipv6Addr::from(*client), Ipv6Addr::from(*local));
            (16 + 16 + 4, with_ports(client.into(), local.into(), *ports))
        }
        // A client that has no address of the kind that is looked at here.
        V2_UNIX_STREAM => (UNIX_BYTES, Header::Own),
        // What is in the block is not said.
        V2_UNSPECIFIED => return Ok(Header::Own),
        _ => return Err(Invalid::Family),
    };
    check_additions(header, V2_HEAD_BYTES + addresses)?;
    Ok(found)
}

fn with_ports(client: IpAddr, local: IpAddr, [a, b, c, d]: [u8; 4]) -> Header {
    let (client_port, local_port) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    proxied(SocketAddr::new(client, client_port), SocketAddr::new(local, local_port))
}

fn proxied(client: SocketAddr, local: SocketAddr) -> Header {
    Header::Proxied(Ends { client: canonical(client), local: canonical(local) })
}

/// Whether what follows the addresses, from `at` on, ends where the header does, and the checksum holds where there is one.
fn check_additions(header: &[u8], mut at: usize) -> Result<(), Invalid> {
    let mut rest = header.get(at..).ok_or(Invalid::Truncated)?;
    let mut checksum = None;
    while !rest.is_empty() {
        let ([kind, high, low], after) = rest.split_first_chunk::<3>().ok_or(Invalid::Truncated)?;
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, after) = after.split_at_checked(length).ok_or(Invalid::Truncated)?;
        if *kind == ADDITION_CRC32C {
            let sum = <[u8; 4]>::try_from(value).map_err(|_other_length| Invalid::Checksum)?;
            if checksum.replace((at + 3, u32::from_be_bytes(sum))).is_some() {
                return Err(Invalid::Checksum);
            }
        }
        at += 3 + length;
        rest = after;
    }
    match checksum {
        Some((at, sum)) if checksum_without(header, at) != sum => Err(Invalid::Checksum),
        _ => Ok(()),
    }
}

/// CRC32c (Castagnoli) of `header` with zeros in place of the four bytes from `at` on.
pub(super) fn checksum_without(header: &[u8], at: usize) -> u32 {
    /// The polynomial, its bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let bytes = header.iter().enumerate().map(|(index, byte)| {
        let is_sum = (at..at + 4).contains(&index);
        if is_sum { 0 } else { *byte }
    });
    // Bit by bit: few senders have a checksum, and of a usual header this is less than a microsecond.
    !bytes.fold(u32::MAX, |sum, byte| {
        (0..8).fold(
            sum ^ u32::from(byte),
            |sum, _| {
                if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 }
            },
        )
    })
}
