//! Gateway.

use super::{hostname, meta, optional, port, shared};
use crate::api::Gateway as ApiGateway;
use crate::api::gateways::{
    GatewayListeners, GatewayListenersAllowedRoutes, GatewayListenersAllowedRoutesKinds,
    GatewayListenersAllowedRoutesNamespacesFrom, GatewayListenersAllowedRoutesNamespacesSelector,
    GatewayListenersTlsMode, GatewaySpec,
};
use crate::store::objects::{
    AddressKind, GATEWAY_GROUP, Gateway, GatewayAddress, GatewayListener, GroupKind, LabelRequirement,
    LabelSelector, ListenerProtocol, LocalRef, NamespaceFilter,
};

pub(in crate::store) fn gateway(gateway: &ApiGateway, order: u64) -> Gateway {
    // Destructured fully, so that a field of a newer API cannot be passed over.
    let GatewaySpec { addresses, allowed_listeners, gateway_class_name, infrastructure, listeners, tls } =
        &gateway.spec;
    let mut ignored = Vec::new();
    if allowed_listeners.is_some() {
        ignored.push("spec.allowedListeners");
    }
    if let Some(infrastructure) = infrastructure {
        if infrastructure.labels.is_some() {
            ignored.push("spec.infrastructure.labels");
        }
        if infrastructure.annotations.is_some() {
            ignored.push("spec.infrastructure.annotations");
        }
    }
    if tls.is_some() {
        ignored.push("spec.tls");
    }
    let parameters =
        infrastructure.as_ref().and_then(|infrastructure| infrastructure.parameters_ref.as_ref());
    Gateway {
        meta: meta(&gateway.metadata, order),
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
        parameters: parameters.map(|parameters| LocalRef {
            group: shared(&parameters.group),
            kind: shared(&parameters.kind),
            name: shared(&parameters.name),
        }),
        ignored,
    }
}

fn listener(listener: &GatewayListeners) -> GatewayListener {
    let GatewayListeners { allowed_routes, hostname: name_pattern, name, port: number, protocol, tls } =
        listener;
    let mode = tls.as_ref().and_then(|tls| tls.mode.as_ref());
    let protocol = match (protocol.as_str(), mode) {
        ("HTTP", _) => ListenerProtocol::Http,
        ("HTTPS", _) => ListenerProtocol::Https,
        ("TLS", Some(GatewayListenersTlsMode::Passthrough)) => ListenerProtocol::TlsPassthrough,
        // `tls.mode` defaults to Terminate.
        ("TLS", None | Some(GatewayListenersTlsMode::Terminate)) => ListenerProtocol::TlsTerminate,
        ("TCP", _) => ListenerProtocol::Tcp,
        ("UDP", _) => ListenerProtocol::Udp,
        (other, _) => ListenerProtocol::Other(shared(other)),
    };
    // Protocols without a notion of hostnames ignore the field (`Listener.hostname`).
    let has_hostname = !matches!(protocol, ListenerProtocol::Tcp | ListenerProtocol::Udp);
    let pattern = name_pattern.as_deref().filter(|name| has_hostname && !name.is_empty());
    GatewayListener {
        name: shared(name),
        hostname: pattern.map(hostname),
        port: port(Some(*number)),
        protocol,
        kinds: allowed_routes.as_ref().and_then(allowed_kinds),
        namespaces: allowed_routes.as_ref().map_or(NamespaceFilter::Same, namespace_filter),
    }
}

fn allowed_kinds(allowed: &GatewayListenersAllowedRoutes) -> Option<Vec<GroupKind>> {
    let kinds = allowed.kinds.as_deref().filter(|kinds| !kinds.is_empty())?;
    let convert = |kind: &GatewayListenersAllowedRoutesKinds| GroupKind {
        group: shared(kind.group.as_deref().unwrap_or(GATEWAY_GROUP)),
        kind: shared(&kind.kind),
    };
    Some(kinds.iter().map(convert).collect())
}

fn namespace_filter(allowed: &GatewayListenersAllowedRoutes) -> NamespaceFilter {
    let Some(namespaces) = &allowed.namespaces else {
        return NamespaceFilter::Same;
    };
    match namespaces.from {
        None | Some(GatewayListenersAllowedRoutesNamespacesFrom::Same) => NamespaceFilter::Same,
        Some(GatewayListenersAllowedRoutesNamespacesFrom::All) => NamespaceFilter::All,
        Some(GatewayListenersAllowedRoutesNamespacesFrom::Selector) => {
            NamespaceFilter::Selector(namespaces.selector.as_ref().map(label_selector).unwrap_or_default())
        }
    }
}

fn label_selector(selector: &GatewayListenersAllowedRoutesNamespacesSelector) -> LabelSelector {
    let labels = selector
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| LabelRequirement::In(key.clone(), vec![value.clone()]));
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let key = expression.key.clone();
        let values = expression.values.clone().unwrap_or_default();
        match expression.operator.as_str() {
            "In" => LabelRequirement::In(key, values),
            "NotIn" => LabelRequirement::NotIn(key, values),
            "Exists" => LabelRequirement::Exists(key),
            "DoesNotExist" => LabelRequirement::DoesNotExist(key),
            _ => LabelRequirement::Unknown(expression.operator.clone()),
        }
    });
    LabelSelector { requirements: labels.chain(expressions).collect() }
}
