//! One request to the servers behind: as many tries as it needs and its route allows.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use super::super::balance::Tried;
use super::super::clock::Due;
use super::super::deadline::Limit;
use super::super::decision::Target;
use super::super::error::{Kind, ProxyError, Source};
use super::super::exchange::{self, End, Exchange, Report, Terms};
use super::super::kept::Kept;
use super::super::limits::{CONNECT_ATTEMPTS_MAX, RETRIES_MAX};
use super::super::mirror::{self, Sent};
use super::super::pool::{Health, Liveness};
use super::super::pump::{Coding, Pump};
use super::super::retry::Tries;
use super::super::tunnel::{self, Moved};
use super::super::upstream::{self, How, Upstream};
use super::super::worker::{HttpWorker, Parts};
use super::reply::Before;
use super::{Connection, Next};
use crate::metrics::RouteCells;
use crate::proxy::h1::Framing;
use crate::proxy::h1::encode::Persistence;
use crate::proxy::h1::request::MethodKind;
use crate::proxy::stream;

/// The tries of one request.
struct Attempts<'a> {
    tries: Tries<'a>,
    tried: Tried,
    /// `None`: by a new connection.
    liveness: Option<Liveness>,
    /// Repetitions that the proxy does by itself.
    n_repeats: u32,
    upload: Pump,
    /// Bytes of the head in `Parts::request_out`; the rest is what was kept of the body.
    n_head: usize,
}

/// What follows a try.
enum Step<'w> {
    /// Another one, at once.
    Again,
    /// Another one after a pause.
    Later,
    Over(Outcome<'w>),
}

/// How a request ended.
enum Outcome<'w> {
    Answered(Report),
    /// `None`: the last try found no server.
    Failed(ProxyError, Option<Report>),
    Upgraded(Upstream<'w>, Report),
}

impl<'a> Attempts<'a> {
    fn new(target: &Target<'a>, parts: &Parts, worker: &HttpWorker) -> Self {
        let tries = Tries::new(target.rule.retry.as_deref());
        let request = &parts.request;
        let is_idempotent = request.method_kind != MethodKind::Other;
        let has_body = request.framing != Framing::None;
        let can_repeat = is_idempotent && !has_body && !tries.are_forbidden();
        let mut upload = Pump::new(request.framing, Coding::Kept);
        if has_body && (tries.are_wanted() || !parts.copies.is_empty()) {
            upload.keep(Kept::new(&worker.kept));
        }
        if tries.are_wanted() {
            let mut budget = worker.budget.get();
            budget.deposit();
            worker.budget.set(budget);
        }
        Self {
            tries,
            tried: Tried::new(),
            liveness: Some(if can_repeat { Liveness::Known } else { Liveness::Probed }),
            n_repeats: 0,
            upload,
            n_head: parts.request_out.len(),
        }
    }

    fn can_take(&self, worker: &HttpWorker) -> bool {
        self.tries.take(&worker.budget, worker.clock.tick())
    }

    /// No connection was made, so that nothing of the request was sent.
    fn after_refusal(&mut self, error: ProxyError, worker: &HttpWorker) -> Step<'static> {
        let is_worth_it = matches!(
            error.kind,
            Kind::BackendTimeout | Kind::Connect | Kind::ConnectTimeout | Kind::Handshake
        );
        if is_worth_it && self.can_take(worker) {
            self.tried.clear();
            return Step::Later;
        }
        Step::Over(Outcome::Failed(error, None))
    }

    fn after_failure(
        &mut self,
        error: ProxyError,
        report: Report,
        method: MethodKind,
        worker: &HttpWorker,
    ) -> Step<'static> {
        let is_unanswered = error == ProxyError::upstream(Kind::Closed) && report.may_repeat;
        // For the race with a server that closes a connection which was kept.
        if is_unanswered && self.n_repeats < RETRIES_MAX && !self.tries.are_forbidden() {
            self.n_repeats += 1;
            return Step::Again;
        }
        // Who lists 504 has said that what took too long may be asked again, whatever the method.
        let may_time_out =
            method != MethodKind::Other || self.tries.retry().is_some_and(|retry| retry.covers(504));
        let is_overdue = error.kind == Kind::BackendTimeout && report.can_repeat && may_time_out;
        if (is_unanswered || is_overdue) && self.can_take(worker) {
            return Step::Later;
        }
        Step::Over(Outcome::Failed(error, Some(report)))
    }

    /// Another endpoint where there is one; a new connection in any case.
    fn turn(&mut self, index: usize, n_endpoints: usize, parts: &mut Parts) {
        if self.tried.len() + 1 < n_endpoints {
            if !self.tried.contains(&index) {
                self.tried.push(index);
            }
        } else {
            self.tried.clear();
            if n_endpoints > 1 {
                self.tried.push(index);
            }
        }
        self.liveness = None;
        self.upload.restart();
        parts.request_out.truncate(self.n_head);
        if let Some(kept) = self.upload.kept().and_then(Kept::bytes) {
            parts.request_out.extend_from_slice(kept);
        }
    }
}

