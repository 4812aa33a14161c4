//! Which listeners cannot share a port.

use std::collections::HashMap;

use super::conditions::Problem;
use super::hostname::Pattern;
use super::listener::ListenerPlan;
use crate::snapshot::Transport;
use crate::status::names::reason;
use crate::store::objects::{ListenerProtocol, ListenerSpec};

pub(super) const fn transport(protocol: &ListenerProtocol) -> Option<Transport> {
    match protocol {
        ListenerProtocol::Http
        | ListenerProtocol::Https
        | ListenerProtocol::TlsPassthrough
        | ListenerProtocol::TlsTerminate
        | ListenerProtocol::Tcp => Some(Transport::Tcp),
        ListenerProtocol::Udp => Some(Transport::Udp),
        ListenerProtocol::Other(_) => None,
    }
}

/// Whether listeners of both protocols can be told apart on one port, if only by hostname.
fn can_share(one: &ListenerProtocol, other: &ListenerProtocol) -> bool {
    // By the server name, whoever ends TLS then.
    one == other || (one.is_tls() && other.is_tls())
}

/// The reason why two listeners cannot both be served on one port of one address (`Listeners` in `gateway_types.go`):
/// HTTP, HTTPS and TLS are told apart by port or hostname, TCP and UDP by port alone.
fn clash(one: &ListenerSpec, other: &ListenerSpec) -> Option<&'static str> {
    if !can_share(&one.protocol, &other.protocol) {
        Some(reason::PROTOCOL_CONFLICT)
    } else if one.hostname == other.hostname {
        Some(reason::HOSTNAME_CONFLICT)
    } else {
        None
    }
}

/// The listeners that have one port of one address, by position.
#[derive(Debug, Default)]
pub(super) struct Holders {
    by_hostname: HashMap<Pattern, usize>,
    /// One of each protocol.
    protocols: Vec<(ListenerProtocol, usize)>,
}

impl Holders {
    pub(super) fn add(&mut self, spec: &ListenerSpec, index: usize) {
        self.by_hostname.insert(spec.hostname.clone(), index);
        if !self.protocols.iter().any(|(protocol, _)| *protocol == spec.protocol) {
            self.protocols.push((spec.protocol.clone(), index));
        }
    }

    /// One of them.
    pub(super) fn any(&self) -> Option<usize> {
        self.protocols.first().map(|(_, index)| *index)
    }

    /// Why `spec` cannot be one of them, and with whom it clashes.
    pub(super) fn clash(&self, spec: &ListenerSpec) -> Option<(&'static str, usize)> {
        let rival = self.protocols.iter().find(|(protocol, _)| !can_share(protocol, &spec.protocol));
        let rival = rival.map(|(_, index)| (reason::PROTOCOL_CONFLICT, *index));
        rival.or_else(|| Some((reason::HOSTNAME_CONFLICT, *self.by_hostname.get(&spec.hostname)?)))
    }
}

/// Within one Gateway no one wins.
pub(super) fn set_inner_conflicts(listeners: &mut [ListenerPlan]) {
    let conflicts: Vec<Option<Problem>> = listeners
        .iter()
        .map(|listener| {
            let place = (transport(&listener.spec.protocol)?, listener.spec.port?);
            let mut others = listeners.iter().filter(|other| {
                !std::ptr::eq(*other, listener)
                    && transport(&other.spec.protocol).zip(other.spec.port) == Some(place)
            });
            others.find_map(|other| {
                let reason = clash(&listener.spec, &other.spec)?;
                Some(Problem::new(reason, message(reason, &other.name.section)))
            })
        })
        .collect();
    for (listener, conflict) in listeners.iter_mut().zip(conflicts) {
        listener.conflict = conflict;
    }
}

pub(super) fn message(reason: &str, other: &str) -> String {
    if reason == reason::PROTOCOL_CONFLICT {
        format!("the protocol cannot share the port with that of listener {other}")
    } else {
        format!("listener {other} has the same port, protocol and hostname")
    }
}
