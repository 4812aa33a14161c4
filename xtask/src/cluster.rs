//! `cluster`: a real Kubernetes on this machine, and its end. `tests/cluster/README.md` says what of it is real.
//!
//! It needs no container engine and changes nothing outside of its own namespaces, its control groups,
//! `target/cluster` and a link to that. Nothing stays in this process: the cluster runs until `down`, which believes no record, only what
//! it finds, so it also cleans up after a crash.

mod addons;
mod audit;
mod build;
mod cgroup;
mod check;
mod control_plane;
mod images;
mod machine;
mod network;
mod node;
mod parts;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Subcommand, ValueEnum};

use self::network::{CONTROL_PLANE, NODES};
use crate::command::{output, run as run_command, target_dir};
use crate::setup::{self, Purpose};

/// Set once, by the command line.
static NAME: OnceLock<String> = OnceLock::new();

/// Starts the names of our network namespaces, names our control groups and the link to the folder.
fn name() -> &'static str {
    NAME.get_or_init(|| DEFAULT_NAME.to_owned())
}

const DEFAULT_NAME: &str = "ga-cluster";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which cluster: those of different names run side by side and see nothing of each other
    #[arg(long, default_value = DEFAULT_NAME, value_parser = valid_name)]
    name: String,
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build what is missing and start a cluster of two nodes
    Up {
        /// The Gateway API's resource definitions: which channel of the release
        #[arg(long, value_enum, default_value_t = Channel::Standard)]
        channel: Channel,
    },
    /// Stop the cluster and remove all that it left, also after a crash
    Down,
    /// Say what runs
    Status,
    /// Print the path of the administrator's kubeconfig
    Kubeconfig,
    /// kubectl as the administrator, from the network outside of the nodes
    Kubectl {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Bring an image (an OCI archive) onto every node
    Load {
        #[arg(required_unless_present = "conformance")]
        archives: Vec<PathBuf>,
        /// Also the images that the conformance suite asks for, which are built first
        #[arg(long)]
        conformance: bool,
    },
    /// Kill a part of the cluster
    Stop {
        #[arg(value_enum)]
        part: parts::Part,
    },
    /// Start a part that was killed
    Start {
        #[arg(value_enum)]
        part: parts::Part,
    },
    /// Sum up what service accounts asked of the API server
    Audit(audit::Args),
    /// Build the programs of the cluster only
    Build {
        /// Also what `load --conformance` needs
        #[arg(long)]
        conformance: bool,
    },
    /// Try on the cluster that runs what every cluster must be able to do
    Check,
    /// Start a cluster of its own, check it, crash it, and see that nothing is left
    Test,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Channel {
    Standard,
    Experimental,
    /// No Gateway API at all
    None,
}

/// It becomes a part of file names.
fn valid_name(name: &str) -> Result<String> {
    const MAX: usize = 40;
    let is_valid = !name.is_empty()
        && name.len() <= MAX
        && !name.starts_with('-')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    ensure!(is_valid, "a name is of a to z, 0 to 9 and -, {MAX} at most");
    Ok(name.to_owned())
}

/// How long a component is waited for; at a load of 18 the slowest took 17 s.
const DEADLINE: Duration = Duration::from_secs(120);

pub(crate) fn run(args: &Args) -> Result<()> {
    NAME.get_or_init(|| match args.task {
        // Not the one that somebody works with.
        Task::Test => format!("{}-test", args.name),
        _ => args.name.clone(),
    });
    match &args.task {
        Task::Check => check::run(&Folder::running()),
        Task::Test => check::test(),
        Task::Build { conformance } => {
            build::programs()?;
            if *conformance { build::echo().map(drop) } else { Ok(()) }
        }
        Task::Up { channel } => up(*channel),
        Task::Down => down(),
        Task::Status => status(),
        Task::Kubeconfig => {
            println!("{}", Folder::running().kubeconfig("admin").display());
            Ok(())
        }
        Task::Kubectl { args } => run_command(&mut Folder::running().kubectl(args)),
        Task::Load { archives, conformance } => load(archives, *conformance),
        Task::Stop { part } => parts::stop(&Folder::running(), *part),
        Task::Start { part } => parts::start(&Folder::running(), *part),
        Task::Audit(args) => audit::run(&Folder::running(), args),
    }
}

/// Where everything of a cluster lies.
#[derive(Clone, Debug)]
struct Folder(PathBuf);

/// Leads to the folder of the cluster that runs, from whichever clone of the tree it was started.
fn link() -> PathBuf {
    Path::new("/run").join(name())
}

impl Folder {
    /// The folder of a cluster that this clone starts.
    fn own() -> Self {
        Self(target_dir().join("cluster").join(name()))
    }

    /// The folder of the cluster that runs, or our own.
    fn running() -> Self {
        fs::read_link(link()).map_or_else(|_| Self::own(), Self)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn kubeconfig(&self, user: &str) -> PathBuf {
        self.path(&format!("{user}.kubeconfig"))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.path(&format!("logs/{name}.log"))
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// kubectl, in the network outside of the nodes.
    fn kubectl<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", network::lan()))
            .arg(self.path("bin/kubernetes"))
            .arg("kubectl")
            .arg("--kubeconfig")
            .arg(self.kubeconfig("admin"))
            .args(args)
            .env("KUBECACHEDIR", self.path("cache"));
        command
    }
}

fn up(channel: Channel) -> Result<()> {
    lab::require_root()?;
    setup::prepare(&[Purpose::Cluster])?;
    let binaries = build::programs()?;
    ensure!(
        !cgroup::exists()? && !network::exists(),
        "a cluster runs, or what is left of one: `cargo xtask cluster down`"
    );
    let start = Instant::now();
    let step = |what: &str| println!("cluster: {:5.1} s  {what}", start.elapsed().as_secs_f64());
    let folder = Folder::own();
    remove(&folder.0)?;
    fs::create_dir_all(folder.path("logs"))?;
    symlink(&binaries, folder.path("bin"))?;
    remove(&link())?;
    symlink(&folder.0, link())?;
    // What follows is undone as a whole when a part of it fails, but for the logs.
    let result = start_all(&folder, &binaries, channel, &step);
    if let Err(error) = result {
        let kept = target_dir().join("cluster/logs-of-failure");
        remove(&kept)?;
        // There are none when a `down` came in between.
        let logs = match fs::rename(folder.path("logs"), &kept) {
            Ok(()) => format!("logs: {}", kept.display()),
            Err(_) => "no logs are left".to_owned(),
        };
        down()?;
        return Err(error.context(format!("the cluster does not start; {logs}")));
    }
    println!("\nTry: cargo xtask cluster kubectl get nodes -o wide");
    Ok(())
}

fn start_all(folder: &Folder, binaries: &Path, channel: Channel, step: &dyn Fn(&str)) -> Result<()> {
    network::create()?;
    let mut machines = Vec::new();
    for place in [CONTROL_PLANE].iter().chain(&NODES) {
        machines.push(machine::Machine::boot(place, folder, binaries)?);
    }
    step("machines");
    let [control, nodes @ ..] = machines.as_slice() else { bail!("there is no machine") };
    control_plane::certificates(folder, binaries)?;
    step("certificates");
    let images = images::infrastructure(folder, binaries)?;
    // The API server takes longest, and the nodes have work that does not need it.
    in_parallel(
        || control_plane::start(control, folder, binaries),
        || {
            nodes.iter().try_for_each(|node| node::start_runtime(node, folder))?;
            nodes.iter().try_for_each(|node| node::load(node, &images))
        },
    )?;
    step("API server ready, images loaded");
    addons::rights_and_nodes(folder)?;
    for node in nodes {
        node::start_kubelet(node, folder, binaries)?;
    }
    addons::load_balancer(folder, binaries)?;
    in_parallel(|| addons::gateway_api(folder, channel), || addons::dns(folder))?;
    step("Gateway API");
    addons::wait_for_nodes(folder)?;
    step("nodes Ready");
    addons::wait_for_workloads(folder)?;
    step("DNS and service accounts ready");
    Ok(())
}

/// Waits for what takes seconds, and leaves the cores to it: each probe is a program that must be started.
fn patiently<T>(what: &str, mut probe: impl FnMut() -> Result<T>) -> Result<T> {
    lab::eventually_within(DEADLINE, what, || {
        probe().inspect_err(|_| std::thread::park_timeout(Duration::from_millis(200)))
    })
}

fn in_parallel(one: impl FnOnce() -> Result<()>, other: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        let other = other.join().expect("the thread does not panic");
        one.and(other)
    })
}

