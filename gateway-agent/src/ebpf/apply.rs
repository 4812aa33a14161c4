//! Keeps the maps equal to the snapshot, and says what is in force.
//!
//! One task, on the control runtime. Map writes are system calls of a microsecond; between some dozens of them it yields.
//! **Invariant:** decides nothing itself: what is to be served is [`super::desired`]'s, in which order [`super::plan`]'s.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::attach::Attachments;
use super::desired::{Desired, Surroundings, Verdict, endpoints, verdicts};
use super::keeper::Keeper;
use super::monitor::Monitor;
use super::plan::{Limits, Plan, State};
use super::steering::SkLookupSteering;
use super::sweep::{Findings, Members, Sweep, now_s};
use super::tables::{Tables, WriteError};
use crate::addresses::{Interfaces, Route, route_to};
use crate::drain::Drain;
use crate::snapshot::{ListenerKey, Protocol, Reader, Revision, Snapshot};
use crate::status::{Applied, Served};

/// For sweeping, retries, and blocks that were given back.
const TICK: Duration = Duration::from_secs(1);
/// Batches per tick: a table of 262,144 entries is walked in eight seconds, within the ten that a closed flow stays.
const BATCHES_PER_TICK: usize = 32;
/// Between two full passes that changes of endpoints ask for, each of which costs up to 100 ms with a full table.
const PASS_PAUSE: Duration = Duration::from_millis(500);
/// System calls between two chances for other tasks.
const CALLS_PER_TURN: usize = 64;

/// The L4 path.
#[derive(Debug)]
pub(super) struct L4 {
    pub(super) attachments: Attachments,
    pub(super) tables: Tables,
    pub(super) state: State,
    pub(super) sweep: Sweep,
    /// Of `state`.
    pub(super) members: Members,
    pub(super) source_ports: RangeInclusive<u16>,
}

/// The task's inputs as they are now.
struct Inputs {
    snapshot: Arc<Snapshot>,
    interfaces: Arc<Interfaces>,
    proxy: Arc<Applied>,
}

pub(super) struct Task {
    pub(super) l4: Result<L4, String>,
    pub(super) steering: Option<Arc<SkLookupSteering>>,
    pub(super) monitor: Arc<Monitor>,
    pub(super) keeper: Keeper,
    pub(super) applied: watch::Sender<Arc<Applied>>,
    pub(super) work: Work,
}

/// What is left to be done.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// `None` within: no route.
    routes: HashMap<IpAddr, Option<Route>>,
    /// Something was not written or did not fit.
    is_unfinished: bool,
    pass_due: Option<Instant>,
    last_pass: Option<Instant>,
}

impl Task {
    pub(super) async fn run(
        mut self,
        mut reader: Reader,
        mut interfaces: watch::Receiver<Arc<Interfaces>>,
        mut proxy: watch::Receiver<Arc<Applied>>,
        drain: Drain,
    ) {
        let mut inputs = Inputs {
            snapshot: reader.current().clone(),
            interfaces: interfaces.borrow_and_update().clone(),
            proxy: proxy.borrow_and_update().clone(),
        };
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.follow_interfaces(&inputs);
        self.converge(&inputs).await;
        loop {
            let pass_due = self.work.pass_due;
            tokio::select! {
                biased;
                () = drain.stopping() => break,
                snapshot = reader.changed() => {
                    // Without a publisher there is nothing but the end to wait for.
                    let Some(snapshot) = snapshot else { drain.stopping().await; break };
                    inputs.snapshot = snapshot;
                    self.converge(&inputs).await;
                }
                Ok(()) = interfaces.changed() => {
                    inputs.interfaces = interfaces.borrow_and_update().clone();
                    self.follow_interfaces(&inputs);
                    self.converge(&inputs).await;
                }
                Ok(()) = proxy.changed() => {
                    inputs.proxy = proxy.borrow_and_update().clone();
                    self.converge(&inputs).await;
                }
                () = at(pass_due) => { self.full_pass().await; }
                _ = tick.tick() => self.tick(&inputs).await,
            }
        }
        self.finish(&drain).await;
    }

