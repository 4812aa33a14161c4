//! The kernel data path: loads the programs, keeps their maps equal to the snapshot.
//!
//! How [`crate::app`] uses it:
//!
//! 1. [`wants_holder`] first thing in `main`, before any thread: if true, and `--holder-fd` is not given, the process
//!    becomes the holder ([`crate::holder::run`]); else it goes on as the worker, or as the only process.
//! 2. [`start`] on the main thread *before* the proxy's threads are started: it raises the capabilities, which the threads
//!    inherit and [`Steering`] needs. It never fails where the data path is merely not to be had: then [`Ebpf::paths`] says
//!    why and everything is left to the proxy. A [`StartError`] is for the user: exit with
//!    [`crate::holder::REFUSED_TO_START`].
//! 3. [`Ebpf::steering`] goes to the proxy, [`Ebpf::applied`] to the status, [`Ebpf::monitor`] to the admin server.
//! 4. [`Ebpf::run`] is spawned on the control runtime, and awaited at the end: it returns when the drain is over.
//!
//! **What outlives what.** A crash (`kill -9`) of the worker loses nothing: the holder or the pins keep maps, programs and
//! links. On SIGTERM the agent without `--bpffs` takes the programs off after the grace period; with `--bpffs` all stays
//! in force for the next agent, and goes with the folder of pins or with the network namespace. Filters of the clsact
//! qdisc (kernels before 6.6) also outlive a holder that is killed itself, until the next start replaces them.

mod apply;
mod attach;
mod capabilities;
mod clsact;
mod desired;
mod encode;
mod keeper;
mod load;
mod monitor;
mod plan;
mod probe;
mod steering;
mod sweep;
mod sys;
mod tables;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use self::apply::{L4, Task, Work};
use self::attach::{Attachments, Mechanism, attach_sk_lookup};
pub use self::keeper::KeeperError;
use self::keeper::{Keeper, Pins};
pub use self::load::LoadError;
use self::load::{Loaded, Objects};
pub use self::monitor::Monitor;
use self::plan::{Limits, State};
pub use self::probe::{Path, Paths};
use self::steering::SkLookupSteering;
use self::sweep::Sweep;
use self::tables::Tables;
use crate::addresses::{self, AddressError, Interfaces};
use crate::args::DatapathMode;
use crate::drain::Drain;
use crate::holder::Client;
use crate::proxy::steering::Steering;
use crate::snapshot::Reader;
use crate::status::Applied;

/// What [`start`] needs to know; most of it is [`crate::args::ServeArgs`].
#[derive(Debug)]
pub struct Setup {
    pub mode: DatapathMode,
    pub bpffs: Option<PathBuf>,
    pub instance: String,
    pub source_ports: RangeInclusive<u16>,
    pub max_flows: u32,
    /// Present in a worker.
    pub holder: Option<Client>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("--datapath ebpf cannot be had: {0}")]
    Refused(Paths),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    #[error(transparent)]
    Addresses(#[from] AddressError),
}

/// The kernel path, ready to serve, or the reasons why it is not there.
#[derive(Debug)]
pub struct Ebpf {
    l4: Result<L4, String>,
    steering: Option<Arc<SkLookupSteering>>,
    monitor: Arc<Monitor>,
    keeper: Keeper,
    applied: watch::Sender<Arc<Applied>>,
    /// Detached when it is dropped, unless it is kept elsewhere.
    _sk_lookup: Option<OwnedFd>,
}

/// Whether a process that keeps the kernel state is of use: eBPF may be had, and nothing else keeps its state.
pub fn wants_holder(mode: DatapathMode, bpffs: Option<&std::path::Path>) -> bool {
    mode != DatapathMode::Userspace && bpffs.is_none() && probe::obstacle().is_none()
}

/// Makes the permitted capabilities of the kernel path effective, for this thread and those that it starts.
pub fn raise_capabilities() -> std::io::Result<()> {
    capabilities::raise()
}

/// Loads or adopts, and attaches. See the module.
pub fn start(setup: Setup) -> Result<Ebpf, StartError> {
    let mode = setup.mode;
    let ebpf = match mode {
        DatapathMode::Userspace => Ebpf::userspace("--datapath userspace")?,
        DatapathMode::Auto | DatapathMode::Ebpf => match probe::obstacle() {
            Some(reason) => Ebpf::userspace(&reason)?,
            None => load_and_attach(setup)?,
        },
    };
    let paths = ebpf.paths();
    if mode == DatapathMode::Ebpf && !paths.is_complete() {
        return Err(StartError::Refused(paths.clone()));
    }
    tracing::info!(l4 = %paths.l4, steering = %paths.steering, kept_by = ebpf.keeper.as_str(), "data paths");
    Ok(ebpf)
}

