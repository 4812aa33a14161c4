//! The serving process: control thread and proxy workers, from start to the end of the drain.

use std::cell::RefCell;
use std::net::IpAddr;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, ensure};
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{Instant, Sleep};

use super::cluster::{self, Running, Told};
use super::deliver::{Delivered, pool, raise_capabilities};
use super::report::{self, AdminSource};
use super::scope;
use crate::access_log::{AccessLog, Writer};
use crate::addresses::{self, Interfaces, Missing};
use crate::admin;
use crate::args::{ServeArgs, Source};
use crate::cluster::{Batch, Problems};
use crate::control::Control;
use crate::drain::Drain;
use crate::ebpf::{self, Ebpf};
use crate::holder::Client;
use crate::manifests::{self, Load, WatchError};
use crate::memory::{self, Passage};
use crate::metrics::Metrics;
use crate::provision::AddressProvider;
use crate::proxy::{Proxy, ProxyConfig, Timeouts};
use crate::snapshot::Publisher;
use crate::status::Applied;
use crate::translate::{Config, PodIdentity};

/// How long a condition may wait for the data paths before it is shown as it is: a change is in force within
/// milliseconds, so the table shows no Pending that is gone before it can be read.
const REPORT_PATIENCE: Duration = Duration::from_secs(1);

/// Serves until a signal, then drains.
pub(super) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let source = args.source().map_err(|missing| anyhow!(missing))?;
    let provider = args.provider().map_err(|misfit| anyhow!(misfit))?;
    if let Source::Manifests(dir) = &source {
        ensure!(dir.is_dir(), "--manifests {}: not a folder", dir.display());
    }
    // Fails only where it was done before.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        // Manifests are read there, names of API servers resolved and --state-dir written.
        .max_blocking_threads(4)
        .build()
        .context("cannot start the control runtime")?;
    LocalSet::new().block_on(&runtime, serve(args, source, provider))
}

/// What the control loop waits for.
struct Inputs {
    feed: Feed,
    interfaces: watch::Receiver<Arc<Interfaces>>,
    undelivered: watch::Receiver<Arc<Missing>>,
    proxy: watch::Receiver<Arc<Applied>>,
    kernel: watch::Receiver<Arc<Applied>>,
}

async fn serve(args: &ServeArgs, source: Source, provider: AddressProvider) -> anyhow::Result<()> {
    let drain = Drain::default();
    let metrics = Arc::new(Metrics::default());
    let publisher = Publisher::default();
    let (address_task, interfaces) = addresses::watch().context("cannot follow the network's addresses")?;
    spawn_local(address_task.run());

    // Before any thread: they inherit the capabilities that it raises.
    let ebpf = start_ebpf(args)?;
    raise_capabilities(&pool(&provider));
    let admin_listener = admin::bind(args.admin_address)
        .await
        .with_context(|| format!("--admin-address {}", args.admin_address))?;
    let (access_log, log_writer) = start_access_log(args, &metrics)?;
    let proxy = Proxy::start(
        ProxyConfig {
            workers: args.worker_count(),
            drain: drain.clone(),
            metrics: metrics.clone(),
            steering: ebpf.steering(),
            seed: seed(),
            timeouts: Timeouts::default(),
            pool: pool(&provider).into(),
            access_log,
        },
        &publisher,
    )?;
    let delivered = Delivered::start(pool(&provider), publisher.reader(), &interfaces);
    let config = Config { provider: provider.clone(), ..config(args, interfaces.borrow().external()) };
    let control = Rc::new(RefCell::new(Control::new(config, publisher, metrics.clone())));
    let feed = Feed::start(args, &source, &provider, &control).await?;
    let undelivered = delivered.missing.clone();
    let mut inputs = Inputs { feed, interfaces, undelivered, proxy: proxy.applied(), kernel: ebpf.applied() };
    let source = AdminSource {
        control: control.clone(),
        proxy: inputs.proxy.clone(),
        kernel: inputs.kernel.clone(),
        loads: inputs.feed.loads(),
        monitor: ebpf.monitor(),
        metrics,
        drain: drain.clone(),
        cluster: inputs.feed.running().map(Running::view),
    };
    let source = Rc::new(source);
    if let Feed::Cluster(running) = &mut inputs.feed {
        let facts = scope::facts(args, running.watched_scope());
        running.tell_scope(facts, scope::report(source.clone(), args.cluster.node_name.clone()));
    }
    spawn_local(admin::serve(admin_listener, source));
    let reader = control.borrow().reader();
    let kernel =
        spawn_local(ebpf.run(reader, inputs.interfaces.clone(), inputs.proxy.clone(), drain.clone()));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), admin = %args.admin_address, "started");

    let feed = control_loop(&control, inputs).await?;
    let (ended, ()) = tokio::join!(shut_down(args, &drain, proxy, kernel), feed.stop());
    // Connections of the drain arrive by these addresses too.
    delivered.stop().await;
    if let Some(writer) = log_writer {
        writer.finish();
    }
    ended
}

