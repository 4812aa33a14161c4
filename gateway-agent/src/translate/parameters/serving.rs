//! Keys that say how a Gateway's listeners serve, whoever gives it its addresses.

use std::num::NonZeroU16;
use std::sync::Arc;

use super::{Parameter, has_duplicates, items, prefix};
use crate::snapshot::{ProxySources, Transport};
use crate::store::objects::ListenerSpec;
use crate::translate::conflict::transport;

/// What they say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::translate) struct Serving {
    /// Where connections begin with a header of the PROXY protocol.
    proxy_ports: Vec<NonZeroU16>,
    /// Of whom it is believed.
    proxy_sources: Option<ProxySources>,
}

pub(super) const SERVING: &[Parameter<Serving>] = &[
    Parameter {
        key: "proxyProtocolPorts",
        values: "ports such as `80, 443`",
        default: "none",
        does: "the ports of listeners, UDP excepted, at which every connection has to begin with a header of the PROXY protocol, \
               version 1 or 2: the address in it is the client's. Needs `proxyProtocolSources`",
        read: |serving, value| {
            serving.proxy_ports = items(value, |item| {
                item.parse::<NonZeroU16>().map_err(|_not_one| format!("{item:?} is no port"))
            })?;
            if has_duplicates(&serving.proxy_ports) { Err("each port once".into()) } else { Ok(()) }
        },
    },
    Parameter {
        key: "proxyProtocolSources",
        values: "prefixes such as `192.0.2.0/24, 2001:db8::/32`",
        default: "none",
        does: "who is believed there: the load balancer, by the address that it connects from. Connections of others are refused",
        read: |serving, value| {
            serving.proxy_sources = Some(ProxySources::new(&items(value, prefix)?));
            Ok(())
        },
    },
];

impl Serving {
    /// Whose headers are believed at a TCP port; absent where there is to be none.
    pub(in crate::translate) fn proxy_sources(&self, port: NonZeroU16) -> Option<ProxySources> {
        self.proxy_sources.clone().filter(|_| self.proxy_ports.contains(&port))
    }

    /// Whether the keys that need each other are there.
    pub(super) fn is_whole(&self) -> Result<(), String> {
        match (self.proxy_ports.is_empty(), self.proxy_sources.is_none()) {
            (false, true) => Err("key proxyProtocolPorts needs proxyProtocolSources: whom to believe".into()),
            (true, false) => Err("key proxyProtocolSources needs proxyProtocolPorts: where".into()),
            _ => Ok(()),
        }
    }

    /// Whether the Gateway's own listeners can do what is asked.
    pub(super) fn fits(&self, listeners: &[Arc<ListenerSpec>]) -> Result<(), String> {
        for port in &self.proxy_ports {
            let here = listeners.iter().filter(|listener| listener.port == Some(*port));
            let mut transports = here.filter_map(|listener| transport(&listener.protocol)).peekable();
            if transports.peek().is_some() && transports.all(|transport| transport == Transport::Udp) {
                return Err(format!(
                    "key proxyProtocolPorts: port {port} is of a UDP listener, which has no connections that could \
                     begin with a header"
                ));
            }
        }
        Ok(())
    }
}
