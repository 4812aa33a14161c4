//! The few rtnetlink messages that are used: requests out, links, addresses and routes in, local routes out.
//!
//! Layouts: `include/uapi/linux/{netlink,rtnetlink,if_link,if_addr}.h`. Numbers are in the host's byte order, addresses
//! in the network's. **Invariant:** pure; a malformed message is skipped or an error, never a panic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const HEADER_LEN: usize = 16;
const ATTRIBUTE_HEADER_LEN: usize = 4;

/// `struct ifinfomsg`, `struct ifaddrmsg`, `struct rtmsg`.
const LINK_LEN: usize = 16;
const ADDRESS_LEN: usize = 8;
const ROUTE_LEN: usize = 12;

const IFLA_IFNAME: u16 = 3;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
const IFA_F_DADFAILED: u32 = 0x08;
const IFA_F_TENTATIVE: u32 = 0x40;
const IFA_F_OPTIMISTIC: u32 = 0x04;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_PREFSRC: u16 = 7;
const RT_TABLE_LOCAL: u8 = 255;
const RT_SCOPE_HOST: u8 = 254;
/// Marks our local routes (`rtm_protocol`), so that those of an earlier run are known again. Numbers above 4 are for
/// programs to choose; this one is in none of iproute2's lists.
const PROTOCOL: u8 = 97;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    /// `ARPHRD_*`.
    pub(super) hardware: u16,
    pub(super) flags: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) interface: u32,
    pub(super) address: IpAddr,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RouteReply {
    /// `None` for a default route.
    pub(super) destination: Option<IpAddr>,
    pub(super) is_ours: bool,
    pub(super) kind: u8,
    pub(super) interface: Option<u32>,
    pub(super) source: Option<IpAddr>,
}

/// One message of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Link(Link),
    Address(Address),
    Route(RouteReply),
    /// End of a dump.
    Done,
    /// `NLMSG_ERROR`: a positive errno, 0 for an acknowledgement.
    Error(i32),
    /// Of another kind, or an address that is not usable yet.
    Other,
}

/// Asks for all links (`RTM_GETLINK`) or all addresses (`RTM_GETADDR`).
pub(super) fn dump_request(kind: u16, sequence: u32) -> Vec<u8> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    request(kind, flags, sequence, &[0; LINK_LEN])
}

/// Asks which way the kernel would send to `destination`.
pub(super) fn route_request(destination: IpAddr, sequence: u32) -> Vec<u8> {
    let mut body = vec![0; ROUTE_LEN];
    let octets = octets(destination);
    body[0] = family(destination);
    // At most 128.
    body[1] = (octets.len() * 8) as u8;
    push_attribute(&mut body, RTA_DST, &octets);
    request(libc::RTM_GETROUTE, libc::NLM_F_REQUEST as u16, sequence, &body)
}

/// Asks for our local routes of one family. The socket must check requests strictly, or the kernel lists all routes.
pub(super) fn own_routes_request(is_v4: bool, sequence: u32) -> Vec<u8> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let family = if is_v4 { libc::AF_INET } else { libc::AF_INET6 } as u8;
    let body = [family, 0, 0, 0, RT_TABLE_LOCAL, PROTOCOL, 0, libc::RTN_LOCAL, 0, 0, 0, 0];
    request(libc::RTM_GETROUTE, flags, sequence, &body)
}

