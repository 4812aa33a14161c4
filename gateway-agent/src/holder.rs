//! A minimal parent process that keeps the kernel state while the worker comes and goes.
//!
//! Without a bpffs the maps and links of the kernel path live as long as somebody holds a descriptor of each. The
//! *holder* is that somebody: it starts the *worker* (the same binary with `--holder-fd`), keeps the descriptors that
//! the worker hands over, gives all of them to the next worker after a crash, and is otherwise idle. So `kill -9` of
//! the worker loses no kernel state.
//!
//! - [`run`] is the holder: called first thing in `main`, before any thread exists; returns the exit code.
//! - [`Client`] is the worker's end.
//!
//! **Invariant:** the holder parses no configuration, opens no file and no socket but the worker's, runs no async
//! runtime and knows nothing of eBPF: what it does not do cannot crash it.

mod client;
mod parent;
mod protocol;
mod store;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

pub use client::{Client, HolderError};

/// The worker's exit code for "refused to start": a mistake that a restart does not cure, so there is none.
pub const REFUSED_TO_START: u8 = 2;

/// Starts the worker with `arguments` (without the program's name) and `--holder-fd N`, and returns when it has ended
/// for good: with code 0 or [`REFUSED_TO_START`], or in any way after SIGTERM, SIGINT, SIGQUIT or SIGHUP. `grace` is how
/// long the worker may take to end after such a signal before it is killed.
pub fn run(arguments: impl IntoIterator<Item = OsString>, grace: Duration) -> ExitCode {
    match parent::Parent::new(arguments.into_iter().collect(), grace) {
        Ok(parent) => ExitCode::from(parent.run()),
        Err(error) => {
            tracing::error!(%error, "the holder process cannot start");
            ExitCode::FAILURE
        }
    }
}
