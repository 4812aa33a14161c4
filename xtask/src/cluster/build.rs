//! The programs of the cluster, from the Go modules that `tests/cluster` pins. Go decides what must be built again.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::command::{output, root, run, target_dir};

/// What the API server says that it is; the version of the module in go.mod.
const KUBERNETES: &str = "v1.36.3";

/// The module of the Gateway API asks for Go 1.27 even to be fetched; the go command gets that toolchain by itself.
const GO_TOOLCHAIN: &str = "go1.27.3";

pub(super) fn folder() -> PathBuf {
    target_dir().join("cluster/bin")
}

/// Builds and fetches all that `up` needs and gives the folder they are in: `kubernetes`, `pause`, `coredns` and `faults`.
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
        let small = scope.spawn(|| {
            go("faults", "", &["."])?;
            go("coredns", "", &["."])?;
            gateway_api().map(drop)
        });
        let large = go("kubernetes", &flags, &[".", "./pause"]);
        small.join().expect("the thread does not panic").and(large)
    })?;
    println!("cluster: built in {:.1} s", start.elapsed().as_secs_f64());
    Ok(folder())
}

/// The Gateway API release that the agent's types are made from, as a folder of Go's module cache.
pub(super) fn gateway_api() -> Result<PathBuf> {
    let lock = fs::read_to_string(root().join("gateway-agent/schemas/lock.json"))?;
    let lock: Value = serde_json::from_str(&lock)?;
    let module = lock["module"].as_str().context("lock.json names no module")?;
    let empty = tempfile::tempdir()?;
    fs::write(empty.path().join("go.mod"), "module cluster\n")?;
    let answer = output(
        Command::new("go")
            .args(["mod", "download", "-json", module])
            .current_dir(empty.path())
            .env("GOTOOLCHAIN", GO_TOOLCHAIN),
    )?;
    let answer: Value = serde_json::from_str(&answer)?;
    Ok(PathBuf::from(answer["Dir"].as_str().context("go mod download names no folder")?))
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
