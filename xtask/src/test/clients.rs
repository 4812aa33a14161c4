//! Clients and servers that Debian does not have, at the versions that `tests/clients` pins: programs of Go modules, and
//! packages for Python. Go decides what must be built again.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::job::Log;
use crate::command::{output, program, root, target_dir};

/// Tells the lab where they are.
pub(super) const FOLDER: &str = "GATEWAY_TEST_CLIENTS";

/// The programs: h2spec and grpcurl as their authors have them, and a gRPC server of grpc-go's parts.
const PROGRAMS: &[&str] = &[
    "github.com/fullstorydev/grpcurl/cmd/grpcurl",
    "github.com/summerwind/h2spec/cmd/h2spec",
    "gateway-agent.dev/tests/clients/grpcd",
];

pub(super) fn folder() -> std::path::PathBuf {
    target_dir().join("clients")
}

pub(super) fn build(log: &mut Log, limit: Duration) -> Result<()> {
    output(Command::new("go").arg("version"))
        .context("clients of the namespace tests are built by Go 1.26 or newer: https://go.dev/dl")?;
    std::fs::create_dir_all(folder())?;
    let mut out = folder().into_os_string();
    // With the slash, Go takes it for a folder and names each program by its package.
    out.push("/");
    let mut go = program("go");
    go.current_dir(root().join("tests/clients"))
        // Without cgo: static programs, no C compiler.
        .env("CGO_ENABLED", "0")
        .args(["build", "-trimpath", "-ldflags", "-s -w", "-o"])
        .arg(out)
        .args(PROGRAMS);
    log.run(go, limit)?;
    packages(log, limit)
}

/// Into a folder of their own, which is made anew where it is of another list.
fn packages(log: &mut Log, limit: Duration) -> Result<()> {
    let list = root().join("tests/clients/requirements.txt");
    let wanted = std::fs::read_to_string(&list).with_context(|| format!("read {}", list.display()))?;
    let folder = folder().join("python");
    let installed = folder.join("requirements.txt");
    if std::fs::read_to_string(&installed).is_ok_and(|text| text == wanted) {
        return Ok(());
    }
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    let mut pip = program("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"])
        // Pure Python: one file, whatever the machine.
        .args(["--platform=any", "--implementation=py", "--abi=none"])
        .args(["--disable-pip-version-check", "--root-user-action=ignore", "--target"])
        .arg(&folder)
        .arg("--requirement")
        .arg(&list);
    log.run(pip, limit)?;
    // Last: what is interrupted is done again.
    std::fs::write(&installed, wanted).with_context(|| format!("write {}", installed.display()))
}
