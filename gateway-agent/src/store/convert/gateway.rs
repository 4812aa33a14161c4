//! Gateway and ListenerSet.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{hostname, meta, optional, port, shared};
use crate::api::gateways::{
    GatewayAllowedListeners, GatewayAllowedListenersNamespacesFrom, GatewayInfrastructure, GatewayListeners,
    GatewayListenersAllowedRoutesNamespacesFrom, GatewayListenersTlsMode, GatewaySpec, GatewayStatus,
    GatewayTls as ApiTls, GatewayTlsFrontendDefaultValidationMode,
    GatewayTlsFrontendPerPortTlsValidationMode,
};
use crate::api::listenersets::{
    ListenerSetListeners, ListenerSetListenersAllowedRoutesNamespacesFrom, ListenerSetListenersTlsMode,
};
use crate::api::{Gateway as ApiGateway, ListenerSet as ApiSet};
use crate::snapshot::ObjectName;
use crate::store::objects::{
    AddressKind, ClientValidation, GATEWAY_GROUP, Gateway, GatewayAddress, GatewayTls, GroupKind,
    Infrastructure, LabelRequirement, LabelSelector, ListenerProtocol, ListenerSet, ListenerSetFilter,
    ListenerSpec, ListenerTls, LocalRef, NamespaceFilter, ObjectRef,
};

// The generated types repeat the same shape under another name wherever it occurs.

macro_rules! label_selector {
    ($selector:expr) => {{
        let labels = $selector.match_labels.iter().flatten();
        let labels = labels.map(|(key, value)| LabelRequirement::In(key.clone(), vec![value.clone()]));
        let expressions = $selector.match_expressions.iter().flatten().map(|expression| {
            requirement(&expression.key, &expression.operator, expression.values.as_deref())
        });
        LabelSelector { requirements: labels.chain(expressions).collect() }
    }};
}

macro_rules! object_ref {
    ($reference:expr, $kind:literal) => {
        ObjectRef {
            group: shared($reference.group.as_deref().unwrap_or_default()),
            kind: shared($reference.kind.as_deref().unwrap_or($kind)),
            namespace: optional($reference.namespace.as_ref()),
            name: shared(&$reference.name),
        }
    };
}

macro_rules! client_validation {
    ($validation:expr, $mode:ident) => {
        ClientValidation {
            authorities: $validation
                .ca_certificate_refs
                .iter()
                .map(|authority| ObjectRef {
                    group: shared(&authority.group),
                    kind: shared(&authority.kind),
                    namespace: optional(authority.namespace.as_ref()),
                    name: shared(&authority.name),
                })
                .collect(),
            allows_insecure_fallback: $validation.mode == Some($mode::AllowInsecureFallback),
        }
    };
}

macro_rules! listener {
    ($listener:expr, $mode:ident, $from:ident) => {{
        let tls = $listener.tls.as_ref();
        let is_passthrough = tls.and_then(|tls| tls.mode.as_ref()) == Some(&$mode::Passthrough);
        let protocol = protocol(&$listener.protocol, is_passthrough);
        // Protocols without a notion of hostnames ignore the field (`Listener.hostname`).
        let has_hostname = !matches!(protocol, ListenerProtocol::Tcp | ListenerProtocol::Udp);
        let pattern = $listener.hostname.as_deref().filter(|name| has_hostname && !name.is_empty());
        let allowed = $listener.allowed_routes.as_ref();
        let kinds = allowed.and_then(|allowed| allowed.kinds.as_deref()).filter(|kinds| !kinds.is_empty());
        let namespaces = allowed.and_then(|allowed| allowed.namespaces.as_ref());
        Arc::new(ListenerSpec {
            name: shared(&$listener.name),
            hostname: pattern.map(hostname),
            port: port(Some($listener.port)),
            protocol,
            tls: ListenerTls {
                certificates: tls
                    .and_then(|tls| tls.certificate_refs.as_deref())
                    .unwrap_or_default()
                    .iter()
                    .map(|certificate| object_ref!(certificate, "Secret"))
                    .collect(),
                options: tls
                    .and_then(|tls| tls.options.as_ref())
                    .into_iter()
                    .flat_map(BTreeMap::keys)
                    .map(|key| shared(key))
                    .collect(),
            },
            kinds: kinds.map(|kinds| {
                let kinds = kinds.iter().map(|kind| GroupKind {
                    group: shared(kind.group.as_deref().unwrap_or(GATEWAY_GROUP)),
                    kind: shared(&kind.kind),
                });
                kinds.collect()
            }),
            namespaces: match namespaces.and_then(|namespaces| namespaces.from.as_ref()) {
                None | Some($from::Same) => NamespaceFilter::Same,
                Some($from::All) => NamespaceFilter::All,
                Some($from::Selector) => {
                    let selector = namespaces.and_then(|namespaces| namespaces.selector.as_ref());
                    NamespaceFilter::Selector(
                        selector.map(|selector| label_selector!(selector)).unwrap_or_default(),
                    )
                }
            },
        })
    }};
}

