//! Where one request of the connection goes, and what is sent of its head.

use std::ops::Range;

use super::super::decision::{self, Decision, Routed};
use super::super::redirect;
use super::super::table::Table;
use super::super::worker::Parts;
use super::Connection;
use crate::proxy::h1::encode::{self, Forwarded};
use crate::proxy::h1::request::Asked;
use crate::snapshot::Scheme;

impl Connection<'_> {
    pub(super) fn route<'t>(&mut self, table: &'t Table, parts: &Parts, place: Range<usize>) -> Routed<'t> {
        let head = self.buffer.data().get(place).unwrap_or_default();
        let view = parts.request.view(head);
        let routed = decision::route(table, self.server_name.as_deref(), parts.request.host(), &view);
        if self.cells.is_none() {
            self.count_connection(table, routed.listener);
        }
        routed
    }

    pub(super) fn decide<'t>(&self, routed: Routed<'t>, parts: &Parts) -> Decision<'t> {
        if parts.request.asked == Asked::Server {
            return Decision::Answer(200);
        }
        if let (None, Some(cells)) = (routed.rule, &self.cells) {
            cells.unrouted.add(1);
        }
        routed.decide(self.worker)
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
