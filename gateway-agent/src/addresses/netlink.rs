//! Asks rtnetlink for links, addresses and routes.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::message::{Message, RouteReply, dump_request, messages, route_request};
use super::{Interface, Interfaces};

/// The kernel fills datagrams of at most 32 KiB in a dump.
const DATAGRAM_LEN_MAX: usize = 32 * 1024;
/// A namespace of 4,096 interfaces has about 2,000 datagrams of links at the worst; beyond, something is wrong.
const DATAGRAMS_MAX: usize = 4096;

/// Every socket asks one thing at a time.
pub(super) const SEQUENCE: u32 = 1;

#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    #[error("cannot open a netlink socket")]
    Open(#[source] io::Error),
    #[error("cannot ask the kernel for {what}")]
    Ask {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the kernel's list of {0} does not end")]
    Endless(&'static str),
}

/// The way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The address that the kernel would send from.
    pub source: IpAddr,
    /// The interface that it would send on.
    pub interface: u32,
    /// The address is one of this network namespace.
    pub is_local: bool,
}

/// All interfaces and their addresses. Addresses under duplicate detection are left out.
pub fn read() -> Result<Interfaces, AddressError> {
    let mut interfaces = BTreeMap::new();
    dump("links", libc::RTM_GETLINK, |message| {
        if let Message::Link(link) = message {
            let interface = Interface {
                name: link.name,
                index: link.index,
                is_loopback: link.flags & libc::IFF_LOOPBACK as u32 != 0,
                is_ethernet: link.hardware == libc::ARPHRD_ETHER,
                is_up: link.flags & libc::IFF_UP as u32 != 0,
                addresses: Vec::new(),
            };
            interfaces.insert(link.index, interface);
        }
    })?;
    dump("addresses", libc::RTM_GETADDR, |message| {
        // An interface that came between the two lists is announced and read again.
        if let Message::Address(address) = message
            && let Some(interface) = interfaces.get_mut(&address.interface)
        {
            interface.addresses.push(address.address);
        }
    })?;
    let mut interfaces = Interfaces(interfaces.into_values().collect());
    for interface in &mut interfaces.0 {
        interface.addresses.sort_unstable();
        interface.addresses.dedup();
    }
    Ok(interfaces)
}

/// Which way the kernel would send to `destination`; `None` where it would not: no route, a prohibited one, no address
/// to send from.
pub fn route_to(destination: IpAddr) -> Result<Option<Route>, AddressError> {
    const WHAT: &str = "a route";
    let ask = |source| AddressError::Ask { what: WHAT, source };
    let socket = Socket::new(NETLINK_ROUTE).map_err(AddressError::Open)?;
    socket.send_to(&route_request(destination, SEQUENCE), &SocketAddr::new(0, 0), 0).map_err(ask)?;
    let datagram = receive(&socket).map_err(ask)?;
    match messages(&datagram, SEQUENCE).next() {
        Some(Message::Route(reply)) => Ok(route(destination, &reply)),
        // What the kernel says of an address that it cannot send to differs by route type and family (ENETUNREACH,
        // EHOSTUNREACH, EACCES, EINVAL), and all of it means the same here.
        Some(Message::Error(_)) => Ok(None),
        _ => Err(ask(io::ErrorKind::InvalidData.into())),
    }
}

fn route(destination: IpAddr, reply: &RouteReply) -> Option<Route> {
    let is_local = reply.kind == libc::RTN_LOCAL;
    if !is_local && reply.kind != libc::RTN_UNICAST {
        return None;
    }
    // The source towards an own address is that address.
    let source = reply.source.or_else(|| is_local.then_some(destination))?;
    Some(Route { source, interface: reply.interface?, is_local })
}

fn dump(what: &'static str, kind: u16, each: impl FnMut(Message)) -> Result<(), AddressError> {
    let socket = Socket::new(NETLINK_ROUTE).map_err(AddressError::Open)?;
    ask_all(&socket, what, &dump_request(kind, SEQUENCE), each)
}

/// Sends a request of sequence number [`SEQUENCE`] and reads its answers to their end.
pub(super) fn ask_all(
    socket: &Socket,
    what: &'static str,
    request: &[u8],
    mut each: impl FnMut(Message),
) -> Result<(), AddressError> {
    let ask = |source| AddressError::Ask { what, source };
    socket.send_to(request, &SocketAddr::new(0, 0), 0).map_err(ask)?;
    for _ in 0..DATAGRAMS_MAX {
        let datagram = receive(socket).map_err(ask)?;
        for message in messages(&datagram, SEQUENCE) {
            match message {
                // A request for a change is answered by the error 0.
                Message::Done | Message::Error(0) => return Ok(()),
                Message::Error(errno) => return Err(ask(io::Error::from_raw_os_error(errno))),
                message => each(message),
            }
        }
    }
    Err(AddressError::Endless(what))
}

/// Never waits: rtnetlink has answered when the request's `send` returns, and continues a dump in `recv`.
fn receive(socket: &Socket) -> io::Result<Vec<u8>> {
    let mut buffer = Vec::with_capacity(DATAGRAM_LEN_MAX);
    let length = socket.recv(&mut buffer, libc::MSG_DONTWAIT | libc::MSG_TRUNC)?;
    if length > buffer.len() {
        return Err(io::Error::other("truncated netlink datagram"));
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::{read, route_to};

    #[test]
    fn loopback_is_read_with_its_address() {
        let interfaces = read().unwrap();
        let loopback = interfaces.0.iter().find(|interface| interface.is_loopback).unwrap();
        assert_eq!(loopback.name, "lo");
        assert!(loopback.addresses.contains(&Ipv4Addr::LOCALHOST.into()));
        assert!(!interfaces.external().contains(&Ipv4Addr::LOCALHOST.into()));
    }

    #[test]
    fn route_to_an_own_address_is_local() {
        let route = route_to(Ipv4Addr::LOCALHOST.into()).unwrap().unwrap();
        assert!(route.is_local);
        assert_eq!(route.source, IpAddr::from(Ipv4Addr::LOCALHOST));
        assert_eq!(route.interface, 1);
    }

    #[test]
    fn nothing_is_sent_to_a_reserved_address() {
        assert_eq!(route_to(IpAddr::from([0, 0, 0, 0])).unwrap().filter(|route| !route.is_local), None);
        assert_eq!(route_to(IpAddr::from([255, 255, 255, 255])).unwrap(), None);
    }
}
