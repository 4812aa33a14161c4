//! One worker: a thread with its own runtime, its own listening sockets and its own connections.
//!
//! Nothing of a worker is shared with another but the snapshot. Does not decide what to listen on; see `listener`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::runtime;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use super::copy::Pools;
use super::flow::FlowKey;
use super::http::{self, HttpWorker};
use super::limits::{Budget, COMMANDS, Timeouts};
use super::pool::Buffers;
use super::random::Random;
use super::socket::Sockets;
use super::splice::Pipes;
use super::udp::{FlowTable, Running};
use super::{accept, tcp, tls, udp};
use crate::drain::Drain;
use crate::metrics::{ListenerCells, Metrics, RouteCells, WorkerCells};
use crate::snapshot::{Listener, ListenerKey, ListenerName, Protocol, Reader, RouteName};

/// What the listener manager asks of a worker. `done` is answered, or dropped by a worker that ends.
#[derive(Debug)]
pub(super) enum Command {
    /// Serve `key` from these sockets.
    Open { key: ListenerKey, sockets: Sockets, done: oneshot::Sender<()> },
    /// Stop accepting for `key` and close its sockets; established connections live on.
    Close { key: ListenerKey, done: oneshot::Sender<()> },
}

/// What a worker is made of; crosses the thread boundary.
#[derive(Debug)]
pub(super) struct Seed {
    pub index: usize,
    pub reader: Reader,
    pub metrics: Arc<Metrics>,
    pub drain: Drain,
    pub budget: Budget,
    pub timeouts: Timeouts,
    pub random: u64,
}

/// The manager's end.
#[derive(Debug)]
pub(super) struct Handle {
    pub commands: mpsc::Sender<Command>,
    /// Resolves when the thread is about to end.
    pub finished: oneshot::Receiver<()>,
    pub thread: thread::JoinHandle<()>,
}

/// Starts the thread.
pub(super) fn spawn(seed: Seed) -> io::Result<Handle> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (commands, inbox) = mpsc::channel(COMMANDS);
    let (ending, finished) = oneshot::channel();
    let thread = thread::Builder::new().name(format!("proxy-{}", seed.index)).spawn(move || {
        let local = LocalSet::new();
        local.block_on(&runtime, Rc::new(Worker::new(seed)).run(inbox));
        // Connections that are left end by reset, with their tasks.
        drop(local);
        drop(ending);
    })?;
    Ok(Handle { commands, finished, thread })
}

/// What the tasks of one worker share.
#[derive(Debug)]
pub(super) struct Worker {
    pub cells: Arc<WorkerCells>,
    pub pools: Pools,
    pub timeouts: Timeouts,
    pub random: Random,
    pub drain: Drain,
    pub slots: Slots,
    /// One datagram at a time; nothing is kept in it across an await.
    pub datagram: RefCell<Vec<u8>>,
    pub flows: RefCell<FlowTable<FlowKey, Running>>,
    is_expiring: Cell<bool>,
    http: Rc<HttpWorker>,
    reader: RefCell<Reader>,
    metrics: Arc<Metrics>,
    states: RefCell<HashMap<ListenerKey, Rc<ListenerState>>>,
}

impl Worker {
    fn new(seed: Seed) -> Self {
        let Seed { index: _, reader, metrics, drain, budget, timeouts, random } = seed;
        Self {
            cells: metrics.worker(),
            pools: Pools { buffers: Buffers::default(), pipes: Pipes::new(budget.pipes) },
            timeouts,
            random: Random::new(random),
            http: Rc::new(HttpWorker::new(reader.clone(), metrics.clone(), drain.clone(), random)),
            drain,
            slots: Slots::new(budget.connections),
            datagram: RefCell::new(vec![0; super::limits::DATAGRAM_BYTES]),
            flows: RefCell::new(FlowTable::new(budget.udp_flows)),
            is_expiring: Cell::new(false),
            reader: RefCell::new(reader),
            metrics,
            states: RefCell::default(),
        }
    }