pub(in crate::store) fn gateway(gateway: &ApiGateway, name: &ObjectName, order: u64) -> Gateway {
    // Destructured fully, so that a field of a newer API cannot be passed over.
    let GatewaySpec { addresses, allowed_listeners, gateway_class_name, infrastructure, listeners, tls } =
        &gateway.spec;
    let listener = |listener: &GatewayListeners| {
        listener!(listener, GatewayListenersTlsMode, GatewayListenersAllowedRoutesNamespacesFrom)
    };
    Gateway {
        meta: meta(name, &gateway.metadata, order),
        uid: optional(gateway.metadata.uid.as_ref())
            .filter(|_| gateway.metadata.deletion_timestamp.is_none()),
        class: shared(gateway_class_name),
        listeners: listeners.iter().map(listener).collect(),
        addresses: addresses
            .iter()
            .flatten()
            .map(|address| GatewayAddress {
                kind: match address.r#type.as_deref() {
                    None | Some("IPAddress") => AddressKind::Ip,
                    Some(other) => AddressKind::Other(shared(other)),
                },
                value: optional(address.value.as_ref()).filter(|value| !value.is_empty()),
            })
            .collect(),
        observed_addresses: gateway.status.as_ref().map(observed_addresses).unwrap_or_default(),
        infrastructure: infrastructure.as_ref().map(self::infrastructure).unwrap_or_default(),
        allowed_listeners: allowed_listeners
            .as_ref()
            .map_or(ListenerSetFilter::None, self::allowed_listeners),
        tls: tls.as_ref().map(self::tls).unwrap_or_default(),
    }
}

pub(in crate::store) fn listener_set(set: &ApiSet, name: &ObjectName, order: u64) -> ListenerSet {
    let parent = &set.spec.parent_ref;
    let listener = |listener: &ListenerSetListeners| {
        listener!(listener, ListenerSetListenersTlsMode, ListenerSetListenersAllowedRoutesNamespacesFrom)
    };
    ListenerSet {
        meta: meta(name, &set.metadata, order),
        parent: ObjectRef {
            group: shared(parent.group.as_deref().unwrap_or(GATEWAY_GROUP)),
            kind: shared(parent.kind.as_deref().unwrap_or("Gateway")),
            namespace: optional(parent.namespace.as_ref()),
            name: shared(&parent.name),
        },
        listeners: set.spec.listeners.iter().map(listener).collect(),
    }
}

fn observed_addresses(status: &GatewayStatus) -> Vec<IpAddr> {
    let addresses = status.addresses.iter().flatten();
    addresses
        .filter(|address| matches!(address.r#type.as_deref(), None | Some("IPAddress")))
        .filter_map(|address| address.value.parse().ok())
        .collect()
}

fn infrastructure(infrastructure: &GatewayInfrastructure) -> Infrastructure {
    let texts = |texts: Option<&BTreeMap<String, String>>| -> BTreeMap<Arc<str>, Arc<str>> {
        texts.into_iter().flatten().map(|(key, value)| (shared(key), shared(value))).collect()
    };
    Infrastructure {
        labels: texts(infrastructure.labels.as_ref()),
        annotations: texts(infrastructure.annotations.as_ref()),
        parameters: infrastructure.parameters_ref.as_ref().map(|parameters| LocalRef {
            group: shared(&parameters.group),
            kind: shared(&parameters.kind),
            name: shared(&parameters.name),
        }),
    }
}

/// ListenerSets are refused by default.
fn allowed_listeners(allowed: &GatewayAllowedListeners) -> ListenerSetFilter {
    let Some(namespaces) = &allowed.namespaces else {
        return ListenerSetFilter::None;
    };
    ListenerSetFilter::Some(match namespaces.from {
        None | Some(GatewayAllowedListenersNamespacesFrom::None) => return ListenerSetFilter::None,
        Some(GatewayAllowedListenersNamespacesFrom::All) => NamespaceFilter::All,
        Some(GatewayAllowedListenersNamespacesFrom::Same) => NamespaceFilter::Same,
        Some(GatewayAllowedListenersNamespacesFrom::Selector) => {
            let selector = namespaces.selector.as_ref();
            NamespaceFilter::Selector(selector.map(|selector| label_selector!(selector)).unwrap_or_default())
        }
    })
}

fn tls(tls: &ApiTls) -> GatewayTls {
    let certificate = tls.backend.as_ref().and_then(|backend| backend.client_certificate_ref.as_ref());
    let frontend = tls.frontend.as_ref();
    let per_port = frontend.and_then(|frontend| frontend.per_port.as_deref()).unwrap_or_default();
    GatewayTls {
        client_certificate: certificate.map(|certificate| object_ref!(certificate, "Secret")),
        frontend_default: frontend.and_then(|frontend| {
            let validation = frontend.default.validation.as_ref()?;
            Some(client_validation!(validation, GatewayTlsFrontendDefaultValidationMode))
        }),
        frontend_per_port: per_port
            .iter()
            .map(|entry| {
                let validation = entry.tls.validation.as_ref();
                let validation = validation.map(|validation| {
                    client_validation!(validation, GatewayTlsFrontendPerPortTlsValidationMode)
                });
                (entry.port, validation)
            })
            .collect(),
    }
}

fn protocol(name: &str, is_passthrough: bool) -> ListenerProtocol {
    match name {
        "HTTP" => ListenerProtocol::Http,
        "HTTPS" => ListenerProtocol::Https,
        "TLS" if is_passthrough => ListenerProtocol::TlsPassthrough,
        // `tls.mode` defaults to Terminate.
        "TLS" => ListenerProtocol::TlsTerminate,
        "TCP" => ListenerProtocol::Tcp,
        "UDP" => ListenerProtocol::Udp,
        other => ListenerProtocol::Other(shared(other)),
    }
}

fn requirement(key: &str, operator: &str, values: Option<&[String]>) -> LabelRequirement {
    let values = || values.unwrap_or_default().to_vec();
    match operator {
        "In" => LabelRequirement::In(key.into(), values()),
        "NotIn" => LabelRequirement::NotIn(key.into(), values()),
        "Exists" => LabelRequirement::Exists(key.into()),
        "DoesNotExist" => LabelRequirement::DoesNotExist(key.into()),
        other => LabelRequirement::Unknown(other.into()),
    }
}