    fn follow_interfaces(&mut self, inputs: &Inputs) {
        self.work.routes.clear();
        if let Some(steering) = &self.steering {
            steering.follow(inputs.interfaces.clone());
        }
        if let Ok(l4) = &mut self.l4 {
            l4.attachments.follow(&inputs.interfaces);
        }
    }

    async fn tick(&mut self, inputs: &Inputs) {
        let Ok(l4) = &mut self.l4 else { return };
        l4.state.reclaim();
        let has_more_interfaces = l4.attachments.has_failed() && l4.attachments.follow(&inputs.interfaces);
        if self.work.is_unfinished || has_more_interfaces {
            self.converge(inputs).await;
        }
        for _ in 0..BATCHES_PER_TICK {
            if self.step().is_none_or(|ended| ended.is_some()) {
                break;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Brings the maps to what the inputs ask for.
    async fn converge(&mut self, inputs: &Inputs) {
        // Before the first snapshot what an earlier process has written stays in force.
        if inputs.snapshot.revision == Revision(0) {
            return;
        }
        if inputs.proxy.revision > Revision(0)
            && let Some(steering) = &self.steering
        {
            steering.forget_adopted();
        }
        let mut listeners = BTreeMap::new();
        let mut is_waiting = false;
        let mut desired = Desired::new();
        for (key, verdict) in self.verdicts(inputs).await {
            match verdict {
                Verdict::Serve(service) => drop(desired.insert(key, service)),
                Verdict::Leave(reason) => drop(listeners.insert(key, Served::Left(reason))),
                Verdict::Wait => is_waiting = true,
            }
        }
        let Ok(l4) = &self.l4 else { return self.publish(inputs.snapshot.revision, listeners) };
        let mechanism = l4.attachments.mechanism().as_str();
        let left_out = self.bring_about(&desired).await;
        for key in desired.into_keys() {
            let served = left_out.get(&key).cloned().map_or(Served::By(mechanism), Served::Left);
            listeners.insert(key, served);
        }
        // Until the proxy has spoken the last acknowledgement stands.
        if !is_waiting {
            self.publish(inputs.snapshot.revision, listeners);
        }
    }

    async fn verdicts(&mut self, inputs: &Inputs) -> BTreeMap<ListenerKey, Verdict> {
        let l4 = match &self.l4 {
            Ok(l4) => l4,
            Err(reason) => {
                let leave = |key| (key, Verdict::Leave(reason.clone()));
                return l4_keys(&inputs.snapshot).map(leave).collect();
            }
        };
        let endpoints = endpoints(&inputs.snapshot);
        self.work.routes.retain(|endpoint, _| endpoints.contains(endpoint));
        for (n_calls, endpoint) in endpoints.into_iter().enumerate() {
            self.work.routes.entry(endpoint).or_insert_with(|| route(endpoint));
            if n_calls % CALLS_PER_TURN == CALLS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        let routes =
            self.work.routes.iter().filter_map(|(endpoint, route)| Some((*endpoint, (*route)?))).collect();
        let serving: BTreeSet<ListenerKey> =
            l4_keys(&inputs.snapshot).filter(|key| l4.state.serves(*key)).collect();
        let surroundings = Surroundings {
            interfaces: &inputs.interfaces,
            routes: &routes,
            attached: &l4.attachments.interfaces(),
            proxy: &inputs.proxy,
            serving: &serving,
        };
        verdicts(&inputs.snapshot, &surroundings)
    }

    /// What of `desired` is not in force, with the reason.
    async fn bring_about(&mut self, desired: &Desired) -> BTreeMap<ListenerKey, String> {
        let Ok(l4) = &mut self.l4 else { return BTreeMap::new() };
        let mut plan = Plan::default();
        let mut failure = None;
        // Twice: what did not fit may do so when what is gone has made room.
        for _ in 0..2 {
            plan = l4.state.advance(desired);
            for service in l4.state.take_new_services() {
                self.monitor.reset(service);
            }
            let has_ops = !plan.ops.is_empty();
            failure = write(&mut l4.tables, &plan).await.err();
            if failure.is_some() || plan.unplaced.is_empty() || !has_ops {
                break;
            }
        }
        let mut left_out = plan.unplaced;
        let mut told = self.monitor.told();
        told.unplaced = left_out.len().try_into().unwrap_or(u64::MAX);
        if let Some(error) = failure {
            told.write_errors += 1;
            tracing::warn!(%error, cause = %error.cause(), "kernel map cannot be written, trying again");
            // What is in force is what the maps say.
            if let Ok(found) = l4.tables.read() {
                l4.state = State::adopt(Limits::default(), &found);
            }
            let absent = desired.keys().filter(|key| !l4.state.serves(**key));
            left_out.extend(absent.map(|key| (*key, format!("{error}: {}", error.cause()))));
            self.work.is_unfinished = true;
        } else {
            self.work.is_unfinished = !left_out.is_empty();
        }
        told.services = l4.state.services().clone();
        drop(told);
        let members = l4.state.members();
        if members != l4.members {
            l4.members = members;
            // Datagram flows leave what is gone at once, not when the walk comes to them.
            l4.sweep.restart();
            let earliest = self.work.last_pass.map_or_else(Instant::now, |last| last + PASS_PAUSE);
            self.work.pass_due = Some(earliest);
        }
        left_out
    }

    /// One batch of the walk; `None`: it cannot be read now.
    fn step(&mut self) -> Option<Option<Findings>> {
        let Ok(l4) = &mut self.l4 else { return None };
        let step = l4.sweep.step(&l4.members, now_s());
        let mut told = self.monitor.told();
        told.removed = l4.sweep.removed();
        match step {
            Ok(Some(findings)) => {
                told.flows = findings.flows;
                l4.state.release(&findings.held_backends, &findings.held_services);
                Some(Some(findings))
            }
            Ok(None) => Some(None),
            Err(error) => {
                tracing::warn!(%error, "flow table cannot be swept, trying again");
                l4.sweep.restart();
                None
            }
        }
    }

    async fn full_pass(&mut self) -> Option<Findings> {
        self.work.pass_due = None;
        if let Ok(l4) = &mut self.l4 {
            l4.sweep.restart();
        }
        let findings = loop {
            match self.step() {
                Some(Some(findings)) => break Some(findings),
                Some(None) => tokio::task::yield_now().await,
                None => break None,
            }
        };
        self.work.last_pass = Some(Instant::now());
        findings
    }

    fn publish(&self, revision: Revision, listeners: BTreeMap<ListenerKey, Served>) {
        let applied = Applied { revision, listeners };
        self.applied.send_if_modified(|current| {
            let is_new = **current != applied;
            if is_new {
                *current = Arc::new(applied);
            }
            is_new
        });
    }

    /// With pins everything stays in force for the next agent. Else new flows are left to the stack, connections in
    /// flight get until the end of the grace period, and the programs are detached.
    async fn finish(mut self, drain: &Drain) {
        if self.keeper.outlives_the_agent() {
            return;
        }
        let Ok(l4) = &mut self.l4 else { return };
        if let Err(error) = l4.tables.set_source_ports(*l4.source_ports.start(), 0) {
            tracing::warn!(%error, "new flows are still taken");
        }
        while let Some(findings) = self.full_pass().await {
            if findings.connections == 0 {
                break;
            }
            tokio::select! {
                () = drain.aborting() => break,
                () = tokio::time::sleep(TICK) => {}
            }
        }
        if let Ok(l4) = &mut self.l4 {
            l4.attachments.detach_all();
        }
    }
}

fn l4_keys(snapshot: &Snapshot) -> impl Iterator<Item = ListenerKey> + '_ {
    let is_l4 = |protocol: &Protocol| matches!(protocol, Protocol::Tcp(_) | Protocol::Udp(_));
    snapshot.listeners.iter().filter(move |listener| is_l4(&listener.protocol)).map(|listener| listener.key)
}

fn route(endpoint: IpAddr) -> Option<Route> {
    match route_to(endpoint) {
        Ok(route) => route,
        Err(error) => {
            tracing::warn!(%error, %endpoint, "route cannot be looked up");
            None
        }
    }
}

async fn write(tables: &mut Tables, plan: &Plan) -> Result<(), WriteError> {
    for (n_ops, op) in plan.ops.iter().enumerate() {
        tables.apply(op)?;
        if n_ops % CALLS_PER_TURN == CALLS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
