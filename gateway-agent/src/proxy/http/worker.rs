//! What one worker keeps for all its HTTP connections, and the ticker that watches their deadlines.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::time::Instant;

use super::balance::{Random, Shares};
use super::buffer::{Buffer, Buffers};
use super::clock::Clock;
use super::ejections::{Ejections, Says, Voice};
use super::h2::Links;
use super::identity::{Identity, Ids};
use super::kept::Total;
use super::limits::{EJECTION_TICKS, POOL_IDLE_TIMEOUT, SMALL_BUFFERS_KEPT_MAX, SWEEP_TICKS, TICK};
use super::mirror::Copy;
use super::pool::Pool;
use super::record::{Log, Record};
use super::retry::Budget;
use super::table::Tables;
use crate::access_log::AccessLog;
use crate::drain::Drain;
use crate::metrics::{Metrics, WorkerCells};
use crate::proxy::h1::{RequestHead, ResponseHead};
use crate::proxy::tls::Identities;
use crate::snapshot::Reader;

/// The state of one worker thread. Everything behind it is on that thread alone.
#[derive(Debug)]
pub struct HttpWorker {
    drain: Drain,
    pub(super) clock: Rc<Clock>,
    pub(super) buffers: Buffers,
    pub(super) pool: RefCell<Pool>,
    pub(super) voice: Voice,
    identities: Identities,
    pub(super) links: Links,
    pub(super) tables: RefCell<Tables>,
    pub(super) shares: Cell<Shares>,
    pub(super) random: Cell<Random>,
    pub(super) ids: Cell<Ids>,
    pub(super) budget: Cell<Budget>,
    pub(super) cells: Arc<WorkerCells>,
    pub(super) kept: Total,
    pub(super) n_mirrors: Cell<usize>,
    /// `None`: requests are not logged.
    pub(super) log: Option<Log>,
    parts: RefCell<Vec<Parts>>,
    is_ticking: Cell<bool>,
}

/// What one request needs besides the client's buffer; recycled, so that an idle connection holds none of it.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) request: RequestHead,
    pub(super) response: ResponseHead,
    /// Heads as they are sent on.
    pub(super) request_out: Vec<u8>,
    pub(super) response_out: Vec<u8>,
    /// Lines of an answer of the proxy itself.
    pub(super) own_lines: Vec<u8>,
    /// Mirrored requests that are not sent yet.
    pub(super) copies: Vec<Copy>,
    /// Bytes of the request's head as it came.
    pub(super) n_head: usize,
    pub(super) upstream_buffer: Buffer,
    pub(super) record: Record,
    pub(super) identity: Identity,
}

/// Largest capacity of a sent head that is kept for the next; larger ones are rare.
const KEPT_HEAD_BYTES_MAX: usize = 8 * 1024;

impl HttpWorker {
    /// State for a new worker thread. `seed` should differ between workers, so that they do not all choose alike.
    pub fn new(reader: Reader, metrics: Arc<Metrics>, drain: Drain, seed: u64) -> Self {
        Self {
            drain,
            clock: Rc::default(),
            buffers: Buffers::default(),
            pool: RefCell::default(),
            voice: Ejections::default().voice(),
            cells: metrics.worker(),
            identities: Identities::default(),
            links: Links::default(),
            tables: RefCell::new(Tables::new(reader, metrics)),
            shares: Cell::new(Shares::new(seed)),
            random: Cell::new(Random::new(seed)),
            ids: Cell::new(Ids::new(random_seeds())),
            budget: Cell::default(),
            kept: Total::default(),
            n_mirrors: Cell::new(0),
            log: None,
            parts: RefCell::default(),
            is_ticking: Cell::new(false),
        }
    }

    /// Together with the other workers that have `ejections`.
    #[must_use]
    pub fn with_ejections(mut self, ejections: &Ejections) -> Self {
        self.voice = ejections.voice();
        self
    }

    /// With a queue of its own for `log`.
    #[must_use]
    pub fn with_access_log(mut self, log: &AccessLog) -> Self {
        self.log = log.queue().map(Log::new);
        self
    }

    /// As whom backends are spoken to by TLS.
    pub(in crate::proxy) const fn identities(&self) -> &Identities {
        &self.identities
    }

    pub(super) fn take_parts(&self) -> Parts {
        let recycled = self.parts.borrow_mut().pop();
        recycled.unwrap_or_default()
    }

