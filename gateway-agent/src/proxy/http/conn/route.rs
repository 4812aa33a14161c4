//! Where one request of the connection goes, and what is sent of its head.

use std::ops::Range;

use super::super::decision::{self, Decision, Routed, Target, Version};
use super::super::identity::Kept;
use super::super::mirror::Copy;
use super::super::redirect;
use super::super::table::Table;
use super::super::worker::Parts;
use super::Connection;
use crate::proxy::h1::encode;
use crate::proxy::h1::request::Asked;
use crate::proxy::message::Request;
use crate::snapshot::{BackendProtocol, Filters};

impl Connection<'_> {
    pub(super) fn route<'t>(&mut self, table: &'t Table, parts: &Parts, place: Range<usize>) -> Routed<'t> {
        let head = self.buffer.data().get(place).unwrap_or_default();
        let view = parts.request.view(head);
        let client = (self.client_address, self.server_name.as_deref());
        let routed = decision::route(table, client, parts.request.host(), (&view, Version::H1));
        if self.cells.is_none() {
            self.count_connection(table, routed.listener);
        }
        routed
    }

    /// Decides, and writes what is to be sent of the request's head while it is in the buffer.
    pub(super) fn decide<'t>(
        &self,
        routed: Routed<'t>,
        parts: &mut Parts,
        place: Range<usize>,
    ) -> Decision<'t> {
        parts.request_out.clear();
        parts.own_lines.clear();
        parts.copies.clear();
        parts.n_head = place.len();
        self.identify(routed, parts, place.clone());
        parts.record.routed(routed.listener.map(|listener| &listener.name), routed.rule.map(|rule| &**rule));
        if parts.request.asked == Asked::Server {
            return Decision::Answer(200);
        }
        if let (None, Some(cells)) = (routed.rule, &self.cells) {
            cells.unrouted.add(1);
        }
        if let Some(error) = routed.failure() {
            parts.record.failed(error);
        }
        let head = self.buffer.data().get(place).unwrap_or_default();
        let Parts { request, own_lines, .. } = &mut *parts;
        let decision = routed.decide(self.worker);
        let decision =
            decision.with_cors(&request.view(head), |name, value| encode::field(own_lines, name, value));
        match &decision {
            Decision::Answer(_) | Decision::Fail(..) => {}
            // For a server of another version everything is made of the message.
            Decision::Forward(target) if target.endpoints.protocol != BackendProtocol::Http1 => {}
            Decision::Forward(target) => self.prepare(target, parts, head),
            Decision::Redirect(redirect, filters) => {
                if let Some(listener) = routed.listener {
                    let request = (&parts.request, head);
                    let own_lines = &mut parts.own_lines;
                    redirect::lines(redirect, filters, listener, request, &self.local_text, own_lines);
                }
            }
        }
        decision
    }

    /// By what the request is known from here on.
    fn identify(&self, routed: Routed<'_>, parts: &mut Parts, place: Range<usize>) {
        let head = self.buffer.data().get(place).unwrap_or_default();
        let Parts { request, identity, record, own_lines, .. } = parts;
        identity.is_trusted = routed.is_trusted;
        identity.is_told = routed.tells_request_id();
        let mut ids = self.worker.ids.get();
        identity.set_request_id(request.values(head, "x-request-id"), &mut ids);
        self.worker.ids.set(ids);
        identity.forget_trace();
        if request.has_trace {
            let (parents, states) = (request.values(head, "traceparent"), request.values(head, "tracestate"));
            let kept = identity.set_trace(routed.keeps_trace(), parents, states);
            if kept != Kept::Whole {
                request.withhold(head, "tracestate");
            }
            if kept == Kept::Nothing {
                request.withhold(head, "traceparent");
            }
        }
        if identity.is_told {
            encode::field(own_lines, "X-Request-Id", identity.request_id().as_bytes());
        }
        record.known(identity);
    }

    fn prepare(&self, target: &Target<'_>, parts: &mut Parts, head: &[u8]) {
        let Parts { request, request_out, copies, identity, .. } = parts;
        let forwarded = target.forwarded(self.ends(), identity);
        let encode = |filters: &Filters, out: &mut Vec<u8>| {
            encode::request(request, head, forwarded, (&filters.rewrite, &filters.headers.request), out);
        };
        encode(target.filters, request_out);
        // A switch of protocols cannot be mirrored: what follows is no request.
        if request.upgrade.is_some() {
            return;
        }
        for (mirror, filters) in target.mirrors(self.worker) {
            copies.push(if mirror.endpoints.protocol == BackendProtocol::Http1 {
                let mut bytes = Vec::new();
                encode(filters, &mut bytes);
                let about = (request.method_kind, request.framing);
                Copy::encoded(mirror, target.certificate, bytes, about)
            } else {
                match Request::of_h1(request, head) {
                    Ok(message) => {
                        Copy::of_message(mirror, target.certificate, (&message, forwarded), filters)
                    }
                    Err(_) => Copy::none(mirror, request.method_kind),
                }
            });
        }
    }
}
