//! Condition types and reasons, as the spec spells them (constants in `apis/v1/*_types.go`).

/// Condition types.
pub mod kind {
    pub const ACCEPTED: &str = "Accepted";
    pub const CONFLICTED: &str = "Conflicted";
    pub const INSECURE_FRONTEND_VALIDATION_MODE: &str = "InsecureFrontendValidationMode";
    pub const OVERLAPPING_TLS_CONFIG: &str = "OverlappingTLSConfig";
    pub const PARTIALLY_INVALID: &str = "PartiallyInvalid";
    pub const PROGRAMMED: &str = "Programmed";
    pub const RESOLVED_REFS: &str = "ResolvedRefs";

    /// The order in which conditions are shown.
    pub const ORDER: [&str; 7] = [
        ACCEPTED,
        PROGRAMMED,
        RESOLVED_REFS,
        CONFLICTED,
        PARTIALLY_INVALID,
        OVERLAPPING_TLS_CONFIG,
        INSECURE_FRONTEND_VALIDATION_MODE,
    ];

    /// Whether the condition says by being true that something is wrong.
    pub fn is_negative(kind: &str) -> bool {
        matches!(
            kind,
            CONFLICTED | PARTIALLY_INVALID | OVERLAPPING_TLS_CONFIG | INSECURE_FRONTEND_VALIDATION_MODE
        )
    }
}

/// Reasons.
pub mod reason {
    pub const ACCEPTED: &str = "Accepted";
    pub const ADDRESS_NOT_ASSIGNED: &str = "AddressNotAssigned";
    pub const ADDRESS_NOT_USABLE: &str = "AddressNotUsable";
    pub const BACKEND_NOT_FOUND: &str = "BackendNotFound";
    pub const CONFIGURATION_CHANGED: &str = "ConfigurationChanged";
    pub const CONFLICTED: &str = "Conflicted";
    pub const HOSTNAME_CONFLICT: &str = "HostnameConflict";
    pub const INCOMPATIBLE_FILTERS: &str = "IncompatibleFilters";
    pub const INVALID: &str = "Invalid";
    pub const INVALID_CA_CERTIFICATE_KIND: &str = "InvalidCACertificateKind";
    pub const INVALID_CA_CERTIFICATE_REF: &str = "InvalidCACertificateRef";
    pub const INVALID_CERTIFICATE_REF: &str = "InvalidCertificateRef";
    pub const INVALID_CLIENT_CERTIFICATE_REF: &str = "InvalidClientCertificateRef";
    pub const INVALID_KIND: &str = "InvalidKind";
    pub const INVALID_PARAMETERS: &str = "InvalidParameters";
    pub const INVALID_ROUTE_KINDS: &str = "InvalidRouteKinds";
    pub const LISTENERS_NOT_VALID: &str = "ListenersNotValid";
    pub const NO_CONFLICTS: &str = "NoConflicts";
    pub const NO_MATCHING_LISTENER_HOSTNAME: &str = "NoMatchingListenerHostname";
    pub const NO_MATCHING_PARENT: &str = "NoMatchingParent";
    pub const NO_VALID_CA_CERTIFICATE: &str = "NoValidCACertificate";
    pub const NOT_ALLOWED: &str = "NotAllowed";
    pub const NOT_ALLOWED_BY_LISTENERS: &str = "NotAllowedByListeners";
    pub const OVERLAPPING_CERTIFICATES: &str = "OverlappingCertificates";
    pub const OVERLAPPING_HOSTNAMES: &str = "OverlappingHostnames";
    pub const PARENT_NOT_ACCEPTED: &str = "ParentNotAccepted";
    pub const PARENT_NOT_PROGRAMMED: &str = "ParentNotProgrammed";
    pub const PENDING: &str = "Pending";
    pub const PORT_UNAVAILABLE: &str = "PortUnavailable";
    pub const PROGRAMMED: &str = "Programmed";
    pub const PROTOCOL_CONFLICT: &str = "ProtocolConflict";
    pub const REF_NOT_PERMITTED: &str = "RefNotPermitted";
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    pub const TARGET_NOT_FOUND: &str = "TargetNotFound";
    pub const UNSUPPORTED_ADDRESS: &str = "UnsupportedAddress";
    pub const UNSUPPORTED_PROTOCOL: &str = "UnsupportedProtocol";
    pub const UNSUPPORTED_VALUE: &str = "UnsupportedValue";
}
