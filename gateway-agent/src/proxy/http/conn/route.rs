//! Where one request of the connection goes, and what is sent of its head.

use std::ops::Range;

use super::super::decision::{self, Decision, Routed, Target, Version};
use super::super::mirror::Copy;
use super::super::redirect;
use super::super::table::Table;
use super::super::worker::Parts;
use super::Connection;
use crate::proxy::h1::encode::{self, Forwarded};
use crate::proxy::h1::request::Asked;
use crate::snapshot::{Filters, Scheme};

impl Connection<'_> {
    pub(super) fn route<'t>(&mut self, table: &'t Table, parts: &Parts, place: Range<usize>) -> Routed<'t> {
        let head = self.buffer.data().get(place).unwrap_or_default();
        let view = parts.request.view(head);
        let routed =
            decision::route(table, self.server_name.as_deref(), parts.request.host(), (&view, Version::H1));
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
        if parts.request.asked == Asked::Server {
            return Decision::Answer(200);
        }
        if let (None, Some(cells)) = (routed.rule, &self.cells) {
            cells.unrouted.add(1);
        }
        let head = self.buffer.data().get(place).unwrap_or_default();
        let Parts { request, own_lines, .. } = &mut *parts;
        let decision = routed.decide(self.worker);
        let decision =
            decision.with_cors(&request.view(head), |name, value| encode::field(own_lines, name, value));
        match &decision {
            Decision::Answer(_) | Decision::Fail(..) => {}
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

    fn prepare(&self, target: &Target<'_>, parts: &mut Parts, head: &[u8]) {
        let Parts { request, request_out, copies, .. } = parts;
        let scheme = if self.server_name.is_some() { Scheme::Https } else { Scheme::Http };
        let forwarded =
            Forwarded { client: &self.client_text, proto: scheme.as_str(), local: &self.local_text };
        let encode = |filters: &Filters, out: &mut Vec<u8>| {
            encode::request(request, head, forwarded, (&filters.rewrite, &filters.headers.request), out);
        };
        encode(target.filters, request_out);
        // A switch of protocols cannot be mirrored: what follows is no request.
        if request.upgrade.is_some() {
            return;
        }
        for (mirror, filters) in target.mirrors(self.worker) {
            let mut bytes = Vec::new();
            encode(filters, &mut bytes);
            let endpoints = mirror.endpoints.clone();
            let certificate = target.certificate.cloned();
            copies.push(Copy { endpoints, certificate, bytes, method: request.method_kind });
        }
    }
}
