//! What must not outlive this process, and its removal on SIGINT and SIGTERM.
//!
//! SIGKILL cannot be handled: processes then die by their parent-death signal, and namespaces, which carry their owner's pid
//! in the name, are removed at the next start ([`remove_stale`]).

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::fd::IntoRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use anyhow::{Context as _, Result};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::Pid;

/// Every namespace and folder of ours starts with this, then the owner's pid.
pub const PREFIX: &str = "ga-lab-";

#[derive(Default)]
struct Registry {
    namespaces: BTreeSet<String>,
    /// Process group leaders.
    groups: BTreeSet<i32>,
    mounts: BTreeSet<PathBuf>,
    folders: BTreeSet<PathBuf>,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);
static WAKE_FD: AtomicI32 = AtomicI32::new(-1);

fn with_registry<T>(change: impl FnOnce(&mut Registry) -> T) -> T {
    let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    change(registry.get_or_insert_default())
}

pub(crate) fn add_namespace(name: &str) {
    with_registry(|registry| registry.namespaces.insert(name.to_owned()));
}

pub(crate) fn add_group(leader: i32) {
    with_registry(|registry| registry.groups.insert(leader));
}

pub(crate) fn forget_group(leader: i32) {
    with_registry(|registry| registry.groups.remove(&leader));
}

pub(crate) fn add_folder(path: &Path) {
    with_registry(|registry| registry.folders.insert(path.to_owned()));
}

/// `path` is unmounted, and with it what is pinned there released, when its lab goes or the process is interrupted.
pub fn add_mount(path: &Path) {
    with_registry(|registry| registry.mounts.insert(path.to_owned()));
}

pub(crate) fn remove_namespaces(names: &[String]) {
    for name in names {
        delete_namespace(name);
    }
    with_registry(|registry| registry.namespaces.retain(|name| !names.contains(name)));
}

pub(crate) fn remove_folder(path: &Path) {
    let mounts: Vec<PathBuf> = with_registry(|registry| {
        registry.folders.remove(path);
        let below: Vec<PathBuf> =
            registry.mounts.iter().filter(|mount| mount.starts_with(path)).cloned().collect();
        registry.mounts.retain(|mount| !mount.starts_with(path));
        below
    });
    for mount in mounts {
        unmount(&mount);
    }
    // Best effort: what is left lies in the temporary folder under a name that says whose it was.
    drop(std::fs::remove_dir_all(path));
}

fn unmount(path: &Path) {
    nix::mount::umount2(path, nix::mount::MntFlags::MNT_DETACH).ok();
}

fn delete_namespace(name: &str) {
    // The name is a bind mount of the namespace on a file; this is what `ip netns delete` does.
    let path = Path::new("/run/netns").join(name);
    unmount(&path);
    drop(std::fs::remove_file(&path));
    drop(std::fs::remove_dir_all(etc_folder(name)));
}

/// What `ip netns exec NAME` mounts over /etc.
pub(crate) fn etc_folder(name: &str) -> PathBuf {
    Path::new("/etc/netns").join(name)
}

fn remove_everything() {
    let registry = with_registry(std::mem::take);
    for group in registry.groups {
        nix::sys::signal::killpg(Pid::from_raw(group), Signal::SIGKILL).ok();
    }
    for name in registry.namespaces {
        delete_namespace(&name);
    }
    for mount in registry.mounts {
        unmount(&mount);
    }
    for folder in registry.folders {
        drop(std::fs::remove_dir_all(folder));
    }
}

extern "C" fn on_signal(signal: libc::c_int) {
    let fd = WAKE_FD.load(Ordering::Relaxed);
    let byte = u8::try_from(signal).unwrap_or(0);
    // SAFETY: write(2) is async-signal-safe; the descriptor is never closed; one byte is read from a live local.
    unsafe { libc::write(fd, (&raw const byte).cast(), 1) };
}

/// From now on SIGINT and SIGTERM remove everything that is registered, then end the process with 128 + signal.
pub fn on_interrupt() -> Result<()> {
    static ONCE: Once = Once::new();
    let mut outcome = Ok(());
    ONCE.call_once(|| outcome = install());
    outcome
}

fn install() -> Result<()> {
    let (mut reader, writer) = UnixStream::pair().context("make a socket pair for signals")?;
    WAKE_FD.store(writer.into_raw_fd(), Ordering::Relaxed);
    let action = SigAction::new(SigHandler::Handler(on_signal), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler only calls write(2), which is async-signal-safe.
        unsafe { sigaction(signal, &action) }.context("install a signal handler")?;
    }
    std::thread::Builder::new().name("lab-signals".into()).spawn(move || {
        let mut byte = [0];
        if reader.read_exact(&mut byte).is_ok() {
            remove_everything();
            drop(std::io::stderr().write_all(b"\ninterrupted: namespaces and processes removed\n"));
            std::process::exit(128 + i32::from(byte[0]));
        }
    })?;
    Ok(())
}

/// Removes what owners that no longer live left behind.
pub fn remove_stale() {
    let is_dead = |name: &str| {
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists())
    };
    for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        if let Some(name) = entry.file_name().to_str().filter(|name| is_dead(name)) {
            delete_namespace(name);
        }
    }
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_dead) {
            unmount(&entry.path().join("bpffs"));
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}
