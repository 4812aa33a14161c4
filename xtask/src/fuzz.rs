//! `fuzz`: looks for bytes that break what the parsers promise (`tests/wire/src/targets`).
//!
//! libFuzzer on the pinned compiler: coverage comes by an LLVM pass that stable compilers have, and since the parsers hold
//! no unsafe code no sanitizer is needed, which would be nightly's. New inputs go to `target/fuzz/corpus`, so that a
//! run changes no file of the tree; what breaks goes to `target/fuzz/found`, and into `fuzz/corpus` by hand once it is understood.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::command::{cargo, program, root, run as run_command, target_dir};
use crate::setup::{self, Purpose};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this target; without it: all of them, one after the other
    target: Option<String>,
    /// For each target
    #[arg(long, default_value = "60", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Copy the inputs that reach what those in the tree do not to `fuzz/corpus`, the smallest that do
    #[arg(long)]
    keep: bool,
    /// Run this one input, say what breaks, and end
    #[arg(long, value_name = "FILE", requires = "target")]
    input: Option<PathBuf>,
}

/// What libFuzzer needs of the compiler: counters, their places, and what is compared with what.
const COVERAGE: &[&str] = &[
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// With a target named, build scripts are built without the flags above.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Bytes of an input. Bounds of 8 and 16 KiB come into reach, and a run stays fast.
const INPUT_BYTES_MAX: u32 = 20 * 1024;

/// Seconds for one input: it takes microseconds.
const INPUT_SECONDS_MAX: u32 = 10;

pub(crate) fn run(args: &Args) -> Result<()> {
    setup::prepare(&[Purpose::Fuzz])?;
    let names = match &args.target {
        Some(target) => vec![target.clone()],
        None => targets()?,
    };
    let fuzzer = Fuzzer::build()?;
    if let Some(input) = &args.input {
        let mut command = fuzzer.command(&names[0]);
        command.arg(fs::canonicalize(input).with_context(|| format!("no {}", input.display()))?);
        return run_command(&mut command);
    }
    let mut broken = Vec::new();
    for name in &names {
        println!("fuzz: {name}, {} s", args.seconds);
        if fuzzer.look(name, args.seconds).is_err() {
            broken.push(name.as_str());
        } else if args.keep {
            fuzzer.keep(name)?;
        }
    }
    if broken.is_empty() {
        println!("fuzz: {} targets hold", names.len());
        return Ok(());
    }
    bail!(
        "{} broke; the input and how it broke are said above. Once mended, put the input into fuzz/corpus under a name that \
         says what it is",
        broken.join(", ")
    );
}

/// Each has a folder; a test holds the folders against the targets.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(seeds()).context("no fuzz/corpus")? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn seeds() -> PathBuf {
    root().join("fuzz/corpus")
}

struct Fuzzer {
    binary: PathBuf,
    work: PathBuf,
}

impl Fuzzer {
    fn build() -> Result<Self> {
        let work = target_dir().join("fuzz");
        let mut build = cargo(["build", "--release", "--locked", "--target", TARGET]);
        build
            .arg("--manifest-path")
            .arg(root().join("fuzz/Cargo.toml"))
            .arg("--target-dir")
            .arg(&work)
            .env("CARGO_ENCODED_RUSTFLAGS", COVERAGE.join("\u{1f}"));
        run_command(&mut build)?;
        let binary = work.join(TARGET).join("release/gateway-fuzz");
        ensure!(binary.is_file(), "cargo built no {}", binary.display());
        Ok(Self { binary, work })
    }

    fn command(&self, target: &str) -> Command {
        let mut command = program(&self.binary);
        command.env("WIRE_TARGET", target);
        command
    }

    /// Fails when something breaks.
    fn look(&self, target: &str, seconds: u32) -> Result<()> {
        let found = self.folder("found", target)?;
        let mut command = self.command(target);
        command
            .arg(self.folder("corpus", target)?)
            .arg(seeds().join(target))
            .arg(format!("-dict={}", root().join("fuzz/http.dict").display()))
            .arg(format!("-artifact_prefix={}/", found.display()))
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={INPUT_BYTES_MAX}"))
            .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
            .args(["-verbosity=0", "-print_final_stats=1"]);
        run_command(&mut command)
    }

    /// libFuzzer takes over the inputs that bring something new, from the smallest on.
    fn keep(&self, target: &str) -> Result<()> {
        let mut command = self.command(target);
        command.arg("-merge=1").arg(seeds().join(target)).arg(self.folder("corpus", target)?);
        run_command(&mut command)
    }

    fn folder(&self, kind: &str, target: &str) -> Result<PathBuf> {
        let path: &Path = &self.work.join(kind).join(target);
        fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path.to_owned())
    }
}
