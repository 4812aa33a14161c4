//! Builds the kernel programs with a cargo of their own, so that the agent can embed the object.
//!
//! The target folder is the one of `cargo xtask build-ebpf`, with the same flags: whichever comes first builds, the
//! other finds it done. `AYA_BUILD_SKIP=1` skips it. Without the tools the agent is built without kernel programs, and
//! says so here and when it starts; with `CI=true` that is an error. Programs that do not compile are an error always.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

const PACKAGE: &str = "gateway-ebpf";
const TARGET: &str = "bpfel-unknown-none";
const PROFILE: &str = "bpf";
/// What the programs are made of; a change of anything else does not start the child cargo.
const SOURCES: [&str; 7] = [
    "Cargo.lock",
    "Cargo.toml",
    "gateway-ebpf/Cargo.toml",
    "gateway-ebpf/common/Cargo.toml",
    "gateway-ebpf/common/src",
    "gateway-ebpf/src",
    "rust-toolchain.toml",
];

fn main() -> Result<()> {
    let manifest_dir = variable("CARGO_MANIFEST_DIR")?;
    let root = manifest_dir.parent().context("the package lies in a workspace")?;
    for name in ["AYA_BUILD_SKIP", "CARGO_TARGET_DIR", "CI", "PATH"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }

    // The agent embeds this file in any case; empty means that it has no programs, for the reason given.
    let embedded = variable("OUT_DIR")?.join(PACKAGE);
    let (object, absent) = match obstacle()? {
        None => (build(root)?, String::new()),
        Some(reason) => (Vec::new(), reason),
    };
    // A file that is written anew has the agent compiled anew.
    if fs::read(&embedded).ok().as_ref() != Some(&object) {
        fs::write(&embedded, object).with_context(|| format!("cannot write {}", embedded.display()))?;
    }
    println!("cargo::rustc-env=GATEWAY_EBPF_OBJECT={}", embedded.display());
    println!("cargo::rustc-env=GATEWAY_EBPF_ABSENT={absent}");
    Ok(())
}

fn variable(name: &str) -> Result<PathBuf> {
    Ok(env::var_os(name).with_context(|| format!("cargo sets {name}"))?.into())
}

/// Why the programs are not built; an error where they must be.
fn obstacle() -> Result<Option<String>> {
    if env::var_os("AYA_BUILD_SKIP").is_some_and(|value| !value.is_empty() && value != "0") {
        return Ok(Some("AYA_BUILD_SKIP was set when it was built".into()));
    }
    let missing = if !is_program("bpf-linker") {
        "bpf-linker was not found when it was built"
    } else if !has_core_source()? {
        "the toolchain had no rust-src component when it was built"
    } else {
        return Ok(None);
    };
    if env::var_os("CI").is_some_and(|value| value == "true") {
        bail!("no kernel programs: {missing}; `cargo xtask setup` installs what is needed");
    }
    println!(
        "cargo::warning=the agent has no kernel programs and serves in userspace only: {missing}; \
         `cargo xtask setup` installs what is needed"
    );
    Ok(Some(missing.into()))
}

fn is_program(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

fn has_core_source() -> Result<bool> {
    let rustc = env::var_os("RUSTC").context("cargo sets RUSTC")?;
    let output = Command::new(rustc).args(["--print", "sysroot"]).output().context("cannot run rustc")?;
    let sysroot = String::from_utf8(output.stdout).context("sysroot is not UTF-8")?;
    Ok(Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core").is_dir())
}

fn build(root: &Path) -> Result<Vec<u8>> {
    // Not the folder of this very build, which is locked while it runs.
    let target_dir =
        root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into())).join("ebpf");
    let mut cargo = Command::new(env::var_os("CARGO").context("cargo sets CARGO")?);
    cargo.current_dir(root);
    // What cargo tells this build script, and the flags that are for the host (also clippy's and a coverage tool's
    // wrappers), would leak into the child and have its target folder built anew each time.
    for (name, _) in env::vars_os() {
        let is_ours = name.to_str().is_some_and(|name| {
            let kept =
                ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_TERM_COLOR", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"];
            let prefixes =
                ["CARGO", "DEP_", "RUST", "OUT_DIR", "TARGET", "HOST", "NUM_JOBS", "OPT_LEVEL", "PROFILE"];
            prefixes.iter().any(|prefix| name.starts_with(prefix)) && !kept.contains(&name)
        });
        if is_ours {
            cargo.env_remove(name);
        }
    }
    cargo
        .args(["build", "--profile", PROFILE, "--locked", "--package", PACKAGE, "--features", "bpf"])
        .args(["-Z", "build-std=core", "--target", TARGET, "--target-dir"])
        .arg(&target_dir)
        // `core` for this target is compiled along, which needs one unstable option of the pinned stable compiler.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", "-Cdebuginfo=2\u{1f}-Clink-arg=--btf")
        // Cargo reads this script's standard output.
        .stdout(Stdio::null());
    let status = cargo.status().context("cannot run cargo")?;
    if !status.success() {
        bail!(
            "the kernel programs do not compile, see above (AYA_BUILD_SKIP=1 builds the agent without them)"
        );
    }
    let object = target_dir.join(TARGET).join(PROFILE).join(PACKAGE);
    fs::read(&object).with_context(|| format!("cannot read {}", object.display()))
}
