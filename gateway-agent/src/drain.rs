//! Shutdown in two steps: finish what is in flight, then give up.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Cloned into every task that holds work.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    stop: CancellationToken,
    abort: CancellationToken,
}

impl Drain {
    /// Step one: accept nothing new, finish what is in flight, say `Connection: close`.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Step two, at the end of the grace period: drop what is left.
    pub fn abort(&self) {
        self.stop.cancel();
        self.abort.cancel();
    }

    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Resolves when step one begins. Cancellation-safe.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// Resolves when step two begins. Cancellation-safe.
    pub async fn aborting(&self) {
        self.abort.cancelled().await;
    }

    /// Step one, then step two after `grace` unless `finished` resolves before. True when all finished in time.
    pub async fn run(&self, grace: Duration, finished: impl Future<Output = ()>) -> bool {
        self.stop();
        let in_time = tokio::time::timeout(grace, finished).await.is_ok();
        self.abort.cancel();
        in_time
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Drain;

    #[tokio::test(start_paused = true)]
    async fn abort_follows_only_after_the_grace_period() {
        let drain = Drain::default();
        let watcher = drain.clone();
        let in_time = drain
            .run(Duration::from_secs(5), async move {
                watcher.stopping().await;
                assert!(!watcher.abort.is_cancelled());
                std::future::pending::<()>().await;
            })
            .await;
        assert!(!in_time);
        drain.aborting().await;
    }
}
