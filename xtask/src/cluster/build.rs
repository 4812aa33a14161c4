//! The programs of the cluster, from the Go modules that `tests/cluster` pins. Go decides what must be built again.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::command::{output, root, run, target_dir};

/// What the API server says that it is; the version of the module in go.mod.
const KUBERNETES: &str = "v1.36.3";

pub(super) fn folder() -> PathBuf {
    target_dir().join("cluster/bin")
}

/// Builds all that `up` starts and gives the folder they are in: `kubernetes`, `pause`, `coredns` and `faults`.
///
/// Two calls at a time would compile the same twice: the second waits and then finds everything built.
pub(super) fn programs() -> Result<PathBuf> {
    let found = output(Command::new("go").arg("version"))
        .context("the cluster's programs are built by Go 1.26 or newer: https://go.dev/dl")?;
    ensure!(found.starts_with("go version"), "`go version` says {found}");
    let _lock = lock()?;
    let start = Instant::now();
    println!(
        "cluster: building Kubernetes {KUBERNETES} (the first time some 11 minutes of CPU and 4 GB) ..."
    );
    let version = "k8s.io/component-base/version";
    let (major, minor) = ("1", "36");
    let flags = format!(
        "-X {version}.gitVersion={KUBERNETES} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
    );
    // Side by side: the large one downloads at its begin and links at its end, each on one core.
    std::thread::scope(|scope| {
        let small = scope.spawn(|| go("faults", "", &["."]).and_then(|()| go("coredns", "", &["."])));
        let large = go("kubernetes", &flags, &[".", "./pause"]);
        small.join().expect("the thread does not panic").and(large)
    })?;
    println!("cluster: built in {:.1} s", start.elapsed().as_secs_f64());
    Ok(folder())
}

/// The conformance suite's server of all backends; gives the program.
pub(super) fn echo() -> Result<PathBuf> {
    let _lock = lock()?;
    go("echo", "", &["sigs.k8s.io/gateway-api/conformance/echo-basic"])?;
    Ok(folder().join("echo-basic"))
}

/// Held until it is dropped.
fn lock() -> Result<File> {
    fs::create_dir_all(folder())?;
    let file = File::create(folder().join(".lock"))?;
    file.lock()?;
    Ok(file)
}

fn go(module: &str, flags: &str, packages: &[&str]) -> Result<()> {
    let mut out = folder().into_os_string();
    // With the slash, Go takes it for a folder and names each program by its package.
    out.push("/");
    run(Command::new("go")
        .current_dir(root().join("tests/cluster").join(module))
        // Without cgo: static programs, no C compiler, and two thirds of the size.
        .env("CGO_ENABLED", "0")
        // Another clone of the tree uses the same build cache.
        .args(["build", "-trimpath", "-ldflags", &format!("-s -w {flags}"), "-o"])
        .arg(out)
        .args(packages))
}
