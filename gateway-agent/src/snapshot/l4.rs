//! TCP and UDP services: consistent hashing over weighted endpoints.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{ProxyVersion, RouteName};

/// What a TCP or UDP listener leads to. Clients of one address family get that family's table: endpoints of their own
/// family where the Service has any, else those of the other, which only the userspace relay can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct L4Service {
    /// Absent while no route is attached.
    pub route: Option<RouteName>,
    pub v4: Arc<Maglev>,
    pub v6: Arc<Maglev>,
    /// The endpoints that are told of their clients by the PROXY protocol, in order.
    pub announced: Arc<[(SocketAddr, ProxyVersion)]>,
}

impl L4Service {
    /// How an endpoint is told of a client.
    pub fn proxy_version(&self, target: SocketAddr) -> Option<ProxyVersion> {
        let index = self.announced.binary_search_by_key(&target, |(address, _)| *address).ok()?;
        self.announced.get(index).map(|(_, version)| *version)
    }
}

/// A Maglev table (Eisenbud et al., NSDI 2016). Empty `slots`: nothing can serve, the client is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maglev {
    /// Index into `targets`; the length is a prime of `gateway_common::maglev::SIZES`.
    pub slots: Arc<[u16]>,
    /// `None`: the share of an invalid backend or one without endpoints, refused.
    pub targets: Arc<[Option<SocketAddr>]>,
}

impl Maglev {
    /// The target for a flow with this hash (`gateway_common::hash::flow`); `None`: refuse.
    pub fn pick(&self, flow_hash: u32) -> Option<SocketAddr> {
        if self.slots.is_empty() {
            return None;
        }
        let slot = self.slots.get(flow_hash as usize % self.slots.len())?;
        *self.targets.get(usize::from(*slot))?
    }
}
