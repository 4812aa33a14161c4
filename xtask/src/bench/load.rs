//! Load over plain TCP: round trips of one byte, connections, bulk in each direction, with its own server.
//!
//! One thread and one epoll instance at each end, pinned. A connection begins with a preamble (a ClientHello where the
//! gateway wants one) and a byte that says what the server is to do.

mod client;
mod poll;
mod server;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use lab::Netns;

use super::cpu::Group;
pub(super) use server::Server;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// One byte there and back on each of many open connections.
    RoundTrips,
    /// Connect, one byte there and back, close.
    Connects,
    /// From the client to the backend.
    Upload,
    /// From the backend to the client.
    Download,
}

impl Work {
    pub(super) const ALL: [Self; 4] = [Self::RoundTrips, Self::Connects, Self::Upload, Self::Download];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::RoundTrips => "round trips",
            Self::Connects => "connections",
            Self::Upload => "upload",
            Self::Download => "download",
        }
    }

    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::RoundTrips => "µs/round trip",
            Self::Connects => "µs/connection",
            Self::Upload | Self::Download => "ms/GB",
        }
    }

    /// What the server is told by the byte after the preamble.
    const fn order(self) -> u8 {
        match self {
            Self::RoundTrips | Self::Connects => b'e',
            Self::Upload => b'u',
            Self::Download => b'd',
        }
    }

    /// Open at once. As many as the reference measurements had; two streams keep both directions of a relay busy.
    const fn connections(self) -> usize {
        match self {
            Self::RoundTrips => 64,
            Self::Connects => 32,
            Self::Upload | Self::Download => 2,
        }
    }

    /// CPU microseconds for `units` (exchanges, connections, bytes) in the unit of [`Self::unit`].
    fn cost(self, micros: f64, units: f64) -> f64 {
        match self {
            Self::RoundTrips | Self::Connects => micros / units,
            Self::Upload | Self::Download => micros / 1000.0 / (units / 1e9),
        }
    }
}

/// Where to and how.
pub(super) struct Load<'a> {
    pub(super) client: &'a Netns,
    pub(super) to: SocketAddr,
    pub(super) preamble: &'a [u8],
    pub(super) work: Work,
    pub(super) warm_up: Duration,
    pub(super) length: Duration,
    pub(super) cpu: usize,
}

/// What one measurement gave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    /// CPU of the gateway's processes per unit of work.
    pub(super) gateway: f64,
    /// CPU of client, gateway, backend and the kernel's packet threads per unit of work.
    pub(super) total: f64,
    /// Units of work (bytes for bulk) per second of wall clock.
    pub(super) rate: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Units of work per second at which the latencies were measured, if not at `rate`; else 0.
    pub(super) paced: f64,
    /// Resident memory of the gateway's processes; 0 where it was not looked at.
    pub(super) rss_mb: f64,
}

/// Puts the load on and takes the CPU time of `gateway` and of everyone (`gateway`, `server`, client, kernel threads).
pub(super) fn measure(load: &Load<'_>, gateway: &Group, server: &Group) -> Result<Outcome> {
    let around = gateway.clone().with(server.clone()).with(Group::softirq());
    let counted = client::run(load, gateway, &around)?;
    Ok(Outcome {
        gateway: load.work.cost(counted.gateway_micros, counted.units),
        total: load.work.cost(counted.total_micros, counted.units),
        rate: counted.units / counted.elapsed.as_secs_f64(),
        p50_us: counted.p50_us,
        p99_us: counted.p99_us,
        ..Outcome::default()
    })
}
