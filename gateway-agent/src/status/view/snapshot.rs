//! What is served and by what.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;

use crate::snapshot::{
    Backend, BackendSecurity, HttpAction, HttpMatch, HttpRouteMatch, HttpTable, HttpVirtualListener,
    L4Service, Listener, Maglev, PathMatch, Protocol, ProxySources, ProxyVersion, Snapshot, Split, TlsMode,
    TlsTable,
};
use crate::status::{Applied, Served};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotView {
    pub revision: u64,
    pub listeners: Vec<EntryView>,
}

/// One address and port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryView {
    /// As `tcp/192.0.2.1:80`.
    pub entry: String,
    pub protocol: &'static str,
    /// The Gateway listeners here, as `NAMESPACE/GATEWAY/LISTENER`.
    pub names: Vec<String>,
    /// Where connections begin with a header of the PROXY protocol: those who may send it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub proxy_protocol_sources: Vec<String>,
    /// How the proxy serves it: a mechanism, or why it does not.
    pub proxy: Option<String>,
    /// How the kernel path does.
    pub kernel: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceView>,
}

/// A hostname of one listener and, in the order in which they are tried, the matches there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostView {
    pub listener: String,
    /// `*` for every name.
    pub hostname: String,
    pub matches: Vec<MatchView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MatchView {
    /// As `PathPrefix /api, GET, header x-a: 1`; absent for TLS.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub conditions: Option<String>,
    pub route: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<u16>,
    /// The status that the proxy itself answers with, redirects included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub respond: Option<u16>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendView {
    pub weight: u32,
    /// `NAMESPACE/NAME:PORT`; absent where the reference is invalid.
    pub service: Option<String>,
    pub endpoints: Vec<SocketAddr>,
    /// The name that they are asked for by TLS; absent in clear. Means nothing where TLS is passed through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
    /// The version by which they are told of clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<&'static str>,
}

/// A TCP or UDP service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceView {
    pub route: Option<String>,
    /// For clients of either family.
    pub v4: Vec<TargetView>,
    pub v6: Vec<TargetView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetView {
    /// Absent: flows that fall here are refused.
    pub endpoint: Option<SocketAddr>,
    pub slots: usize,
    /// The version by which it is told of clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<&'static str>,
}

/// What `snapshot` holds and what the data paths said of it, in order of entry, listener and hostname.
pub fn snapshot_view(snapshot: &Snapshot, proxy: &Applied, kernel: Option<&Applied>) -> SnapshotView {
    let entry = |listener: &Listener| {
        let (hosts, service) = match &listener.protocol {
            Protocol::Http(table) => (http_hosts(table), None),
            Protocol::Tls(table) => (tls_hosts(table), None),
            Protocol::Tcp(service) | Protocol::Udp(service) => (Vec::new(), Some(service_view(service))),
        };
        let sources = listener.proxy_sources.iter().flat_map(ProxySources::nets);
        let said = |applied: &Applied| applied.listeners.get(&listener.key).map(served_text);
        EntryView {
            entry: listener.key.to_string(),
            protocol: listener.protocol.as_str(),
            names: listener.names.iter().map(ToString::to_string).collect(),
            proxy_protocol_sources: sources.map(ToString::to_string).collect(),
            proxy: said(proxy),
            kernel: kernel.and_then(said),
            hosts,
            service,
        }
    };
    SnapshotView {
        revision: snapshot.revision.0,
        listeners: snapshot.listeners.iter().map(|listener| entry(listener)).collect(),
    }
}

fn served_text(served: &Served) -> String {
    match served {
        Served::By(mechanism) => (*mechanism).to_owned(),
        Served::Left(reason) => format!("left: {reason}"),
        Served::Failed { reason, message } => format!("failed: {reason}: {message}"),
    }
}

fn http_hosts(table: &HttpTable) -> Vec<HostView> {
    sorted(table.listeners.values().flat_map(|listener| listener_hosts(listener)).collect())
}

fn listener_hosts(listener: &HttpVirtualListener) -> impl Iterator<Item = HostView> {
    listener.hosts.iter().chain(listener.grpc.iter()).map(|(hostname, virtual_host)| HostView {
        listener: listener.name.to_string(),
        hostname: hostname.unwrap_or_else(|| "*".into()),
        matches: virtual_host.matches().into_iter().map(match_view).collect(),
    })
}

