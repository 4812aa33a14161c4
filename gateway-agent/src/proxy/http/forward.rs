//! Sends a request to one endpoint after the other until one answers, by what its Service speaks. For clients of any
//! version but HTTP/1 to HTTP/1, which [`super::conn`] does by itself and by the same rules.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use http::HeaderMap;

use super::balance::Tried;
use super::clock::{Due, Timer};
use super::crossing::{Client, Crossing, End, Report, Server, Terms};
use super::deadline::Limit;
use super::decision::Target;
use super::error::{Kind, ProxyError, Source};
use super::h1_server::H1Server;
use super::h2::{self, H2Server};
use super::kept::Kept;
use super::limits::{CONNECT_ATTEMPTS_MAX, RETRIES_MAX};
use super::mirror::{self, Copy, Sent};
use super::pool::{Health, Liveness};
use super::record::Trail;
use super::relay::Relay;
use super::retry::Tries;
use super::upstream::{self, How};
use super::worker::HttpWorker;
use crate::metrics::RouteCells;
use crate::proxy::h1::Framing;
use crate::proxy::h1::encode::Forwarded;
use crate::proxy::h1::request::MethodKind;
use crate::proxy::message::{Request, encode};
use crate::snapshot::BackendProtocol;

/// What is to be sent, and where to.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) worker: &'a Rc<HttpWorker>,
    pub(super) target: &'a Target<'a>,
    pub(super) request: &'a Request,
    pub(super) forwarded: Forwarded<'a>,
    /// Fields of the answer that the proxy says itself.
    pub(super) own: &'a HeaderMap,
    pub(super) timer: &'a Timer,
    pub(super) cells: &'a Arc<RouteCells>,
    pub(super) trail: &'a Trail,
}

/// The tries of one request.
struct Attempts<'a> {
    tries: Tries<'a>,
    tried: Tried,
    /// `None`: by a new connection.
    liveness: Option<Liveness>,
    /// Repetitions that the proxy does by itself.
    n_repeats: u32,
    /// The request's body, of which nothing may be lost between tries.
    up: Relay,
    copies: Vec<Copy>,
}

/// How one try ended. `index`: of the endpoint; absent where none was reached.
struct Try {
    index: Option<usize>,
    end: Result<End, ProxyError>,
    report: Report,
}

/// Returns when the answer is with the client, or when there is none.
pub(super) async fn send<C: Client>(client: &mut C, job: Job<'_>) -> (Result<(), ProxyError>, Report) {
    let mut attempts = job.attempts();
    if !attempts.up.keeps() {
        mirror::send_all(job.worker, &mut attempts.copies, Sent::Nothing, job.cells);
    }
    let done = loop {
        job.timer.limit(Limit::Try, job.target.rule.timeouts.backend_request);
        let tried = match job.target.endpoints.protocol {
            BackendProtocol::Http1 => job.by_h1(client, &mut attempts).await,
            BackendProtocol::Http2 => job.by_h2(client, &mut attempts).await,
        };
        let is_later = match tried.end {
            Ok(End::Answered) => break (Ok(()), tried.report),
            Ok(End::Rejected) => true,
            Err(error) => match attempts.after(error, &tried, job) {
                Some(is_later) => is_later,
                None => break (Err(error), tried.report),
            },
        };
        job.trail.retried();
        attempts.turn(tried.index, job.target.endpoints.addresses.len());
        if is_later {
            job.cells.retries.add(1);
            if let Err(error) = job.pause(client, &attempts.tries).await {
                break (Err(error), Report::default());
            }
        }
    };
    job.timer.unlimit();
    // Where the body did not come to its end, or was too large.
    job.cells.mirrors_dropped.add(attempts.copies.len() as u64);
    if attempts.tries.is_refused() {
        job.cells.retries_refused.add(1);
    }
    done
}

