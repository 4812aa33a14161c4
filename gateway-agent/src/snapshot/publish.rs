//! Hands snapshots to the data paths: one writer, any number of readers that check one number per request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use super::Snapshot;

/// The writing end.
#[derive(Debug)]
pub struct Publisher {
    generation: Arc<AtomicU64>,
    sender: watch::Sender<Arc<Snapshot>>,
}

impl Default for Publisher {
    fn default() -> Self {
        Self { generation: Arc::new(AtomicU64::new(0)), sender: watch::Sender::new(Arc::default()) }
    }
}

impl Publisher {
    /// Makes `snapshot` the current one.
    pub fn publish(&self, snapshot: Arc<Snapshot>) {
        // Both under the channel's lock: a reader that is woken, or that sees the new number, finds the new snapshot.
        self.sender.send_modify(|current| {
            *current = snapshot;
            self.generation.fetch_add(1, Ordering::Release);
        });
    }

    pub fn reader(&self) -> Reader {
        let receiver = self.sender.subscribe();
        let current = receiver.borrow().clone();
        Reader { shared: self.generation.clone(), seen: u64::MAX, receiver, current }
    }
}

/// The reading end of one worker.
#[derive(Clone, Debug)]
pub struct Reader {
    shared: Arc<AtomicU64>,
    seen: u64,
    receiver: watch::Receiver<Arc<Snapshot>>,
    current: Arc<Snapshot>,
}

impl Reader {
    /// The newest snapshot. Costs one load where nothing has changed.
    pub fn current(&mut self) -> &Arc<Snapshot> {
        let generation = self.shared.load(Ordering::Acquire);
        if generation != self.seen {
            self.current = self.receiver.borrow_and_update().clone();
            self.seen = generation;
        }
        &self.current
    }

    /// Waits until there is one that [`Self::current`] or this has not returned; `None` when the publisher is gone.
    pub async fn changed(&mut self) -> Option<Arc<Snapshot>> {
        self.receiver.changed().await.ok()?;
        Some(self.current().clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Publisher;
    use crate::snapshot::{Revision, Snapshot};

    #[test]
    fn reader_sees_the_newest_snapshot_only() {
        let publisher = Publisher::default();
        let mut reader = publisher.reader();
        assert_eq!(reader.current().revision, Revision(0));
        for revision in 1..=3 {
            publisher.publish(Arc::new(Snapshot { revision: Revision(revision), ..Snapshot::default() }));
        }
        assert_eq!(reader.current().revision, Revision(3));
    }
    #[test]
    fn woken_reader_never_gets_the_snapshot_before() {
        const ROUNDS: u64 = 2_000;
        let publisher = Publisher::default();
        let mut reader = publisher.reader();
        let waiting = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
            runtime.block_on(async move {
                let mut last = Revision(0);
                while last < Revision(ROUNDS) {
                    let woken = reader.changed().await.expect("publisher lives").revision;
                    assert!(woken > last, "woken for {woken:?} after {last:?}");
                    last = woken;
                }
            });
        });
        for revision in 1..=ROUNDS {
            publisher.publish(Arc::new(Snapshot { revision: Revision(revision), ..Snapshot::default() }));
            std::thread::yield_now();
        }
        waiting.join().expect("no wake-up without news");
    }
}