impl Connection<'_> {
    /// Sends the request to one endpoint after the other until one answers.
    pub(super) async fn forward(
        &mut self,
        target: &Target<'_>,
        parts: &mut Parts,
        cells: &Arc<RouteCells>,
    ) -> Next {
        let worker = self.worker.clone();
        let mut attempts = Attempts::new(target, parts, &worker);
        self.timer.limit(Limit::Request, target.rule.timeouts.request);
        if attempts.upload.kept().is_none() {
            mirror::send_all(&worker, &mut parts.copies, Sent::Nothing, cells);
        }
        let outcome = loop {
            match self.attempt(&worker, target, &mut attempts, parts, cells).await {
                Step::Again => parts.record.trail.retried(),
                Step::Later => {
                    cells.retries.add(1);
                    parts.record.trail.retried();
                    if let Err(error) = self.pause(&attempts.tries).await {
                        break Outcome::Failed(error, None);
                    }
                }
                Step::Over(outcome) => break outcome,
            }
        };
        self.timer.unlimit();
        // Where the body did not come to its end, or was too large.
        cells.mirrors_dropped.add(parts.copies.drain(..).count() as u64);
        if attempts.tries.is_refused() {
            cells.retries_refused.add(1);
        }
        match outcome {
            Outcome::Answered(report) => self.finish(report, parts, cells),
            Outcome::Failed(error, Some(report)) => self.broken(error, report, parts, cells).await,
            Outcome::Failed(error, None) => {
                self.fail(error, parts, cells, Before::of_upload(&attempts.upload)).await
            }
            Outcome::Upgraded(mut upstream, report) => {
                self.tunnel(&mut upstream.stream, parts, cells, report).await;
                Next::Close
            }
        }
    }

    async fn attempt<'w>(
        &mut self,
        worker: &'w Rc<HttpWorker>,
        target: &Target<'_>,
        attempts: &mut Attempts<'_>,
        parts: &mut Parts,
        cells: &Arc<RouteCells>,
    ) -> Step<'w> {
        let set = target.endpoints;
        self.timer.limit(Limit::Try, target.rule.timeouts.backend_request);
        let n_connects_max = if attempts.tries.are_forbidden() { 1 } else { CONNECT_ATTEMPTS_MAX };
        let how = How { liveness: attempts.liveness, n_connects_max };
        let asked = (set, target.certificate);
        let connected = upstream::connect(worker, asked, &mut attempts.tried, how, &self.timer, cells).await;
        let mut upstream = match connected {
            Ok(upstream) => upstream,
            Err(error) => {
                let tried_last = attempts.tried.last().and_then(|index| set.addresses.get(*index));
                parts.record.trail.went_to(tried_last);
                return attempts.after_refusal(error, worker);
            }
        };
        parts.record.trail.went_to(set.addresses.get(upstream.index));
        let (end, report) = self.exchange(&mut upstream.stream, target, attempts, parts, cells).await;
        let index = upstream.index;
        let was_kept = upstream.was_kept;
        upstream.tell(Health::of(end.err(), was_kept));
        let step = match end {
            Ok(End::Upgraded) => return Step::Over(Outcome::Upgraded(upstream, report)),
            Ok(End::Answered) => Step::Over(Outcome::Answered(report)),
            Ok(End::Rejected) => Step::Later,
            Err(error) => {
                tracing::debug!(%error, upstream.addr = ?set.addresses.get(index), "exchange failed");
                if error.source == Source::Upstream {
                    cells.upstream_failures.add(1);
                }
                attempts.after_failure(error, report, parts.request.method_kind, worker)
            }
        };
        if report.upstream_is_reusable {
            upstream.keep();
        }
        if !matches!(step, Step::Over(_)) {
            attempts.turn(index, set.addresses.len(), parts);
        }
        step
    }

    async fn exchange(
        &mut self,
        upstream: &mut stream::Upstream,
        target: &Target<'_>,
        attempts: &mut Attempts<'_>,
        parts: &mut Parts,
        cells: &Arc<RouteCells>,
    ) -> (Result<End, ProxyError>, Report) {
        let worker = self.worker;
        let mut copies = std::mem::take(&mut parts.copies);
        let client = exchange::Client {
            stream: &mut self.client,
            buffer: &mut self.buffer,
            has_ended: &mut self.has_ended,
        };
        let Attempts { tries, upload, .. } = attempts;
        let rejects = |status| tries.take_for(status, &worker.budget, worker.clock.tick());
        let terms = Terms { filters: target.filters, rejects: &rejects };
        let shared = (&worker.buffers, &self.timer, &*worker.clock);
        let mut exchange = Exchange::new(client, upstream, (&mut *parts, upload), terms, shared);
        let end = poll_fn(|cx| {
            let polled = exchange.poll(cx);
            if !copies.is_empty()
                && let Some(body) = exchange.sent_body()
            {
                mirror::send_all(worker, &mut copies, Sent::Framed(body), cells);
            }
            polled
        });
        let end = end.await;
        let report = exchange.report(end);
        parts.copies = copies;
        (end, report)
    }

    /// Waits before the next try. A client that closes its side is not made to wait: it may be gone.
    async fn pause(&mut self, tries: &Tries<'_>) -> Result<(), ProxyError> {
        let worker = self.worker;
        let Some(delay) = tries.pause(&worker.random) else { return Ok(()) };
        let mut sleep = Box::pin(tokio::time::sleep(delay));
        self.timer.limit(Limit::Try, None);
        self.timer.disarm();
        poll_fn(|cx| {
            if self.has_ended || sleep.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            while !self.buffer.is_full() {
                match self.buffer.poll_fill(cx, &mut self.client, &worker.buffers) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(0)) => {
                        self.has_ended = true;
                        return Poll::Ready(Ok(()));
                    }
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(ProxyError::downstream(Kind::Closed))),
                }
            }
            self.timer.poll(cx).map(|due| match due {
                Due::Abort => Err(ProxyError::internal(Kind::Aborted)),
                Due::Limit(limit) => Err(ProxyError::limit(limit)),
                Due::Deadline => Ok(()),
            })
        })
        .await
    }

    pub(super) fn finish(&self, report: Report, parts: &mut Parts, cells: &RouteCells) -> Next {
        self.count(report.status.unwrap_or(0), parts, Some(cells), report.moved);
        match report.persistence {
            Persistence::Implied | Persistence::KeepAlive => Next::Request,
            Persistence::Close if report.request_is_read && self.buffer.is_empty() => Next::Close,
            Persistence::Close => Next::Linger,
        }
    }

    /// The exchange failed: an answer where the client has not begun to get one, else an end it cannot mistake.
    pub(super) async fn broken(
        &mut self,
        error: ProxyError,
        report: Report,
        parts: &mut Parts,
        cells: &RouteCells,
    ) -> Next {
        parts.record.failed(error);
        if report.status.is_none() {
            return self.fail(error, parts, cells, Before::of(report)).await;
        }
        self.count(report.status.unwrap_or(0), parts, Some(cells), report.moved);
        if report.ends_by_close { Next::Reset } else { Next::Close }
    }

    async fn fail(
        &mut self,
        error: ProxyError,
        parts: &mut Parts,
        cells: &RouteCells,
        before: Before,
    ) -> Next {
        parts.record.failed(error);
        let Some(status) = error.status() else {
            self.count(0, parts, Some(cells), Moved::default());
            return Next::Close;
        };
        self.answer(status, parts, Some(cells), before).await
    }

    async fn tunnel(
        &mut self,
        upstream: &mut stream::Upstream,
        parts: &mut Parts,
        cells: &RouteCells,
        report: Report,
    ) {
        self.count(101, parts, Some(cells), Moved::default());
        let moved = tunnel::run(
            (&mut self.client, &mut self.buffer),
            (upstream, &mut parts.upstream_buffer),
            &parts.response_out,
            report.n_head_written,
            &self.timer,
            &self.worker.buffers,
        )
        .await;
        parts.record.answered(0, moved);
        self.count_bytes(Some(cells), moved);
    }
}