fn down() -> Result<()> {
    lab::require_root()?;
    let start = Instant::now();
    cgroup::remove_all()?;
    network::remove()?;
    remove(&Folder::running().0)?;
    remove(&link())?;
    remove(&Folder::own().0)?;
    println!("cluster: down in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Removes a folder, never what is mounted below it.
fn remove(folder: &Path) -> Result<()> {
    output(Command::new("rm").args(["-rf", "--one-file-system", "--"]).arg(folder)).map(drop)
}

fn status() -> Result<()> {
    lab::require_root()?;
    let processes = cgroup::processes()?;
    if processes.is_empty() {
        let is_left = cgroup::exists()? || network::exists();
        println!("cluster: {}", if is_left { "down, with remains: run `down`" } else { "down" });
        return Ok(());
    }
    println!("cluster: {} processes", processes.len());
    run_command(&mut Folder::running().kubectl(&["get", "nodes,pods", "--all-namespaces", "--output=wide"]))
}

fn load(archives: &[PathBuf], conformance: bool) -> Result<()> {
    lab::require_root()?;
    let mut archives = archives
        .iter()
        .map(|path| fs::canonicalize(path).with_context(|| format!("no {}", path.display())))
        .collect::<Result<Vec<_>>>()?;
    let folder = Folder::running();
    if conformance {
        archives.extend(images::conformance(&folder)?);
    }
    for place in &NODES {
        node::load(&machine::Machine::running(&folder, place)?, &archives)?;
    }
    Ok(())
}
