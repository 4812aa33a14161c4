//! The snapshot as JSON: the boundary types of the admin server.
//!
//! **Invariant:** shape only. The order is stable, so that two dumps can be compared.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    Backend, HostTable, HttpAction, HttpMatch, L4Service, Listener, Maglev, PathMatch, Protocol, Split,
};

/// One entry of the data paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedView {
    /// As `tcp/*:80`.
    pub entry: String,
    pub protocol: &'static str,
    pub listeners: Vec<String>,
    /// By hostname of the listener, then by hostname of its routes; HTTP and TLS only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, BTreeMap<String, Vec<RuleView>>>,
    /// TCP and UDP only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceView>,
}

/// In the order in which they are tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleView {
    pub route: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub respond: Option<u16>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendView {
    pub weight: u32,
    /// Absent: invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    pub endpoints: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Share of the slots by endpoint, in percent; `refused` for invalid backends.
    pub ipv4: BTreeMap<String, String>,
    pub ipv6: BTreeMap<String, String>,
}

impl From<&Listener> for ServedView {
    fn from(listener: &Listener) -> Self {
        let mut view = Self {
            entry: listener.key.to_string(),
            protocol: listener.protocol.as_str(),
            listeners: listener.names.iter().map(ToString::to_string).collect(),
            hosts: BTreeMap::new(),
            service: None,
        };
        match &listener.protocol {
            Protocol::Http(table) => {
                view.hosts = hosts(&table.listeners, |virtual_listener| {
                    hosts(&virtual_listener.hosts, |host| host.matches().iter().map(RuleView::from).collect())
                });
            }
            Protocol::TlsPassthrough(table) => {
                view.hosts = hosts(&table.listeners, |virtual_listener| {
                    hosts(&virtual_listener.hosts, |rule| {
                        let route = rule.route.object.to_string();
                        vec![RuleView { route, backends: backends(&rule.split), ..RuleView::default() }]
                    })
                });
            }
            Protocol::Tcp(service) | Protocol::Udp(service) => {
                view.service = Some(ServiceView::from(&**service))
            }
        }
        view
    }
}

fn hosts<T, V>(table: &HostTable<T>, view: impl Fn(&T) -> V) -> BTreeMap<String, V> {
    table.iter().map(|(pattern, value)| (pattern, view(value))).collect()
}

impl From<&HttpMatch> for RuleView {
    fn from(found: &HttpMatch) -> Self {
        let (respond, backends) = match &found.rule.action {
            HttpAction::Forward(split) => (None, backends(split)),
            HttpAction::Respond(status) => (Some(*status), Vec::new()),
        };
        Self {
            route: found.rule.route.object.to_string(),
            rule: Some(found.rule.index),
            path: Some(match &found.path {
                PathMatch::Exact(path) => format!("= {path}"),
                PathMatch::Prefix(prefix) => format!("{prefix}/"),
            }),
            method: found.method.as_deref().map(str::to_owned),
            headers: found
                .headers
                .iter()
                .map(|header| format!("{}: {}", header.name, header.value))
                .collect(),
            query: found.query.iter().map(|pair| format!("{}={}", pair.name, pair.value)).collect(),
            respond,
            backends,
        }
    }
}

fn backends(split: &Split) -> Vec<BackendView> {
    let view = |weighted: &super::WeightedBackend| match &weighted.backend {
        Backend::Endpoints(set) => BackendView {
            weight: weighted.weight,
            service: Some(format!("{}:{}", set.service, set.port)),
            endpoints: set.addresses.iter().map(ToString::to_string).collect(),
        },
        Backend::Invalid => BackendView { weight: weighted.weight, service: None, endpoints: Vec::new() },
    };
    split.backends.iter().map(view).collect()
}

impl From<&L4Service> for ServiceView {
    fn from(service: &L4Service) -> Self {
        Self {
            route: service.route.as_ref().map(|route| route.object.to_string()),
            ipv4: shares(&service.v4),
            ipv6: shares(&service.v6),
        }
    }
}

fn shares(table: &Maglev) -> BTreeMap<String, String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for slot in table.slots.iter() {
        let target = table.targets.get(usize::from(*slot)).copied().flatten();
        let name = target.map_or_else(|| "refused".to_owned(), |address| address.to_string());
        *counts.entry(name).or_default() += 1;
    }
    let percent = |count: usize| format!("{:.1}%", count as f64 * 100.0 / table.slots.len() as f64);
    counts.into_iter().map(|(name, count)| (name, percent(count))).collect()
}
