//! The kinds of work that are measured, and the one site that every gateway serves for them.
//!
//! **Invariant:** no I/O.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, bail};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    /// HTTP/1.1, many requests on each of the kept connections.
    Kept,
    /// HTTP/1.1, one request on each connection.
    Connections,
    /// HTTP/2, several requests at a time on each of few connections.
    Streams,
    /// gRPC unary, multiplexed as [`Self::Streams`]; the server is asked by HTTP/2 too.
    Calls,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) traffic: Traffic,
    pub(super) is_tls: bool,
    /// Of an answer.
    pub(super) body_bytes: usize,
    /// Each for a host of its own.
    pub(super) routes: usize,
}

/// About what a small JSON answer has.
const SMALL: usize = 110;
const LARGE: usize = 64 * 1024;
const MANY: usize = 10_000;

/// A gRPC message has one byte of flags and four of length before it.
const GRPC_PREFIX: usize = 5;

const BASE: Scenario =
    Scenario { name: "h1", traffic: Traffic::Kept, is_tls: false, body_bytes: SMALL, routes: 1 };

pub(super) const ALL: [Scenario; 10] = [
    BASE,
    Scenario { name: "h1-10k", routes: MANY, ..BASE },
    Scenario { name: "h1-64k", body_bytes: LARGE, ..BASE },
    Scenario { name: "h1-64k-10k", body_bytes: LARGE, routes: MANY, ..BASE },
    Scenario { name: "h1-connect", traffic: Traffic::Connections, ..BASE },
    Scenario { name: "tls-h1", is_tls: true, ..BASE },
    Scenario { name: "tls-connect", traffic: Traffic::Connections, is_tls: true, ..BASE },
    Scenario { name: "h2c", traffic: Traffic::Streams, ..BASE },
    Scenario { name: "tls-h2", traffic: Traffic::Streams, is_tls: true, ..BASE },
    Scenario { name: "grpc", traffic: Traffic::Calls, body_bytes: GRPC_PREFIX + SMALL, ..BASE },
];

/// Those with these names, in the order of [`ALL`]; all of them when none is named.
pub(super) fn choose(names: &[String]) -> Result<Vec<Scenario>> {
    for name in names {
        if !ALL.iter().any(|scenario| scenario.name == name) {
            let known = ALL.map(|scenario| scenario.name).join(", ");
            bail!("there is no scenario {name:?} in `bench l7`, but {known}");
        }
    }
    let is_chosen = |scenario: &Scenario| names.is_empty() || names.iter().any(|name| name == scenario.name);
    Ok(ALL.into_iter().filter(is_chosen).collect())
}

impl Scenario {
    pub(super) const fn unit(&self) -> &'static str {
        match self.traffic {
            Traffic::Kept | Traffic::Streams => "µs/request",
            Traffic::Connections => "µs/connection",
            Traffic::Calls => "µs/call",
        }
    }

    pub(super) const fn port(&self) -> u16 {
        if self.is_tls { 443 } else { 80 }
    }

    pub(super) const fn is_http_2(&self) -> bool {
        matches!(self.traffic, Traffic::Streams | Traffic::Calls)
    }

    /// Open at once, and requests under way on each: 64 or 32 in all, so that every pool of kept connections is
    /// large enough for them (the smallest one, the agent's, keeps 128 for each endpoint).
    pub(super) const fn concurrency(&self) -> (usize, usize) {
        match self.traffic {
            Traffic::Kept => (64, 1),
            Traffic::Connections => (32, 1),
            Traffic::Streams | Traffic::Calls => (4, 16),
        }
    }

    pub(super) const fn path(&self) -> &'static str {
        // The server takes the type of the content from what follows the dot.
        if matches!(self.traffic, Traffic::Calls) { "/bench.Echo/Unary.grpc" } else { "/" }
    }

    /// The host that is asked for: one in the middle.
    pub(super) fn host(&self) -> String {
        host(self.routes / 2)
    }

    pub(super) fn url(&self, host: &str) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{host}{}", self.path())
    }

    /// What the backend answers.
    pub(super) fn body(&self) -> Vec<u8> {
        match self.traffic {
            Traffic::Calls => message(b'g', self.body_bytes - GRPC_PREFIX),
            _ => vec![b'b'; self.body_bytes],
        }
    }
}

/// A gRPC message of the same byte over and over, with its prefix.
fn message(byte: u8, bytes: usize) -> Vec<u8> {
    let length = u32::try_from(bytes).expect("a message is short").to_be_bytes();
    [&[0], &length[..], &vec![byte; bytes]].concat()
}

/// What a gRPC call sends.
pub(super) fn call() -> Vec<u8> {
    message(b'q', SMALL)
}

/// Each is for one route; names with higher numbers are served by nobody.
pub(super) fn host(number: usize) -> String {
    format!("h{number}.example.com")
}

/// What the certificate is for.
pub(super) const WILDCARD: &str = "*.example.com";

/// Idle connections to the backend that a gateway may keep, where that can be said.
pub(super) const POOL: usize = 256;

/// What every gateway is told, each in its own words: for each host, everything goes to the one backend, by kept
/// connections, and the client's address and scheme are told to it.
pub(super) struct Site {
    pub(super) scenario: Scenario,
    pub(super) backend: SocketAddr,
    /// The files, where TLS ends at the gateway.
    pub(super) tls: Option<Tls>,
}

pub(super) struct Tls {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Site {
    pub(super) fn hosts(&self) -> impl Iterator<Item = String> {
        (0..self.scenario.routes).map(host)
    }

    pub(super) fn port(&self) -> u16 {
        self.scenario.port()
    }

    /// Whether the backend speaks HTTP/2 in clear.
    pub(super) fn is_backend_http_2(&self) -> bool {
        self.scenario.traffic == Traffic::Calls
    }
}

#[cfg(test)]
impl Site {
    /// For tests of configurations.
    pub(super) fn example(name: &str) -> Self {
        let scenario = ALL.into_iter().find(|scenario| scenario.name == name).expect("known");
        let tls =
            scenario.is_tls.then(|| Tls { certificate: "/x/site.crt".into(), key: "/x/site.key".into() });
        Self { scenario, backend: "10.0.2.2:8080".parse().expect("valid"), tls }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_unknown_is_an_error_that_lists_those_known() {
        let error = choose(&["h1".into(), "h3".into()]).expect_err("unknown").to_string();
        assert!(error.contains("\"h3\"") && error.contains("tls-connect"), "{error}");
    }

    #[test]
    fn scenarios_are_chosen_by_their_whole_names_and_without_names_all() {
        let names = |chosen: Vec<Scenario>| chosen.iter().map(|scenario| scenario.name).collect::<Vec<_>>();
        assert_eq!(names(choose(&["tls-h2".into(), "h1".into()]).expect("known")), ["h1", "tls-h2"]);
        assert_eq!(choose(&[]).expect("known").len(), ALL.len());
    }

    #[test]
    fn bodies_have_the_size_that_is_said() {
        for scenario in ALL {
            assert_eq!(scenario.body().len(), scenario.body_bytes, "{}", scenario.name);
        }
        assert_eq!(call()[..6], [0, 0, 0, 0, 110, b'q']);
    }
}
