//! One request of HTTP/2: routed by the newest snapshot, sent on, answered.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};

use super::super::clock::Timer;
use super::super::deadline::Limit;
use super::super::decision::{self, Decision, Target, Version};
use super::super::error::{Kind, ProxyError};
use super::super::forward::{self, Job};
use super::super::redirect::{self, Asked as Original};
use super::client::H2Client;
use super::connection::Shared;
use crate::metrics::RouteCells;
use crate::proxy::h1::encode::Forwarded;
use crate::proxy::h1::request::{Asked, MethodKind};
use crate::proxy::message::{Request, grpc};
use crate::snapshot::{Filters, RequestView as _, Scheme};

/// How a stream ended, for the connection's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The client has not waited for the answer.
    Cancelled,
    Served,
}

pub(super) struct Stream {
    pub(super) client: H2Client,
    pub(super) shared: Rc<Shared>,
    pub(super) timer: Timer,
    /// In gRPC's way answers are given.
    pub(super) is_grpc: bool,
    pub(super) is_head: bool,
    /// Of the request's head.
    pub(super) n_head: usize,
    /// Fields of any answer that the proxy says itself.
    pub(super) own: HeaderMap,
}

/// Serves one stream to its end. Dropping the future resets it.
pub(super) async fn serve(
    request: http::Request<RecvStream>,
    respond: SendResponse<Bytes>,
    shared: Rc<Shared>,
) -> Ended {
    let (head, body) = request.into_parts();
    let has_ended = body.is_end_stream();
    let timer = shared.about.worker.clock.timer();
    let client = H2Client::new(body, respond);
    let mut stream =
        Stream { client, shared, timer, is_grpc: false, is_head: false, n_head: 0, own: HeaderMap::new() };
    match Request::of_h2(head, has_ended) {
        Ok(request) => {
            stream.is_grpc = request.is_grpc;
            stream.is_head = request.method_kind == MethodKind::Head;
            stream.n_head = request.n_head();
            stream.serve(&request).await
        }
        Err(error) => stream.refuse(ProxyError::downstream(Kind::Head(error))).await,
    }
}

impl Stream {
    async fn serve(&mut self, request: &Request) -> Ended {
        let shared = self.shared.clone();
        let worker = &*shared.about.worker;
        // One look at the snapshot per request: a change holds from the next one on.
        let Some(table) = worker.tables.borrow_mut().table(shared.about.key) else {
            return self.refuse(ProxyError::internal(Kind::NoRoute)).await;
        };
        let server_name = shared.about.server_name.as_deref();
        let routed = decision::route(&table, server_name, request.host(), (request, Version::H2));
        shared.count_connection(&table, routed.listener);
        if request.asked == Asked::Server {
            return self.answer(200, HeaderMap::new(), None).await;
        }
        if let (None, Some(cells)) = (routed.rule, &*shared.cells.borrow()) {
            cells.unrouted.add(1);
        }
        let mut own = HeaderMap::new();
        let decision = routed.decide(worker).with_cors(request, |name, value| {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                own.append(name, value);
            }
        });
        self.own = own;
        let cells = routed.rule.map(|rule| worker.tables.borrow().route_cells(&table, rule));
        match decision {
            Decision::Forward(target) => self.forward(&target, request, &cells.unwrap_or_default()).await,
            Decision::Redirect(redirect, filters) => {
                let mut fields = HeaderMap::new();
                if let Some(listener) = routed.listener {
                    let asked =
                        Original { host: request.host(), path: request.path(), query: request.query() };
                    let mut location = Vec::new();
                    redirect::location(redirect, listener, asked, &shared.about.local_text, &mut location);
                    fields = redirect_fields(&location, filters);
                }
                self.answer(redirect.status, fields, cells.as_deref()).await
            }
            Decision::Answer(status) => self.answer(status, HeaderMap::new(), cells.as_deref()).await,
            Decision::Fail(error, _) => {
                if let Some(cells) = &cells {
                    cells.refused.add(1);
                }
                self.answer(error.status().unwrap_or(500), HeaderMap::new(), cells.as_deref()).await
            }
        }
    }

    /// Sends the request on.
    async fn forward(&mut self, target: &Target<'_>, request: &Request, cells: &Arc<RouteCells>) -> Ended {
        let own = std::mem::take(&mut self.own);
        self.timer.limit(Limit::Request, limit(target, request));
        let (end, report) = {
            let shared = &*self.shared;
            let (worker, forwarded, timer) = (&shared.about.worker, shared.forwarded(), &self.timer);
            let job = Job { worker, target, request, forwarded, own: &own, timer, cells };
            forward::send(&mut self.client, job).await
        };
        self.own = own;
        match end {
            Ok(()) => {
                self.count(report.status.unwrap_or(0), Some(cells), report.moved);
                Ended::Served
            }
            Err(error) => self.broken(error, report, cells).await,
        }
    }
}

/// What the route gives a request, and what the client itself gives a call.
fn limit(target: &Target<'_>, request: &Request) -> Option<Duration> {
    let call = request.field(&grpc::GRPC_TIMEOUT).filter(|_| request.is_grpc);
    let call = call.and_then(|value| grpc::timeout(value.as_bytes()));
    match (target.rule.timeouts.request, call) {
        (Some(route), Some(call)) => Some(route.min(call)),
        (one, other) => one.or(other),
    }
}

impl Shared {
    fn forwarded(&self) -> Forwarded<'_> {
        let scheme = if self.about.server_name.is_some() { Scheme::Https } else { Scheme::Http };
        Forwarded { client: &self.about.client_text, proto: scheme.as_str(), local: &self.about.local_text }
    }
}

fn redirect_fields(location: &[u8], filters: &Filters) -> HeaderMap {
    let mut fields = HeaderMap::new();
    if let Ok(location) = HeaderValue::from_bytes(location) {
        fields.insert(LOCATION, location);
    }
    for (name, value) in redirect::further(filters) {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value))
        {
            fields.append(name, value);
        }
    }
    fields
}
