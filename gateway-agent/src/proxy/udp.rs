//! The UDP relay: each flow keeps its backend while that is one of the service's, and answers leave from the address
//! that the client asked.
//!
//! Serves what the kernel path leaves alone. Does not keep order or deliver twice; what finds a full socket buffer is
//! dropped and counted, as a router would. The flows of a worker are bounded: a new one beyond that takes the place of
//! the one that was idle for longest.

mod datagram;
mod flow;
mod table;

use std::io;
use std::rc::Rc;
use std::time::Instant;

use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use self::datagram::Ends;
use self::flow::{Start, Tried};
pub(super) use self::{flow::Running, table::FlowTable};
use super::flow::{FlowKey, alternative, has_target, table};
use super::limits::{CONNECT_ATTEMPTS, DATAGRAMS_PER_POLL};
use super::slots::ListenerSlot;
use super::state::ListenerState;
use super::worker::Worker;
use crate::snapshot::{L4Service, ListenerKey, Protocol, Reader, Transport};

/// Serves `socket` until `close`.
pub(super) fn spawn(
    worker: &Rc<Worker>,
    key: ListenerKey,
    socket: std::net::UdpSocket,
    close: CancellationToken,
) -> io::Result<()> {
    let socket = Rc::new(UdpSocket::from_std(socket)?);
    let slot = ListenerSlot::new(worker, key);
    let relay = Relay { worker: worker.clone(), key, socket };
    let mut reader = worker.reader();
    tokio::task::spawn_local(async move {
        relay.run(&mut reader, &close).await;
        // A backend's answer cannot reach the client any more.
        relay.end_flows();
        drop(slot);
    });
    Ok(())
}

struct Relay {
    worker: Rc<Worker>,
    key: ListenerKey,
    socket: Rc<UdpSocket>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NewFlows {
    Taken,
    Refused,
}

impl Relay {
    async fn run(&self, reader: &mut Reader, close: &CancellationToken) {
        let mut is_publishing = true;
        loop {
            tokio::select! {
                biased;
                () = close.cancelled() => break,
                changed = reader.changed(), if is_publishing => {
                    is_publishing = changed.is_some();
                    self.leave_gone_targets();
                }
                result = self.socket.readable() => {
                    if !self.receive(result, NewFlows::Taken).await {
                        return;
                    }
                }
            }
        }
        if self.worker.drain.is_stopping() {
            // Cut here, answers under way would be lost; a new flow is for whoever serves next.
            let serving =
                async { while self.receive(self.socket.readable().await, NewFlows::Refused).await {} };
            drop(tokio::time::timeout(self.worker.timeouts.udp_drain, serving).await);
        }
    }

    /// Takes what the socket has, up to a bound. False: the socket cannot be polled.
    async fn receive(&self, readable: io::Result<()>, new_flows: NewFlows) -> bool {
        if let Err(error) = readable {
            tracing::error!(listener = %self.key, %error, "cannot wait for datagrams");
            return false;
        }
        {
            let mut buffer = self.worker.datagram.borrow_mut();
            for _ in 0..DATAGRAMS_PER_POLL {
                match datagram::receive(&self.socket, &mut buffer) {
                    Ok((n, ends)) => self.dispatch(buffer.get(..n).unwrap_or_default(), ends, new_flows),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // Of one datagram, or an ICMP error for an answer that a client did not want.
                    Err(error) => {
                        tracing::trace!(listener = %self.key, %error, "no datagram");
                    }
                }
            }
        }
        tokio::task::yield_now().await;
        true
    }

