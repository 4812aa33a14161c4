//! What the writers to the Kubernetes API count.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use super::encode::{Series, counters, gauges};
use crate::status::schedule::Counts;

/// Milliseconds for a change in passing, seconds for thousands at once, minutes for an API server that is away.
const DELAYS_S: [f64; 11] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0];

#[derive(Clone, Debug)]
pub struct StatusNumbers {
    pub counts: Counts,
    /// Objects that wait for a write or are being written.
    pub depth: usize,
    /// From a status being wanted to its being written.
    pub delays: Histogram,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventNumbers {
    pub sent: u64,
    pub dropped: u64,
}

impl Default for StatusNumbers {
    fn default() -> Self {
        Self { counts: Counts::default(), depth: 0, delays: Histogram::new(DELAYS_S) }
    }
}

type NoLabels = [(&'static str, &'static str); 0];

fn one(value: u64) -> Series<NoLabels> {
    vec![([], value)]
}

impl StatusNumbers {
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Counts { writes, conflicts, failures, alterations, fights } = self.counts;
        counters(encoder, "status_writes", "Statuses written", None, one(writes))?;
        let help = "Status writes that another write came before";
        counters(encoder, "status_conflicts", help, None, one(conflicts))?;
        let help = "Status writes and reads for them that failed";
        counters(encoder, "status_failures", help, None, one(failures))?;
        let help = "Times that another writer changed a status of ours";
        counters(encoder, "status_alterations", help, None, one(alterations))?;
        let help = "Objects over whose status another writer fights";
        counters(encoder, "status_fights", help, None, one(fights))?;
        let help = "Objects that wait for their status to be written";
        gauges(encoder, "status_queue_depth", help, one(u64::try_from(self.depth).unwrap_or(u64::MAX)))?;
        let help = "Time from a status being wanted to its being written";
        let histogram = encoder.encode_descriptor(
            "status_write_delay",
            help,
            Some(&Unit::Seconds),
            self.delays.metric_type(),
        )?;
        self.delays.encode(histogram)
    }
}

impl EventNumbers {
    pub(super) fn encode(self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        counters(encoder, "events_sent", "Kubernetes Events written", None, one(self.sent))?;
        let help = "Kubernetes Events that were not written: too many, not permitted, or refused";
        counters(encoder, "events_dropped", help, None, one(self.dropped))
    }
}
