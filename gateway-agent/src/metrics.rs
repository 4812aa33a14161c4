//! Counters without sharing on the hot path: each worker owns its cells, the scrape sums them.
//!
//! Labels come from configured objects only (never host, path or address), so that the number of series is bounded by
//! the configuration; what belongs to no object goes to one series. Series of deleted objects go with
//! [`Metrics::forget`].

mod cluster;
mod durations;
mod encode;
mod header;
mod status;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use cluster::{ClusterNumbers, PUBLISH_DELAYS_S};
pub use durations::Durations;
pub use encode::{Extra, KernelFlows, encode};
pub use header::HeaderFailure;
use header::HeaderFailures;
pub use status::{EventNumbers, StatusNumbers};

use crate::snapshot::{ListenerName, RouteName};

/// A number with one writer and any readers: an add is a load and a store, no locked instruction.
#[derive(Debug, Default)]
pub struct Cell(AtomicU64);

impl Cell {
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    pub fn sub(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(amount), Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one worker counts for one Gateway listener. Units in the names; bytes are those of the client's connection.
#[derive(Debug, Default)]
pub struct ListenerCells {
    pub connections: Cell,
    pub connections_active: Cell,
    /// Ended without reaching a route: no SNI match, bad hello, bad request head, 404.
    pub unrouted: Cell,
    /// TLS handshakes that ended here and well.
    pub handshakes: Cell,
    handshake_failures: [Cell; HandshakeFailure::ALL.len()],
    header_failures: HeaderFailures,
    /// Of the handshakes that ended well, those of clients that came in without a valid certificate although one is
    /// asked for: `AllowInsecureFallback`.
    pub unverified_clients: Cell,
    pub received_bytes: Cell,
    pub sent_bytes: Cell,
}

impl ListenerCells {
    /// TLS handshakes that failed for this reason.
    pub fn handshake_failure(&self, reason: HandshakeFailure) -> &Cell {
        // One place each, see `ALL`.
        &self.handshake_failures[reason as usize]
    }

    /// Connections refused for want of a header of the PROXY protocol, for this reason.
    pub fn header_failure(&self, reason: HeaderFailure) -> &Cell {
        // One place each, see `ALL`.
        &self.header_failures[reason as usize]
    }
}

/// Why a TLS handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// The client gave up by an alert: it does not accept the certificate.
    Alert,
    /// The client has shown no certificate, or one that is not valid here.
    ClientCertificate,
    /// The client ended the connection.
    Closed,
    /// Nothing in common: version, cipher suite, application protocol.
    Incompatible,
    /// What came is not TLS as it should be.
    Invalid,
    /// The listener has no usable certificate.
    NoCertificate,
    /// The worker had too many handshakes under way.
    Overload,
    Timeout,
}

impl HandshakeFailure {
    /// In the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Alert,
        Self::ClientCertificate,
        Self::Closed,
        Self::Incompatible,
        Self::Invalid,
        Self::NoCertificate,
        Self::Overload,
        Self::Timeout,
    ];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alert => "alert",
            Self::ClientCertificate => "client-certificate",
            Self::Closed => "closed",
            Self::Incompatible => "incompatible",
            Self::Invalid => "invalid",
            Self::NoCertificate => "no-certificate",
            Self::Overload => "overload",
            Self::Timeout => "timeout",
        }
    }
}

/// What one worker counts for one rule of a route; for a route whose kind has no rules to choose from, for all of it.
#[derive(Debug, Default)]
pub struct RouteCells {
    /// By class of the answer's status: index 1 for 1xx to 5 for 5xx; 0 for none. TCP, TLS and UDP flows count in 0.
    pub requests: [Cell; 6],
    /// Of HTTP requests, from the first byte of the head to the last one of the answer, or to the switch of protocols.
    pub durations: Durations,
    /// A backend that refused, reset, or stalled beyond its deadline.
    pub upstream_failures: Cell,
    /// Shares of invalid backends or of such without endpoints.
    pub refused: Cell,
    /// Further tries that the route asked for.
    pub retries: Cell,
    /// Requests that were not tried again because the worker's budget was spent.
    pub retries_refused: Cell,
    pub mirrored: Cell,
    /// Mirrored requests that were not sent, or not answered in time: too many under way, a body that was too large, a
    /// mirror that refuses.
    pub mirrors_dropped: Cell,
    pub received_bytes: Cell,
    pub sent_bytes: Cell,
}

