//! Writes a header.

use std::net::{IpAddr, Ipv6Addr};

use super::{ADDITION_AUTHORITY, Ends, V1_PREFIX, V2_PROXY, V2_SIGNATURE, V2_TCP4, V2_TCP6};
use crate::snapshot::ProxyVersion;

/// Longest name that a server can have by DNS; what is longer is no name and is not passed on.
const AUTHORITY_BYTES_MAX: usize = 255;

/// The header that speaks for a client. `authority`: the server name that it asked for, empty where it named none;
/// version 1 has no place for it.
pub fn encode(version: ProxyVersion, ends: Ends, authority: &str) -> Vec<u8> {
    match version {
        ProxyVersion::V1 => line(ends),
        ProxyVersion::V2 => block(ends, authority),
    }
}

/// Both of the same family: in IPv6's form where only one of them is of IPv4.
enum Pair {
    V4([u8; 4], [u8; 4]),
    V6(Ipv6Addr, Ipv6Addr),
}

fn pair(ends: Ends) -> Pair {
    let v6 = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    match (ends.client.ip(), ends.local.ip()) {
        (IpAddr::V4(client), IpAddr::V4(local)) => Pair::V4(client.octets(), local.octets()),
        (client, local) => Pair::V6(v6(client), v6(local)),
    }
}

fn line(ends: Ends) -> Vec<u8> {
    let (client, local) = (ends.client.port(), ends.local.port());
    let rest = match pair(ends) {
        Pair::V4(from, to) => {
            format!("TCP4 {} {} {client} {local}\r\n", IpAddr::from(from), IpAddr::from(to))
        }
        Pair::V6(from, to) => format!("TCP6 {from} {to} {client} {local}\r\n"),
    };
    [V1_PREFIX, rest.as_bytes()].concat()
}

fn block(ends: Ends, authority: &str) -> Vec<u8> {
    let (family, mut rest) = match pair(ends) {
        Pair::V4(from, to) => (V2_TCP4, [from, to].concat()),
        Pair::V6(from, to) => (V2_TCP6, [from.octets(), to.octets()].concat()),
    };
    rest.extend(ends.client.port().to_be_bytes());
    rest.extend(ends.local.port().to_be_bytes());
    if let Some(length) = authority_length(authority) {
        rest.push(ADDITION_AUTHORITY);
        rest.extend(length.to_be_bytes());
        rest.extend(authority.as_bytes());
    }
    // 36 bytes of addresses and a name at most, see `AUTHORITY_BYTES_MAX`.
    let length = u16::try_from(rest.len()).unwrap_or(u16::MAX);
    [V2_SIGNATURE.as_slice(), &[V2_PROXY, family], &length.to_be_bytes(), &rest].concat()
}

fn authority_length(authority: &str) -> Option<u16> {
    let is_name = !authority.is_empty() && authority.len() <= AUTHORITY_BYTES_MAX;
    u16::try_from(authority.len()).ok().filter(|_| is_name)
}
