//! The access log on its way out: each worker has a bounded queue of lines, one thread writes them all.
//!
//! A worker that puts a line into its queue copies it and goes on: it makes no system call while there is traffic, for
//! the writer looks by itself, and it never waits for the disk or for whoever reads standard output. What does not fit
//! is dropped and counted. Does not know what a line says: see `proxy::http`.

mod target;

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;
use std::{fmt, io};

use target::Output;
pub use target::Target;

use crate::metrics::WorkerCells;

/// Lines of one worker that may wait: at 400 bytes each, what a fast worker makes in 50 ms or a usual one in seconds.
const QUEUE_BYTES_MAX: usize = 1024 * 1024;

/// How often queues are looked at while there is traffic: lines are late by no more, and written in large pieces.
const INTERVAL: Duration = Duration::from_millis(20);

/// Looks in vain, about a second of them, before the writer sleeps until it is woken: waking costs a worker a system
/// call, which under traffic it never makes.
const IDLE_LOOKS: u32 = 50;

/// At the end, for what is left. Whoever reads the log may have stopped reading.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Where workers get their queues. A clone is the same log; the default is none.
#[derive(Clone, Debug, Default)]
pub struct AccessLog(Option<Arc<Shared>>);

/// The running writer.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    ended: Receiver<()>,
}

#[derive(Debug)]
struct Shared {
    queues: Mutex<Vec<Arc<Queue>>>,
    bell: Arc<Bell>,
    is_stopping: AtomicBool,
}

/// Wakes the writer.
#[derive(Debug)]
struct Bell {
    is_asleep: AtomicBool,
    writer: Mutex<Option<Thread>>,
}

/// The lines of one worker.
pub struct Queue {
    lines: Mutex<Vec<u8>>,
    bell: Arc<Bell>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AccessLog {
    /// Opens `target` and starts the writer. `cells`: its own, for what cannot be written.
    pub fn start(target: Target, cells: Arc<WorkerCells>) -> io::Result<(Self, Writer)> {
        let output = Output::open(target)?;
        let bell = Arc::new(Bell { is_asleep: AtomicBool::new(false), writer: Mutex::default() });
        let shared = Arc::new(Shared {
            queues: Mutex::default(),
            bell: bell.clone(),
            is_stopping: AtomicBool::new(false),
        });
        let (sender, ended) = sync_channel(1);
        let writer = Loop { shared: shared.clone(), output, cells, spare: empty(), has_failed: false };
        let thread = thread::Builder::new().name("access-log".into()).spawn(move || writer.run(&sender))?;
        *lock(&bell.writer) = Some(thread.thread().clone());
        Ok((Self(Some(shared.clone())), Writer { shared, ended }))
    }

    /// A new queue for one worker; `None`: nothing is logged.
    pub fn queue(&self) -> Option<Arc<Queue>> {
        let shared = self.0.as_ref()?;
        let queue = Arc::new(Queue { lines: Mutex::new(empty()), bell: shared.bell.clone() });
        lock(&shared.queues).push(queue.clone());
        Some(queue)
    }
}

/// All that it will ever hold, so that it never grows; memory is used where it was written to.
fn empty() -> Vec<u8> {
    Vec::with_capacity(QUEUE_BYTES_MAX)
}

impl Writer {
    /// Writes what is left. To be called when the workers have ended.
    pub fn finish(self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.shared.bell.ring();
        if self.ended.recv_timeout(LAST_WORDS).is_err() {
            tracing::warn!("the access log could not be written to its end");
        }
    }
}

impl Queue {
    /// Appends one line, given in pieces. False where it does not fit.
    #[must_use]
    pub fn push(&self, pieces: &[&[u8]]) -> bool {
        let mut lines = lock(&self.lines);
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if lines.len() + length > QUEUE_BYTES_MAX {
            return false;
        }
        pieces.iter().for_each(|piece| lines.extend_from_slice(piece));
        drop(lines);
        self.bell.ring();
        true
    }

    /// Puts what there is in the place of `spare`, which is empty.
    fn swap(&self, spare: &mut Vec<u8>) {
        std::mem::swap(&mut *lock(&self.lines), spare);
    }

    fn is_empty(&self) -> bool {
        lock(&self.lines).is_empty()
    }
}

impl Bell {
    /// A load, unless the writer sleeps.
    fn ring(&self) {
        if self.is_asleep.load(Ordering::SeqCst)
            && self.is_asleep.swap(false, Ordering::SeqCst)
            && let Some(writer) = &*lock(&self.writer)
        {
            writer.unpark();
        }
    }
}

/// The writer's thread.
struct Loop {
    shared: Arc<Shared>,
    output: Output,
    cells: Arc<WorkerCells>,
    spare: Vec<u8>,
    has_failed: bool,
}

impl Loop {
    fn run(mut self, ended: &SyncSender<()>) {
        let mut n_idle = 0;
        loop {
            // Before the look, so that what is there when it is told to stop is written.
            let is_last = self.shared.is_stopping.load(Ordering::SeqCst);
            n_idle = if self.look() { 0 } else { n_idle + 1 };
            if is_last {
                break;
            }
            if n_idle < IDLE_LOOKS {
                thread::park_timeout(INTERVAL);
            } else {
                self.sleep();
            }
        }
        // Nobody may be waiting any more.
        ended.try_send(()).ok();
    }

    /// Writes what there is; false where there was nothing.
    fn look(&mut self) -> bool {
        let queues = {
            let mut known = lock(&self.shared.queues);
            // Those of workers that have ended go once they are empty.
            known.retain(|queue| Arc::strong_count(queue) > 1 || !queue.is_empty());
            known.clone()
        };
        let mut has_found = false;
        for queue in queues {
            queue.swap(&mut self.spare);
            if !self.spare.is_empty() {
                has_found = true;
                self.write();
                self.spare.clear();
            }
        }
        has_found
    }

    fn write(&mut self) {
        let written = self.output.file().and_then(|mut file| file.write_all(&self.spare));
        match written {
            Ok(()) if self.has_failed => {
                self.has_failed = false;
                tracing::info!("the access log is written again");
            }
            Ok(()) => {}
            Err(error) => {
                let n_lines = self.spare.iter().filter(|byte| **byte == b'\n').count();
                self.cells.access_log_dropped.add(n_lines as u64);
                // Once: it may go on for long.
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::error!(%error, "the access log cannot be written");
                }
            }
        }
    }

    fn sleep(&self) {
        self.shared.bell.is_asleep.store(true, Ordering::SeqCst);
        // A line that came before that was put in without ringing.
        let has_lines = lock(&self.shared.queues).iter().any(|queue| !queue.is_empty());
        if !has_lines && !self.shared.is_stopping.load(Ordering::SeqCst) {
            thread::park();
        }
        self.shared.bell.is_asleep.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
