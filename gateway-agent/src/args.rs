//! The command line: the only module that reads argv and the environment.

mod addresses;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use self::addresses::{AddressArgs, ProviderName};
use crate::access_log::Target;
use crate::cluster::{Credentials, InCluster, MIN_DURATION, Scope};
use crate::snapshot::ObjectName;

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
    /// Print the Gateway API features that are supported, one per line, and exit.
    Features,
    /// Accept the GatewayClasses of the agents' controller and publish the features that they support. Needs a
    /// ClusterRole for gatewayclasses and gatewayclasses/status, and nothing else; no agent needs it.
    Acknowledge(AcknowledgeArgs),
}

#[derive(Clone, Debug, Args)]
pub struct AcknowledgeArgs {
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// The controllerName of the classes.
    #[arg(long, value_name = "NAME", default_value = CONTROLLER_NAME)]
    pub controller_name: String,

    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// Log filter, such as `info` or `gateway_agent=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", env = "GATEWAY_AGENT_LOG")]
    pub log_level: String,

    #[arg(long, value_enum, default_value = "text", env = "GATEWAY_AGENT_LOG_FORMAT")]
    pub log_format: LogFormat,
}

/// How to reach the Kubernetes API.
#[derive(Clone, Debug, Args)]
pub struct ConnectionArgs {
    /// Use this kubeconfig [default: the pod's service account].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Use this context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,

    /// Set by the kubelet.
    #[arg(long, value_name = "HOST", hide = true, env = "KUBERNETES_SERVICE_HOST")]
    pub api_host: Option<String>,
    #[arg(long, value_name = "PORT", hide = true, env = "KUBERNETES_SERVICE_PORT", default_value = "443")]
    pub api_port: u16,
}

const CONTROLLER_NAME: &str = "gateway-agent.dev/agent";

/// Where the access log goes, as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTarget(Option<Target>);

impl LogTarget {
    /// `None`: nowhere.
    pub fn target(&self) -> Option<Target> {
        self.0.clone()
    }
}

impl FromStr for LogTarget {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Err("expected off, stdout or the path of a file"),
            "off" => Ok(Self(None)),
            "stdout" => Ok(Self(Some(Target::Stdout))),
            path => Ok(Self(Some(Target::File(path.into())))),
        }
    }
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("off"),
            Some(Target::Stdout) => f.write_str("stdout"),
            Some(Target::File(path)) => path.display().fmt(f),
        }
    }
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
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "context", "watch_namespaces", "all_namespaces", "state_dir"])]
    pub manifests: Option<PathBuf>,

    #[command(flatten)]
    pub cluster: ClusterArgs,

    #[command(flatten)]
    pub address: AddressArgs,

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
    #[arg(long, value_name = "NAME", default_value = CONTROLLER_NAME)]
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

    /// Where one line of JSON for each HTTP request goes: off, stdout, or a file, which is opened anew when it was moved
    /// away.
    #[arg(long, value_name = "off|stdout|PATH", default_value = "off", env = "GATEWAY_AGENT_ACCESS_LOG")]
    pub access_log: LogTarget,

    #[command(flatten)]
    pub log: LogArgs,

    /// Descriptor of the socket to the process that holds the kernel state; set by that process.
    #[arg(long, value_name = "FD", hide = true)]
    pub holder_fd: Option<i32>,
}

/// Where the objects come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Manifests(PathBuf),
    Cluster(Credentials),
}

/// Of the Kubernetes API; without effect with --manifests.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Watch these namespaces [default: the pod's, or the context's].
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_namespace)]
    pub watch_namespaces: Vec<String>,

    /// Watch all namespaces; needs a ClusterRole.
    #[arg(long, conflicts_with = "watch_namespaces")]
    pub all_namespaces: bool,

    /// Serve this Gateway and no other.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parse_object_name)]
    pub gateway: Option<ObjectName>,

    /// Use only endpoints in the agent's own pod.
    #[arg(long, requires = "gateway")]
    pub local_endpoints: bool,

    /// Keep the objects accepted last here, to serve from them at a start while the API is away. Holds Secrets: in a pod
    /// a memory-backed volume.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,

    /// How long others wait before they take over from an agent that fell silent.
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = clap::value_parser!(u64).range(MIN_LEASE..=MAX_LEASE))]
    pub lease_duration: u64,

    /// How long a watch may bring nothing, not even a bookmark, before it is connected anew. The API server sends a
    /// bookmark every minute.
    #[arg(long, value_name = "SECONDS", default_value = "90", hide = true, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub watch_idle_timeout: u64,

    /// Set by the downward API.
    #[arg(long, value_name = "NAME", hide = true, env = "POD_NAME")]
    pub pod_name: Option<String>,
    #[arg(long, value_name = "NAMESPACE", hide = true, env = "POD_NAMESPACE")]
    pub pod_namespace: Option<String>,
    #[arg(long, value_name = "UID", hide = true, env = "POD_UID")]
    pub pod_uid: Option<String>,
    #[arg(long, value_name = "IP", hide = true, env = "POD_IPS", value_delimiter = ',')]
    pub pod_ips: Vec<IpAddr>,
    #[arg(long, value_name = "NAME", hide = true, env = "NODE_NAME")]
    pub node_name: Option<String>,
}

/// In whole seconds, for clap's range.
const MIN_LEASE: u64 = MIN_DURATION.as_secs();

/// A cluster whose agents must be given more time than that to fall silent has other troubles.
const MAX_LEASE: u64 = 300;

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

    /// Where the objects come from; an error says what to give.
    pub fn source(&self) -> Result<Source, &'static str> {
        if let Some(dir) = &self.manifests {
            return Ok(Source::Manifests(dir.clone()));
        }
        self.cluster.connection.credentials().map(Source::Cluster).ok_or(
            "--manifests DIR or --kubeconfig FILE says what to serve: this is no pod, for KUBERNETES_SERVICE_HOST is \
             not set",
        )
    }

    pub fn worker_count(&self) -> NonZeroUsize {
        // The standard library's figure honours the cgroup's CPU quota and the affinity mask.
        self.workers.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
    }
}

