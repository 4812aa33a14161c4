//! Where the PROXY protocol is spoken. Its syntax is the proxy's.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

impl ProxyVersion {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

/// Who may say on whose behalf it connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySources(Arc<[IpNet]>);

impl ProxySources {
    pub fn new(nets: &[IpNet]) -> Self {
        Self(nets.into())
    }

    pub fn nets(&self) -> &[IpNet] {
        &self.0
    }

    /// `peer`: IPv4 in its own form.
    pub fn contains(&self, peer: IpAddr) -> bool {
        self.0.iter().any(|net| net.contains(&peer))
    }
}
