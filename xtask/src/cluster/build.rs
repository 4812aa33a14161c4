//! The programs of the cluster, from the Go modules that `tests/cluster` pins. Go decides what must be built again.

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

/// Builds all and gives the folder they are in: `kubernetes`, `pause` and `coredns`.
pub(super) fn programs() -> Result<PathBuf> {
    let found = output(Command::new("go").arg("version"))
        .context("the cluster's programs are built by Go 1.26 or newer: https://go.dev/dl")?;
    ensure!(found.starts_with("go version"), "`go version` says {found}");
    let start = Instant::now();
    println!(
        "cluster: building Kubernetes {KUBERNETES} (the first time some 11 minutes of CPU and 4 GB) ..."
    );
    let version = "k8s.io/component-base/version";
    let (major, minor) = ("1", "36");
    go(
        "kubernetes",
        &format!(
            "-X {version}.gitVersion={KUBERNETES} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
        ),
        &[".", "./pause"],
    )?;
    go("coredns", "", &["."])?;
    println!("cluster: built in {:.1} s", start.elapsed().as_secs_f64());
    Ok(folder())
}

fn go(module: &str, flags: &str, packages: &[&str]) -> Result<()> {
    std::fs::create_dir_all(folder())?;
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
