//! How often a client may cancel what it asked for (CVE-2023-44487): each request costs the proxy and a server more than
//! its cancelling costs the client. Pure.

/// What is left to be cancelled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    left: u32,
    max: u32,
}

impl Budget {
    pub(super) const fn new(max: u32) -> Self {
        Self { left: max, max }
    }

    /// A request was cancelled. False: once too often.
    #[must_use]
    pub(super) fn cancelled(&mut self) -> bool {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// A request was served to its end.
    pub(super) fn served(&mut self) {
        self.left = (self.left + 1).min(self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;

    // O28
    #[test]
    fn cancelling_is_bounded_and_made_up_for_by_what_is_served() {
        let mut budget = Budget::new(3);
        for _ in 0..100 {
            assert!(budget.cancelled());
            budget.served();
        }
        assert!((0..3).all(|_| budget.cancelled()));
        assert!(!budget.cancelled());
        budget.served();
        assert!(budget.cancelled());
        assert!(!budget.cancelled());
    }
}
