//! The task that takes in what is sent to addresses of the pool, from its start to its end.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_local};
use tokio_util::sync::CancellationToken;

use crate::addresses::{self, Delivery, Interfaces, Missing};
use crate::ebpf;
use crate::provision::{AddressProvider, IpRange};
use crate::snapshot::Reader;

/// The pool's addresses; empty without a pool.
pub(super) fn pool(provider: &AddressProvider) -> Vec<IpRange> {
    match provider {
        AddressProvider::Pool(pool) => pool.ranges.clone(),
        AddressProvider::Host | AddressProvider::Service(_) => Vec::new(),
    }
}

/// Before any thread is started: this one makes the routes, and its capabilities are permitted only.
pub(super) fn raise_capabilities(pool: &[IpRange]) {
    if !pool.is_empty()
        && let Err(error) = ebpf::raise_capabilities()
    {
        tracing::warn!(%error, "capabilities cannot be raised");
    }
}

/// Does nothing without a pool.
pub(super) struct Delivered {
    pub(super) missing: watch::Receiver<Arc<Missing>>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Delivered {
    pub(super) fn start(
        pool: Vec<IpRange>,
        reader: Reader,
        interfaces: &watch::Receiver<Arc<Interfaces>>,
    ) -> Self {
        let (sender, missing) = watch::channel(Arc::default());
        let stop = CancellationToken::new();
        let task = (!pool.is_empty()).then(|| {
            let delivery = Delivery { ranges: pool, reader, interfaces: interfaces.clone(), missing: sender };
            spawn_local(addresses::deliver(delivery, stop.clone().cancelled_owned()))
        });
        Self { missing, stop, task }
    }

    /// Takes the routes back; to be awaited when nothing is served any more.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        if let Some(task) = self.task
            && let Err(error) = task.await
        {
            tracing::warn!(%error, "local routes may have stayed");
        }
    }
}
