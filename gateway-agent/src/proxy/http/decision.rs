//! Where one request goes, by the newest snapshot. The same for every version of HTTP: over what routing reads of a
//! request, never over how it came.

use std::sync::Arc;

use super::error::{Kind, ProxyError};
use super::table::Table;
use super::worker::HttpWorker;
use crate::snapshot::{
    Backend, EndpointSet, HttpAction, HttpRule, HttpVirtualListener, MessageHeaders, Redirect, RequestView,
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
    pub(super) listener: Option<&'t Arc<HttpVirtualListener>>,
    pub(super) rule: Option<&'t Arc<HttpRule>>,
    is_misdirected: bool,
}

/// The listener and the rule for a request. `server_name`: of the handshake, where there was one.
pub(super) fn route<'t, R: RequestView>(
    table: &'t Table,
    server_name: Option<&str>,
    host: &str,
    view: &R,
) -> Routed<'t> {
    let routed = match table.listener(server_name, host) {
        Ok(listener) => {
            let rule = listener.and_then(|listener| listener.find(host, view));
            Routed { listener, rule, is_misdirected: false }
        }
        Err(_misdirected) => Routed { is_misdirected: true, ..Routed::default() },
    };
    let (method, path) = (view.method(), view.path());
    tracing::trace!(method, path, is_routed = routed.rule.is_some(), "request");
    routed
}

impl<'t> Routed<'t> {
    /// What is to be done. Takes the next share of the rule's backends.
    pub(super) fn decide(self, worker: &HttpWorker) -> Decision<'t> {
        let Some(rule) = self.rule else {
            let kind = if self.is_misdirected { Kind::Misdirected } else { Kind::NoRoute };
            return Decision::Answer(ProxyError::internal(kind).status().unwrap_or(404));
        };
        let split = match &rule.action {
            HttpAction::Forward(split) => split,
            HttpAction::Redirect(redirect) => return Decision::Redirect(redirect),
            HttpAction::Respond(status) => return Decision::Answer(*status),
        };
        let mut shares = worker.shares.get();
        let point = shares.next(split.total);
        worker.shares.set(shares);
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
}