    pub(super) fn put_parts(&self, mut parts: Parts) {
        parts.upstream_buffer.release(&self.buffers);
        let mut kept = self.parts.borrow_mut();
        let Parts { request_out, response_out, own_lines, record, .. } = &parts;
        let capacities = [request_out, response_out, own_lines, record.line()].map(Vec::capacity);
        let largest = capacities.into_iter().max().unwrap_or(0);
        if kept.len() < SMALL_BUFFERS_KEPT_MAX && largest <= KEPT_HEAD_BYTES_MAX {
            kept.push(parts);
        }
    }

    /// When a connection that is put into the pool now expires.
    pub(super) fn pool_expiry(&self) -> u64 {
        // A minute is some hundred ticks.
        self.clock.tick() + (POOL_IDLE_TIMEOUT.as_millis() / TICK.as_millis()) as u64
    }

    /// Starts the ticker where it is not running. It ends when no connection is left, so that an idle worker sleeps.
    pub(super) fn start_ticking(self: &Rc<Self>) {
        if !self.is_ticking.replace(true) {
            tokio::task::spawn_local(tick(self.clone()));
        }
    }

    /// Does what is due between two ticks.
    fn maintain(&self, before: u64, now: u64) {
        if before / SWEEP_TICKS != now / SWEEP_TICKS {
            self.pool.borrow_mut().sweep(now);
        }
        self.voice.hear(|endpoint, says, at| self.learn(endpoint, says, at, now));
    }

    /// Takes in what another worker says of an endpoint.
    fn learn(&self, endpoint: SocketAddr, says: Says, at: Instant, now: u64) {
        let mut pool = self.pool.borrow_mut();
        let age = at.elapsed().as_millis() / TICK.as_millis();
        let left = EJECTION_TICKS.saturating_sub(u64::try_from(age).unwrap_or(u64::MAX));
        match says {
            // Said while this worker slept: it is known no more.
            Says::Fails if left == 0 => {}
            Says::Fails => pool.leave_out(endpoint, now, now.saturating_add(left)),
            Says::Serves => pool.take_back(&endpoint),
        }
    }
}

/// Of the system's randomness, which keys the standard library's hash tables.
fn random_seeds() -> [u64; 2] {
    let keyed = RandomState::new();
    [keyed.hash_one(0), keyed.hash_one(1)]
}

/// Owned by the worker that started it; ends by itself.
async fn tick(worker: Rc<HttpWorker>) {
    let clock = &worker.clock;
    let (started, first) = (Instant::now(), clock.tick());
    let mut is_aborting = false;
    while clock.has_timers() || worker.pool.borrow().has_idle() {
        tokio::select! {
            biased;
            () = worker.drain.aborting(), if !is_aborting => {
                is_aborting = true;
                clock.abort();
            }
            () = worker.drain.stopping(), if !clock.is_stopping() => {
                clock.stop();
                worker.pool.borrow_mut().clear();
            }
            () = tokio::time::sleep(TICK) => {}
        }
        let elapsed = started.elapsed().as_millis() / TICK.as_millis();
        let now = first.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX));
        if now > clock.tick() {
            worker.maintain(clock.tick(), now);
        }
        clock.advance(now.max(clock.tick()));
    }
    worker.is_ticking.set(false);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::super::ejections::{Ejections, Says};
    use super::{EJECTION_TICKS, HttpWorker};
    use crate::drain::Drain;
    use crate::metrics::Metrics;
    use crate::snapshot::Publisher;

    #[test]
    fn endpoint_that_one_worker_leaves_out_is_left_out_by_all_until_one_is_served() {
        let (publisher, metrics) = (Publisher::default(), Arc::new(Metrics::default()));
        let ejections = Ejections::default();
        let worker = || {
            let worker = HttpWorker::new(publisher.reader(), metrics.clone(), Drain::default(), 1);
            worker.with_ejections(&ejections)
        };
        let (one, two) = (worker(), worker());
        let endpoint = "192.0.2.1:80".parse().unwrap();
        one.voice.say(endpoint, Says::Fails, Instant::now());
        two.maintain(1000, 1001);
        assert!(two.pool.borrow().is_out(&endpoint, 1001));
        assert!(!two.pool.borrow().is_out(&endpoint, 1001 + EJECTION_TICKS));
        one.voice.say(endpoint, Says::Serves, Instant::now());
        two.maintain(1001, 1002);
        assert!(!two.pool.borrow().is_out(&endpoint, 1002));
    }
}
