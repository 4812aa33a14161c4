//! One worker: a thread with its own runtime, its own listening sockets and its own connections.
//!
//! Nothing of a worker is shared with another but the snapshot, and what they tell each other of endpoints that fail. Does not decide what to listen on; see `listener`.

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
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use super::arrival::arrive;
use super::copy::Pools;
use super::flow::FlowKey;
use super::http::{self, Ejections, HttpWorker};
use super::limits::{Budget, COMMANDS, Timeouts};
use super::pool::Buffers;
use super::proxy_protocol::Ends;
use super::random::Random;
use super::slots::Slots;
use super::socket::Sockets;
use super::splice::Pipes;
use super::state::ListenerState;
use super::udp::{FlowTable, Running};
use super::{accept, tcp, tls, udp};
use crate::access_log::AccessLog;
use crate::drain::Drain;
use crate::metrics::{Metrics, WorkerCells};
use crate::snapshot::{ListenerKey, Protocol, Reader};

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
    pub tls: Arc<tls::Configs>,
    pub ejections: Ejections,
    pub access_log: AccessLog,
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
    pub http: Rc<HttpWorker>,
    /// Shared with the other workers.
    pub tls: Arc<tls::Configs>,
    /// TLS handshakes under way.
    pub handshakes: Cell<usize>,
    reader: RefCell<Reader>,
    metrics: Arc<Metrics>,
    states: RefCell<HashMap<ListenerKey, Rc<ListenerState>>>,
}

impl Worker {
    fn new(seed: Seed) -> Self {
        let Seed { index: _, reader, metrics, drain, budget, timeouts, random, tls, ejections, access_log } =
            seed;
        let http = HttpWorker::new(reader.clone(), metrics.clone(), drain.clone(), random);
        Self {
            cells: metrics.worker(),
            pools: Pools { buffers: Buffers::default(), pipes: Pipes::new(budget.pipes) },
            timeouts,
            random: Random::new(random),
            http: Rc::new(http.with_ejections(&ejections).with_access_log(&access_log)),
            tls,
            handshakes: Cell::new(0),
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
        let mut ends = Ends { client: peer, local };
        if let Some(sources) = &state.listener.proxy_sources {
            // Its state is large, and most connections have none of it.
            let Some(announced) = Box::pin(arrive(self, &stream, ends, sources, &state)).await else {
                return;
            };
            ends = announced;
        }
        let Ends { client: peer, local } = ends;
        match &state.listener.protocol {
            Protocol::Tcp(service) => tcp::serve(self, stream, peer, local, &state, service).await,
            Protocol::Tls(table) => tls::serve(self, stream, (peer, local), &state, table).await,
            Protocol::Http(_) => {
                let client = http::Client::cleartext(stream);
                http::serve(client, peer, local, state.listener.key, self.http.clone()).await;
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
