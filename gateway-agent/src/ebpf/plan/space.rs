//! Where tables lie in the slot array: aligned blocks, whose sizes are powers of two.
//!
//! A block that is given back is not given out again before [`Space::reclaim`]: a program that is just running may still
//! read it. **Invariant:** pure.

/// Chunks per unit: what the smallest table takes, so a unit is never shared.
const CHUNKS_PER_UNIT: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Free,
    Taken,
    GivenBack,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Space {
    units: Vec<Unit>,
}

impl Space {
    pub(super) fn new(n_chunks: u32) -> Self {
        Self { units: vec![Unit::Free; (n_chunks / CHUNKS_PER_UNIT) as usize] }
    }

    /// The first chunk of a block for `n_chunks`, the lowest that is free, so that large blocks stay whole.
    pub(super) fn take(&mut self, n_chunks: u32) -> Option<u32> {
        let n_units = n_units(n_chunks)?;
        let block = self.units.chunks_exact_mut(n_units).enumerate().find(|(_, block)| {
            // Aligned at its own size, as all others of its size or larger: no gaps but such as smaller ones fill.
            block.iter().all(|unit| *unit == Unit::Free)
        });
        let (index, block) = block?;
        block.fill(Unit::Taken);
        u32::try_from(index * n_units).ok()?.checked_mul(CHUNKS_PER_UNIT)
    }

    /// Marks a block as taken that was found in the kernel; false where it cannot be one.
    pub(super) fn adopt(&mut self, first_chunk: u32, n_chunks: u32) -> bool {
        let Some(n_units) = n_units(n_chunks) else { return false };
        let first = (first_chunk / CHUNKS_PER_UNIT) as usize;
        if !first_chunk.is_multiple_of(CHUNKS_PER_UNIT) || !first.is_multiple_of(n_units) {
            return false;
        }
        let Some(block) = self.units.get_mut(first..first + n_units) else { return false };
        if block.iter().any(|unit| *unit != Unit::Free) {
            return false;
        }
        block.fill(Unit::Taken);
        true
    }

    pub(super) fn give_back(&mut self, first_chunk: u32, n_chunks: u32) {
        let first = (first_chunk / CHUNKS_PER_UNIT) as usize;
        let n_units = n_units(n_chunks).unwrap_or(0);
        if let Some(block) = self.units.get_mut(first..first + n_units) {
            debug_assert!(block.iter().all(|unit| *unit == Unit::Taken), "given back twice");
            block.fill(Unit::GivenBack);
        }
    }

    /// For a block that nothing has ever pointed at.
    pub(super) fn take_back(&mut self, first_chunk: u32, n_chunks: u32) {
        let first = (first_chunk / CHUNKS_PER_UNIT) as usize;
        let n_units = n_units(n_chunks).unwrap_or(0);
        if let Some(block) = self.units.get_mut(first..first + n_units) {
            block.fill(Unit::Free);
        }
    }

    pub(super) fn reclaim(&mut self) {
        for unit in &mut self.units {
            if *unit == Unit::GivenBack {
                *unit = Unit::Free;
            }
        }
    }

    #[cfg(test)]
    fn has_given_back(&self) -> bool {
        self.units.contains(&Unit::GivenBack)
    }
}

fn n_units(n_chunks: u32) -> Option<usize> {
    let n_units = n_chunks.div_ceil(CHUNKS_PER_UNIT).checked_next_power_of_two()?;
    usize::try_from(n_units).ok().filter(|n_units| *n_units > 0)
}

#[cfg(test)]
mod tests {
    use super::Space;

    #[test]
    fn blocks_are_aligned_and_do_not_overlap() {
        let mut space = Space::new(256);
        assert_eq!(space.take(16), Some(0));
        assert_eq!(space.take(64), Some(64));
        assert_eq!(space.take(16), Some(16));
        assert_eq!(space.take(128), Some(128));
        assert_eq!(space.take(64), None);
        assert_eq!(space.take(32), Some(32));
        assert_eq!(space.take(1), None);
    }

    #[test]
    fn block_given_back_is_given_out_again_only_after_a_while() {
        let mut space = Space::new(16);
        assert_eq!(space.take(16), Some(0));
        space.give_back(0, 16);
        assert!(space.has_given_back());
        assert_eq!(space.take(16), None);
        space.reclaim();
        assert_eq!(space.take(16), Some(0));
    }

    #[test]
    fn block_found_in_the_kernel_must_fit() {
        let mut space = Space::new(256);
        assert!(space.adopt(64, 64));
        assert!(!space.adopt(64, 16), "overlaps");
        assert!(!space.adopt(16, 64), "not aligned");
        assert!(!space.adopt(8, 16), "not aligned");
        assert!(!space.adopt(256, 16), "past the end");
        assert_eq!(space.take(128), Some(128));
    }
}
