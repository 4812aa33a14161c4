//! The Prometheus text of `/metrics` (OpenMetrics encoding by `prometheus-client`).

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::{
    ClusterNumbers, HandshakeFailure, HeaderFailure, ListenerCells, Metrics, RouteCells, RuleName,
    WorkerCells,
};
use crate::snapshot::ListenerName;

/// What the flows of one listener carried in the kernel; bytes are those of whole frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelFlows {
    pub flows: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

/// Numbers that other parts keep themselves.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    pub revision: u64,
    /// Findings in the manifests that are in force now.
    pub manifest_findings: u64,
    /// Totals of the kernel programs, by name.
    pub kernel: Vec<(&'static str, u64)>,
    /// Gauges of the kernel maps, by name.
    pub kernel_gauges: Vec<(&'static str, u64)>,
    pub kernel_listeners: Vec<(ListenerName, KernelFlows)>,
    /// Data path and the mechanism in use, such as `l4` and `tcx`.
    pub datapaths: Vec<(&'static str, &'static str)>,
    /// Listener, data path (`proxy`, `kernel`) and how it is served there.
    pub listeners: Vec<(ListenerName, &'static str, &'static str)>,
    /// With a Kubernetes API only.
    pub cluster: Option<ClusterNumbers>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabels {
    namespace: String,
    gateway: String,
    listener: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandshakeLabels {
    namespace: String,
    gateway: String,
    listener: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    kind: &'static str,
    namespace: String,
    route: String,
    /// Empty where it is absent, which Prometheus takes for the same.
    rule: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    kind: &'static str,
    namespace: String,
    route: String,
    rule: Option<String>,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabels {
    path: &'static str,
    mechanism: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerPathLabels {
    namespace: String,
    gateway: String,
    listener: String,
    path: &'static str,
    mechanism: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabels {
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabels {
    version: &'static str,
}

/// Index is the class of the status; 0 is a flow without status or an exchange that ended before one.
const CODE_CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

#[derive(Debug)]
struct Sums {
    listeners: Vec<(ListenerName, ListenerCells)>,
    routes: Vec<(RuleName, RouteCells)>,
    workers: Vec<((), WorkerCells)>,
    extra: Extra,
}

/// The whole text of one scrape.
pub fn encode(metrics: &Metrics, extra: &Extra) -> String {
    let mut registry = Registry::with_prefix("gateway_agent");
    registry.register_collector(Box::new(Sums {
        listeners: metrics.listeners.sums(),
        routes: metrics.routes.sums(),
        workers: metrics.workers.sums(),
        extra: extra.clone(),
    }));
    let mut text = String::new();
    // Writing to a string cannot fail.
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("a string takes any text");
    text
}

fn listener_labels(name: &ListenerName) -> ListenerLabels {
    ListenerLabels {
        namespace: name.gateway.namespace.to_string(),
        gateway: name.gateway.name.to_string(),
        // A section name has no slash, so that the two forms cannot meet.
        listener: match &name.set {
            None => name.section.to_string(),
            Some(set) => format!("{set}/{}", name.section),
        },
    }
}

fn route_labels(name: &RuleName) -> RouteLabels {
    let RuleName { route, rule } = name;
    RouteLabels {
        kind: route.kind.as_str(),
        namespace: route.object.namespace.to_string(),
        route: route.object.name.to_string(),
        rule: rule.as_ref().map(ToString::to_string),
    }
}

pub(super) type Series<L> = Vec<(L, u64)>;

pub(super) fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    series: Series<L>,
) -> Result<(), std::fmt::Error> {
    if series.is_empty() {
        return Ok(());
    }
    let kind = prometheus_client::metrics::MetricType::Counter;
    let mut encoder = encoder.encode_descriptor(name, help, unit, kind)?;
    for (labels, value) in series {
        ConstCounter::new(value).encode(encoder.encode_family(&labels)?)?;
    }
    Ok(())
}

pub(super) fn gauges<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: Series<L>,
) -> Result<(), std::fmt::Error> {
    if series.is_empty() {
        return Ok(());
    }
    let kind = prometheus_client::metrics::MetricType::Gauge;
    let mut encoder = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in series {
        // The type has no unsigned 64-bit form for gauges; none of ours comes near the limit.
        ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(encoder.encode_family(&labels)?)?;
    }
    Ok(())
}

impl Sums {
    fn listener(&self, read: impl Fn(&ListenerCells) -> u64) -> Series<ListenerLabels> {
        self.listeners.iter().map(|(name, cells)| (listener_labels(name), read(cells))).collect()
    }

    fn route(&self, read: impl Fn(&RouteCells) -> u64) -> Series<RouteLabels> {
        self.routes.iter().map(|(name, cells)| (route_labels(name), read(cells))).collect()
    }

    fn requests(&self) -> Series<RequestLabels> {
        let mut series = Vec::new();
        for (name, cells) in &self.routes {
            for (code, cell) in CODE_CLASSES.iter().zip(&cells.requests) {
                if cell.value() > 0 {
                    let RouteLabels { kind, namespace, route, rule } = route_labels(name);
                    series.push((RequestLabels { kind, namespace, route, rule, code }, cell.value()));
                }
            }
        }
        series
    }

    /// Of rules whose requests are of HTTP.
    fn encode_durations(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut timed = self.routes.iter().filter(|(_, cells)| cells.durations.count() > 0).peekable();
        if timed.peek().is_none() {
            return Ok(());
        }
        let help = "How long requests took, from the first byte of the head to the last one of the answer";
        let (unit, kind) = (Some(&Unit::Seconds), prometheus_client::metrics::MetricType::Histogram);
        let mut encoder = encoder.encode_descriptor("route_request_duration", help, unit, kind)?;
        for (name, RouteCells { durations, .. }) in timed {
            let classes: Vec<(f64, u64)> = durations.classes().collect();
            let (sum, count, labels) = (durations.sum_s(), durations.count(), route_labels(name));
            encoder.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &classes, None)?;
        }
        Ok(())
    }

    /// Of routes where there is any: most ask for nothing of the kind.
    fn some(&self, read: impl Fn(&RouteCells) -> u64) -> Series<RouteLabels> {
        let mut series = self.route(read);
        series.retain(|(_, number)| *number > 0);
        series
    }

    /// Of listeners where any was made: the others may not speak TLS.
    fn handshakes(&self) -> Series<ListenerLabels> {
        let mut series = self.listener(|cells| cells.handshakes.value());
        series.retain(|(_, handshakes)| *handshakes > 0);
        series
    }

    fn unverified_clients(&self) -> Series<ListenerLabels> {
        let mut series = self.listener(|cells| cells.unverified_clients.value());
        series.retain(|(_, clients)| *clients > 0);
        series
    }

    fn handshake_failures(&self) -> Series<HandshakeLabels> {
        let mut series = Vec::new();
        for (name, cells) in &self.listeners {
            for failure in HandshakeFailure::ALL {
                let failures = cells.handshake_failure(failure).value();
                if failures > 0 {
                    let ListenerLabels { namespace, gateway, listener } = listener_labels(name);
                    let reason = failure.as_str();
                    series.push((HandshakeLabels { namespace, gateway, listener, reason }, failures));
                }
            }
        }
        series
    }

    fn header_failures(&self) -> Series<HandshakeLabels> {
        let failures = self.listeners.iter().flat_map(|(name, cells)| {
            HeaderFailure::ALL.map(|failure| {
                let ListenerLabels { namespace, gateway, listener } = listener_labels(name);
                let labels = HandshakeLabels { namespace, gateway, listener, reason: failure.as_str() };
                (labels, cells.header_failure(failure).value())
            })
        });
        failures.filter(|(_, failures)| *failures > 0).collect()
    }

    fn listener_paths(&self) -> Series<ListenerPathLabels> {
        let label = |(name, path, mechanism): &(ListenerName, &'static str, &'static str)| {
            let ListenerLabels { namespace, gateway, listener } = listener_labels(name);
            (ListenerPathLabels { namespace, gateway, listener, path, mechanism }, 1)
        };
        self.extra.listeners.iter().map(label).collect()
    }

    fn encode_listeners(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let bytes = Some(&Unit::Bytes);
        let help = "Connections accepted and UDP flows opened by the proxy";
        counters(
            encoder,
            "listener_connections",
            help,
            None,
            self.listener(|cells| cells.connections.value()),
        )?;
        let help = "Connections and UDP flows open in the proxy";
        let active = self.listener(|cells| cells.connections_active.value());
        gauges(encoder, "listener_connections_active", help, active)?;
        let help = "Requests and connections that reached no route";
        counters(encoder, "listener_unrouted", help, None, self.listener(|cells| cells.unrouted.value()))?;
        let help = "TLS handshakes that ended at the proxy and well";
        counters(encoder, "listener_tls_handshakes", help, None, self.handshakes())?;
        let help = "Clients let in without a valid certificate where one is asked for";
        counters(encoder, "listener_tls_unverified_clients", help, None, self.unverified_clients())?;
        let help = "TLS handshakes that failed, by reason";
        counters(encoder, "listener_tls_handshake_failures", help, None, self.handshake_failures())?;
        let help = "Connections refused for want of a PROXY protocol header, by reason";
        counters(encoder, "listener_proxy_header_failures", help, None, self.header_failures())?;
        let help = "Received from clients by the proxy";
        let received = self.listener(|cells| cells.received_bytes.value());
        counters(encoder, "listener_received", help, bytes, received)?;
        let help = "Sent to clients by the proxy";
        counters(encoder, "listener_sent", help, bytes, self.listener(|cells| cells.sent_bytes.value()))?;
        gauges(encoder, "listener_path", "How each data path serves a listener", self.listener_paths())
    }

    fn encode_routes(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let bytes = Some(&Unit::Bytes);
        let help = "Requests and flows by class of the answer's status";
        counters(encoder, "route_requests", help, None, self.requests())?;
        self.encode_durations(encoder)?;
        let help = "Attempts in which a backend refused, reset or stalled";
        let failures = self.route(|cells| cells.upstream_failures.value());
        counters(encoder, "route_upstream_failures", help, None, failures)?;
        let help = "Shares of invalid backends and of such without endpoints";
        counters(encoder, "route_refused", help, None, self.route(|cells| cells.refused.value()))?;
        let help = "Further tries that routes asked for";
        counters(encoder, "route_retries", help, None, self.some(|cells| cells.retries.value()))?;
        let help = "Requests not tried again because a worker's budget was spent";
        let refused = self.some(|cells| cells.retries_refused.value());
        counters(encoder, "route_retries_refused", help, None, refused)?;
        let help = "Requests sent to mirrors";
        counters(encoder, "route_mirrored", help, None, self.some(|cells| cells.mirrored.value()))?;
        let help = "Requests not sent to mirrors, or not answered by them in time";
        let dropped = self.some(|cells| cells.mirrors_dropped.value());
        counters(encoder, "route_mirrors_dropped", help, None, dropped)?;
        let help = "Received from clients for the route by the proxy";
        counters(encoder, "route_received", help, bytes, self.route(|cells| cells.received_bytes.value()))?;
        let help = "Sent to clients for the route by the proxy";
        counters(encoder, "route_sent", help, bytes, self.route(|cells| cells.sent_bytes.value()))
    }

    fn worker(&self, read: impl Fn(&WorkerCells) -> u64) -> Series<[(&'static str, &'static str); 0]> {
        self.workers.iter().map(|((), cells)| ([], read(cells))).collect()
    }

    fn encode_workers(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Failed accepts: out of descriptors or memory";
        counters(encoder, "accept_failures", help, None, self.worker(|cells| cells.accept_failures.value()))?;
        let help = "Pauses in accepting at a worker's bound of connections";
        counters(encoder, "accept_pauses", help, None, self.worker(|cells| cells.accept_pauses.value()))?;
        let help = "Times that an endpoint was left out for failing";
        let ejections = self.worker(|cells| cells.endpoint_ejections.value());
        counters(encoder, "endpoint_ejections", help, None, ejections)?;
        let help = "HTTP/2 connections ended for a flood: cancelled requests, header blocks without end and the like";
        counters(encoder, "http2_floods", help, None, self.worker(|cells| cells.http2_floods.value()))?;
        let help = "UDP flows open in the relay";
        gauges(encoder, "udp_flows_active", help, self.worker(|cells| cells.udp_flows_active.value()))?;
        let help = "UDP flows of the relay ended early because its table was full";
        counters(
            encoder,
            "udp_flows_evicted",
            help,
            None,
            self.worker(|cells| cells.udp_flows_evicted.value()),
        )?;
        let help = "Datagrams that the relay dropped";
        counters(encoder, "udp_dropped", help, None, self.worker(|cells| cells.udp_dropped.value()))?;
        let help = "Lines of the access log dropped because it is written too slowly";
        let dropped = self.worker(|cells| cells.access_log_dropped.value());
        counters(encoder, "access_log_dropped", help, None, dropped)
    }

    fn kernel(&self, read: impl Fn(&KernelFlows) -> u64) -> Series<ListenerLabels> {
        self.extra.kernel_listeners.iter().map(|(name, flows)| (listener_labels(name), read(flows))).collect()
    }

    fn encode_kernel(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let bytes = Some(&Unit::Bytes);
        let name = |(name, value): &(&'static str, u64)| (NameLabels { name }, *value);
        let help = "Events counted by the kernel programs";
        counters(encoder, "kernel_events", help, None, self.extra.kernel.iter().map(name).collect())?;
        let help = "Entries in the kernel's tables";
        gauges(encoder, "kernel_entries", help, self.extra.kernel_gauges.iter().map(name).collect())?;
        let help = "Flows established in the kernel";
        counters(encoder, "kernel_flows", help, None, self.kernel(|flows| flows.flows))?;
        let help = "Received from clients in the kernel, whole frames";
        counters(encoder, "kernel_received", help, bytes, self.kernel(|flows| flows.received_bytes))?;
        let help = "Sent to clients in the kernel, whole frames";
        counters(encoder, "kernel_sent", help, bytes, self.kernel(|flows| flows.sent_bytes))
    }

    fn encode_process(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let version = VersionLabels { version: env!("CARGO_PKG_VERSION") };
        gauges(encoder, "build", "The running version", vec![(version, 1)])?;
        let none: [(&str, &str); 0] = [];
        gauges(
            encoder,
            "revision",
            "Revision of the snapshot that is served",
            vec![(none, self.extra.revision)],
        )?;
        let help = "Findings in the manifests";
        gauges(encoder, "manifest_findings", help, vec![(none, self.extra.manifest_findings)])?;
        let mechanism =
            |(path, mechanism): &(&'static str, &'static str)| (PathLabels { path, mechanism }, 1);
        let paths = self.extra.datapaths.iter().map(mechanism).collect();
        gauges(encoder, "datapath", "Data paths and the mechanism each uses", paths)
    }
}

impl Collector for Sums {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.encode_listeners(&mut encoder)?;
        self.encode_routes(&mut encoder)?;
        self.encode_workers(&mut encoder)?;
        self.encode_kernel(&mut encoder)?;
        if let Some(cluster) = &self.extra.cluster {
            cluster.encode(&mut encoder)?;
        }
        self.encode_process(&mut encoder)
    }
}
