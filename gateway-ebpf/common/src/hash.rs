//! The hash that maps a flow to a Maglev slot, and the identities that Maglev tables are built from.
//!
//! All replicas and both data paths must agree, so there is no secret in it: it spreads load and does not resist a
//! client that chooses its ports to meet one backend.

use crate::address::Address;

/// Odd constants without structure (fractions of the square and cube roots of 2 and 3).
const K1: u64 = 0x6a09_e667_f3bc_c909;
const K2: u64 = 0xbb67_ae85_84ca_a73b;

/// The finaliser of MurmurHash3's 64-bit form: every input bit reaches every output bit.
#[inline(always)]
pub const fn mix(mut value: u64) -> u64 {
    value ^= value >> 33;
    value = value.wrapping_mul(0xff51_afd7_ed55_8ccd);
    value ^= value >> 33;
    value = value.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ (value >> 33)
}

#[inline(always)]
fn halves(address: &Address) -> (u64, u64) {
    let [a, b, c, d] = address.words().map(|word| u64::from(u32::from_be(word)));
    (a << 32 | b, c << 32 | d)
}

#[inline(always)]
const fn fold(state: u64, word: u64) -> u64 {
    (state ^ word).wrapping_mul(K1).rotate_left(29)
}

/// The hash of a flow, by which [`crate::maglev::slot`] picks. Ports in host byte order.
#[inline(always)]
pub fn flow(client: &Address, client_port: u16, vip: &Address, vip_port: u16, proto: u8) -> u32 {
    let (client_high, client_low) = halves(client);
    let (vip_high, vip_low) = halves(vip);
    let ports = (client_port as u64) << 32 | (vip_port as u64) << 8 | proto as u64;
    let state = fold(fold(fold(fold(fold(K2, client_high), client_low), vip_high), vip_low), ports);
    // The finaliser's upper half; the rest of the state has gone into it.
    (mix(state) >> 32) as u32
}

/// Identity of an endpoint, from its address and port alone, so that it keeps its slots whatever stands beside it.
pub fn endpoint(address: &Address, port: u16) -> u64 {
    let (high, low) = halves(address);
    mix(fold(fold(fold(K1, high), low), port as u64))
}

/// Identity of what has no address, such as the share of a Service without endpoints, from its name.
pub const fn name(name: &[u8]) -> u64 {
    let mut state = K2;
    let mut rest = name;
    while let [first, tail @ ..] = rest {
        state = fold(state, *first as u64 | 0x100);
        rest = tail;
    }
    mix(state)
}

#[cfg(test)]
mod tests {
    use super::{endpoint, flow, name};
    use core::net::IpAddr;

    use crate::address::Address;

    fn from_v4(octets: [u8; 4]) -> Address {
        Address::from_ip(IpAddr::from(octets))
    }

    #[test]
    fn consecutive_client_ports_spread_evenly() {
        let vip = from_v4([192, 0, 2, 1]);
        let client = from_v4([198, 51, 100, 7]);
        let n_ports: u32 = if cfg!(miri) { 800 } else { 64_000 };
        let mut buckets = [0u32; 16];
        for port in 0..n_ports {
            let slot = flow(&client, u16::try_from(port).unwrap(), &vip, 80, 6) % 16;
            buckets[slot as usize] += 1;
        }
        // Five standard deviations of a fair throw.
        let mean = n_ports / 16;
        let tolerance = 5 * mean.isqrt();
        assert!(buckets.iter().all(|count| count.abs_diff(mean) < tolerance), "{buckets:?}");
    }

    #[test]
    fn every_part_of_the_flow_counts() {
        let base = flow(&from_v4([1, 2, 3, 4]), 1, &from_v4([5, 6, 7, 8]), 2, 6);
        assert_ne!(base, flow(&from_v4([1, 2, 3, 5]), 1, &from_v4([5, 6, 7, 8]), 2, 6));
        assert_ne!(base, flow(&from_v4([1, 2, 3, 4]), 2, &from_v4([5, 6, 7, 8]), 2, 6));
        assert_ne!(base, flow(&from_v4([1, 2, 3, 4]), 1, &from_v4([5, 6, 7, 9]), 2, 6));
        assert_ne!(base, flow(&from_v4([1, 2, 3, 4]), 1, &from_v4([5, 6, 7, 8]), 3, 6));
        assert_ne!(base, flow(&from_v4([1, 2, 3, 4]), 1, &from_v4([5, 6, 7, 8]), 2, 17));
    }

    /// Replicas of different versions must agree; a change here is a change of the ABI.
    #[test]
    fn values_are_those_of_this_abi_version() {
        assert_eq!(flow(&from_v4([192, 0, 2, 1]), 40_000, &from_v4([203, 0, 113, 9]), 443, 6), FLOW);
        assert_eq!(endpoint(&from_v4([192, 0, 2, 1]), 8080), ENDPOINT);
        assert_eq!(name(b"default/web:80"), NAME);
    }

    const FLOW: u32 = 624_118_776;
    const ENDPOINT: u64 = 12306524788866996519;
    const NAME: u64 = 9886701330895045890;
}
