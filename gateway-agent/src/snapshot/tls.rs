//! What TLS listeners serve, by the name in the ClientHello.

use std::sync::Arc;

use super::{HostTable, HttpTable, ListenerName, RouteName, Split};
use crate::certificate::Certificate;

/// Server name to listener. The most specific listener is chosen first and only its routes are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsTable {
    pub listeners: HostTable<Arc<TlsVirtualListener>>,
}

impl TlsTable {
    /// Every passthrough rule, in no particular order.
    pub fn passthrough_rules(&self) -> impl Iterator<Item = &Arc<TlsRule>> {
        let rules = self.listeners.values().filter_map(|listener| match &listener.mode {
            TlsMode::Passthrough(hosts) => Some(hosts.values()),
            TlsMode::Https { .. } => None,
        });
        rules.flatten()
    }

    /// Every HTTP table behind termination, in no particular order. Listeners may share theirs.
    pub fn http_tables(&self) -> impl Iterator<Item = &Arc<HttpTable>> {
        self.listeners.values().filter_map(|listener| match &listener.mode {
            TlsMode::Passthrough(_) => None,
            TlsMode::Https { http, .. } => Some(http),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsVirtualListener {
    pub name: ListenerName,
    pub mode: TlsMode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Connections pass unopened, each to the backends of the route of its name.
    Passthrough(HostTable<Arc<TlsRule>>),
    /// TLS ends here, and what it carries is routed as on a cleartext listener.
    Https {
        /// In the order of the listener; the first serves where no other has the name. Empty: connections are closed.
        certificates: Arc<[Arc<Certificate>]>,
        http: Arc<HttpTable>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsRule {
    pub route: RouteName,
    pub split: Split,
}
