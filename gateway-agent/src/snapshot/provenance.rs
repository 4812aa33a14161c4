//! What is believed and said of where a request comes from.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

/// Of one Gateway. The default believes nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// Clients, mostly load balancers and other proxies, whose word on where a request comes from is believed.
    pub trusted: Arc<[IpNet]>,
    pub style: ForwardedStyle,
    /// The trace context of every client is passed on, not of trusted ones alone.
    pub keeps_all_traces: bool,
    /// Answers tell the id of their request.
    pub tells_request_id: bool,
}

/// The header fields that tell servers who has asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedStyle {
    Both,
    /// RFC 7239.
    Forwarded,
    None,
    /// `X-Forwarded-For`, `-Proto`, `-Host` and `-Port`.
    #[default]
    XForwarded,
}

impl Provenance {
    pub fn trusts(&self, client: IpAddr) -> bool {
        self.trusted.iter().any(|net| net.contains(&client))
    }
}

impl ForwardedStyle {
    pub const fn has_forwarded(self) -> bool {
        matches!(self, Self::Both | Self::Forwarded)
    }

    pub const fn has_x_forwarded(self) -> bool {
        matches!(self, Self::Both | Self::XForwarded)
    }
}