impl Attempts<'_> {
    /// Whether the failure is followed by another try: at once (false) or after a pause (true).
    fn after(&mut self, error: ProxyError, tried: &Try, job: Job<'_>) -> Option<bool> {
        let Try { index, report, .. } = tried;
        if let Some(index) = index {
            tracing::debug!(%error, upstream.addr = ?job.target.endpoints.addresses.get(*index), "exchange failed");
            if error.source == Source::Upstream {
                job.cells.upstream_failures.add(1);
            }
        }
        let is_unanswered = index.is_some() && error.is_without_answer() && report.may_repeat;
        if is_unanswered && self.n_repeats < RETRIES_MAX && !self.tries.are_forbidden() {
            self.n_repeats += 1;
            return Some(false);
        }
        let is_unreached = index.is_none()
            && matches!(
                error.kind,
                Kind::BackendTimeout | Kind::Connect | Kind::ConnectTimeout | Kind::Handshake | Kind::Refused
            );
        // Who lists 504 has said that what took too long may be asked again, whatever the method.
        let may_time_out = job.request.method_kind != MethodKind::Other
            || self.tries.retry().is_some_and(|retry| retry.covers(504));
        let is_overdue = error.kind == Kind::BackendTimeout && report.can_repeat && may_time_out;
        let is_worth_it = is_unanswered || is_unreached || is_overdue;
        (is_worth_it && self.tries.take(&job.worker.budget, job.worker.clock.tick())).then_some(true)
    }

    /// Another endpoint where there is one; a new connection in any case.
    fn turn(&mut self, index: Option<usize>, n_endpoints: usize) {
        if self.tried.len() + 1 >= n_endpoints {
            self.tried.clear();
        }
        if let Some(index) = index.filter(|index| n_endpoints > 1 && !self.tried.contains(index)) {
            self.tried.push(index);
        }
        self.liveness = None;
        self.up.rewind();
    }
}

impl Try {
    fn unreached(error: ProxyError) -> Self {
        Self { index: None, end: Err(error), report: Report::default() }
    }
}

