//! The test binaries: built in one go, then run one by one.
//!
//! One build for all packages, because cargo's features are those of the packages that are built together: asking
//! for one package after the other would compile shared dependencies again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::clients;
use super::job::{Log, log_dir};
use crate::command::{cargo, program, target_dir};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Binary {
    pub package: String,
    pub path: PathBuf,
    /// The package's folder, where cargo would run it.
    folder: PathBuf,
}

impl Binary {
    pub(super) fn name(&self) -> String {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("{}/{}", self.package, file.rsplit_once('-').map_or(file.as_str(), |(name, _)| name))
    }

    /// As cargo would start it.
    pub(super) fn command(&self) -> Command {
        let mut command = program(&self.path);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("CARGO_PKG_NAME", &self.package)
            .env(AGENT, agent())
            .env(clients::FOLDER, clients::folder());
        command
    }
}

/// Tells the lab which agent to start; otherwise it asks cargo for one.
pub(super) const AGENT: &str = "GATEWAY_AGENT_BIN";

/// The agent that is built together with the tests.
pub(super) fn agent() -> PathBuf {
    target_dir().join("debug/gateway-agent")
}

fn messages() -> PathBuf {
    log_dir().join("binaries.json")
}

pub(super) fn build(log: &mut Log, limit: Duration) -> Result<()> {
    // Those of an earlier build must not be tested in place of what does not compile now.
    if let Err(error) = std::fs::remove_file(messages())
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error).context("cannot remove the list of test binaries");
    }
    let workspace = ["--locked", "--workspace", "--exclude=gateway-ebpf"];
    let mut build = cargo(["build"]);
    build.args(workspace);
    log.run(build, limit)?;
    let mut tests = cargo(["test", "--no-run", "--message-format=json-render-diagnostics"]);
    tests.args(workspace);
    log.run_with_output(tests, limit, &messages())
}

pub(super) fn read() -> Result<Vec<Binary>> {
    let path = messages();
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("the test binaries were not built: no {}", path.display()))?;
    // Cargo's last message; without it the build was interrupted.
    ensure!(
        text.contains(r#""reason":"build-finished","success":true"#),
        "the test binaries were not all built"
    );
    let binaries: Vec<Binary> = text.lines().filter_map(parse).collect();
    ensure!(!binaries.is_empty(), "no test binary was built");
    Ok(binaries)
}

/// One of cargo's messages, when it is about a test binary.
fn parse(message: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_test = message["profile"]["test"].as_bool()?;
    let path = PathBuf::from(message["executable"].as_str()?);
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?.to_owned();
    // `path+file:///folder#name@version`, or without the name where it is the folder's.
    let (_, id) = message["package_id"].as_str()?.rsplit_once('#')?;
    let package = match id.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => folder.file_name()?.to_string_lossy().into_owned(),
    };
    is_test.then_some(Binary { package, path, folder })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_binary_is_found_among_cargos_messages() {
        let message = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/tests/kernel#kernel-tests@0.1.0",
            "manifest_path":"/w/tests/kernel/Cargo.toml","profile":{"test":true},"executable":"/w/t/kernel-0a1b"}"#;
        let binary = parse(&message.replace('\n', " ")).unwrap();
        assert_eq!(binary.package, "kernel-tests");
        assert_eq!(binary.folder, Path::new("/w/tests/kernel"));
        assert_eq!(binary.name(), "kernel-tests/kernel");
        let folder_named = message.replace('\n', " ").replace("#kernel-tests@0.1.0", "#0.1.0");
        assert_eq!(parse(&folder_named).unwrap().package, "kernel");
        assert_eq!(parse(&message.replace('\n', " ").replace("true", "false")), None);
        assert_eq!(parse(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
