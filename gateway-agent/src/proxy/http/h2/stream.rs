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
use super::super::decision::{self, Decision, Routed, Target, Version};
use super::super::error::{Kind, ProxyError};
use super::super::forward::{self, Job};
use super::super::identity::{Identity, Kept};
use super::super::record::{Ends, Record};
use super::super::redirect::{self, Asked as Original};
use super::client::H2Client;
use super::connection::{About, Shared};
use crate::metrics::RouteCells;
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
    pub(super) identity: Identity,
    /// Logged when the stream goes.
    pub(super) record: Record,
}

pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

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
    let mut record = Record::default();
    record.begin(&shared.about.worker, shared.ends());
    // For a request that cannot be read.
    let raw = record.is_logged().then(|| (head.method.clone(), head.uri.clone()));
    let mut stream = Stream {
        client,
        shared,
        timer,
        is_grpc: false,
        is_head: false,
        n_head: 0,
        own: HeaderMap::new(),
        identity: Identity::default(),
        record,
    };
    match Request::of_h2(head, has_ended) {
        Ok(mut request) => {
            stream.record.asked("2", request.method().as_bytes(), request.host(), request.path());
            stream.is_grpc = request.is_grpc;
            stream.is_head = request.method_kind == MethodKind::Head;
            stream.n_head = request.n_head();
            stream.serve(&mut request).await
        }
        Err(error) => {
            if let Some((method, uri)) = raw {
                let host = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
                stream.record.asked("2", method.as_str().as_bytes(), host, uri.path());
            }
            stream.refuse(ProxyError::downstream(Kind::Head(error))).await
        }
    }
}

impl Stream {
    async fn serve(&mut self, request: &mut Request) -> Ended {
        let shared = self.shared.clone();
        let worker = &*shared.about.worker;
        // One look at the snapshot per request: a change holds from the next one on.
        let Some(table) = worker.tables.borrow_mut().table(shared.about.key) else {
            return self.refuse(ProxyError::internal(Kind::NoRoute)).await;
        };
        let client = (shared.about.client_address, shared.about.server_name.as_deref());
        let routed = decision::route(&table, client, request.host(), (request, Version::H2));
        self.identify(routed, request);
        let request = &*request;
        shared.count_connection(&table, routed.listener);
        let (listener, rule) = (routed.listener.map(|one| &one.name), routed.rule.map(|rule| &**rule));
        self.record.routed(listener, rule);
        if request.asked == Asked::Server {
            return self.answer(200, HeaderMap::new(), None).await;
        }
        if let (None, Some(cells)) = (routed.rule, &*shared.cells.borrow()) {
            cells.unrouted.add(1);
        }
        if let Some(error) = routed.failure() {
            self.record.failed(error);
        }
        let own = &mut self.own;
        let decision = routed.decide(worker).with_cors(request, |name, value| {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                own.append(name, value);
            }
        });
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
                self.record.failed(error);
                if let Some(cells) = &cells {
                    cells.refused.add(1);
                }
                self.answer(error.status().unwrap_or(500), HeaderMap::new(), cells.as_deref()).await
            }
        }
    }

    /// By what the request is known from here on.
    fn identify(&mut self, routed: Routed<'_>, request: &mut Request) {
        let Self { identity, record, own, shared, .. } = self;
        identity.is_trusted = routed.is_trusted;
        identity.is_told = routed.tells_request_id();
        let mut ids = shared.about.worker.ids.get();
        identity.set_request_id(request.values(&X_REQUEST_ID), &mut ids);
        shared.about.worker.ids.set(ids);
        let (parents, states) = (request.values(&TRACEPARENT), request.values(&TRACESTATE));
        let kept = identity.set_trace(routed.keeps_trace(), parents, states);
        if kept != Kept::Whole {
            request.withhold(&TRACESTATE);
        }
        if kept == Kept::Nothing {
            request.withhold(&TRACEPARENT);
        }
        if let (true, Ok(id)) = (identity.is_told, HeaderValue::from_str(identity.request_id())) {
            own.insert(X_REQUEST_ID, id);
        }
        record.known(identity);
    }

    /// Sends the request on.
    async fn forward(&mut self, target: &Target<'_>, request: &Request, cells: &Arc<RouteCells>) -> Ended {
        let own = std::mem::take(&mut self.own);
        self.timer.limit(Limit::Request, limit(target, request));
        let (end, report) = {
            let shared = &*self.shared;
            let (worker, timer) = (&shared.about.worker, &self.timer);
            let forwarded = target.forwarded(shared.ends(), &self.identity);
            let trail = &self.record.trail;
            let job = Job { worker, target, request, forwarded, own: &own, timer, cells, trail };
            forward::send(&mut self.client, job).await
        };
        self.own = own;
        self.record.grpc_answered(report.grpc_status.filter(|_| request.is_grpc));
        match end {
            Ok(()) => {
                let status = report.status.unwrap_or(0);
                self.record.answered(status, report.moved);
                self.count(status, Some(cells), report.moved);
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
    /// What the client speaks.
    fn scheme(&self) -> Scheme {
        if self.about.server_name.is_some() { Scheme::Https } else { Scheme::Http }
    }

    fn ends(&self) -> Ends<'_> {
        let About { client_text, local_text, .. } = &self.about;
        Ends { client: client_text, local: local_text, scheme: self.scheme().as_str() }
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