/// Has the kernel take in what is sent to `address`, as if an interface had it, or no longer.
pub(super) fn local_route_request(
    change: LocalRoute,
    address: IpAddr,
    loopback: u32,
    sequence: u32,
) -> Vec<u8> {
    let (kind, flags) = match change {
        LocalRoute::Add => (libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_EXCL),
        LocalRoute::Delete => (libc::RTM_DELROUTE, 0),
    };
    let octets = octets(address);
    // At most 128.
    let prefix_len = (octets.len() * 8) as u8;
    let mut body = vec![family(address), prefix_len, 0, 0, RT_TABLE_LOCAL, PROTOCOL];
    body.extend([RT_SCOPE_HOST, libc::RTN_LOCAL, 0, 0, 0, 0]);
    push_attribute(&mut body, RTA_DST, &octets);
    push_attribute(&mut body, RTA_OIF, &loopback.to_ne_bytes());
    request(kind, (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16, sequence, &body)
}

/// What is to become of a local route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalRoute {
    Add,
    Delete,
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// Values are multiples of four bytes long, so nothing is padded.
fn push_attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    // At most 20.
    let length = (ATTRIBUTE_HEADER_LEN + value.len()) as u16;
    body.extend_from_slice(&length.to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
}

const fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn request(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = (HEADER_LEN + body.len()) as u32;
    let mut message = Vec::with_capacity(HEADER_LEN + body.len());
    message.extend_from_slice(&length.to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&sequence.to_ne_bytes());
    message.extend_from_slice(&0u32.to_ne_bytes());
    message.extend_from_slice(body);
    message
}

/// The messages of one datagram that answer `sequence`.
pub(super) fn messages(datagram: &[u8], sequence: u32) -> impl Iterator<Item = Message> + '_ {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        loop {
            let length = u32_at(rest, 0)? as usize;
            let kind = u16_at(rest, 4)?;
            let answers = u32_at(rest, 8)?;
            let body = rest.get(HEADER_LEN..length)?;
            rest = rest.get(align(length)..).unwrap_or_default();
            if answers == sequence {
                return Some(parse(kind, body).unwrap_or(Message::Other));
            }
        }
    })
}

fn parse(kind: u16, body: &[u8]) -> Option<Message> {
    match i32::from(kind) {
        libc::NLMSG_DONE => return Some(Message::Done),
        libc::NLMSG_ERROR => {
            let negative = i32::from_ne_bytes(body.get(..4)?.try_into().ok()?);
            return Some(Message::Error(negative.saturating_neg()));
        }
        _ => {}
    }
    match kind {
        libc::RTM_NEWLINK => link(body).map(Message::Link),
        libc::RTM_NEWADDR => address(body).map(Message::Address),
        libc::RTM_NEWROUTE => route(body).map(Message::Route),
        _ => None,
    }
}

fn link(body: &[u8]) -> Option<Link> {
    let name = attributes(body.get(LINK_LEN..)?)
        .find_map(|(kind, value)| (kind == IFLA_IFNAME).then_some(value))?
        .split(|byte| *byte == 0)
        .next()?;
    Some(Link {
        index: u32_at(body, 4)?,
        hardware: u16_at(body, 2)?,
        flags: u32_at(body, 8)?,
        name: String::from_utf8(name.to_vec()).ok()?,
    })
}

fn address(body: &[u8]) -> Option<Address> {
    let family = *body.first()?;
    let mut flags = u32::from(*body.get(2)?);
    let (mut local, mut peer) = (None, None);
    for (kind, value) in attributes(body.get(ADDRESS_LEN..)?) {
        match kind {
            IFA_LOCAL => local = ip(family, value),
            IFA_ADDRESS => peer = ip(family, value),
            IFA_FLAGS => flags = u32_at(value, 0)?,
            _ => {}
        }
    }
    // Nothing may be received at an address under duplicate address detection, unless it is an optimistic one
    // (RFC 4429); the end of the detection is announced as a change.
    let in_doubt =
        flags & IFA_F_DADFAILED != 0 || flags & (IFA_F_TENTATIVE | IFA_F_OPTIMISTIC) == IFA_F_TENTATIVE;
    if in_doubt {
        return None;
    }
    // On a point-to-point link IFA_ADDRESS is the other end.
    Some(Address { interface: u32_at(body, 4)?, address: local.or(peer)? })
}