    fn dispatch(&self, payload: &[u8], ends: Ends, new_flows: NewFlows) {
        let local = std::net::SocketAddr::new(ends.local, self.key.port.get());
        let key = FlowKey::new(ends.peer, local);
        let known = {
            let mut flows = self.worker.flows.borrow_mut();
            flows.touch(&key, Instant::now()).map(|running| running.flow.clone())
        };
        let mut tried = Tried::new();
        if let Some(flow) = known {
            if !flow.is_refused.get() && flow.forward(payload) {
                return;
            }
            self.worker.flows.borrow_mut().remove(&key);
            tried.clone_from(&flow.tried);
            tried.push(flow.target);
        }
        if new_flows == NewFlows::Refused {
            self.worker.cells.udp_dropped.add(1);
            return;
        }
        self.start(key, ends, tried, payload);
    }

    /// Begins a flow and sends its first datagram.
    fn start(&self, key: FlowKey, ends: Ends, mut tried: Tried, payload: &[u8]) {
        let Some(state) = self.worker.listener(self.key) else { return };
        let Protocol::Udp(service) = &state.listener.protocol else { return };
        let cells = state.cells(None);
        let Some(route) = &service.route else { return cells.unrouted.add(1) };
        let route = state.route(route);
        let Some(target) = pick(service, key, &mut tried) else { return route.refused.add(1) };
        let start = |tried: Tried| Start {
            key,
            listener: self.key,
            serving: self.socket.clone(),
            ends,
            cells: cells.clone(),
            route: route.clone(),
            tried,
        };
        self.make_room();
        let started = start(tried.clone()).run(&self.worker, target).or_else(|error| {
            // Out of descriptors: an idle flow gives its own.
            let evicted = self.evict();
            if evicted { start(tried).run(&self.worker, target) } else { Err(error) }
        });
        match started {
            Ok(running) => {
                running.flow.forward(payload);
                self.worker.flows.borrow_mut().insert(key, running, Instant::now());
                super::worker::expire_flows(&self.worker);
            }
            Err(error) => {
                self.worker.cells.udp_dropped.add(1);
                route.upstream_failures.add(1);
                tracing::debug!(src.addr = %key.client, upstream.addr = %target, %error, "cannot start a flow");
            }
        }
    }

    fn make_room(&self) {
        if self.worker.flows.borrow().is_full() {
            self.evict();
        }
    }

    fn evict(&self) -> bool {
        let evicted = self.worker.flows.borrow_mut().pop_oldest();
        if evicted.is_some() {
            self.worker.cells.udp_flows_evicted.add(1);
        }
        evicted.is_some()
    }

    /// O15: flows leave an endpoint that the service lost, also those whose client keeps sending. The next datagram of
    /// each chooses anew.
    fn leave_gone_targets(&self) {
        let state = self.worker.listener(self.key);
        let service = state.as_deref().and_then(service);
        let gone = self.worker.flows.borrow_mut().take_unless(|key, running| {
            running.flow.listener != self.key
                || service
                    .is_some_and(|service| has_target(table(service, key.client.ip()), running.flow.target))
        });
        if !gone.is_empty() {
            tracing::debug!(listener = %self.key, flows = gone.len(), "flows leave endpoints that are gone");
        }
    }

    fn end_flows(&self) {
        let ended =
            self.worker.flows.borrow_mut().take_unless(|_, running| running.flow.listener != self.key);
        drop(ended);
    }
}

fn service(state: &ListenerState) -> Option<&L4Service> {
    match &state.listener.protocol {
        Protocol::Udp(service) => Some(service),
        Protocol::Http(_) | Protocol::Tcp(_) | Protocol::Tls(_) => None,
    }
}

/// The flow's backend: by its hash, or another one after that refused. When enough have refused, it begins anew.
fn pick(service: &L4Service, key: FlowKey, tried: &mut Tried) -> Option<std::net::SocketAddr> {
    let table = table(service, key.client.ip());
    let hash = key.hash(Transport::Udp);
    let first = table.pick(hash)?;
    if tried.is_empty() {
        return Some(first);
    }
    if tried.len() < CONNECT_ATTEMPTS
        && let Some(other) = alternative(table, hash, tried)
    {
        return Some(other);
    }
    tried.clear();
    Some(first)
}
