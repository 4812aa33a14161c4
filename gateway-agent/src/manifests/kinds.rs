//! The kinds that a folder of manifests can hold, and the versions they are served at.
//!
//! **Invariant:** pure.

use crate::api::Kind;

const GATEWAY: &str = "gateway.networking.k8s.io";
/// The versions that a kind is served at.
const fn versions(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Gateway | Kind::HttpRoute | Kind::ReferenceGrant => &["v1", "v1beta1"],
        Kind::BackendTlsPolicy
        | Kind::ConfigMap
        | Kind::EndpointSlice
        | Kind::GrpcRoute
        | Kind::ListenerSet
        | Kind::Namespace
        | Kind::Secret
        | Kind::Service
        | Kind::TcpRoute
        | Kind::TlsRoute
        | Kind::UdpRoute => &["v1"],
    }
}

/// Kinds that often lie beside those above, and what to say of them. They are warnings: nothing is wrong with them.
const UNUSED: [(&str, &str, &str); 10] = [
    ("DaemonSet", "apps", "is not used without a cluster"),
    ("Deployment", "apps", "is not used without a cluster"),
    ("GatewayClass", GATEWAY, "is not needed: classes are named by --gateway-class-name"),
    ("Job", "batch", "is not used without a cluster"),
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
    if let Some(known) = Kind::ALL.into_iter().find(|known| known.as_str() == kind) {
        if group == known.group() && versions(known).contains(&version) {
            return Named::Known(known);
        }
        let served: Vec<_> = versions(known).iter().map(|version| join(known.group(), version)).collect();
        return Named::WrongVersion(format!(
            "{api_version:?} does not serve {kind}; use {}",
            served.join(" or ")
        ));
    }
    if let Some((_, _, why)) = UNUSED.iter().find(|(name, of, _)| *name == kind && *of == group) {
        return Named::Unused(format!("{kind} {why}"));
    }
    let names = Kind::ALL.into_iter().map(Kind::as_str);
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
    fn every_kind_is_found_by_its_own_name() {
        for kind in Kind::ALL {
            let api_version = super::join(kind.group(), "v1");
            assert_eq!(find(&api_version, kind.as_str()), Named::Known(kind));
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