/// What one worker counts for itself, whatever the listener.
#[derive(Debug, Default)]
pub struct WorkerCells {
    /// Failed accepts: the process or the system is out of descriptors or memory.
    pub accept_failures: Cell,
    /// Times that accepting paused because the worker held as many connections as it may.
    pub accept_pauses: Cell,
    /// Times that an endpoint was left out because it had failed several requests in a row.
    pub endpoint_ejections: Cell,
    /// Connections of HTTP/2 ended because the client made more work than an honest one does.
    pub http2_floods: Cell,
    pub udp_flows_active: Cell,
    /// Flows ended early because the table was full: the ones idle for longest.
    pub udp_flows_evicted: Cell,
    /// Datagrams dropped: socket buffer full, no descriptor for a flow, too long for the path.
    pub udp_dropped: Cell,
    /// Lines of the access log that were dropped because it is written too slowly.
    pub access_log_dropped: Cell,
}

/// Cells that can be summed.
trait Sum: Default {
    /// Adds all numbers of `other` to `self`.
    fn absorb(&self, other: &Self);
}

impl Sum for ListenerCells {
    fn absorb(&self, other: &Self) {
        let Self {
            connections,
            connections_active,
            unrouted,
            handshakes,
            handshake_failures,
            header_failures,
            unverified_clients,
            received_bytes,
            sent_bytes,
        } = other;
        self.connections.add(connections.value());
        self.connections_active.add(connections_active.value());
        self.unrouted.add(unrouted.value());
        self.handshakes.add(handshakes.value());
        for (sum, part) in self.handshake_failures.iter().zip(handshake_failures) {
            sum.add(part.value());
        }
        for (sum, part) in self.header_failures.iter().zip(header_failures) {
            sum.add(part.value());
        }
        self.unverified_clients.add(unverified_clients.value());
        self.received_bytes.add(received_bytes.value());
        self.sent_bytes.add(sent_bytes.value());
    }
}

impl RouteCells {
    /// Counts an HTTP request that has ended. `status`: as it was answered; 0: it was not.
    pub fn ended(&self, status: u16, took: Duration) {
        self.durations.observe(took);
        let class = usize::from(status / 100);
        self.requests.get(class).unwrap_or(&self.requests[0]).add(1);
    }
}

impl Sum for RouteCells {
    fn absorb(&self, other: &Self) {
        let Self {
            requests,
            durations,
            upstream_failures,
            refused,
            retries,
            retries_refused,
            mirrored,
            mirrors_dropped,
            received_bytes,
            sent_bytes,
        } = other;
        for (sum, part) in self.requests.iter().zip(requests) {
            sum.add(part.value());
        }
        self.durations.absorb(durations);
        self.upstream_failures.add(upstream_failures.value());
        self.refused.add(refused.value());
        self.retries.add(retries.value());
        self.retries_refused.add(retries_refused.value());
        self.mirrored.add(mirrored.value());
        self.mirrors_dropped.add(mirrors_dropped.value());
        self.received_bytes.add(received_bytes.value());
        self.sent_bytes.add(sent_bytes.value());
    }
}

impl Sum for WorkerCells {
    fn absorb(&self, other: &Self) {
        let Self {
            accept_failures,
            accept_pauses,
            endpoint_ejections,
            http2_floods,
            udp_flows_active,
            udp_flows_evicted,
            udp_dropped,
            access_log_dropped,
        } = other;
        self.accept_failures.add(accept_failures.value());
        self.accept_pauses.add(accept_pauses.value());
        self.endpoint_ejections.add(endpoint_ejections.value());
        self.http2_floods.add(http2_floods.value());
        self.udp_flows_active.add(udp_flows_active.value());
        self.udp_flows_evicted.add(udp_flows_evicted.value());
        self.udp_dropped.add(udp_dropped.value());
        self.access_log_dropped.add(access_log_dropped.value());
    }
}

/// Whose [`RouteCells`] they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RuleName {
    // Before the rule: in a map, the rules of a route are neighbours.
    route: RouteName,
    /// As the route names it; its position where it does not. Absent where a kind has no rules to choose from.
    rule: Option<Arc<str>>,
}

