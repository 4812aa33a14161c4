//! How long things took, in classes.

use std::time::Duration;

use super::Cell;

/// Upper bounds of the classes, in microseconds. From what a service next door answers within to what is given up on;
/// about two per factor of ten, for a rule has one series for each.
const BOUNDS_US: [u64; 14] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000, 60_000_000,
];

/// Cells of one worker.
#[derive(Debug, Default)]
pub struct Durations {
    /// Each counts what its bound and none before it holds; the last what no bound holds.
    classes: [Cell; BOUNDS_US.len() + 1],
    sum_us: Cell,
}

impl Durations {
    /// Counts one.
    pub fn observe(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let class = BOUNDS_US.iter().position(|bound| micros <= *bound).unwrap_or(BOUNDS_US.len());
        if let Some(cell) = self.classes.get(class) {
            cell.add(1);
        }
        self.sum_us.add(micros);
    }

    pub(super) fn absorb(&self, other: &Self) {
        for (sum, part) in self.classes.iter().zip(&other.classes) {
            sum.add(part.value());
        }
        self.sum_us.add(other.sum_us.value());
    }

    /// In all.
    pub fn count(&self) -> u64 {
        self.classes.iter().map(Cell::value).sum()
    }

    pub(super) fn sum_s(&self) -> f64 {
        Duration::from_micros(self.sum_us.value()).as_secs_f64()
    }

    /// Upper bounds in seconds, the last one infinite, and what each class counts.
    pub(super) fn classes(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = BOUNDS_US.iter().map(|bound| Duration::from_micros(*bound).as_secs_f64());
        bounds.chain([f64::INFINITY]).zip(&self.classes).map(|(bound, cell)| (bound, cell.value()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Durations;

    #[test]
    fn a_duration_is_in_the_first_class_whose_bound_holds_it() {
        let durations = Durations::default();
        for micros in [0, 1_000, 1_001, 60_000_000, 60_000_001] {
            durations.observe(Duration::from_micros(micros));
        }
        let counts: Vec<u64> = durations.classes().map(|(_, count)| count).collect();
        assert_eq!(counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(durations.count(), 5);
        assert!((durations.sum_s() - 120.002_002).abs() < 1e-9);
    }
}