    async fn run(self: Rc<Self>, mut inbox: mpsc::Receiver<Command>) {
        let mut open: HashMap<ListenerKey, CancellationToken> = HashMap::new();
        let mut changes = self.reader();
        let mut is_publishing = true;
        loop {
            let command = tokio::select! {
                biased;
                () = self.drain.stopping() => break,
                command = inbox.recv() => command,
                changed = changes.changed(), if is_publishing => {
                    is_publishing = changed.is_some();
                    self.refresh();
                    continue;
                }
            };
            match command {
                Some(Command::Open { key, sockets, done }) => {
                    let close = CancellationToken::new();
                    if self.serve(key, sockets, &close) {
                        open.insert(key, close);
                    }
                    // The manager may have stopped waiting.
                    done.send(()).ok();
                }
                Some(Command::Close { key, done }) => {
                    if let Some(close) = open.remove(&key) {
                        close.cancel();
                    }
                    let worker = self.clone();
                    tokio::task::spawn_local(async move {
                        worker.slots.listeners_closed(key).await;
                        done.send(()).ok();
                    });
                }
                // The manager is gone: nothing can be opened any more, what runs goes on.
                None => self.drain.stopping().await,
            }
        }
        open.values().for_each(CancellationToken::cancel);
        drop(inbox);
        tokio::select! {
            () = self.slots.all_ended() => {}
            () = self.drain.aborting() => tracing::info!("connections are cut at the end of the grace period"),
        }
    }

    /// Spawns the tasks of one listener. False when the runtime does not take the sockets.
    fn serve(self: &Rc<Self>, key: ListenerKey, sockets: Sockets, close: &CancellationToken) -> bool {
        let result = match sockets {
            Sockets::Tcp(listeners) => {
                listeners.into_iter().try_for_each(|socket| accept::spawn(self, key, socket, close.clone()))
            }
            Sockets::Udp(socket) => udp::spawn(self, key, socket, close.clone()),
        };
        if let Err(error) = &result {
            tracing::error!(listener = %key, %error, "cannot poll a listening socket");
        }
        result.is_ok()
    }

    /// The newest snapshot's listener for `key`, with this worker's cells. `None` once it is configured no more.
    pub(super) fn listener(&self, key: ListenerKey) -> Option<Rc<ListenerState>> {
        let mut reader = self.reader.borrow_mut();
        let listener = reader.current().listener(key)?;
        let mut states = self.states.borrow_mut();
        if let Some(state) = states.get(&key)
            && Arc::ptr_eq(&state.listener, listener)
        {
            return Some(state.clone());
        }
        let state = Rc::new(ListenerState::new(listener.clone(), &self.metrics, states.get(&key)));
        states.insert(key, state.clone());
        Some(state)
    }

    /// Lets go of what the newest snapshot has no more, so that its metrics leave the scrape.
    fn refresh(&self) {
        let known: Vec<ListenerKey> = self.states.borrow().keys().copied().collect();
        for key in known {
            if self.listener(key).is_none() {
                self.states.borrow_mut().remove(&key);
            }
        }
    }

    /// A reader of its own for a task that waits for changes.
    pub(super) fn reader(&self) -> Reader {
        self.reader.borrow().clone()
    }

    /// Serves one accepted connection to its end.
    pub(super) async fn serve_connection(
        self: &Rc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        local: SocketAddr,
        state: Rc<ListenerState>,
    ) {
        match &state.listener.protocol {
            Protocol::Tcp(service) => tcp::serve(self, stream, peer, local, &state, service).await,
            Protocol::TlsPassthrough(table) => {
                tls::serve(self, stream, peer, &state, table).await;
            }
            Protocol::Http(_) => {
                http::serve(stream, peer, local, state.listener.key, self.http.clone()).await;
            }
            Protocol::Udp(_) => super::copy::reset(&stream),
        }
    }
}

/// Sees to it that idle UDP flows end. One task per worker, and only while there are flows.
pub(super) fn expire_flows(worker: &Rc<Worker>) {
    // Often enough for the idle time, and seldom enough to cost nothing.
    const TICK: Duration = Duration::from_secs(1);
    if worker.is_expiring.replace(true) {
        return;
    }
    let worker = worker.clone();
    tokio::task::spawn_local(async move {
        let idle = worker.timeouts.udp_idle;
        while !worker.flows.borrow().is_empty() {
            tokio::time::sleep(TICK.min(idle)).await;
            loop {
                let expired = worker.flows.borrow_mut().pop_idle(Instant::now(), idle);
                if expired.is_none() {
                    break;
                }
            }
        }
        worker.is_expiring.set(false);
    });
}

/// One listener of one snapshot, and this worker's counters for it.
#[derive(Debug)]
pub(super) struct ListenerState {
    pub listener: Arc<Listener>,
    /// By position in `listener.names`.
    cells: Vec<Arc<ListenerCells>>,
    routes: RefCell<HashMap<RouteName, Arc<RouteCells>>>,
    metrics: Arc<Metrics>,
}