fn tls_hosts(table: &TlsTable) -> Vec<HostView> {
    let mut hosts = Vec::new();
    for listener in table.listeners.values() {
        let routes = match &listener.mode {
            TlsMode::Passthrough(hosts) | TlsMode::Terminate { hosts, .. } => hosts,
            TlsMode::Https { http, .. } => {
                // The table may be that of the whole port.
                let own = http.listeners.values().filter(|own| own.name == listener.name);
                hosts.extend(own.flat_map(|own| listener_hosts(own)));
                continue;
            }
        };
        for (hostname, rule) in routes.iter() {
            hosts.push(HostView {
                listener: listener.name.to_string(),
                hostname: hostname.unwrap_or_else(|| "*".into()),
                matches: vec![MatchView {
                    conditions: None,
                    route: rule.route.object.to_string(),
                    rule: None,
                    respond: None,
                    backends: backends(&rule.split),
                }],
            });
        }
    }
    sorted(hosts)
}

fn sorted(mut hosts: Vec<HostView>) -> Vec<HostView> {
    hosts.sort_by(|one, other| (&one.listener, &one.hostname).cmp(&(&other.listener, &other.hostname)));
    hosts
}

fn match_view(one: &HttpMatch) -> MatchView {
    let HttpRouteMatch { path, method, headers, query } = &*one.conditions;
    let mut conditions = vec![match path {
        PathMatch::Exact(path) => format!("Exact {path}"),
        PathMatch::Method(method) => format!("Method {method}"),
        PathMatch::Prefix(prefix) if prefix.is_empty() => "PathPrefix /".into(),
        PathMatch::Prefix(prefix) => format!("PathPrefix {prefix}"),
        PathMatch::Regex(pattern) => format!("RegularExpression {}", pattern.text()),
    }];
    conditions.extend(method.as_ref().map(ToString::to_string));
    conditions.extend(headers.iter().map(|header| format!("header {}: {}", header.name, header.value)));
    conditions.extend(query.iter().map(|param| format!("query {}={}", param.name, param.value)));
    let (respond, backends) = match &one.rule.action {
        HttpAction::Forward(split) => (None, backends(split)),
        HttpAction::Redirect(redirect) => (Some(redirect.status), Vec::new()),
        HttpAction::Respond(status) => (Some(*status), Vec::new()),
    };
    MatchView {
        conditions: Some(conditions.join(", ")),
        route: one.rule.route.object.to_string(),
        rule: Some(one.rule.index),
        respond,
        backends,
    }
}

fn backends(split: &Split) -> Vec<BackendView> {
    let view = |weight: u32, backend: &Backend| match backend {
        Backend::Endpoints(set) => BackendView {
            weight,
            service: Some(format!("{}:{}", set.service, set.port)),
            endpoints: set.addresses.to_vec(),
            tls: match &set.security {
                BackendSecurity::Tls(tls) => Some(tls.server_name.to_string()),
                BackendSecurity::Cleartext | BackendSecurity::Refused => None,
            },
            proxy_protocol: set.proxy_version.map(ProxyVersion::as_str),
        },
        Backend::Invalid => {
            BackendView { weight, service: None, endpoints: Vec::new(), tls: None, proxy_protocol: None }
        }
    };
    split.backends.iter().map(|share| view(share.weight, &share.backend)).collect()
}

fn service_view(service: &L4Service) -> ServiceView {
    ServiceView {
        route: service.route.as_ref().map(|route| route.object.to_string()),
        v4: targets(service, &service.v4),
        v6: targets(service, &service.v6),
    }
}

fn targets(service: &L4Service, table: &Maglev) -> Vec<TargetView> {
    let mut slots: BTreeMap<u16, usize> = BTreeMap::new();
    for slot in table.slots.iter() {
        *slots.entry(*slot).or_default() += 1;
    }
    let view = |(index, slots)| {
        let endpoint = table.targets.get(usize::from(index)).copied().flatten();
        let version = endpoint.and_then(|endpoint| service.proxy_version(endpoint));
        TargetView { endpoint, slots, proxy_protocol: version.map(ProxyVersion::as_str) }
    };
    slots.into_iter().map(view).collect()
}
