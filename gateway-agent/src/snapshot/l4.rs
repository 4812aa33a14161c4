//! TCP and UDP services: consistent hashing over weighted endpoints.

use std::net::SocketAddr;
use std::sync::Arc;

use super::RouteName;

/// What a TCP or UDP listener leads to. Clients of one address family get that family's table: endpoints of their own
/// family where the Service has any, else those of the other, which only the userspace relay can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct L4Service {
    /// Absent while no route is attached.
    pub route: Option<RouteName>,
    pub v4: Arc<Maglev>,
    pub v6: Arc<Maglev>,
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
