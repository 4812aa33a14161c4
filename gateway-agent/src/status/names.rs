//! Condition types and reasons, as the spec spells them (constants in `apis/v1/*_types.go`).

/// Condition types.
pub mod kind {
    pub const ACCEPTED: &str = "Accepted";
    pub const CONFLICTED: &str = "Conflicted";
    pub const PARTIALLY_INVALID: &str = "PartiallyInvalid";
    pub const PROGRAMMED: &str = "Programmed";
    pub const RESOLVED_REFS: &str = "ResolvedRefs";

    /// The order in which conditions are shown.
    pub const ORDER: [&str; 5] = [ACCEPTED, PROGRAMMED, RESOLVED_REFS, CONFLICTED, PARTIALLY_INVALID];
}

/// Reasons.
pub mod reason {
    pub const ACCEPTED: &str = "Accepted";
    pub const ADDRESS_NOT_ASSIGNED: &str = "AddressNotAssigned";
    pub const ADDRESS_NOT_USABLE: &str = "AddressNotUsable";
    pub const BACKEND_NOT_FOUND: &str = "BackendNotFound";
    pub const HOSTNAME_CONFLICT: &str = "HostnameConflict";
    pub const INVALID: &str = "Invalid";
    pub const INVALID_KIND: &str = "InvalidKind";
    pub const INVALID_PARAMETERS: &str = "InvalidParameters";
    pub const INVALID_ROUTE_KINDS: &str = "InvalidRouteKinds";
    pub const LISTENERS_NOT_VALID: &str = "ListenersNotValid";
    pub const NO_CONFLICTS: &str = "NoConflicts";
    pub const NO_MATCHING_LISTENER_HOSTNAME: &str = "NoMatchingListenerHostname";
    pub const NO_MATCHING_PARENT: &str = "NoMatchingParent";
    pub const NOT_ALLOWED_BY_LISTENERS: &str = "NotAllowedByListeners";
    pub const PENDING: &str = "Pending";
    pub const PORT_UNAVAILABLE: &str = "PortUnavailable";
    pub const PROGRAMMED: &str = "Programmed";
    pub const PROTOCOL_CONFLICT: &str = "ProtocolConflict";
    pub const REF_NOT_PERMITTED: &str = "RefNotPermitted";
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    pub const UNSUPPORTED_ADDRESS: &str = "UnsupportedAddress";
    pub const UNSUPPORTED_PROTOCOL: &str = "UnsupportedProtocol";
    pub const UNSUPPORTED_VALUE: &str = "UnsupportedValue";
}
