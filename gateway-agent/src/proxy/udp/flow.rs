//! One UDP flow: a connected socket to its backend and the task that brings the answers back.

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;

use super::super::flow::FlowKey;
use super::super::limits::{CONNECT_ATTEMPTS, DATAGRAMS_PER_POLL};
use super::super::worker::Worker;
use super::datagram::{self, Ends};
use crate::metrics::{ListenerCells, RouteCells, WorkerCells};
use crate::snapshot::ListenerKey;

/// Targets that refused the flow, in the order in which they were tried.
pub(super) type Tried = SmallVec<[SocketAddr; CONNECT_ATTEMPTS]>;

#[derive(Debug)]
pub(crate) struct Flow {
    pub key: FlowKey,
    pub listener: ListenerKey,
    pub target: SocketAddr,
    pub tried: Tried,
    /// The backend's host said that nobody listens there; the next datagram goes to another.
    pub is_refused: Cell<bool>,
    upstream: UdpSocket,
    serving: Rc<UdpSocket>,
    ends: Ends,
    cells: Arc<ListenerCells>,
    route: Arc<RouteCells>,
    worker_cells: Arc<WorkerCells>,
}

/// The table's hold on a flow; its task ends with it.
#[derive(Debug)]
pub(crate) struct Running {
    pub flow: Rc<Flow>,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a flow is made of.
#[derive(Debug)]
pub(super) struct Start {
    pub key: FlowKey,
    pub listener: ListenerKey,
    pub serving: Rc<UdpSocket>,
    pub ends: Ends,
    pub cells: Arc<ListenerCells>,
    pub route: Arc<RouteCells>,
    pub tried: Tried,
}

impl Start {
    /// Connects to `target`, which sends nothing, and begins to bring answers back.
    pub(super) fn run(self, worker: &Rc<Worker>, target: SocketAddr) -> io::Result<Running> {
        let upstream = connected(target)?;
        let Self { key, listener, serving, ends, cells, route, tried } = self;
        cells.connections.add(1);
        cells.connections_active.add(1);
        route.requests[0].add(1);
        worker.cells.udp_flows_active.add(1);
        let flow = Rc::new(Flow {
            key,
            listener,
            target,
            tried,
            is_refused: Cell::new(false),
            upstream,
            serving,
            ends,
            cells,
            route,
            worker_cells: worker.cells.clone(),
        });
        let task = tokio::task::spawn_local(answers(worker.clone(), flow.clone()));
        Ok(Running { flow, task: task.abort_handle() })
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.cells.connections_active.sub(1);
        self.worker_cells.udp_flows_active.sub(1);
    }
}

impl Flow {
    /// Sends the client's datagram on. False: the target refuses and the datagram is still to be sent.
    pub(crate) fn forward(&self, payload: &[u8]) -> bool {
        // Not by the runtime, which takes a new socket for not ready: a full buffer drops the datagram anyway.
        match socket2::SockRef::from(&self.upstream).send(payload) {
            Ok(_) => {
                self.cells.received_bytes.add(payload.len() as u64);
                self.route.received_bytes.add(payload.len() as u64);
                true
            }
            Err(error) if is_refusal(&error) => {
                self.refuse(&error);
                false
            }
            Err(error) => {
                self.drop_one(&error);
                true
            }
        }
    }

    fn refuse(&self, error: &io::Error) {
        if !self.is_refused.replace(true) {
            self.route.upstream_failures.add(1);
            tracing::debug!(src.addr = %self.key.client, upstream.addr = %self.target, %error, "datagrams refused");
        }
    }

    /// Notes a pending ICMP error. Without one it only takes the readiness away, which would wake the flow for ever.
    fn take_refusal(&self) {
        let taken: io::Result<()> = self.upstream.try_io(Interest::ERROR, || {
            match socket2::SockRef::from(&self.upstream).take_error() {
                Ok(Some(error)) if is_refusal(&error) => self.refuse(&error),
                Ok(Some(error)) => self.drop_one(&error),
                Ok(None) | Err(_) => {}
            }
            Err(io::ErrorKind::WouldBlock.into())
        });
        debug_assert!(taken.is_err(), "the closure always says that it would block");
    }

    fn drop_one(&self, error: &io::Error) {
        self.worker_cells.udp_dropped.add(1);
        tracing::trace!(src.addr = %self.key.client, upstream.addr = %self.target, %error, "datagram dropped");
    }

    /// Brings the waiting answers to the client, as many as there are but no more than a bound. Whether there was one.
    fn answer(&self, buffer: &mut [u8]) -> bool {
        let mut any = false;
        for _ in 0..DATAGRAMS_PER_POLL {
            match self.upstream.try_recv(buffer) {
                Ok(n) => {
                    any = true;
                    let payload = buffer.get(..n).unwrap_or_default();
                    match datagram::send(&self.serving, payload, self.ends) {
                        Ok(_) => {
                            self.cells.sent_bytes.add(n as u64);
                            self.route.sent_bytes.add(n as u64);
                        }
                        Err(error) => self.drop_one(&error),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if is_refusal(&error) => self.refuse(&error),
                Err(error) => {
                    self.drop_one(&error);
                    break;
                }
            }
        }
        any
    }
}

/// An ICMP error that the kernel reports on the connected socket: the host is there and nobody listens, or the host or
/// network cannot be reached.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable
    )
}

fn connected(target: SocketAddr) -> io::Result<UdpSocket> {
    let socket =
        Socket::new(Domain::for_address(target), Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))?;
    let any = match target {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    // Bound first, so that many flows to one backend get ports by the kernel's random choice.
    socket.bind(&any.into())?;
    socket.connect(&target.into())?;
    UdpSocket::from_std(socket.into())
}

/// Runs until the table drops the flow.
async fn answers(worker: Rc<Worker>, flow: Rc<Flow>) {
    loop {
        // An ICMP error alone does not make a socket readable.
        if let Err(error) = flow.upstream.ready(Interest::READABLE | Interest::ERROR).await {
            tracing::debug!(upstream.addr = %flow.target, %error, "cannot wait for answers");
            flow.is_refused.set(true);
            return;
        }
        flow.take_refusal();
        let any = flow.answer(&mut worker.datagram.borrow_mut());
        if any {
            worker.flows.borrow_mut().touch(&flow.key, Instant::now());
        }
        // Others of the worker run in between, however fast the backend sends.
        tokio::task::yield_now().await;
    }
}
