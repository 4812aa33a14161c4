//! The command line: the only module that reads argv and the environment.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A Gateway API implementation that needs rights in its own namespaces only.
#[derive(Debug, Parser)]
#[command(name = "gateway-agent", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a folder of manifests and exit: 0 nothing found, 1 findings, 2 usage or I/O.
    Check {
        /// Folder of *.yaml, *.yml and *.json files.
        dir: PathBuf,
        /// Names of Gateway classes that are the agent's.
        #[arg(long = "gateway-class-name", value_name = "NAME", default_value = "gateway-agent")]
        gateway_class_names: Vec<String>,
    },
}

/// Which data paths may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DatapathMode {
    /// Probe each eBPF path at start and fall back per path.
    Auto,
    /// Refuse to start where an eBPF path cannot be had.
    Ebpf,
    /// Never touch eBPF.
    Userspace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Json,
    Text,
}

#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Serve a folder of manifests, without a cluster.
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,

    /// Which data paths may be used.
    #[arg(long, value_enum, default_value = "auto", env = "GATEWAY_AGENT_DATAPATH")]
    pub datapath: DatapathMode,

    /// Pin eBPF maps and links below this bpffs folder instead of holding them in a parent process.
    #[arg(long, value_name = "DIR")]
    pub bpffs: Option<PathBuf>,

    /// Name of the pin folder below --bpffs; in a pod its UID.
    #[arg(long, value_name = "NAME", default_value = "standalone", env = "GATEWAY_AGENT_INSTANCE")]
    pub instance: String,

    /// Worker threads of the proxy [default: available parallelism].
    #[arg(long, value_name = "N")]
    pub workers: Option<NonZeroUsize>,

    /// Listen on these addresses only [default: all of the network namespace].
    #[arg(long = "address", value_name = "IP")]
    pub addresses: Vec<IpAddr>,

    /// Names of Gateway classes that are served; no GatewayClass object is needed.
    #[arg(long = "gateway-class-name", value_name = "NAME", default_value = "gateway-agent")]
    pub gateway_class_names: Vec<String>,

    /// The controllerName in status entries.
    #[arg(long, value_name = "NAME", default_value = "gateway-agent.dev/agent")]
    pub controller_name: String,

    /// Serves /livez, /readyz, /metrics and /snapshot.
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:9901", env = "GATEWAY_AGENT_ADMIN_ADDRESS")]
    pub admin_address: SocketAddr,

    /// How long work in flight may take to finish after SIGTERM, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "25")]
    pub grace_period: u64,

    /// Source ports that the TC path uses towards backends; keep them out of net.ipv4.ip_local_port_range.
    #[arg(long, value_name = "FIRST-LAST", default_value = "10000-29999", value_parser = parse_port_range)]
    pub source_ports: RangeInclusive<u16>,

    /// Established flows that the TC path can hold.
    #[arg(long, value_name = "N", default_value = "131072")]
    pub max_flows: u32,

    /// Log filter, such as `info` or `gateway_agent=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", env = "GATEWAY_AGENT_LOG")]
    pub log_level: String,

    #[arg(long, value_enum, default_value = "text", env = "GATEWAY_AGENT_LOG_FORMAT")]
    pub log_format: LogFormat,

    /// Descriptor of the socket to the process that holds the kernel state; set by that process.
    #[arg(long, value_name = "FD", hide = true)]
    pub holder_fd: Option<i32>,
}

impl Default for ServeArgs {
    /// What an empty command line gives.
    fn default() -> Self {
        Cli::parse_from(["gateway-agent"]).serve
    }
}

impl ServeArgs {
    pub const fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_period)
    }

    pub fn worker_count(&self) -> NonZeroUsize {
        // The standard library's figure honours the cgroup's CPU quota and the affinity mask.
        self.workers.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
    }
}

/// The arguments as they were given, without the program's name.
pub fn raw() -> impl Iterator<Item = OsString> {
    std::env::args_os().skip(1)
}

fn parse_port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let parsed =
        text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    let Some((first, last)) = parsed else {
        return Err("expected FIRST-LAST, such as 10000-29999".into());
    };
    // 256 leaves the port search enough candidates under load.
    if first < 1024 || last < first || last - first < 255 {
        return Err("expected at least 256 ports, all of them 1024 or above".into());
    }
    Ok(first..=last)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{Cli, parse_port_range};

    #[test]
    fn command_line_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn source_port_range_is_bounded() {
        assert_eq!(parse_port_range("10000-29999"), Ok(10000..=29999));
        for bad in ["", "1-2", "10000", "20000-10000", "10000-10100", "10000-99999"] {
            assert!(parse_port_range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn check_takes_a_folder() {
        assert!(Cli::try_parse_from(["gateway-agent", "check", "dir"]).is_ok());
        assert!(Cli::try_parse_from(["gateway-agent", "check"]).is_err());
    }
}
