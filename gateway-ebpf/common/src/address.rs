//! Addresses of both families as 16 bytes, so that one map and one code path serve both.

use core::net::IpAddr;

/// An address in network byte order; IPv4 as IPv4-mapped IPv6 (`::ffff:a.b.c.d`).
pub type Address = [u8; 16];

/// The first 12 bytes of a mapped IPv4 address.
pub const V4_PREFIX: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// `address` as the maps hold it.
pub const fn from_ip(address: IpAddr) -> Address {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The reverse of [`from_ip`]. A mapped address is IPv4.
pub const fn to_ip(address: Address) -> IpAddr {
    IpAddr::V6(core::net::Ipv6Addr::from_octets(address)).to_canonical()
}

/// An IPv4 address in network byte order as the maps hold it.
#[inline(always)]
pub const fn from_v4([a, b, c, d]: [u8; 4]) -> Address {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

/// The last four bytes: the IPv4 address of a mapped one.
#[inline(always)]
pub const fn to_v4(address: &Address) -> [u8; 4] {
    let [.., a, b, c, d] = *address;
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::{from_ip, from_v4, to_ip, to_v4};

    #[test]
    fn addresses_of_both_families_come_back_as_they_were() {
        for text in ["192.0.2.1", "0.0.0.0", "255.255.255.255", "2001:db8::1", "::", "::1", "fe80::1"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(to_ip(from_ip(address)), address);
        }
    }

    #[test]
    fn v4_is_mapped() {
        assert_eq!(from_v4([192, 0, 2, 1]), from_ip("192.0.2.1".parse().unwrap()));
        assert_eq!(to_v4(&from_v4([192, 0, 2, 1])), [192, 0, 2, 1]);
    }
}
