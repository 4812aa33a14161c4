//! The one generator: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), for choices, delays and ids. No secret may depend on it:
//! who has seen a number can tell the next.
//!
//! **Invariant:** pure: the seed decides everything, so tests can repeat a choice.

/// Uniform over all of `u64`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The upper half, which is the better mixed one.
    pub(crate) const fn next_u32(&mut self) -> u32 {
        // The shift leaves 32 bits.
        (self.next() >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix64;

    #[test]
    fn numbers_are_those_of_the_reference() {
        let mut numbers = SplitMix64::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(expected.map(|_| numbers.next()), expected);
        assert_eq!(SplitMix64::new(1_234_567).next_u32(), (expected[0] >> 32) as u32);
    }
}
