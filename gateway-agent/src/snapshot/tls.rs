//! What TLS listeners serve, by the name in the ClientHello; and how backends are spoken to by TLS.

use std::sync::Arc;

use super::{HostTable, HttpTable, ListenerName, RouteName, Split};
use crate::certificate::{Authorities, Certificate};

/// Server name to listener. The most specific listener is chosen first and only its routes are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsTable {
    pub listeners: HostTable<Arc<TlsVirtualListener>>,
}

impl TlsTable {
    /// Every rule of TLSRoutes, in no particular order.
    pub fn rules(&self) -> impl Iterator<Item = &Arc<TlsRule>> {
        self.listeners.values().filter_map(|listener| listener.mode.hosts()).flat_map(HostTable::values)
    }

    /// Every HTTP table behind termination, in no particular order. Listeners may share theirs.
    pub fn http_tables(&self) -> impl Iterator<Item = &Arc<HttpTable>> {
        self.listeners.values().filter_map(|listener| match &listener.mode {
            TlsMode::Passthrough(_) | TlsMode::Terminate { .. } => None,
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
    Https { terms: TlsTerms, http: Arc<HttpTable> },
    /// TLS ends here, and what it carries goes on as it is, to the backends of the route of its name.
    Terminate {
        terms: TlsTerms,
        hosts: HostTable<Arc<TlsRule>>,
        /// Of the Gateway, shown to backends that are spoken to by TLS.
        client_certificate: Option<Arc<Certificate>>,
    },
}

impl TlsMode {
    /// Where TLS ends here: on which terms.
    pub const fn terms(&self) -> Option<&TlsTerms> {
        match self {
            Self::Passthrough(_) => None,
            Self::Https { terms, .. } | Self::Terminate { terms, .. } => Some(terms),
        }
    }

    /// The TLSRoutes.
    pub const fn hosts(&self) -> Option<&HostTable<Arc<TlsRule>>> {
        match self {
            Self::Passthrough(hosts) | Self::Terminate { hosts, .. } => Some(hosts),
            Self::Https { .. } => None,
        }
    }
}

/// What a listener that ends TLS shows to clients and asks of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TlsTerms {
    /// In the order of the listener; the first serves where no other has the name. Empty: connections are closed.
    pub certificates: Arc<[Arc<Certificate>]>,
    /// Absent: clients are not asked for certificates.
    pub clients: Option<Arc<ClientTrust>>,
}

/// Which clients' certificates are valid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientTrust {
    pub authorities: Arc<Authorities>,
    /// Clients without a valid certificate come in too.
    pub allows_insecure_fallback: bool,
}

/// How the endpoints of a Service port are spoken to, by those who speak to them: not where bytes pass through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BackendSecurity {
    #[default]
    Cleartext,
    Tls(Arc<BackendTls>),
    /// A policy wants TLS and cannot be followed: nothing may be sent.
    Refused,
}

/// TLS towards backends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackendTls {
    /// What backends are asked for.
    pub server_name: Arc<str>,
    /// A backend's certificate has to be for one of these; empty: for `server_name`.
    pub names: Arc<[SubjectName]>,
    pub authorities: Arc<Authorities>,
}

/// A subject alternative name of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SubjectName {
    /// In lower case; perhaps with a wildcard as its first label.
    Hostname(Arc<str>),
    Uri(Arc<str>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsRule {
    pub route: RouteName,
    pub split: Split,
}
