//! Frames made by hand, for what ordinary sockets never send.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result, bail};

use crate::Netns;

pub type Mac = [u8; 6];

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const UDP: u8 = 17;

/// A packet socket on one interface.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    index: i32,
    pub mac: Mac,
}

impl Link {
    pub fn open(netns: &Netns, interface: &str) -> Result<Self> {
        let mac = mac(netns, interface)?;
        netns.try_run(|| {
            // SAFETY: socket(2) takes three numbers.
            let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
            if fd < 0 {
                return Err(std::io::Error::last_os_error()).context("open a packet socket");
            }
            // SAFETY: the descriptor was just made and nobody else has it.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            let index = nix::net::if_::if_nametoindex(interface).context("index of the interface")?;
            Ok(Self { fd, index: i32::try_from(index)?, mac })
        })
    }

    pub fn send(&self, frame: &[u8]) -> Result<()> {
        // SAFETY: sockaddr_ll is plain data for which all zeros is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET)?;
        address.sll_ifindex = self.index;
        address.sll_halen = 6;
        let length = libc::socklen_t::try_from(size_of_val(&address))?;
        // SAFETY: the pointers and lengths are those of a live slice and a live local.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                length,
            )
        };
        if usize::try_from(sent).ok() != Some(frame.len()) {
            return Err(std::io::Error::last_os_error()).context("send a frame");
        }
        Ok(())
    }
}

/// The hardware address of an interface.
pub fn mac(netns: &Netns, interface: &str) -> Result<Mac> {
    let text = netns.output("ip", &["-o", "link", "show", "dev", interface])?;
    let word = text.split_whitespace().skip_while(|word| *word != "link/ether").nth(1);
    let parts: Vec<u8> = word
        .context("no link/ether in the output of ip")?
        .split(':')
        .map(|part| u8::from_str_radix(part, 16))
        .collect::<Result<_, _>>()?;
    <Mac>::try_from(parts).ok().context("a hardware address of 6 bytes")
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(u16::try_from(sum).expect("folded above"))
}

/// A UDP datagram in an Ethernet frame, with right checksums, padded with `padding` bytes that are no part of it.
pub fn udp_frame(
    from: SocketAddr,
    to: SocketAddr,
    macs: (Mac, Mac),
    payload: &[u8],
    padding: usize,
) -> Result<Vec<u8>> {
    let length = u16::try_from(8 + payload.len())?;
    let mut udp = [from.port().to_be_bytes(), to.port().to_be_bytes(), length.to_be_bytes(), [0, 0]].concat();
    udp.extend(payload);
    let (ethertype, addresses, header) = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            (ETHERTYPE_IPV4, [from.octets(), to.octets()].concat(), ipv4_header(from, to, length)?)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            (ETHERTYPE_IPV6, [from.octets(), to.octets()].concat(), ipv6_header(from, to, length))
        }
        _ => bail!("both addresses must be of one family"),
    };
    let pseudo =
        [&addresses[..], &u32::from(length).to_be_bytes(), &u32::from(UDP).to_be_bytes(), &udp].concat();
    let sum = match checksum(&pseudo) {
        0 => 0xffff,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    let (source, destination) = macs;
    let mut frame = [&destination[..], &source, &ethertype.to_be_bytes(), &header, &udp].concat();
    // Not zeros: a checksum taken over the padding must come out wrong.
    frame.extend(std::iter::repeat_n(0xa5, padding));
    Ok(frame)
}

fn ipv4_header(from: Ipv4Addr, to: Ipv4Addr, payload: u16) -> Result<Vec<u8>> {
    let total = 20u16.checked_add(payload).context("too long for a packet")?;
    let mut header = vec![0x45, 0];
    header.extend(total.to_be_bytes());
    header.extend([0, 1, 0x40, 0, 64, UDP, 0, 0]);
    header.extend(from.octets());
    header.extend(to.octets());
    let sum = checksum(&header).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    Ok(header)
}

fn ipv6_header(from: Ipv6Addr, to: Ipv6Addr, payload: u16) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend(payload.to_be_bytes());
    header.extend([UDP, 64]);
    header.extend(from.octets());
    header.extend(to.octets());
    header
}

/// From now on the socket sends IPv4 datagrams without a checksum (RFC 768: zero means none).
pub fn without_checksum(socket: &UdpSocket) -> Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on))?;
    // SAFETY: the value is a live local of the length given.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            (&raw const on).cast(),
            length,
        )
    };
    if outcome != 0 {
        return Err(std::io::Error::last_os_error()).context("set SO_NO_CHECK");
    }
    Ok(())
}

/// A counter of /proc/net/snmp, such as `Udp InCsumErrors`.
pub fn snmp(netns: &Netns, protocol: &str, counter: &str) -> Result<u64> {
    // Not /proc/net, which is that of the process, not of the thread.
    let text = netns.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))??;
    let prefix = format!("{protocol}: ");
    let mut rows = text.lines().filter_map(|line| line.strip_prefix(&prefix));
    let (names, values) = (rows.next().context("no such protocol")?, rows.next().context("no values")?);
    let place =
        names.split(' ').position(|name| name == counter).with_context(|| format!("no counter {counter}"))?;
    Ok(values.split(' ').nth(place).context("fewer values than names")?.parse()?)
}

/// A counter of /proc/net/snmp6, such as `Udp6InCsumErrors`.
pub fn snmp6(netns: &Netns, counter: &str) -> Result<u64> {
    let text = netns.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp6"))??;
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(counter));
    let value = line
        .and_then(|line| line.split_whitespace().nth(1))
        .with_context(|| format!("no counter {counter}"))?;
    Ok(value.parse()?)
}
