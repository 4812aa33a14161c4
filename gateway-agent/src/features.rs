//! Which features of the Gateway API v1.7.0 the agent supports: the one list, from which `gateway-agent features`, the
//! scope ConfigMap, the class acknowledger and the conformance runs take theirs.
//!
//! A feature belongs in the list when the agent does all that the Gateway API says of it, `pkg/features` of which names
//! them; the conformance runs hold the list to that (`cargo xtask conformance`). Mesh features do not belong to a GatewayClass.

/// In ascending order, as `GatewayClass.status.supportedFeatures` has to be.
pub const SUPPORTED: &[&str] = &[
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "GRPCRouteRequestHeaderModifier",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayInfrastructure",
    "GatewayPort8080",
    "GatewayRouteHostnameIntersectionPrecedence",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteBackendURLRewrite",
    "HTTPRouteCORS",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetryCodes",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

/// `maxItems` of `GatewayClass.status.supportedFeatures`.
pub const MAX_SUPPORTED: usize = 64;

const _: () = assert!(SUPPORTED.len() <= MAX_SUPPORTED, "a class cannot list more features");

#[cfg(test)]
mod tests {
    use super::SUPPORTED;

    #[test]
    fn features_are_in_order_and_none_twice() {
        assert!(SUPPORTED.is_sorted_by(|one, next| one < next));
    }
}