fn start_access_log(args: &ServeArgs, metrics: &Metrics) -> anyhow::Result<(AccessLog, Option<Writer>)> {
    let Some(target) = args.access_log.target() else { return Ok((AccessLog::default(), None)) };
    let started = AccessLog::start(target, metrics.worker());
    let (log, writer) = started.with_context(|| format!("--access-log {}", args.access_log))?;
    Ok((log, Some(writer)))
}

/// Where the objects come from.
enum Feed {
    Manifests { loads: watch::Receiver<Arc<Load>>, task: JoinHandle<Result<(), WatchError>> },
    Cluster(Box<Running>),
}

/// What a feed has to tell.
enum News {
    Load(Arc<Load>),
    Changes(Batch),
    Problems(Arc<Problems>),
}

impl Feed {
    async fn start(
        args: &ServeArgs,
        source: &Source,
        provider: &AddressProvider,
        control: &RefCell<Control>,
    ) -> anyhow::Result<Self> {
        match source {
            Source::Manifests(dir) => Ok(Self::manifests(dir)),
            Source::Cluster(credentials) => {
                let mut started = cluster::start(args, credentials, provider).await?;
                started.restore(&mut control.borrow_mut());
                Ok(Self::Cluster(Box::new(started)))
            }
        }
    }

    fn manifests(dir: &Path) -> Self {
        let (sender, loads) = watch::channel(Arc::new(Load::default()));
        let task = spawn_local(manifests::watch(dir.to_owned(), sender));
        Self::Manifests { loads, task }
    }

    /// The next news. Cancellation-safe.
    async fn next(&mut self) -> News {
        match self {
            Self::Manifests { loads, .. } => {
                if loads.changed().await.is_ok() {
                    return News::Load(loads.borrow_and_update().clone());
                }
            }
            Self::Cluster(running) => {
                if let Some(told) = running.next().await {
                    return match told {
                        Told::Changes(batch) => News::Changes(batch),
                        Told::Problems(problems) => News::Problems(problems),
                    };
                }
            }
        }
        // Its task has ended, and nothing comes any more.
        std::future::pending().await
    }

    /// What the manifests are; of a cluster none.
    fn loads(&self) -> watch::Receiver<Arc<Load>> {
        match self {
            Self::Manifests { loads, .. } => loads.clone(),
            Self::Cluster(_) => watch::channel(Arc::default()).1,
        }
    }

    fn running(&self) -> Option<&Running> {
        match self {
            Self::Manifests { .. } => None,
            Self::Cluster(running) => Some(running),
        }
    }

    async fn stop(self) {
        match self {
            Self::Manifests { task, .. } => task.abort(),
            Self::Cluster(running) => running.stop().await,
        }
    }
}

fn start_ebpf(args: &ServeArgs) -> anyhow::Result<Ebpf> {
    let holder = args.holder_fd.map(Client::from_raw_fd).transpose().context("--holder-fd")?;
    let setup = ebpf::Setup {
        mode: args.datapath,
        bpffs: args.bpffs.clone(),
        instance: args.instance.clone(),
        source_ports: args.source_ports.clone(),
        max_flows: args.max_flows,
        holder,
    };
    Ok(ebpf::start(setup)?)
}

