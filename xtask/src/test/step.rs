//! The steps of a test run: which commands each is made of.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;

use super::binaries::{self, Binary};
use super::clients;
use super::job::Log;
use super::on_cluster;
use crate::build_ebpf::cargo_for_bpf;
use crate::command::{cargo, program, target_dir};
use crate::libtest::Counts;
use crate::setup;

/// A step that takes longer hangs. The longest compile everything on two cores; guests and namespaces take less.
const STEP_LIMIT: Duration = Duration::from_secs(30 * 60);

/// One test binary; the namespace tests are the longest with some minutes.
const BINARY_LIMIT: Duration = Duration::from_secs(15 * 60);

/// The crates whose tests need root and a quiet machine. They have steps of their own.
const KERNEL_TESTS: &str = "kernel-tests";
const NETNS_TESTS: &str = "netns-tests";

/// As above, and the test cluster.
const CLUSTER_TESTS: &[&str] = &["deploy-tests", "cluster-tests"];

/// These wait most of the time: for pods, for leases that run out, for backoff.
const CLUSTER_TEST_THREADS: &str = "4";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Step {
    /// Formatting
    Fmt,
    /// Rules of the tree
    Tidy,
    /// Rules on crates
    Deny,
    /// The kernel programs' object
    Ebpf,
    /// All test binaries and the agent
    Build,
    /// Lints on this machine's target
    Clippy,
    /// Lints on the kernel programs' target
    ClippyBpf,
    /// Unit and property tests
    Units,
    /// Documentation and its examples
    Doc,
    /// The interpreter on gateway-common
    Miri,
    /// The instructions of the hot paths, against those on record
    Instructions,
    /// The kernel programs on this kernel
    Kernel,
    /// Clients that Debian does not have, for the agent in network namespaces
    Clients,
    /// The agent in network namespaces
    Netns,
    /// The demo, which is also the way a new user comes in
    Demo,
    /// The test cluster's programs and the conformance suite
    ClusterBuild,
    /// The test cluster itself: what it promises, and that nothing is left of it
    Cluster,
    /// The agent's control plane and its bases of deploy/ on the test cluster
    Deploy,
    /// The Gateway API's conformance suite
    Conformance,
    /// The other kernels, brought here
    Kernels,
    /// The kernel programs on the other kernels
    Vm,
}

impl Step {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fmt => "fmt",
            Self::Tidy => "tidy",
            Self::Deny => "deny",
            Self::Ebpf => "ebpf",
            Self::Build => "build",
            Self::Clippy => "clippy",
            Self::ClippyBpf => "clippy-bpf",
            Self::Units => "units",
            Self::Doc => "doc",
            Self::Miri => "miri",
            Self::Instructions => "instructions",
            Self::Kernel => "kernel",
            Self::Clients => "clients",
            Self::Netns => "netns",
            Self::Demo => "demo",
            Self::ClusterBuild => "cluster-build",
            Self::Cluster => "cluster",
            Self::Deploy => "deploy",
            Self::Conformance => "conformance",
            Self::Kernels => "kernels",
            Self::Vm => "vm",
        }
    }

    pub(super) fn needs_root(self) -> bool {
        matches!(
            self,
            Self::Kernel | Self::Netns | Self::Demo | Self::Cluster | Self::Deploy | Self::Conformance
        )
    }

    pub(super) fn needs(self) -> &'static [Self] {
        match self {
            Self::Units | Self::Kernel | Self::Demo => &[Self::Ebpf, Self::Build],
            Self::Netns => &[Self::Ebpf, Self::Build, Self::Clients],
            Self::Vm => &[Self::Ebpf, Self::Build, Self::Kernels],
            Self::Cluster => &[Self::ClusterBuild],
            Self::Deploy | Self::Conformance => &[Self::Ebpf, Self::Build, Self::ClusterBuild],
            _ => &[],
        }
    }

    pub(super) fn run(self, log: &mut Log) -> Result<Counts> {
        match self {
            Self::Fmt => log.run(cargo(["fmt", "--all", "--check"]), STEP_LIMIT)?,
            Self::Tidy => log.run(xtask(&["tidy"]), STEP_LIMIT)?,
            Self::Deny => log.run(xtask(&["deny"]), STEP_LIMIT)?,
            Self::Ebpf => log.run(xtask(&["build-ebpf"]), STEP_LIMIT)?,
            Self::Build => binaries::build(log, STEP_LIMIT)?,
            Self::Clippy => clippy(log)?,
            Self::ClippyBpf => clippy_bpf(log)?,
            Self::Units => {
                return run_binaries(log, |binary| {
                    let package = binary.package.as_str();
                    package != KERNEL_TESTS && package != NETNS_TESTS && !CLUSTER_TESTS.contains(&package)
                });
            }
            Self::Doc => doc(log)?,
            Self::Miri => miri(log)?,
            Self::Instructions => log.run(xtask(&["instructions"]), STEP_LIMIT)?,
            Self::Kernel => return run_binaries(log, |binary| binary.package == KERNEL_TESTS),
            Self::Clients => clients::build(log, STEP_LIMIT)?,
            Self::Netns => return run_binaries(log, |binary| binary.package == NETNS_TESTS),
            Self::Demo => demo(log)?,
            Self::ClusterBuild => on_cluster::build(log, STEP_LIMIT)?,
            Self::Cluster => log.run(xtask(&["cluster", "test"]), STEP_LIMIT)?,
            Self::Deploy => on_cluster::with_cluster(log, |log| {
                run_binaries(log, |binary| CLUSTER_TESTS.contains(&binary.package.as_str())).map(drop)
            })?,
            Self::Conformance => on_cluster::with_cluster(log, on_cluster::conformance)?,
            Self::Kernels => log.run(xtask(&["vm", "--fetch"]), STEP_LIMIT)?,
            Self::Vm => vm(log)?,
        }
        Ok(log.counts())
    }
}