fn route(body: &[u8]) -> Option<RouteReply> {
    let family = *body.first()?;
    let is_ours = *body.get(4)? == RT_TABLE_LOCAL && *body.get(5)? == PROTOCOL;
    let kind = *body.get(7)?;
    let mut reply = RouteReply { destination: None, is_ours, kind, interface: None, source: None };
    for (kind, value) in attributes(body.get(ROUTE_LEN..)?) {
        match kind {
            RTA_DST => reply.destination = ip(family, value),
            RTA_OIF => reply.interface = u32_at(value, 0),
            RTA_PREFSRC => reply.source = ip(family, value),
            _ => {}
        }
    }
    Some(reply)
}

fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)?;
        let value = rest.get(ATTRIBUTE_HEADER_LEN..length)?;
        rest = rest.get(align(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => Some(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into()),
        _ => None,
    }
}

const fn align(length: usize) -> usize {
    length.saturating_add(3) & !3
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(offset..offset.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(offset..offset.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::{
        Address, LocalRoute, Message, RouteReply, dump_request, local_route_request, messages, request,
        route_request,
    };

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn new_address(flags: u8, attributes: &[Vec<u8>]) -> Option<Message> {
        let family = if attributes[0].len() == 20 { libc::AF_INET6 } else { libc::AF_INET };
        let mut body = vec![family as u8, 64, flags, 0];
        body.extend_from_slice(&7u32.to_ne_bytes());
        body.extend(attributes.concat());
        let datagram = request(libc::RTM_NEWADDR, 0, 9, &body);
        messages(&datagram, 9).next()
    }

    #[test]
    fn own_end_of_a_point_to_point_link_is_the_address() {
        let message = new_address(0, &[attribute(1, &[10, 0, 0, 2]), attribute(2, &[10, 0, 0, 1])]);
        let address = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(message, Some(Message::Address(Address { interface: 7, address })));
    }

    #[test]
    fn address_under_duplicate_detection_is_left_out() {
        let address = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let usable =
            |flags| matches!(new_address(flags, &[attribute(1, &address)]), Some(Message::Address(_)));
        assert!(usable(0));
        assert!(usable(0x80), "permanent");
        assert!(usable(0x20), "deprecated: still received at");
        assert!(usable(0x44), "optimistic");
        assert!(!usable(0x40), "tentative");
        assert!(!usable(0x08), "duplicate");
    }

    #[test]
    fn messages_of_another_request_are_skipped() {
        let mut datagram = request(libc::NLMSG_DONE as u16, 0, 1, &[0; 4]);
        datagram.extend(request(libc::NLMSG_ERROR as u16, 0, 2, &(-101i32).to_ne_bytes()));
        assert_eq!(messages(&datagram, 2).collect::<Vec<_>>(), [Message::Error(101)]);
    }

    #[test]
    fn route_reply_names_interface_and_source() {
        let mut body = vec![libc::AF_INET as u8, 32, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0];
        body.extend(attribute(4, &3u32.to_ne_bytes()));
        body.extend(attribute(7, &[192, 0, 2, 1]));
        let datagram = request(libc::RTM_NEWROUTE, 0, 5, &body);
        let expected = RouteReply {
            destination: None,
            is_ours: false,
            kind: 1,
            interface: Some(3),
            source: Some(IpAddr::from([192, 0, 2, 1])),
        };
        assert_eq!(messages(&datagram, 5).next(), Some(Message::Route(expected)));
    }

    #[test]
    fn requests_are_whole_messages() {
        assert_eq!(dump_request(libc::RTM_GETLINK, 1).len(), 32);
        assert_eq!(route_request(IpAddr::from([10, 0, 0, 1]), 1).len(), 16 + 12 + 8);
        assert_eq!(route_request("2001:db8::1".parse().unwrap(), 1).len(), 16 + 12 + 20);
        let local = local_route_request(LocalRoute::Add, "2001:db8::1".parse().unwrap(), 1, 1);
        assert_eq!(local.len(), 16 + 12 + 20 + 8);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u16..32,
        ) {
            let _ = messages(&bytes, 0).take(100).count();
            let _ = messages(&request(kind, 0, 1, &bytes), 1).take(100).count();
        }
    }
}
