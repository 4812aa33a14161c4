//! Source ports towards backends.

/// Ports tried for a new flow. One backend and source address have `count` ports; with three quarters of them taken,
/// all of 16 are taken once in a hundred.
pub const TRIES: u32 = 16;

/// The port to try at attempt `attempt` (below [`TRIES`]), in host byte order; `None` if the range is empty or no range
/// of ports. `client_hash` is [`crate::hash::flow`] with a client port of 0.
///
/// The first follows the client's own port, so one client's connections take distinct ports without a search. The next
/// ones jump by an odd step of the client's own, so that clients who met once do not meet again.
#[inline(always)]
pub const fn candidate(
    first: u32,
    count: u32,
    client_port: u16,
    client_hash: u32,
    attempt: u32,
) -> Option<u16> {
    if count == 0 {
        return None;
    }
    let step = (client_hash >> 16 | 1) as u64;
    let distance = client_port as u64 + client_hash as u64 + attempt as u64 * step;
    let port = first as u64 + distance % count as u64;
    if port > u16::MAX as u64 { None } else { Some(port as u16) }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    use super::{TRIES, candidate};

    #[test]
    fn empty_range_and_no_range_of_ports_give_none() {
        assert_eq!(candidate(10_000, 0, 1, 1, 0), None);
        assert_eq!(candidate(70_000, 10, 1, 1, 0), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 512 }, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn candidates_are_distinct_and_in_range(client_port: u16, client_hash: u32) {
            let ports: BTreeSet<u16> = (0..TRIES)
                .map(|attempt| candidate(10_000, 20_000, client_port, client_hash, attempt).unwrap())
                .collect();
            prop_assert_eq!(ports.len(), TRIES as usize);
            prop_assert!(ports.iter().all(|port| (10_000..30_000).contains(port)));
        }

        #[test]
        fn connections_of_one_client_start_at_distinct_ports(port in 0u16..45_000, other in 1u16..20_000, client_hash: u32) {
            let first = |port| candidate(10_000, 20_000, port, client_hash, 0);
            prop_assert_ne!(first(port), first(port + other));
        }
    }
}
