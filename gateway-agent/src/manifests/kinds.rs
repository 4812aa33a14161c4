//! The kinds that a folder of manifests can hold, and the versions they are served at.
//!
//! **Invariant:** pure.

use std::fmt;

/// A kind that the agent reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    ConfigMap,
    EndpointSlice,
    Gateway,
    HttpRoute,
    Namespace,
    ReferenceGrant,
    Secret,
    Service,
    TcpRoute,
    TlsRoute,
    UdpRoute,
}

const GATEWAY: &str = "gateway.networking.k8s.io";
const KINDS: [(Kind, &str, &str, &[&str]); 11] = [
    (Kind::ConfigMap, "ConfigMap", "", &["v1"]),
    (Kind::EndpointSlice, "EndpointSlice", "discovery.k8s.io", &["v1"]),
    (Kind::Gateway, "Gateway", GATEWAY, &["v1", "v1beta1"]),
    (Kind::HttpRoute, "HTTPRoute", GATEWAY, &["v1", "v1beta1"]),
    (Kind::Namespace, "Namespace", "", &["v1"]),
    (Kind::ReferenceGrant, "ReferenceGrant", GATEWAY, &["v1", "v1beta1"]),
    (Kind::Secret, "Secret", "", &["v1"]),
    (Kind::Service, "Service", "", &["v1"]),
    (Kind::TcpRoute, "TCPRoute", GATEWAY, &["v1"]),
    (Kind::TlsRoute, "TLSRoute", GATEWAY, &["v1"]),
    (Kind::UdpRoute, "UDPRoute", GATEWAY, &["v1"]),
];

/// Kinds that often lie beside those above, and what to say of them. They are warnings: nothing is wrong with them.
const UNUSED: [(&str, &str, &str); 13] = [
    ("BackendTLSPolicy", GATEWAY, "is not served by this version of the agent"),
    ("DaemonSet", "apps", "is not used without a cluster"),
    ("Deployment", "apps", "is not used without a cluster"),
    ("GRPCRoute", GATEWAY, "is not served by this version of the agent"),
    ("GatewayClass", GATEWAY, "is not needed: classes are named by --gateway-class-name"),
    ("Job", "batch", "is not used without a cluster"),
    ("ListenerSet", GATEWAY, "is not served by this version of the agent"),
    ("Pod", "", "is not used without a cluster"),
    ("ReplicaSet", "apps", "is not used without a cluster"),
    ("Role", "rbac.authorization.k8s.io", "is not used without a cluster"),
    ("RoleBinding", "rbac.authorization.k8s.io", "is not used without a cluster"),
    ("ServiceAccount", "", "is not used without a cluster"),
    ("StatefulSet", "apps", "is not used without a cluster"),
];

/// What an object's `apiVersion` and `kind` name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    Known(Kind),
    /// Served nowhere, or not in this form; says why and what to write.
    Unknown(String),
    Unused(String),
    /// The kind is known, the apiVersion is not among its own.
    WrongVersion(String),
}

pub(super) fn find(api_version: &str, kind: &str) -> Named {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if let Some((known, _, served_group, versions)) = KINDS.iter().find(|(_, name, ..)| *name == kind) {
        if group == *served_group && versions.contains(&version) {
            return Named::Known(*known);
        }
        let served: Vec<_> = versions.iter().map(|version| join(served_group, version)).collect();
        return Named::WrongVersion(format!(
            "{api_version:?} does not serve {kind}; use {}",
            served.join(" or ")
        ));
    }
    if let Some((_, _, why)) = UNUSED.iter().find(|(name, of, _)| *name == kind && *of == group) {
        return Named::Unused(format!("{kind} {why}"));
    }
    let names = KINDS.iter().map(|(_, name, ..)| *name);
    Named::Unknown(match closest(kind, names) {
        Some(name) => format!("unknown kind {kind:?}; did you mean {name}?"),
        None => format!("unknown kind {kind:?} of {api_version:?}"),
    })
}

fn join(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The one of `names` that differs from `name` by case, by one letter, or by two letters swapped.
pub(super) fn closest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names.into_iter().find(|candidate| is_close(name, candidate))
}

fn is_close(one: &str, other: &str) -> bool {
    if one.eq_ignore_ascii_case(other) {
        return true;
    }
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let start = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[start..], &other[start..]);
    let end = one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    match (&one[..one.len() - end], &other[..other.len() - end]) {
        ([], [_]) | ([_], [] | [_]) => start + end > 1,
        ([a, b], [c, d]) => (a, b) == (d, c),
        _ => false,
    }
}

impl Kind {
    /// As in manifests: `HTTPRoute`.
    pub fn as_str(self) -> &'static str {
        KINDS.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, ..)| name)
    }

    pub(super) const fn is_namespaced(self) -> bool {
        !matches!(self, Self::Namespace)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Named, closest, find};

    #[test]
    fn kinds_are_found_at_their_served_versions_only() {
        assert_eq!(find("v1", "Service"), Named::Known(Kind::Service));
        assert_eq!(find("gateway.networking.k8s.io/v1beta1", "HTTPRoute"), Named::Known(Kind::HttpRoute));
        assert_eq!(
            find("gateway.networking.k8s.io/v1alpha2", "TCPRoute"),
            Named::WrongVersion(
                "\"gateway.networking.k8s.io/v1alpha2\" does not serve TCPRoute; use gateway.networking.k8s.io/v1"
                    .into()
            )
        );
        assert!(matches!(find("v1", "Gateway"), Named::WrongVersion(_)));
        assert!(matches!(find("apps/v1", "Deployment"), Named::Unused(_)));
        assert!(matches!(find("v1", "Deployment"), Named::Unknown(_)));
    }

    #[test]
    fn every_kind_has_a_row() {
        for kind in [Kind::ConfigMap, Kind::Namespace, Kind::UdpRoute] {
            assert!(!kind.as_str().is_empty());
        }
    }

    #[test]
    fn a_slip_of_the_hand_is_recognised() {
        for slip in ["HTTPRouet", "HttpRoute", "HTTPRout", "HTTPRoutes", "HTTPRoote"] {
            assert_eq!(closest(slip, ["Gateway", "HTTPRoute"]), Some("HTTPRoute"), "{slip}");
        }
        for other in ["", "H", "Route", "HTTP", "TTPRouteX"] {
            assert_eq!(closest(other, ["Gateway", "HTTPRoute"]), None, "{other}");
        }
    }
}
