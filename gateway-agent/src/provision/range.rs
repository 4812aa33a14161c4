//! Ranges of addresses as `--address-pool` names them: `192.0.2.0/24`, `192.0.2.10-192.0.2.20`, `2001:db8::1`.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// Both ends included, both of one family, the first not above the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRange {
    first: IpAddr,
    last: IpAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an address, a prefix such as 192.0.2.0/24 or a range such as 192.0.2.10-192.0.2.20")]
pub struct RangeError;

impl IpRange {
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && self.first <= address && address <= self.last
    }

    pub const fn is_ipv4(&self) -> bool {
        self.first.is_ipv4()
    }

    /// The lowest address that is not in `taken`. Costs what of `taken` lies in the range.
    pub fn lowest_free(&self, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        let mut candidate = self.first;
        for held in taken.range(self.first..=self.last) {
            if *held != candidate {
                break;
            }
            if candidate == self.last {
                return None;
            }
            candidate = next(candidate)?;
        }
        Some(candidate)
    }
}

fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => Some(IpAddr::V4(v4.to_bits().checked_add(1)?.into())),
        IpAddr::V6(v6) => Some(IpAddr::V6(v6.to_bits().checked_add(1)?.into())),
    }
}

impl FromStr for IpRange {
    type Err = RangeError;

    /// Of a prefix the first and, with IPv4, the last address are left out where it has more than two: networks use
    /// them otherwise (network and broadcast address, subnet-router anycast). A range names exactly what it includes.
    fn from_str(text: &str) -> Result<Self, RangeError> {
        let text = text.trim();
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self { first: address, last: address });
        }
        if let Ok(net) = text.parse::<IpNet>() {
            let (first, last) = (net.network(), net.broadcast());
            let has_special = net.max_prefix_len() - net.prefix_len() > 1;
            return Ok(match (has_special, last) {
                (false, _) => Self { first, last },
                (true, IpAddr::V4(v4)) => Self {
                    first: next(first).ok_or(RangeError)?,
                    last: IpAddr::V4(v4.to_bits().saturating_sub(1).into()),
                },
                (true, IpAddr::V6(_)) => Self { first: next(first).ok_or(RangeError)?, last },
            });
        }
        let (first, last) = text.split_once('-').ok_or(RangeError)?;
        let end = |text: &str| text.trim().parse::<IpAddr>().map_err(|_not_an_address| RangeError);
        let (first, last) = (end(first)?, end(last)?);
        if first.is_ipv4() == last.is_ipv4() && first <= last {
            Ok(Self { first, last })
        } else {
            Err(RangeError)
        }
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// For messages.
pub fn list(ranges: &[IpRange]) -> String {
    /// A pool of more ranges is not read in a condition.
    const SHOWN: usize = 8;
    let mut shown: Vec<String> = ranges.iter().take(SHOWN).map(IpRange::to_string).collect();
    if ranges.len() > SHOWN {
        shown.push("...".into());
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::IpRange;

    fn range(text: &str) -> String {
        text.parse::<IpRange>().map_or_else(|error| error.to_string(), |range| range.to_string())
    }

    #[test]
    fn prefixes_leave_out_what_networks_use_otherwise() {
        assert_eq!(range("192.0.2.0/24"), "192.0.2.1-192.0.2.254");
        assert_eq!(range("192.0.2.8/31"), "192.0.2.8-192.0.2.9");
        assert_eq!(range("192.0.2.8/32"), "192.0.2.8");
        assert_eq!(range("2001:db8::/126"), "2001:db8::1-2001:db8::3");
        assert_eq!(range("2001:db8::/127"), "2001:db8::-2001:db8::1");
    }

    #[test]
    fn ranges_name_both_ends() {
        assert_eq!(range(" 192.0.2.0 - 192.0.2.255 "), "192.0.2.0-192.0.2.255");
        assert_eq!(range("2001:db8::1-2001:db8::ffff"), "2001:db8::1-2001:db8::ffff");
        assert_eq!(range("192.0.2.7"), "192.0.2.7");
        for bad in ["", "-", "192.0.2.2-192.0.2.1", "192.0.2.1-2001:db8::1", "192.0.2.0/33", "a-b", "1-2"] {
            assert!(bad.parse::<IpRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn lowest_free_address_ends_with_the_range() {
        let range: IpRange = "255.255.255.254-255.255.255.255".parse().unwrap();
        let mut taken = BTreeSet::new();
        for expected in ["255.255.255.254", "255.255.255.255"] {
            let free = range.lowest_free(&taken).unwrap();
            assert_eq!(free.to_string(), expected);
            taken.insert(free);
        }
        assert_eq!(range.lowest_free(&taken), None);
    }

    proptest! {
        #[test]
        fn lowest_free_address_is_the_lowest_that_is_free(
            taken in proptest::collection::btree_set(0u8..20, 0..20), first in 0u8..10, length in 0u8..10,
        ) {
            let address = |last: u8| IpAddr::from([192, 0, 2, last]);
            let range: IpRange = format!("{}-{}", address(first), address(first + length)).parse().unwrap();
            let taken: BTreeSet<IpAddr> = taken.into_iter().map(address).collect();
            let expected = (first..=first + length).map(address).find(|address| !taken.contains(address));
            prop_assert_eq!(range.lowest_free(&taken), expected);
        }
    }
}
