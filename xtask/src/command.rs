//! External commands: run, capture, and say what failed in words that can be acted on.
//!
//! It does not decide what to run, and it kills nothing: a caller that limits time owns the child.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// The workspace's root: the folder above this package.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Where cargo builds, as the user has set it.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// A program started in the workspace's root, without what `cargo run` put in the environment for xtask itself:
/// build scripts that look at those variables would be run again each time xtask and the user take turns.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    for (key, _) in std::env::vars_os() {
        let is_of_xtask = key.to_str().is_some_and(|key| {
            key.starts_with("CARGO_PKG_")
                || key.starts_with("CARGO_MANIFEST_")
                || key.starts_with("CARGO_BIN_")
                || key == "CARGO_CRATE_NAME"
                || key == "CARGO_PRIMARY_PACKAGE"
        });
        if is_of_xtask {
            command.env_remove(key);
        }
    }
    command
}

/// `cargo` of the pinned toolchain.
pub(crate) fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = program("cargo");
    command.args(args);
    command
}

/// Runs to the end with this process's own output.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start `{}`", line(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", line(command));
    }
    Ok(())
}

/// Runs to the end and returns what it wrote to standard output; its errors are shown only when it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{}`", line(command)))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}\n{}", line(command), output.status, errors.trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{}` wrote no UTF-8", line(command)))
}

/// The command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}