impl ListenerState {
    /// Counters go on from `before`, as far as it has the names.
    fn new(listener: Arc<Listener>, metrics: &Arc<Metrics>, before: Option<&Rc<Self>>) -> Self {
        let known = |name: &ListenerName| {
            let before = before?;
            let position = before.listener.names.iter().position(|candidate| candidate == name)?;
            before.cells.get(position).cloned()
        };
        let cells =
            listener.names.iter().map(|name| known(name).unwrap_or_else(|| metrics.listener(name))).collect();
        let mut routes = HashMap::new();
        if let Some(before) = before {
            let before = before.routes.borrow();
            for route in route_names(&listener.protocol) {
                if let Some(cells) = before.get(route) {
                    routes.insert(route.clone(), cells.clone());
                }
            }
        }
        Self { listener, cells, routes: RefCell::new(routes), metrics: metrics.clone() }
    }

    /// The counters of the Gateway listener `name`; of the first one for traffic that reached none.
    pub(super) fn cells(&self, name: Option<&ListenerName>) -> Arc<ListenerCells> {
        let position = name.and_then(|name| self.listener.names.iter().position(|known| known == name));
        // `names` is never empty, see `Listener`; were it, the counts would go nowhere.
        self.cells.get(position.unwrap_or(0)).cloned().unwrap_or_default()
    }

    pub(super) fn route(&self, name: &RouteName) -> Arc<RouteCells> {
        if let Some(cells) = self.routes.borrow().get(name) {
            return cells.clone();
        }
        let cells = self.metrics.route(name);
        self.routes.borrow_mut().insert(name.clone(), cells.clone());
        cells
    }
}

/// The routes that the relays count for; HTTP counts its own.
fn route_names(protocol: &Protocol) -> Vec<&RouteName> {
    match protocol {
        Protocol::Tcp(service) | Protocol::Udp(service) => service.route.iter().collect(),
        Protocol::TlsPassthrough(table) => table
            .listeners
            .values()
            .flat_map(|listener| listener.hosts.values().map(|rule| &rule.route))
            .collect(),
        Protocol::Http(_) => Vec::new(),
    }
}

/// Counts what a worker has in hand: connections against their bound, and tasks of listeners.
#[derive(Debug)]
pub(super) struct Slots {
    connections: Cell<usize>,
    max: usize,
    listeners: RefCell<HashMap<ListenerKey, usize>>,
    changed: Rc<Notify>,
}

impl Slots {
    fn new(max: usize) -> Self {
        Self { connections: Cell::new(0), max, listeners: RefCell::default(), changed: Rc::default() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.connections.get() >= self.max
    }

    /// Resolves when there is room for a connection.
    pub(super) async fn room(&self) {
        self.wait(|| !self.is_full()).await;
    }

    async fn all_ended(&self) {
        self.wait(|| self.connections.get() == 0 && self.listeners.borrow().is_empty()).await;
    }

    async fn listeners_closed(&self, key: ListenerKey) {
        self.wait(|| !self.listeners.borrow().contains_key(&key)).await;
    }

    async fn wait(&self, condition: impl Fn() -> bool) {
        loop {
            // Registered before the check, so that no change is missed.
            let changed = self.changed.notified();
            if condition() {
                return;
            }
            changed.await;
        }
    }
}

/// One connection, counted until dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot(Rc<Worker>);

impl ConnectionSlot {
    pub(super) fn new(worker: &Rc<Worker>) -> Self {
        worker.slots.connections.set(worker.slots.connections.get() + 1);
        Self(worker.clone())
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let slots = &self.0.slots;
        slots.connections.set(slots.connections.get().saturating_sub(1));
        slots.changed.notify_waiters();
    }
}

/// One task that owns a listening socket, counted until dropped.
#[derive(Debug)]
pub(super) struct ListenerSlot(Rc<Worker>, ListenerKey);

impl ListenerSlot {
    pub(super) fn new(worker: &Rc<Worker>, key: ListenerKey) -> Self {
        *worker.slots.listeners.borrow_mut().entry(key).or_insert(0) += 1;
        Self(worker.clone(), key)
    }
}

impl Drop for ListenerSlot {
    fn drop(&mut self) {
        let slots = &self.0.slots;
        {
            let mut listeners = slots.listeners.borrow_mut();
            if let Some(n) = listeners.get_mut(&self.1) {
                *n -= 1;
                if *n == 0 {
                    listeners.remove(&self.1);
                }
            }
        }
        slots.changed.notify_waiters();
    }
}
