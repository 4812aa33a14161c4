//! Toolchains by rustup, and bpf-linker by cargo.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::{Purpose, report};
use crate::command::{cargo, output, program};

/// The one nightly: miri is in no stable release. A date, so that a test result is of a known compiler.
pub(crate) const NIGHTLY: &str = "nightly-2026-08-20";

const NIGHTLY_COMPONENTS: &[&str] = &["miri", "rust-src"];

const BPF_LINKER: &str = "0.13.0";

/// The LLVM of the pinned compiler, which writes the bitcode that the linker reads: one major version for both.
const LLVM: &str = "22";

pub(super) fn toolchains(purposes: &[Purpose]) -> Result<()> {
    let (channel, components) = pinned()?;
    toolchain(&channel, &components, "the pinned compiler of rust-toolchain.toml")?;
    if purposes.contains(&Purpose::Test) {
        let components: Vec<String> = NIGHTLY_COMPONENTS.iter().map(|&name| name.to_owned()).collect();
        toolchain(NIGHTLY, &components, "miri on gateway-common")?;
    }
    Ok(())
}

fn toolchain(name: &str, components: &[String], why: &str) -> Result<()> {
    let what = format!("Rust {name} with {}", components.join(" "));
    let mut list = program("rustup");
    list.args(["component", "list", "--installed", "--toolchain", name]);
    // An unknown toolchain makes rustup fail: then everything is missing.
    let installed = output(&mut list).unwrap_or_default();
    let lacks = components.iter().any(|component| !has_component(&installed, component));
    if !installed.is_empty() && !lacks {
        report(&what, why, "present");
        return Ok(());
    }
    report(&what, why, "installing");
    let mut install = program("rustup");
    install.args(["toolchain", "install", name, "--profile", "minimal", "--no-self-update"]);
    for component in components {
        install.args(["--component", component]);
    }
    output(&mut install).with_context(|| format!("rustup cannot install {name}"))?;
    Ok(())
}

/// Components are listed with the target's triple behind their name, where they depend on it.
fn has_component(installed: &str, component: &str) -> bool {
    installed.lines().any(|line| {
        line.strip_prefix(component).is_some_and(|rest| rest.is_empty() || rest.starts_with("-x86_64-"))
    })
}

/// Channel and components of `rust-toolchain.toml`, which is five lines of a fixed form.
fn pinned() -> Result<(String, Vec<String>)> {
    let path = crate::command::root().join("rust-toolchain.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let value = |key: &str| {
        text.lines()
            .filter_map(|line| line.split_once('='))
            .find_map(|(name, value)| (name.trim() == key).then(|| value.trim()))
            .with_context(|| format!("no {key} in {}", path.display()))
    };
    let channel = value("channel")?.trim_matches('"').to_owned();
    let components = value("components")?
        .trim_matches(['[', ']'])
        .split(',')
        .map(|name| name.trim().trim_matches('"').to_owned())
        .collect();
    Ok((channel, components))
}

pub(super) fn bpf_linker() -> Result<()> {
    let what = format!("bpf-linker {BPF_LINKER}");
    let why = "links the kernel programs";
    let installed = output(program("bpf-linker").arg("--version")).unwrap_or_default();
    if installed.split_whitespace().collect::<BTreeSet<_>>().contains(BPF_LINKER) {
        report(&what, why, "present");
        return Ok(());
    }
    report(&what, why, "compiling, one to two minutes");
    let start = Instant::now();
    let features = format!("llvm-{LLVM}");
    let mut install = cargo(["install", "--locked", "--quiet", "--no-default-features"]);
    install
        .args(["--features", &features, &format!("bpf-linker@{BPF_LINKER}")])
        .env("LLVM_PREFIX", format!("/usr/lib/llvm-{LLVM}"));
    output(&mut install)?;
    if output(program("bpf-linker").arg("--version")).is_err() {
        bail!("bpf-linker is installed but not found: add cargo's bin folder to PATH");
    }
    println!("setup: compiled in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_found_with_and_without_its_triple() {
        let installed = "cargo-x86_64-unknown-linux-gnu\nrust-src\nrustfmt-x86_64-unknown-linux-gnu\n";
        assert!(has_component(installed, "rust-src"));
        assert!(has_component(installed, "rustfmt"));
        assert!(!has_component(installed, "rust"));
        assert!(!has_component(installed, "miri"));
    }

    #[test]
    fn the_toolchain_file_is_understood() {
        let (channel, components) = pinned().unwrap();
        assert!(channel.starts_with("1."), "{channel}");
        assert!(components.iter().any(|name| name == "clippy"), "{components:?}");
    }
}