/// Rules of one route that are remembered: twice as many as a route can have. A route whose rules are named anew again
/// and again loses the counts of those that it has no more.
const RULES_MAX: usize = 32;

/// All cells of one kind of object.
#[derive(Debug)]
struct Family<K, C>(Mutex<BTreeMap<K, Entry<C>>>);

#[derive(Debug, Default)]
struct Entry<C> {
    /// What workers counted that have let go of their cells; a counter must not fall.
    retired: C,
    live: Vec<Arc<C>>,
}

impl<K: Clone + Ord, C: Sum> Family<K, C> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Entry<C>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, key: &K) -> Arc<C> {
        let cells = Arc::new(C::default());
        let mut family = self.lock();
        let entry = family.entry(key.clone()).or_default();
        let retired = &entry.retired;
        // A cell that only this list holds has no writer any more.
        entry.live.retain(|live| {
            let is_held = Arc::strong_count(live) > 1;
            if !is_held {
                retired.absorb(live);
            }
            is_held
        });
        entry.live.push(cells.clone());
        cells
    }

    fn forget(&self, key: &K) {
        self.lock().remove(key);
    }

    /// Sums in key order.
    fn sums(&self) -> Vec<(K, C)> {
        let sum = |(key, entry): (&K, &Entry<C>)| {
            let sum = C::default();
            sum.absorb(&entry.retired);
            entry.live.iter().for_each(|live| sum.absorb(live));
            (key.clone(), sum)
        };
        self.lock().iter().map(sum).collect()
    }
}

impl Family<RuleName, RouteCells> {
    /// Ends the series of all rules of a route.
    fn forget_route(&self, route: &RouteName) {
        let mut family = self.lock();
        for name in rules(&family, route) {
            family.remove(&name);
        }
    }

    /// Makes room for one more rule of a route, where it has many of which nobody counts any more.
    fn bound(&self, route: &RouteName) {
        let mut family = self.lock();
        let known = rules(&family, route);
        if known.len() < RULES_MAX {
            return;
        }
        let is_idle = |name: &&RuleName| {
            family.get(name).is_some_and(|entry| entry.live.iter().all(|live| Arc::strong_count(live) == 1))
        };
        if let Some(idle) = known.iter().find(is_idle) {
            family.remove(idle);
        }
    }
}

/// The rules of a route that have cells.
fn rules(family: &BTreeMap<RuleName, Entry<RouteCells>>, route: &RouteName) -> Vec<RuleName> {
    let first = RuleName { route: route.clone(), rule: None };
    let of_route = family.range(first..).map(|(name, _)| name).take_while(|name| name.route == *route);
    of_route.cloned().collect()
}

impl<K, C> Default for Family<K, C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// The process-wide list of all cells.
#[derive(Default)]
pub struct Metrics {
    listeners: Family<ListenerName, ListenerCells>,
    routes: Family<RuleName, RouteCells>,
    workers: Family<(), WorkerCells>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// New cells for one worker. What they counted stays in the sum when the worker drops them.
    pub fn listener(&self, name: &ListenerName) -> Arc<ListenerCells> {
        self.listeners.register(name)
    }

    /// As [`Self::listener`]; of a route whose kind has no rules to choose from.
    pub fn route(&self, route: &RouteName) -> Arc<RouteCells> {
        self.routes.register(&RuleName { route: route.clone(), rule: None })
    }

    /// As [`Self::listener`]. `rule`: its name, or its position.
    pub fn rule(&self, route: &RouteName, rule: &Arc<str>) -> Arc<RouteCells> {
        let name = RuleName { route: route.clone(), rule: Some(rule.clone()) };
        if !self.routes.lock().contains_key(&name) {
            self.routes.bound(route);
        }
        self.routes.register(&name)
    }

    /// New cells for one worker itself.
    pub fn worker(&self) -> Arc<WorkerCells> {
        self.workers.register(&())
    }

