//! A request of HTTP/1 to a server that speaks another version.

use std::ops::Range;
use std::sync::Arc;

use super::super::deadline::Limit;
use super::super::decision::Target;
use super::super::error::{Kind, ProxyError};
use super::super::exchange::{self, Report};
use super::super::forward::{self, Job};
use super::super::h1_client::H1Client;
use super::super::record::Ends;
use super::super::tunnel::Moved;
use super::super::worker::Parts;
use super::{Connection, Next};
use crate::metrics::RouteCells;
use crate::proxy::message::{Request, fields};

impl Connection<'_> {
    /// The request as a value, while its head is in the buffer.
    pub(super) fn message(&self, parts: &Parts, place: Range<usize>) -> Result<Request, ProxyError> {
        let head = self.buffer.data().get(place).unwrap_or_default();
        let request = Request::of_h1(&parts.request, head);
        request.map_err(|error| ProxyError::downstream(Kind::Head(error)))
    }

    /// Sends the request on.
    pub(super) async fn cross(
        &mut self,
        target: &Target<'_>,
        request: &Request,
        parts: &mut Parts,
        cells: &Arc<RouteCells>,
    ) -> Next {
        let worker = self.worker.clone();
        let own = fields::lines(&parts.own_lines);
        let scheme = self.scheme().as_str();
        let ends = Ends { client: &self.client_text, local: &self.local_text, scheme };
        let forwarded = target.forwarded(ends, &parts.identity);
        let exchange = exchange::Client {
            stream: &mut self.client,
            buffer: &mut self.buffer,
            has_ended: &mut self.has_ended,
        };
        let shared = (&worker.buffers, &worker.clock);
        let mut client = H1Client::new(exchange, &parts.request, &mut parts.response_out, shared);
        let timer = &self.timer;
        timer.limit(Limit::Request, target.rule.timeouts.request);
        let trail = &parts.record.trail;
        let job = Job { worker: &worker, target, request, forwarded, own: &own, timer, cells, trail };
        let (end, crossed) = forward::send(&mut client, job).await;
        let report = Report {
            status: crossed.status,
            n_head_written: client.n_head_written(),
            moved: Moved {
                // Heads are counted where they are read.
                n_received: crossed.moved.n_received.saturating_sub(request.n_head() as u64),
                n_sent: crossed.moved.n_sent,
            },
            may_repeat: false,
            can_repeat: false,
            request_is_read: crossed.request_is_read,
            upstream_is_reusable: false,
            ends_by_close: client.ends_by_close(),
            persistence: client.persistence(),
        };
        drop(client);
        parts.record.grpc_answered(crossed.grpc_status.filter(|_| request.is_grpc));
        match end {
            Ok(()) => self.finish(report, parts, cells),
            // Interim heads were sent: the answer of the proxy follows them, and nothing after that.
            Err(error) => self.broken(error, report, parts, cells).await,
        }
    }
}
