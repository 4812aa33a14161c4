//! A network on one machine: namespaces for a client, a gateway and backends, servers and clients in them, and the
//! agent as a process, for namespace tests, the demo and the benches.
//!
//! Does not know what the agent should do: expectations belong to the tests. Everything made here goes away when the
//! [`Lab`] is dropped, on SIGINT and SIGTERM, and at the next start if the owner was killed.

pub mod agent;
pub mod cleanup;
pub mod client;
pub mod hello;
pub mod http;
pub mod manifests;
pub mod netns;
pub mod packet;
pub mod pki;
pub mod process;
pub mod servers;
pub mod suites;
pub mod topology;
pub mod wait;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

pub use agent::{Agent, AgentOptions, Datapath};
pub use netns::Netns;
pub use process::{Command, Process};
pub use topology::{Family, Lab, Shape};
pub use wait::{DEADLINE, eventually, eventually_every, eventually_within};

/// Fails with the remedy unless this process may make network namespaces.
pub fn require_root() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("network namespaces need root: run the same command as root (for example with `sudo -E`)");
    }
    Ok(())
}

/// Where `program` is, or which Debian package would bring it.
pub fn require_program(program: &str, package: &str) -> Result<PathBuf> {
    const PATHS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    PATHS.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.is_file()).with_context(
        || {
            format!(
                "`{program}` is not installed: run `cargo xtask setup` (Debian: `apt-get install {package}`)"
            )
        },
    )
}