impl<'a> Job<'a> {
    fn attempts(&self) -> Attempts<'a> {
        let Self { worker, target, request, .. } = *self;
        let tries = Tries::new(target.rule.retry.as_deref());
        let has_body = request.framing != Framing::None;
        let can_repeat = self.is_idempotent() && !has_body && !tries.are_forbidden();
        let copies = self.copies();
        let mut up = Relay::default();
        if has_body && (tries.are_wanted() || !copies.is_empty()) {
            up.keep(Kept::new(&worker.kept));
        }
        if tries.are_wanted() {
            let mut budget = worker.budget.get();
            budget.deposit();
            worker.budget.set(budget);
        }
        let liveness = Some(if can_repeat { Liveness::Known } else { Liveness::Probed });
        Attempts { tries, tried: Tried::new(), liveness, n_repeats: 0, up, copies }
    }

    fn is_idempotent(&self) -> bool {
        self.request.method_kind != MethodKind::Other
    }

    /// For the request's mirrors.
    fn copies(&self) -> Vec<Copy> {
        let message = (self.request, self.forwarded);
        let mirrors = self.target.mirrors(self.worker);
        mirrors
            .map(|(mirror, filters)| Copy::of_message(mirror, self.target.certificate, message, filters))
            .collect()
    }

    fn terms<'t>(&'t self, rejects: &'t dyn Fn(u16) -> bool) -> Terms<'t> {
        Terms {
            filters: self.target.filters,
            own: self.own,
            expects_continue: self.request.expects_continue,
            is_idempotent: self.is_idempotent(),
            n_head: self.request.n_head(),
            rejects,
        }
    }

    async fn by_h1<C: Client>(&self, client: &mut C, attempts: &mut Attempts<'_>) -> Try {
        let Self { worker, target, request, timer, cells, .. } = *self;
        let Attempts { tries, tried, liveness, .. } = &mut *attempts;
        let n_connects_max = if tries.are_forbidden() { 1 } else { CONNECT_ATTEMPTS_MAX };
        let how = How { liveness: *liveness, n_connects_max };
        let asked = (target.endpoints, target.certificate);
        let mut upstream = match upstream::connect(worker, asked, tried, how, timer, cells).await {
            Ok(upstream) => upstream,
            Err(error) => {
                let tried_last = tried.last().and_then(|index| target.endpoints.addresses.get(*index));
                self.trail.went_to(tried_last);
                return Try::unreached(error);
            }
        };
        self.trail.went_to(target.endpoints.addresses.get(upstream.index));
        let mut parts = worker.take_parts();
        let (head, response) = (&mut parts.request_out, &mut parts.response);
        head.clear();
        let changes = (&target.filters.rewrite, &*target.filters.headers.request);
        encode::request_to_h1(request, self.forwarded, changes, head);
        let buffers = (&mut parts.upstream_buffer, &worker.buffers);
        let message = (request.method_kind, request.framing, head);
        let mut server = H1Server::new(&mut upstream.stream, buffers, message, response);
        let (end, report) = self.exchange(client, &mut server, attempts).await;
        let is_reusable = end == Ok(End::Answered) && server.is_reusable(report.request_is_read);
        worker.put_parts(parts);
        let was_kept = upstream.was_kept;
        upstream.tell(Health::of(end.err(), was_kept));
        let index = Some(upstream.index);
        if is_reusable {
            upstream.keep();
        }
        Try { index, end, report }
    }

    async fn by_h2<C: Client>(&self, client: &mut C, attempts: &mut Attempts<'_>) -> Try {
        let Self { worker, target, request, timer, cells, .. } = *self;
        let scheme = upstream::scheme(target.endpoints);
        let identity = match upstream::identity(worker, target.endpoints, target.certificate) {
            Ok(identity) => identity,
            Err(error) => return Try::unreached(error),
        };
        let has_ended = request.framing == Framing::None;
        let n_connects_max = if attempts.tries.are_forbidden() { 1 } else { CONNECT_ATTEMPTS_MAX };
        let mut failure = ProxyError::internal(Kind::NoEndpoint);
        for _ in 0..n_connects_max {
            let claimed = upstream::claim(worker, target.endpoints, &attempts.tried);
            let Some((index, endpoint, mut claim)) = claimed else { break };
            self.trail.went_to(Some(&endpoint));
            let changes = (&target.filters.rewrite, &*target.filters.headers.request);
            let head = match encode::request_to_h2(request, self.forwarded, changes, scheme.clone()) {
                Ok(head) => head,
                Err(error) => return Try::unreached(ProxyError::downstream(Kind::Head(error))),
            };
            let (link, mut handle) = match h2::connect(worker, endpoint, identity.as_ref(), timer).await {
                Ok(connected) => connected,
                Err(error) if error.is_limit() || error.kind == Kind::Aborted => {
                    return Try::unreached(error);
                }
                Err(error) => {
                    failure = error;
                    if error.kind != Kind::Handshake {
                        claim.tell(Health::Failed);
                    }
                    cells.upstream_failures.add(1);
                    attempts.tried.push(index);
                    continue;
                }
            };
            let opened = H2Server::open(&mut handle, head, has_ended);
            // The connection must be able to end while this request is under way.
            drop(handle);
            let Ok(mut server) = opened else {
                link.distrust();
                failure = ProxyError::upstream(Kind::Refused);
                continue;
            };
            let (end, report) = self.exchange(client, &mut server, attempts).await;
            if let Err(ProxyError { source: Source::Upstream, kind: Kind::HeadTimeout | Kind::BodyStalled }) =
                end
            {
                link.distrust();
            }
            claim.tell(Health::of(end.err(), true));
            return Try { index: Some(index), end, report };
        }
        Try::unreached(failure)
    }

    /// One exchange, to its end.
    async fn exchange<C: Client, S: Server>(
        &self,
        client: &mut C,
        server: &mut S,
        attempts: &mut Attempts<'_>,
    ) -> (Result<End, ProxyError>, Report) {
        let Self { worker, timer, .. } = *self;
        let Attempts { tries, up, copies, .. } = attempts;
        let rejects = |status| tries.take_for(status, &worker.budget, worker.clock.tick());
        let mut crossing = Crossing::new((client, server), up, self.terms(&rejects), timer);
        let end = poll_fn(|cx| {
            let polled = crossing.poll(cx);
            self.mirror(crossing.sent_body(), copies);
            polled
        });
        let end = end.await;
        let report = crossing.report(end);
        (end, report)
    }

    /// Sends copies once all of the body is with the server.
    fn mirror(&self, body: Option<&Kept>, copies: &mut Vec<Copy>) {
        if copies.is_empty() {
            return;
        }
        if let Some(body) = body.filter(|body| body.bytes().is_some()) {
            mirror::send_all(self.worker, copies, Sent::Plain(body), self.cells);
        }
    }

    /// Waits before the next try, unless the client goes away.
    async fn pause<C: Client>(&self, client: &mut C, tries: &Tries<'_>) -> Result<(), ProxyError> {
        let Self { worker, timer, .. } = *self;
        let Some(delay) = tries.pause(&worker.random) else { return Ok(()) };
        let mut sleep = Box::pin(tokio::time::sleep(delay));
        timer.limit(Limit::Try, None);
        timer.disarm();
        poll_fn(|cx| {
            if sleep.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if client.poll_gone(cx).is_ready() {
                return Poll::Ready(Err(ProxyError::downstream(Kind::Closed)));
            }
            timer.poll(cx).map(|due| match due {
                Due::Abort => Err(ProxyError::internal(Kind::Aborted)),
                Due::Limit(limit) => Err(ProxyError::limit(limit)),
                Due::Deadline => Ok(()),
            })
        })
        .await
    }
}
