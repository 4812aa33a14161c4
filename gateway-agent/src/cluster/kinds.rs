//! Which kinds are watched, where the API serves them, and at which versions.
//!
//! **Invariant:** pure.

use crate::api::Kind;

/// The API group of Gateway, routes, grants and policies.
pub(super) const GATEWAY_GROUP: &str = crate::store::objects::GATEWAY_GROUP;

/// Where the API serves a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    /// Empty for the core group.
    pub group: &'static str,
    pub plural: &'static str,
    /// Versions of the same schema, the preferred one first. Those of another schema would be misread.
    pub versions: &'static [&'static str],
    /// As in `kind:` of an object: items of a list come without it.
    pub kind: &'static str,
    /// Keeps objects out that are never of use.
    pub field_selector: Option<&'static str>,
}

/// Every kind that is watched per namespace.
pub(super) const WATCHED: [Kind; Kind::ALL.len() - 1] = [
    Kind::Gateway,
    Kind::ListenerSet,
    Kind::ReferenceGrant,
    Kind::BackendTlsPolicy,
    Kind::HttpRoute,
    Kind::GrpcRoute,
    Kind::TlsRoute,
    Kind::TcpRoute,
    Kind::UdpRoute,
    Kind::Service,
    Kind::EndpointSlice,
    Kind::Secret,
    Kind::ConfigMap,
];

/// The same, and namespaces themselves, whose labels cannot be read one by one where there are any number of them.
pub(super) const WATCHED_IN_ALL: [Kind; WATCHED.len() + 1] = {
    let mut kinds = [Kind::Namespace; WATCHED.len() + 1];
    let mut index = 0;
    while index < WATCHED.len() {
        kinds[index] = WATCHED[index];
        index += 1;
    }
    kinds
};

/// Helm keeps whole charts in Secrets, the control plane tokens: none of them holds a certificate.
const SECRETS: &str = "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token,\
                       type!=kubernetes.io/dockerconfigjson,type!=kubernetes.io/dockercfg,\
                       type!=bootstrap.kubernetes.io/token";

pub(super) const CLASSES: Resource = gateway("gatewayclasses", "GatewayClass", &["v1", "v1beta1"]);

pub(super) const fn resource(kind: Kind) -> Resource {
    match kind {
        Kind::BackendTlsPolicy => gateway("backendtlspolicies", "BackendTLSPolicy", &["v1"]),
        Kind::ConfigMap => core("configmaps", "ConfigMap"),
        Kind::EndpointSlice => Resource {
            group: "discovery.k8s.io",
            plural: "endpointslices",
            versions: &["v1"],
            kind: "EndpointSlice",
            field_selector: None,
        },
        Kind::Gateway => gateway("gateways", "Gateway", &["v1", "v1beta1"]),
        Kind::GrpcRoute => gateway("grpcroutes", "GRPCRoute", &["v1"]),
        Kind::HttpRoute => gateway("httproutes", "HTTPRoute", &["v1", "v1beta1"]),
        Kind::ListenerSet => gateway("listenersets", "ListenerSet", &["v1"]),
        Kind::Namespace => core("namespaces", "Namespace"),
        Kind::ReferenceGrant => gateway("referencegrants", "ReferenceGrant", &["v1", "v1beta1"]),
        Kind::Secret => Resource { field_selector: Some(SECRETS), ..core("secrets", "Secret") },
        Kind::Service => core("services", "Service"),
        Kind::TcpRoute => gateway("tcproutes", "TCPRoute", &["v1"]),
        Kind::TlsRoute => gateway("tlsroutes", "TLSRoute", &["v1"]),
        Kind::UdpRoute => gateway("udproutes", "UDPRoute", &["v1"]),
    }
}

const fn core(plural: &'static str, kind: &'static str) -> Resource {
    Resource { group: "", plural, versions: &["v1"], kind, field_selector: None }
}

const fn gateway(plural: &'static str, kind: &'static str, versions: &'static [&'static str]) -> Resource {
    Resource { group: GATEWAY_GROUP, plural, versions, kind, field_selector: None }
}

impl Resource {
    pub(super) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// The path of the collection, in one namespace or in all.
    pub(super) fn path(&self, version: &str, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let version = self.api_version(version);
        match namespace {
            Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{version}/{}", self.plural),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{WATCHED, resource};
    use crate::api::Kind;

    #[test]
    fn a_watched_namespace_is_in_the_path() {
        let path = |kind, namespace| resource(kind).path("v1", namespace);
        assert_eq!(path(Kind::Secret, Some("team")), "/api/v1/namespaces/team/secrets");
        assert_eq!(
            path(Kind::HttpRoute, Some("team")),
            "/apis/gateway.networking.k8s.io/v1/namespaces/team/httproutes"
        );
        assert_eq!(path(Kind::EndpointSlice, None), "/apis/discovery.k8s.io/v1/endpointslices");
    }

    #[test]
    fn every_watched_kind_is_named_once() {
        for (index, kind) in WATCHED.iter().enumerate() {
            assert!(!WATCHED[..index].contains(kind), "{kind:?}");
            assert_eq!(resource(*kind).kind, kind.as_str());
        }
    }
}