fn load_and_attach(setup: Setup) -> Result<Ebpf, StartError> {
    if let Err(error) = capabilities::raise() {
        return Ok(Ebpf::userspace(&format!("capabilities cannot be raised: {error}"))?);
    }
    let restarts = setup.holder.as_ref().and_then(|holder| holder.restarts().ok()).unwrap_or(0);
    let pins = setup.bpffs.as_ref().map(|bpffs| Pins::open(bpffs, &setup.instance)).transpose();
    let keeper = match (pins, setup.holder) {
        (Ok(Some(pins)), _) => Keeper::Pins(Arc::new(pins)),
        (Ok(None), Some(holder)) => Keeper::Holder(Arc::new(holder)),
        (Ok(None), None) => Keeper::Process,
        (Err(error), _) => without_pins(error, setup.mode)?,
    };
    let (keeper, objects) = match load::objects(&keeper, setup.max_flows) {
        Err(LoadError::Keeper(error)) => {
            let keeper = without_pins(error, setup.mode)?;
            (keeper.clone(), load::objects(&keeper, setup.max_flows))
        }
        objects => (keeper, objects),
    };
    let mut objects = match objects {
        Ok(objects) => objects,
        Err(LoadError::Load(reason)) => return Ok(Ebpf::userspace(&reason)?),
        Err(error) => return Err(error.into()),
    };
    let interfaces = Arc::new(addresses::read()?);
    let mut kept = std::mem::take(&mut objects.links);
    let (sk_lookup, steering, steering_path) = start_steering(&objects, &keeper, &mut kept, &interfaces)?;
    let (l4, l4_path) = start_l4(&objects, &keeper, &mut kept, &interfaces, setup.source_ports)?;
    let paths = Paths { l4: l4_path, steering: steering_path };
    let monitor = Arc::new(Monitor::new(paths, Some(&objects))?);
    monitor.told().worker_restarts = restarts.into();
    Ok(Ebpf { l4, steering, monitor, keeper, applied: watch::Sender::default(), _sk_lookup: sk_lookup })
}

/// A place for pins that cannot be used costs the pins, not the path (O12); but for who asked for all or nothing.
fn without_pins(error: KeeperError, mode: DatapathMode) -> Result<Keeper, KeeperError> {
    if mode != DatapathMode::Auto || !error.is_dispensable() {
        return Err(error);
    }
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    tracing::warn!(%error, cause, "kernel state is not pinned: it ends with this process");
    Ok(Keeper::Process)
}

type StartedSteering = (Option<OwnedFd>, Option<Arc<SkLookupSteering>>, Path);

fn start_steering(
    objects: &Objects,
    keeper: &Keeper,
    kept: &mut BTreeMap<String, OwnedFd>,
    interfaces: &Arc<Interfaces>,
) -> Result<StartedSteering, StartError> {
    let program = match &objects.steer {
        Ok(program) => program,
        Err(reason) => return Ok((None, None, Path::none(reason))),
    };
    match attach_sk_lookup(program.as_fd(), keeper, kept) {
        Ok(link) => {
            let steering = SkLookupSteering::open(objects, interfaces.clone())?;
            Ok((Some(link), Some(Arc::new(steering)), Path::by("sk_lookup")))
        }
        Err(reason) => Ok((None, None, Path::none(reason))),
    }
}

fn start_l4(
    objects: &Objects,
    keeper: &Keeper,
    kept: &mut BTreeMap<String, OwnedFd>,
    interfaces: &Interfaces,
    source_ports: RangeInclusive<u16>,
) -> Result<(Result<L4, String>, Path), StartError> {
    let program: &Loaded = &objects.l4_ingress;
    let program = match program {
        Ok(program) => program.try_clone().map_err(|error| error.to_string()),
        Err(reason) => Err(reason.clone()),
    };
    let program = match program {
        Ok(program) => program,
        Err(reason) => return Ok((Err(reason.clone()), Path::none(reason))),
    };
    let mut tables = Tables::open(objects)?;
    let count = u32::from(source_ports.end() - source_ports.start()) + 1;
    let write_error = |error: tables::WriteError| LoadError::Load(error.to_string());
    tables.set_source_ports(*source_ports.start(), count).map_err(write_error)?;
    let state = if objects.are_adopted {
        State::adopt(Limits::default(), &tables.read().map_err(write_error)?)
    } else {
        State::new(Limits::default())
    };
    let (mechanism, path) = Mechanism::probe(program.as_fd());
    let mut attachments = Attachments::new(program, mechanism, keeper.clone(), kept);
    attachments.follow(interfaces);
    let sweep = Sweep::open(objects)?;
    let members = state.members();
    Ok((Ok(L4 { attachments, tables, state, sweep, members, source_ports }), path))
}

impl Ebpf {
    fn userspace(reason: &str) -> Result<Self, LoadError> {
        Ok(Self {
            l4: Err(reason.to_owned()),
            steering: None,
            monitor: Arc::new(Monitor::new(Paths::userspace(reason), None)?),
            keeper: Keeper::Process,
            applied: watch::Sender::default(),
            _sk_lookup: None,
        })
    }

    /// Which paths are in use, and why not the others.
    pub fn paths(&self) -> &Paths {
        self.monitor.paths()
    }

    /// For the proxy; absent: it binds.
    pub fn steering(&self) -> Option<Arc<dyn Steering>> {
        self.steering.clone().map(|steering| steering as Arc<dyn Steering>)
    }

    /// What the kernel serves of each revision. Listeners of other protocols than TCP and UDP are never in it.
    pub fn applied(&self) -> watch::Receiver<Arc<Applied>> {
        self.applied.subscribe()
    }

    /// For metrics and the admin view.
    pub fn monitor(&self) -> Arc<Monitor> {
        self.monitor.clone()
    }

    /// Serves until the drain is over. `interfaces` is [`addresses::watch`]'s; `proxy` is what the proxy acknowledges.
    pub async fn run(
        self,
        reader: Reader,
        interfaces: watch::Receiver<Arc<Interfaces>>,
        proxy: watch::Receiver<Arc<Applied>>,
        drain: Drain,
    ) {
        let Self { l4, steering, monitor, keeper, applied, _sk_lookup } = self;
        let task = Task { l4, steering, monitor, keeper, applied, work: Work::default() };
        task.run(reader, interfaces, proxy, drain).await;
    }
}

#[cfg(test)]
mod tests;