impl ConnectionArgs {
    /// `None`: neither a kubeconfig nor a pod.
    pub fn credentials(&self) -> Option<Credentials> {
        let Self { kubeconfig, context, api_host, api_port } = self;
        match (kubeconfig, api_host) {
            (Some(file), _) => Some(Credentials::Kubeconfig { file: file.clone(), context: context.clone() }),
            (None, Some(host)) => {
                Some(Credentials::InCluster(InCluster { host: host.clone(), port: *api_port }))
            }
            (None, None) => None,
        }
    }
}

impl ClusterArgs {
    /// Which namespaces to watch; `own` where none is given.
    pub fn scope(&self, own: &str) -> Scope {
        if self.all_namespaces {
            return Scope::All;
        }
        let mut namespaces: BTreeSet<Arc<str>> =
            self.watch_namespaces.iter().map(|name| Arc::from(&**name)).collect();
        if namespaces.is_empty() {
            let gateways = self.gateway.as_ref().map(|gateway| gateway.namespace.clone());
            namespaces.insert(gateways.unwrap_or_else(|| own.into()));
        }
        Scope::Namespaces(namespaces)
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

/// As the API server would: it becomes part of a request's path.
fn parse_namespace(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let has_ends = !text.starts_with('-') && !text.ends_with('-');
    if !text.is_empty() && text.len() <= 63 && has_ends && text.bytes().all(is_plain) {
        Ok(text.to_owned())
    } else {
        Err("not the name of a namespace".into())
    }
}

fn parse_object_name(text: &str) -> Result<ObjectName, String> {
    let (namespace, name) = text.split_once('/').ok_or("expected NAMESPACE/NAME")?;
    let namespace = parse_namespace(namespace)?;
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    if name.is_empty() || name.len() > 253 || !name.bytes().all(is_plain) {
        return Err("not the name of a Gateway".into());
    }
    Ok(ObjectName::new(namespace, name))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::{CommandFactory, Parser};

    use super::{Cli, ClusterArgs, Credentials, Scope, ServeArgs, Source, parse_port_range};

    #[test]
    fn command_line_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn access_log_goes_nowhere_unless_it_is_said() {
        let target = |args: &[&str]| serve(args).expect("a command line").access_log.to_string();
        assert_eq!(target(&[]), "off");
        assert_eq!(target(&["--access-log", "stdout"]), "stdout");
        assert_eq!(target(&["--access-log", "/var/log/a"]), "/var/log/a");
        assert!(serve(&["--access-log", ""]).is_err());
    }

    #[test]
    fn source_port_range_is_bounded() {
        assert_eq!(parse_port_range("10000-29999"), Ok(10000..=29999));
        for bad in ["", "1-2", "10000", "20000-10000", "10000-10100", "10000-99999"] {
            assert!(parse_port_range(bad).is_err(), "{bad}");
        }
    }

    fn serve(args: &[&str]) -> Result<ServeArgs, String> {
        let line = ["gateway-agent"].iter().chain(args);
        Cli::try_parse_from(line).map(|cli| cli.serve).map_err(|error| error.to_string())
    }

    fn cluster(args: &[&str]) -> ClusterArgs {
        serve(args).expect("a command line").cluster
    }

    fn namespaces(names: &[&str]) -> Scope {
        Scope::Namespaces(names.iter().map(|name| (*name).into()).collect())
    }

    #[test]
    fn the_own_namespace_is_watched_unless_others_are_named() {
        assert_eq!(cluster(&[]).scope("own"), namespaces(&["own"]));
        assert_eq!(
            cluster(&["--watch-namespaces", "b,a", "--watch-namespaces=c"]).scope("own"),
            namespaces(&["a", "b", "c"])
        );
        assert_eq!(cluster(&["--gateway", "team/edge"]).scope("own"), namespaces(&["team"]));
        assert_eq!(cluster(&["--all-namespaces"]).scope("own"), Scope::All);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for bad in [
            &["--all-namespaces", "--watch-namespaces", "a"][..],
            &["--manifests", "dir", "--kubeconfig", "file"],
            &["--manifests", "dir", "--all-namespaces"],
            &["--context", "c"],
            &["--local-endpoints"],
            &["--watch-namespaces", "a/../b"],
            &["--watch-namespaces", "-a"],
            &["--watch-namespaces", "A"],
            &["--gateway", "edge"],
            &["--gateway", "team/ed ge"],
            &["--lease-duration", "5"],
        ] {
            assert!(serve(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn manifests_come_before_a_kubeconfig_and_that_before_the_pods_account() {
        let source = |args: &[&str]| serve(args).expect("a command line").source();
        assert_eq!(source(&["--manifests", "dir"]), Ok(Source::Manifests(PathBuf::from("dir"))));
        let file = source(&["--kubeconfig", "file", "--api-host", "10.0.0.1"]);
        assert!(matches!(file, Ok(Source::Cluster(Credentials::Kubeconfig { .. }))), "{file:?}");
        let pod = source(&["--api-host", "10.0.0.1"]);
        assert!(matches!(pod, Ok(Source::Cluster(Credentials::InCluster(_)))), "{pod:?}");
    }

    #[test]
    fn check_takes_a_folder() {
        assert!(Cli::try_parse_from(["gateway-agent", "check", "dir"]).is_ok());
        assert!(Cli::try_parse_from(["gateway-agent", "check"]).is_err());
    }
}
