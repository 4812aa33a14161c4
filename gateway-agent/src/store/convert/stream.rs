//! TLSRoute, TCPRoute, UDPRoute.

use super::{backend_ref, hostnames, meta, parent_refs};
use crate::api::{TcpRoute, TlsRoute, UdpRoute};
use crate::snapshot::ObjectName;
use crate::store::objects::StreamRoute;

/// The schema allows one rule; the backends of further ones would otherwise be lost without a word.
macro_rules! backends {
    ($rules:expr) => {
        $rules.iter().flat_map(|rule| &rule.backend_refs).map(|backend| backend_ref!(backend)).collect()
    };
}

pub(in crate::store) fn tls_route(route: &TlsRoute, name: &ObjectName, order: u64) -> StreamRoute {
    StreamRoute {
        meta: meta(name, &route.metadata, order),
        parents: parent_refs!(route.spec.parent_refs),
        hostnames: hostnames(&route.spec.hostnames),
        backends: backends!(route.spec.rules),
    }
}

pub(in crate::store) fn tcp_route(route: &TcpRoute, name: &ObjectName, order: u64) -> StreamRoute {
    StreamRoute {
        meta: meta(name, &route.metadata, order),
        parents: parent_refs!(route.spec.parent_refs),
        hostnames: Vec::new(),
        backends: backends!(route.spec.rules),
    }
}

pub(in crate::store) fn udp_route(route: &UdpRoute, name: &ObjectName, order: u64) -> StreamRoute {
    StreamRoute {
        meta: meta(name, &route.metadata, order),
        parents: parent_refs!(route.spec.parent_refs),
        hostnames: Vec::new(),
        backends: backends!(route.spec.rules),
    }
}
