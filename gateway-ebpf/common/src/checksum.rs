//! Internet checksums, changed by difference (RFC 1624): the rest of the packet is never read.
//!
//! Sums are over words as they lie in memory, which gives the same checksum bytes on any byte order (RFC 1071, 2B).

/// What replacing `from` by `to` adds to a checksum's sum, as the kernel's checksum helpers take it (`__wsum`).
#[inline(always)]
pub fn difference<const N: usize>(from: [u32; N], to: [u32; N]) -> u32 {
    let mut sum = 0u64;
    for (from, to) in from.into_iter().zip(to) {
        sum += u64::from(!from) + u64::from(to);
    }
    fold_to_32(sum)
}

/// The sum of two differences.
#[inline(always)]
pub const fn combine(one: u32, other: u32) -> u32 {
    fold_to_32(one as u64 + other as u64)
}

#[inline(always)]
const fn fold_to_32(sum: u64) -> u32 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    // The second fold takes in the carry of the first.
    ((sum & 0xffff_ffff) + (sum >> 32)) as u32
}

/// `checksum`, as it lies in memory, after `difference` was applied to what it covers.
#[inline(always)]
pub const fn apply(checksum: u16, difference: u32) -> u16 {
    let sum = (!checksum) as u32 + (difference & 0xffff) + (difference >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}

/// A word whose one half is `half`, as a difference counts it.
#[inline(always)]
pub const fn half_word(half: u16) -> u32 {
    half as u32
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use proptest::prelude::*;

    use super::{apply, combine, difference};

    /// RFC 1071 over the whole of `words`.
    fn full(words: &[u32]) -> u16 {
        let mut sum: u64 = words.iter().map(|word| u64::from(word & 0xffff) + u64::from(word >> 16)).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !u16::try_from(sum).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 1024 }, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn change_by_difference_equals_recomputing(
            rest in prop::collection::vec(any::<u32>(), 1..20), from: [u32; 4], to: [u32; 4], more: [u32; 2], less: [u32; 2],
        ) {
            // A sum of nothing but zero bits has two representations; real packets are never all zero.
            prop_assume!(rest.iter().any(|word| *word != 0));
            let with = |middle: &[u32], tail: &[u32]| -> Vec<u32> {
                rest.iter().chain(middle).chain(tail).copied().collect()
            };
            let changed = combine(difference(from, to), difference(more, less));
            prop_assert_eq!(apply(full(&with(&from, &more)), changed), full(&with(&to, &less)));
        }
    }
}