/// Feeds [`Control`] until the process is told to end.
async fn control_loop(control: &RefCell<Control>, mut inputs: Inputs) -> anyhow::Result<Feed> {
    let mut stop = std::pin::pin!(stop_signal()?);
    let mut reporter = report::Reporter::new(inputs.feed.running().is_some());
    let mut patience: Option<Pin<Box<Sleep>>> = None;
    let mut passage = Passage::started();
    loop {
        let is_due = tokio::select! {
            news = inputs.feed.next() => {
                match news {
                    News::Load(load) => {
                        reporter.findings(&load.findings);
                        passage.passed(load.objects.len());
                        control.borrow_mut().load(&load);
                    }
                    News::Changes(batch) => {
                        passage.passed(batch.changes.len());
                        let is_published = control.borrow_mut().objects(batch.changes);
                        if is_published && let Some(running) = inputs.feed.running() {
                            running.published(batch.arrived);
                        }
                    }
                    News::Problems(problems) => {
                        control.borrow_mut().provision_problems(problems);
                    }
                }
                false
            }
            Ok(()) = inputs.interfaces.changed() => {
                let addresses = inputs.interfaces.borrow_and_update().external();
                control.borrow_mut().local_addresses(addresses);
                false
            }
            Ok(()) = inputs.undelivered.changed() => {
                let missing = inputs.undelivered.borrow_and_update().clone();
                control.borrow_mut().undelivered(missing);
                false
            }
            Ok(()) = inputs.proxy.changed() => false,
            Ok(()) = inputs.kernel.changed() => false,
            () = elapsed(patience.as_mut()) => true,
            () = passage.calm() => {
                tokio::task::spawn_blocking(memory::give_back);
                false
            }
            () = &mut stop => return Ok(inputs.feed),
        };
        let proxy = inputs.proxy.borrow_and_update().clone();
        let kernel = inputs.kernel.borrow_and_update().clone();
        let mut control = control.borrow_mut();
        if is_due || control.is_acknowledged(&proxy, &kernel) {
            patience = None;
            reporter.conditions(&control.report(&proxy, &kernel));
            if let Some(running) = inputs.feed.running() {
                running.publish(&control);
            }
        } else if patience.is_none() {
            patience = Some(Box::pin(tokio::time::sleep_until(Instant::now() + REPORT_PATIENCE)));
        }
    }
}

/// Resolves at the first signal that ends the agent: those that the holder passes on.
pub(super) fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let listen = |kind| signal(kind).context("cannot wait for signals");
    let mut hangup = listen(SignalKind::hangup())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut quit = listen(SignalKind::quit())?;
    let mut terminate = listen(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = hangup.recv() => {}
            _ = interrupt.recv() => {}
            _ = quit.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

async fn elapsed(patience: Option<&mut Pin<Box<Sleep>>>) {
    match patience {
        Some(sleep) => sleep.await,
        None => std::future::pending().await,
    }
}

async fn shut_down(
    args: &ServeArgs,
    drain: &Drain,
    proxy: Proxy,
    kernel: JoinHandle<()>,
) -> anyhow::Result<()> {
    tracing::info!(grace_s = args.grace_period, "draining");
    // The kernel's connections have the grace period too, then it takes the programs off.
    let mut join = Box::pin(async { tokio::join!(proxy.join(), kernel) });
    let mut ended = None;
    let in_time = drain.run(args.grace(), async { ended = Some((&mut join).await) }).await;
    if !in_time {
        tracing::warn!("the grace period ended before all work did");
    }
    let (proxy, kernel) = match ended {
        Some(ended) => ended,
        None => join.await,
    };
    proxy.context("the proxy ended badly")?;
    kernel.context("the kernel path ended badly")
}

/// `local_addresses`: those that the network namespace has now.
pub(super) fn config(args: &ServeArgs, local_addresses: Vec<IpAddr>) -> Config {
    Config {
        gateway_class_names: args.gateway_class_names.clone(),
        controller_name: args.controller_name.clone(),
        gateway: args.cluster.gateway.clone(),
        local_endpoints: args.cluster.local_endpoints,
        own_pod: PodIdentity {
            namespace: args.cluster.pod_namespace.as_deref().unwrap_or_default().into(),
            ips: args.cluster.pod_ips.clone(),
            node: args.cluster.node_name.as_deref().map(Arc::from),
            service: args.address.agent_service.as_str().into(),
        },
        addresses: args.addresses.clone(),
        local_addresses,
        system_authorities: super::authorities::system(),
        admin_port: args.admin_address.port(),
        source_ports: args.source_ports.clone(),
        ..Config::default()
    }
}

/// Two agents that started together should not choose the same endpoints in the same order.
pub(super) fn seed() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(std::process::id()).rotate_left(32)
        ^ u64::from(since_epoch.subsec_nanos())
        ^ since_epoch.as_secs()
}
