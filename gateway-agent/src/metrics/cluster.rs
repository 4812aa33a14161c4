//! The agent's view of the cluster, in numbers.
//!
//! Labels are kinds, states and reasons of our own, and what the command line names: none comes from an object.

use std::collections::BTreeMap;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use super::encode::{Series, counters, gauges};
use super::status::{EventNumbers, StatusNumbers};

/// A route alone takes a fraction of a millisecond, thousands of them at once some tenths of a second.
pub const PUBLISH_DELAYS_S: [f64; 10] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.1, 1.0, 10.0];

#[derive(Clone, Debug, Default)]
pub struct ClusterNumbers {
    /// Whether everything has been seen once.
    pub is_synced: bool,
    /// Whether the API server answered the last request.
    pub is_reachable: bool,
    /// Kind, state, and how many namespaces are watched in that state.
    pub watches: Vec<(&'static str, &'static str, u64)>,
    /// Kind, reason.
    pub restarts: Vec<(&'static str, &'static str, u64)>,
    /// Kind, class of error.
    pub errors: Vec<(&'static str, &'static str, u64)>,
    /// Kind; objects listed, changed or deleted.
    pub events: Vec<(&'static str, u64)>,
    /// Kind, and when its most silent watch was heard last, in seconds since the epoch.
    pub heard: Vec<(&'static str, u64)>,
    /// Objects whose present version cannot be read, and all that there were.
    pub malformed: u64,
    pub malformed_total: u64,
    /// Kind, verb, whether it was done: how many such writes there were.
    pub provisioned: BTreeMap<(&'static str, &'static str, bool), u64>,
    /// Namespace, class, and whether this agent writes there.
    pub leases: Vec<(String, String, bool)>,
    pub status: StatusNumbers,
    pub events_written: EventNumbers,
    /// From the arrival of changes to the snapshot that holds them: the proxy's next request goes by it.
    pub publish_delays: Option<Histogram>,
    /// With --state-dir: objects, bytes, time of the last write, failed writes.
    pub stored: Option<[u64; 4]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    kind: &'static str,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    kind: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: &'static str,
    verb: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabels {
    namespace: String,
    class: String,
}

type NoLabels = [(&'static str, &'static str); 0];

impl ClusterNumbers {
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let one = |value: u64| -> Series<NoLabels> { vec![([], value)] };
        let help = "Whether every watched kind has been listed once or is out of reach";
        gauges(encoder, "synced", help, one(u64::from(self.is_synced)))?;
        let help = "Whether the API server answered the last request";
        gauges(encoder, "api_reachable", help, one(u64::from(self.is_reachable)))?;
        self.encode_watches(encoder)?;
        let help = "Objects whose present version cannot be read";
        gauges(encoder, "malformed_objects", help, one(self.malformed))?;
        let help = "Versions of objects that could not be read";
        counters(encoder, "malformed_versions", help, None, one(self.malformed_total))?;
        let write = |((kind, verb, is_done), count): (&(&'static str, &'static str, bool), &u64)| {
            let result = if *is_done { "done" } else { "failed" };
            (WriteLabels { kind, verb, result }, *count)
        };
        let help = "Writes of Services and EndpointSlices of Gateways";
        counters(encoder, "provision_writes", help, None, self.provisioned.iter().map(write).collect())?;
        let lease = |(namespace, class, is_held): &(String, String, bool)| {
            (LeaseLabels { namespace: namespace.clone(), class: class.clone() }, u64::from(*is_held))
        };
        let help = "Whether this agent writes status and allocates there";
        gauges(encoder, "lease_held", help, self.leases.iter().map(lease).collect())?;
        self.status.encode(encoder)?;
        self.events_written.encode(encoder)?;
        if let Some(delays) = &self.publish_delays {
            let help = "Time from the arrival of changes of the API to the snapshot that holds them";
            let unit = Some(&Unit::Seconds);
            delays.encode(encoder.encode_descriptor("publish_delay", help, unit, delays.metric_type())?)?;
        }
        let Some([objects, bytes, written_at, failures]) = self.stored else { return Ok(()) };
        gauges(encoder, "state_objects", "Objects in the state folder", one(objects))?;
        gauges(encoder, "state_size_bytes", "Size of the state file", one(bytes))?;
        let help = "When the state file was written last, in seconds since the epoch";
        gauges(encoder, "state_written_timestamp_seconds", help, one(written_at))?;
        counters(encoder, "state_write_failures", "Failed writes of the state file", None, one(failures))
    }

    fn encode_watches(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let state =
            |(kind, state, count): &(&'static str, &'static str, u64)| (StateLabels { kind, state }, *count);
        let help = "Namespaces in which a kind is watched, by state";
        gauges(encoder, "watch_state", help, self.watches.iter().map(state).collect())?;
        let reason = |(kind, reason, count): &(&'static str, &'static str, u64)| {
            (ReasonLabels { kind, reason }, *count)
        };
        let help = "Watches opened anew, by reason";
        counters(encoder, "watch_restarts", help, None, self.restarts.iter().map(reason).collect())?;
        let help = "Failed requests of watches, by class";
        counters(encoder, "watch_errors", help, None, self.errors.iter().map(reason).collect())?;
        let kind = |(kind, count): &(&'static str, u64)| (KindLabels { kind }, *count);
        let help = "Objects listed, changed or deleted";
        counters(encoder, "watch_events", help, None, self.events.iter().map(kind).collect())?;
        let help = "When the most silent watch of a kind was heard last, in seconds since the epoch";
        let heard = self.heard.iter().map(kind).collect();
        gauges(encoder, "watch_heard_timestamp_seconds", help, heard)
    }
}
