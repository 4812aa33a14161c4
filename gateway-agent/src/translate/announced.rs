//! What a Service's annotation says of the PROXY protocol towards its endpoints.
//!
//! `v1` or `v2` is for every TCP port; `https=v2, 25=v1` is for ports by their names or numbers. Who offers the Service
//! knows what its servers expect, and one that does not expect a header breaks by it: so the word is with the Service.

use crate::snapshot::{ProxyVersion, RouteKind, Transport};
use crate::store::objects::{Service, ServicePort};

/// For a route of this kind that leads to this port, or why it cannot be had.
pub(super) fn proxy_version(
    route: RouteKind,
    service: &Service,
    port: &ServicePort,
) -> Result<Option<ProxyVersion>, String> {
    let Some(text) = &service.proxy_protocol else { return Ok(None) };
    let version = match version(text.trim()) {
        Some(every) => (port.transport == Some(Transport::Tcp)).then_some(every),
        None => of_port(text, service, port)?,
    };
    match route {
        RouteKind::Http | RouteKind::Grpc if version.is_some() => {
            Err("HTTP connections to backends are of many clients, of whom header fields tell; only TCPRoutes and \
                 TLSRoutes can lead there"
                .into())
        }
        _ => Ok(version),
    }
}

fn version(text: &str) -> Option<ProxyVersion> {
    [ProxyVersion::V1, ProxyVersion::V2].into_iter().find(|version| version.as_str() == text)
}

/// Every item has to be right, also those of other ports: a slip must not leave a port without what it expects.
fn of_port(text: &str, service: &Service, port: &ServicePort) -> Result<Option<ProxyVersion>, String> {
    let mut found = None;
    let mut items = text.split([',', ' ', '\t', '\n']).filter(|item| !item.is_empty()).peekable();
    if items.peek().is_none() {
        return Err("it is empty; v1, v2, or items of PORT=v1 and PORT=v2 can be said".into());
    }
    for item in items {
        let (name, version) = item
            .split_once('=')
            .and_then(|(name, text)| Some((name, version(text)?)))
            .ok_or_else(|| format!("{item:?} is neither v1 nor v2, nor PORT=v1 or PORT=v2"))?;
        let named = |candidate: &&ServicePort| {
            !name.is_empty() && (*candidate.name == *name || candidate.port.to_string() == name)
        };
        let mut ports = service.ports.iter().filter(named).peekable();
        if ports.peek().is_none() {
            return Err(format!("{item:?}: the Service has no port {name}"));
        }
        // TCP and UDP may have the same number.
        let mut ports = ports.filter(|named| named.transport == Some(Transport::Tcp)).peekable();
        if ports.peek().is_none() {
            return Err(format!("{item:?}: port {name} is not of TCP"));
        }
        if ports.any(|named| named == port) && found.replace(version).is_some() {
            return Err(format!("{item:?}: port {name} is there twice"));
        }
    }
    Ok(found)
}