    /// Ends the series of objects that are no longer configured.
    pub fn forget<'a>(
        &self,
        listeners: impl IntoIterator<Item = &'a ListenerName>,
        routes: impl IntoIterator<Item = &'a RouteName>,
    ) {
        listeners.into_iter().for_each(|listener| self.listeners.forget(listener));
        routes.into_iter().for_each(|route| self.routes.forget_route(route));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Extra, Metrics, encode};
    use crate::snapshot::{ListenerName, ObjectName, RouteKind, RouteName};

    fn listener(section: &str) -> ListenerName {
        let gateway = ObjectName::new("ns", "gw");
        ListenerName::of_gateway(&gateway, &section.into())
    }

    fn text(metrics: &Metrics) -> String {
        encode(metrics, &Extra::default())
    }

    #[test]
    fn counts_of_all_workers_are_summed_and_survive_their_cells() {
        let metrics = Metrics::default();
        let first = metrics.listener(&listener("http"));
        first.connections.add(2);
        drop(first);
        let second = metrics.listener(&listener("http"));
        second.connections.add(3);
        let line =
            r#"gateway_agent_listener_connections_total{namespace="ns",gateway="gw",listener="http"} 5"#;
        assert!(text(&metrics).contains(line), "{}", text(&metrics));
    }

    fn route(name: &str) -> RouteName {
        let object = ObjectName::new("ns", name);
        RouteName { kind: RouteKind::Http, object }
    }

    // O56: series of deleted objects go away.
    #[test]
    fn series_of_deleted_objects_go_away() {
        let metrics = Metrics::default();
        for name in ["q", "r", "s"] {
            for rule in ["0", "named"] {
                let cells = metrics.rule(&route(name), &rule.into());
                cells.requests.get(2).expect("six classes").add(1);
                cells.durations.observe(Duration::from_millis(3));
            }
        }
        assert!(text(&metrics).contains(r#"route="r",rule="named",code="2xx""#), "{}", text(&metrics));
        metrics.forget([], [&route("r")]);
        let left = text(&metrics);
        assert!(!left.contains(r#"route="r""#), "{left}");
        assert!(left.contains(r#"route="q""#) && left.contains(r#"route="s""#), "{left}");
    }

    #[test]
    fn rules_are_told_apart_with_how_long_their_requests_took() {
        let metrics = Metrics::default();
        let (first, named) =
            (metrics.rule(&route("r"), &"0".into()), metrics.rule(&route("r"), &"api".into()));
        first.durations.observe(Duration::from_millis(3));
        first.durations.observe(Duration::from_secs(90));
        named.durations.observe(Duration::from_micros(10));
        metrics.rule(&route("r"), &"0".into()).durations.observe(Duration::from_millis(4));
        let text = text(&metrics);
        for (suffix, le, value) in [
            ("count", "", "3"),
            ("sum", "", "90.007"),
            ("bucket", r#"le="0.0025""#, "0"),
            ("bucket", r#"le="0.005""#, "2"),
            ("bucket", r#"le="+Inf""#, "3"),
        ] {
            let name = format!("gateway_agent_route_request_duration_seconds_{suffix}{{");
            let labels = r#"kind="HTTPRoute",namespace="ns",route="r",rule="0""#;
            let is_it = |line: &str| line.starts_with(&name) && line.contains(labels) && line.contains(le);
            let found = text.lines().find(|line| is_it(line));
            assert!(found.is_some_and(|line| line.ends_with(&format!(" {value}"))), "{suffix} {le}\n{text}");
        }
    }

    #[test]
    fn rules_that_are_named_anew_do_not_pile_up() {
        let metrics = Metrics::default();
        let held = metrics.rule(&route("r"), &"held".into());
        for n in 0..100 {
            metrics.rule(&route("r"), &format!("rule-{n}").into()).requests[2].add(1);
        }
        held.requests[2].add(7);
        let text = text(&metrics);
        let requests = |line: &&str| line.starts_with("gateway_agent_route_requests_total{");
        assert_eq!(text.lines().filter(requests).count(), super::RULES_MAX);
        assert!(text.contains(r#"rule="held",code="2xx"} 7"#), "{text}");
        assert!(text.contains(r#"rule="rule-99""#), "{text}");
    }

    #[test]
    fn a_route_of_a_kind_without_rules_has_an_empty_label_for_them() {
        let metrics = Metrics::default();
        metrics.route(&route("r")).requests[0].add(1);
        assert!(text(&metrics).contains(r#"route="r",rule="",code="none"} 1"#), "{}", text(&metrics));
    }
}
