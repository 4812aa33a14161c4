//! Where one request goes, by the newest snapshot.

use std::ops::Range;
use std::sync::Arc;

use super::super::error::{Kind, ProxyError};
use super::super::redirect;
use super::super::table::Table;
use super::super::worker::Parts;
use super::Connection;
use crate::proxy::h1::encode::{self, Forwarded};
use crate::proxy::h1::request::Asked;
use crate::snapshot::{
    Backend, EndpointSet, HttpAction, HttpRule, HttpVirtualListener, MessageHeaders, Redirect,
    RequestView as _, Scheme,
};

/// Where a request goes. Borrows from the table, which is held to the request's end.
pub(super) enum Decision<'t> {
    Answer(u16),
    Fail(ProxyError),
    Forward(&'t EndpointSet, &'t MessageHeaders),
    Redirect(&'t Redirect),
}

/// What the table says of a request.
#[derive(Clone, Copy, Default)]
pub(super) struct Routed<'t> {
    listener: Option<&'t Arc<HttpVirtualListener>>,
    pub(super) rule: Option<&'t Arc<HttpRule>>,
    is_misdirected: bool,
}

impl Connection<'_> {
    pub(super) fn route<'t>(&mut self, table: &'t Table, parts: &Parts, place: Range<usize>) -> Routed<'t> {
        let head = self.buffer.data().get(place).unwrap_or_default();
        let view = parts.request.view(head);
        let host = parts.request.host();
        let routed = match table.listener(self.server_name.as_deref(), host) {
            Ok(listener) => {
                let rule = listener.and_then(|listener| listener.find(host, &view));
                Routed { listener, rule, is_misdirected: false }
            }
            Err(_misdirected) => Routed { is_misdirected: true, ..Routed::default() },
        };
        tracing::trace!(
            method = view.method(),
            path = view.path(),
            is_routed = routed.rule.is_some(),
            "request"
        );
        if self.cells.is_none() {
            self.count_connection(table, routed.listener);
        }
        routed
    }

    pub(super) fn decide<'t>(&self, routed: Routed<'t>, parts: &Parts) -> Decision<'t> {
        if parts.request.asked == Asked::Server {
            return Decision::Answer(200);
        }
        let Some(rule) = routed.rule else {
            if let Some(cells) = &self.cells {
                cells.unrouted.add(1);
            }
            let kind = if routed.is_misdirected { Kind::Misdirected } else { Kind::NoRoute };
            return Decision::Answer(ProxyError::internal(kind).status().unwrap_or(404));
        };
        let split = match &rule.action {
            HttpAction::Forward(split) => split,
            HttpAction::Redirect(redirect) => return Decision::Redirect(redirect),
            HttpAction::Respond(status) => return Decision::Answer(*status),
        };
        let mut shares = self.worker.shares.get();
        let point = shares.next(split.total);
        self.worker.shares.set(shares);
        let Some(share) = split.pick(point) else {
            return Decision::Fail(ProxyError::internal(Kind::InvalidBackend));
        };
        match &share.backend {
            Backend::Endpoints(set) if set.addresses.is_empty() => {
                Decision::Fail(ProxyError::internal(Kind::NoEndpoint))
            }
            Backend::Endpoints(set) => {
                Decision::Forward(set, share.headers.as_deref().unwrap_or(&rule.headers))
            }
            Backend::Invalid => Decision::Fail(ProxyError::internal(Kind::InvalidBackend)),
        }
    }

    /// Writes what is to be sent of the request's head, while it is in the buffer.
    pub(super) fn prepare(
        &self,
        decision: &Decision<'_>,
        routed: Routed<'_>,
        parts: &mut Parts,
        place: Range<usize>,
    ) {
        parts.request_out.clear();
        parts.own_lines.clear();
        parts.n_head = place.len();
        let head = self.buffer.data().get(place).unwrap_or_default();
        match decision {
            Decision::Answer(_) | Decision::Fail(_) => {}
            Decision::Forward(_, headers) => {
                let scheme = if self.server_name.is_some() { Scheme::Https } else { Scheme::Http };
                let forwarded =
                    Forwarded { client: &self.client_text, proto: scheme.as_str(), local: &self.local_text };
                encode::request(&parts.request, head, forwarded, &headers.request, &mut parts.request_out);
            }
            Decision::Redirect(redirect) => {
                let (Some(listener), Some(rule)) = (routed.listener, routed.rule) else { return };
                let request = (&parts.request, head);
                let changes = &rule.headers.response;
                redirect::lines(redirect, changes, listener, request, &self.local_text, &mut parts.own_lines);
            }
        }
    }
}
