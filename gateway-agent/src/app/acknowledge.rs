//! `gateway-agent acknowledge`: the class acknowledger as a process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::runtime;
use tokio::task::LocalSet;

use super::worker;
use crate::args::AcknowledgeArgs;
use crate::cluster::{self, Api};

/// Twice the pace of the API server's bookmarks, and a half.
const WATCH_IDLE: Duration = Duration::from_secs(150);

/// Acknowledges classes until a signal.
pub(super) fn run(args: &AcknowledgeArgs) -> anyhow::Result<()> {
    let credentials = args.connection.credentials().ok_or_else(|| {
        anyhow!(
            "--kubeconfig FILE says whose classes: this is no pod, for KUBERNETES_SERVICE_HOST is not set"
        )
    })?;
    // Fails only where it was done before.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        // Names of API servers are resolved there.
        .max_blocking_threads(2)
        .build()
        .context("cannot start the runtime")?;
    LocalSet::new().block_on(&runtime, async {
        let stop = worker::stop_signal()?;
        let api = Api::new(&credentials).await.context("cannot use the Kubernetes API")?;
        let controller_name: Arc<str> = Arc::from(&*args.controller_name);
        tracing::info!(controller = %controller_name, "acknowledging the classes of the controller");
        tokio::select! {
            () = cluster::acknowledge(api, controller_name, WATCH_IDLE) => {}
            () = stop => {}
        }
        Ok(())
    })
}
