//! `build-ebpf`: the one object that holds every kernel program, with BTF, and a list of what is in it.
//!
//! `gateway-agent`'s build script runs the same command in the same target folder, so whichever comes first builds
//! and the other finds it done. It loads nothing: whether the verifier takes it, `tests/kernel` and `vm` show.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use crate::command::{program, root, run as run_command, target_dir};

const PACKAGE: &str = "gateway-ebpf";

const TARGET: &str = "bpfel-unknown-none";

/// Of the workspace's `Cargo.toml`.
const PROFILE: &str = "bpf";

/// The bytes of one BPF instruction.
const INSTRUCTION_BYTES: u64 = 8;

pub(crate) fn run() -> Result<()> {
    let path = build()?;
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let content = inspect(&bytes).with_context(|| format!("{} is not usable", path.display()))?;
    let shown = path.strip_prefix(root()).unwrap_or(&path);
    println!("{}: {} bytes, BTF {} bytes", shown.display(), bytes.len(), content.btf_bytes);
    for program in &content.programs {
        println!(
            "  program {:<28} {:<14} {:>6} instructions",
            program.name, program.section, program.n_instructions
        );
    }
    println!(
        "  {} subprograms, {} maps: {}",
        content.n_subprograms,
        content.maps.len(),
        content.maps.join(" ")
    );
    Ok(())
}

/// Builds the object and returns where it lies.
pub(crate) fn build() -> Result<PathBuf> {
    let dir = target_dir().join("ebpf");
    run_command(&mut cargo_for_bpf("build", &dir))?;
    Ok(dir.join(TARGET).join(PROFILE).join(PACKAGE))
}

/// `cargo SUBCOMMAND` for the kernel programs. The standard library has no build for this target, so `core` is
/// compiled along; that needs one unstable option, which RUSTC_BOOTSTRAP opens on the pinned stable compiler.
pub(crate) fn cargo_for_bpf(subcommand: &str, target_dir: &Path) -> std::process::Command {
    let mut cargo = program("cargo");
    cargo
        .args([subcommand, "--profile", PROFILE, "--locked", "--package", PACKAGE, "--features", "bpf"])
        .args(["-Z", "build-std=core", "--target", TARGET, "--target-dir"])
        .arg(target_dir)
        .env("RUSTC_BOOTSTRAP", "1")
        // Not RUSTFLAGS: this one wins over whatever the user has set, whose flags are for the host.
        .env("CARGO_ENCODED_RUSTFLAGS", "-Cdebuginfo=2\u{1f}-Clink-arg=--btf");
    cargo
}

struct Program {
    name: String,
    section: String,
    n_instructions: u64,
}

struct Content {
    programs: Vec<Program>,
    n_subprograms: usize,
    maps: Vec<String>,
    btf_bytes: u64,
}

fn inspect(bytes: &[u8]) -> Result<Content> {
    let file = object::File::parse(bytes).context("no ELF object")?;
    let size_of = |name: &str| file.section_by_name(name).map(|section| section.size());
    let Some(btf_bytes) = size_of(".BTF") else { bail!("no BTF: the linker was not told --btf") };
    let mut content = Content { programs: Vec::new(), n_subprograms: 0, maps: Vec::new(), btf_bytes };
    for symbol in file.symbols() {
        let Some(index) = symbol.section_index() else { continue };
        let section = file.section_by_index(index)?.name()?.to_owned();
        let name = symbol.name()?.to_owned();
        match symbol.kind() {
            SymbolKind::Text if section == ".text" => content.n_subprograms += 1,
            SymbolKind::Text => {
                let n_instructions = symbol.size() / INSTRUCTION_BYTES;
                content.programs.push(Program { name, section, n_instructions });
            }
            SymbolKind::Data if section == ".maps" || section == "maps" => content.maps.push(name),
            _ => {}
        }
    }
    content.programs.sort_by(|a, b| a.name.cmp(&b.name));
    content.maps.sort();
    ensure!(!content.programs.is_empty(), "no program in it");
    Ok(content)
}
