//! Addresses of both families as 16 bytes, so that one map and one code path serve both.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An address in network byte order; IPv4 as IPv4-mapped IPv6 (`::ffff:a.b.c.d`).
///
/// Aligned, for the bpf target has no unaligned loads and would copy it byte by byte.
#[repr(C, align(4))]
#[derive(
    Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Address(pub [u8; 16]);

impl Address {
    /// `address` as the maps hold it.
    pub const fn from_ip(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }

    /// The reverse of [`Self::from_ip`]. A mapped address is IPv4.
    pub const fn to_ip(self) -> IpAddr {
        Ipv6Addr::from_octets(self.0).to_canonical()
    }

    /// From the words of an IPv4 header, in network byte order.
    #[inline(always)]
    pub fn from_v4_word(word_be: u32) -> Self {
        Self::from_words([0, 0, 0xffff_u32.to_be(), word_be])
    }

    /// From four words in network byte order.
    #[inline(always)]
    pub fn from_words(words_be: [u32; 4]) -> Self {
        Self(zerocopy::transmute!(words_be))
    }

    /// As four words in network byte order; the last is the IPv4 address of a mapped one.
    #[inline(always)]
    pub fn words(self) -> [u32; 4] {
        zerocopy::transmute!(self.0)
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        Self::from_ip(address)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_ip(), f)
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};

    use super::Address;

    #[test]
    fn addresses_of_both_families_come_back_as_they_were() {
        for text in ["192.0.2.1", "0.0.0.0", "255.255.255.255", "2001:db8::1", "::", "::1", "fe80::1"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(Address::from_ip(address).to_ip(), address);
            assert_eq!(Address::from_words(Address::from_ip(address).words()).to_ip(), address);
        }
    }

    #[test]
    fn v4_is_mapped() {
        let address = Ipv4Addr::new(192, 0, 2, 1);
        let word_be = u32::from_ne_bytes(address.octets());
        assert_eq!(Address::from_v4_word(word_be), Address::from_ip(address.into()));
        assert_eq!(Address::from_ip(address.into()).words()[3], word_be);
    }
}
