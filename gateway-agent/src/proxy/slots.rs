//! What a worker has in hand: connections against their bound, and tasks of listeners.
//!
//! Does no I/O; those who wait here wait for others of the same thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use tokio::sync::Notify;

use super::worker::Worker;
use crate::snapshot::ListenerKey;

/// Counts what a worker has in hand: connections against their bound, and tasks of listeners.
#[derive(Debug)]
pub(super) struct Slots {
    connections: Cell<usize>,
    max: usize,
    listeners: RefCell<HashMap<ListenerKey, usize>>,
    changed: Rc<Notify>,
}

impl Slots {
    pub(super) fn new(max: usize) -> Self {
        Self { connections: Cell::new(0), max, listeners: RefCell::default(), changed: Rc::default() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.connections.get() >= self.max
    }

    /// Resolves when there is room for a connection.
    pub(super) async fn room(&self) {
        self.wait(|| !self.is_full()).await;
    }

    /// Resolves when no connection and no listener is left.
    pub(super) async fn all_ended(&self) {
        self.wait(|| self.connections.get() == 0 && self.listeners.borrow().is_empty()).await;
    }

    /// Resolves when the tasks of `key` have closed their sockets.
    pub(super) async fn listeners_closed(&self, key: ListenerKey) {
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