/// This very program, even if a build has meanwhile put another in its place.
pub(super) fn xtask(args: &[&str]) -> std::process::Command {
    let mut command = program("/proc/self/exe");
    command.args(args);
    command
}

fn clippy(log: &mut Log) -> Result<()> {
    let mut clippy = cargo(["clippy", "--locked", "--workspace", "--exclude=gateway-ebpf", "--all-targets"]);
    clippy.args(["--", "--deny=warnings"]);
    log.run(clippy, STEP_LIMIT)
}

fn clippy_bpf(log: &mut Log) -> Result<()> {
    let mut clippy = cargo_for_bpf("clippy", &target_dir().join("ebpf"));
    clippy.args(["--", "--deny=warnings"]);
    log.run(clippy, STEP_LIMIT)
}

fn doc(log: &mut Log) -> Result<()> {
    let mut doc = cargo(["doc", "--locked", "--workspace", "--exclude=gateway-ebpf", "--no-deps"]);
    // Most of the code is private, and so are the names that its documentation links to: it is for readers of the code.
    doc.arg("--document-private-items")
        .env("RUSTDOCFLAGS", "--deny=warnings --allow=rustdoc::private_intra_doc_links");
    log.run(doc, STEP_LIMIT)?;
    log.run(cargo(["test", "--locked", "--workspace", "--exclude=gateway-ebpf", "--doc"]), STEP_LIMIT)
}

fn miri(log: &mut Log) -> Result<()> {
    let mut miri = program("rustup");
    miri.args(["run", setup::NIGHTLY, "cargo", "miri", "test", "--locked", "--package", "gateway-common"])
        // The interpreter is some hundred times slower; memory errors show in a few cases or not at all.
        .env("PROPTEST_CASES", "8")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
        // proptest reads the environment, which isolation forbids.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation");
    log.run(miri, STEP_LIMIT)
}

fn demo(log: &mut Log) -> Result<()> {
    let mut demo = xtask(&["demo"]);
    demo.env(binaries::AGENT, binaries::agent());
    log.run(demo, STEP_LIMIT)
}

fn vm(log: &mut Log) -> Result<()> {
    let mut vm = xtask(&["vm"]);
    for binary in binaries::read()?.iter().filter(|binary| binary.package == KERNEL_TESTS) {
        vm.arg("--test-binary").arg(&binary.path);
    }
    log.run(vm, STEP_LIMIT)
}

/// Runs every binary that `wanted` names, the rest too when one fails.
fn run_binaries(log: &mut Log, wanted: impl Fn(&Binary) -> bool) -> Result<Counts> {
    let mut failed = Vec::new();
    let mut n_run = 0_u32;
    for binary in binaries::read()?.into_iter().filter(wanted) {
        n_run += 1;
        let mut command = binary.command();
        if CLUSTER_TESTS.contains(&binary.package.as_str()) {
            command.env("RUST_TEST_THREADS", CLUSTER_TEST_THREADS);
        }
        if let Err(error) = log.run(command, BINARY_LIMIT) {
            failed.push(format!("{} ({error:#})", binary.name()));
        }
    }
    if n_run == 0 {
        bail!("no test binary was built for this step");
    }
    if !failed.is_empty() {
        bail!("{}", failed.join(", "));
    }
    Ok(log.counts())
}
