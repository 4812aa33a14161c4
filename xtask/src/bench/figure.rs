//! One figure of one candidate: its samples, and what a table shows of them.
//!
//! It knows no unit's meaning and compares nothing: that is the report's.

use serde_json::{Value, json};

pub(super) struct Figure {
    pub(super) what: String,
    /// How many routes there were.
    pub(super) routes: usize,
    pub(super) candidate: String,
    pub(super) unit: &'static str,
    /// In ascending order.
    samples: Vec<f64>,
}

impl Figure {
    pub(super) fn new(
        what: &str,
        routes: usize,
        candidate: &str,
        unit: &'static str,
        mut samples: Vec<f64>,
    ) -> Self {
        samples.sort_by(f64::total_cmp);
        Self { what: what.to_owned(), routes, candidate: candidate.to_owned(), unit, samples }
    }

    pub(super) fn percentile(&self, percent: usize) -> f64 {
        percentile(&self.samples, percent)
    }

    pub(super) fn max(&self) -> f64 {
        self.samples.last().copied().unwrap_or(f64::NAN)
    }

    /// Cells: what, routes, candidate, unit, p50, p99, max, samples.
    pub(super) fn cells(&self) -> [String; 8] {
        let (p50, p99, max) = (self.percentile(50), self.percentile(99), self.max());
        let only_if_several = |value: f64| if self.samples.len() > 1 { short(value) } else { "-".into() };
        [
            self.what.clone(),
            self.routes.to_string(),
            self.candidate.clone(),
            self.unit.to_owned(),
            short(p50),
            only_if_several(p99),
            only_if_several(max),
            self.samples.len().to_string(),
        ]
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "what": self.what, "routes": self.routes, "candidate": self.candidate, "unit": self.unit,
            "p50": self.percentile(50), "p99": self.percentile(99), "max": self.max(), "samples": self.samples,
        })
    }
}

/// The heads of [`Figure::cells`].
pub(super) const HEADS: [&str; 8] =
    ["what", "routes", "candidate", "unit", "median or value", "p99", "max", "samples"];

/// The smallest of the samples, which ascend, that this share of all is not above.
pub(super) fn percentile(samples: &[f64], percent: usize) -> f64 {
    let rank = (samples.len() * percent).div_ceil(100).max(1);
    samples.get(rank - 1).copied().unwrap_or(f64::NAN)
}

/// Three significant digits or whole numbers.
fn short(value: f64) -> String {
    if value >= 100.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_sample() {
        let figure = |samples| Figure::new("w", 1, "c", "ms", samples);
        let hundred = figure((1..=100).rev().map(f64::from).collect());
        assert_eq!([hundred.percentile(50), hundred.percentile(99), hundred.max()], [50.0, 99.0, 100.0]);
        let one = figure(vec![7.0]);
        assert_eq!([one.percentile(50), one.percentile(99)], [7.0, 7.0]);
        assert!(figure(Vec::new()).percentile(99).is_nan());
    }
}
