//! `vm`: the kernel tests with the same object file on other kernels, in virtual machines.
//!
//! What is tested, `tests/kernel` decides; this builds it once, brings it into each guest and reads the answer.

mod guest;
mod initramfs;
mod kernels;
mod modules;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use self::guest::End;
use self::initramfs::Initramfs;
use self::kernels::Kernel;
use crate::command::{cargo, output, target_dir};
use crate::libtest::{self, Counts};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Series such as 5.10, or `newest`; without one: 5.10 6.1 6.12 6.18 newest
    #[arg(value_name = "KERNEL")]
    series: Vec<String>,
    /// Download and unpack only
    #[arg(long)]
    fetch: bool,
    /// A test binary that is already built, in place of those of `kernel-tests`; repeatable
    #[arg(long = "test-binary", value_name = "PATH", hide = true)]
    tests: Vec<PathBuf>,
}

/// Guests at a time: each is emulated by one thread.
const CONCURRENT_GUESTS: usize = 2;

/// What a test prints to have a line of its own in the table: which features it found, which fallback it took.
const FACT: &str = "fact: ";

pub(crate) fn run(args: &Args) -> Result<()> {
    let series = if args.series.is_empty() {
        kernels::SERIES.iter().map(|&name| name.to_owned()).collect()
    } else {
        args.series.clone()
    };
    if args.fetch {
        return fetch(&series).map(drop);
    }
    let tests = if args.tests.is_empty() { test_binaries()? } else { args.tests.clone() };
    let counts = matrix(&series, &tests)?;
    println!("{} passed, {} failed", counts.passed, counts.failed);
    if counts.failed > 0 {
        bail!("not every kernel passed");
    }
    Ok(())
}

fn fetch(series: &[String]) -> Result<Vec<Kernel>> {
    kernels::fetch(&directory(), series)
}

fn directory() -> PathBuf {
    target_dir().join("vm")
}

struct Outcome {
    kernel: Kernel,
    end: End,
    said: String,
    took: Duration,
}

/// Runs the tests on each kernel and prints what each said. A guest that dies counts as one failed test.
fn matrix(series: &[String], tests: &[PathBuf]) -> Result<Counts> {
    let kernels = fetch(series)?;
    let object = crate::build_ebpf::build()?;
    let stripped = tempfile::tempdir()?;
    let tests = strip(tests, stripped.path())?;
    let queue = Mutex::new(kernels.into_iter());
    let sum = Mutex::new(Counts::default());
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let next = queue.lock().expect("no holder panics").next();
                let Some(kernel) = next else { return Ok(()) };
                let outcome = run_guest(kernel, &object, &tests)?;
                *sum.lock().expect("no holder panics") += report(&outcome);
            }
        };
        let workers: Vec<_> = (0..CONCURRENT_GUESTS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a guest's thread does not panic"))
    })?;
    Ok(sum.into_inner().expect("no holder panics"))
}

fn run_guest(kernel: Kernel, object: &Path, tests: &[PathBuf]) -> Result<Outcome> {
    let start = Instant::now();
    let logs = directory().join("logs");
    fs::create_dir_all(&logs)?;
    let initrd = logs.join(format!("{}.initrd", kernel.series));
    let archive = initramfs(&kernel, object, tests).with_context(|| format!("kernel {}", kernel.series))?;
    fs::write(&initrd, archive)?;
    let console = logs.join(format!("{}.console", kernel.series));
    let result = logs.join(format!("{}.result", kernel.series));
    let (end, said) = guest::run(&kernel.vmlinuz, &initrd, &console, &result)?;
    fs::remove_file(initrd)?;
    Ok(Outcome { kernel, end, said, took: start.elapsed() })
}

fn initramfs(kernel: &Kernel, object: &Path, tests: &[PathBuf]) -> Result<Vec<u8>> {
    let mut initramfs = Initramfs::default();
    for folder in ["proc", "sys", "dev", "tmp", "run", "modules"] {
        initramfs.folder(Path::new(folder));
    }
    initramfs.file("/init", guest::INIT.as_bytes());
    initramfs.program("/bin/busybox", &which("busybox")?)?;
    initramfs.program("/usr/bin/ip", &which("ip")?)?;
    initramfs.program("/usr/bin/tc", &which("tc")?)?;
    for (name, bytes) in modules::collect(&kernel.modules)? {
        initramfs.file(&format!("/modules/{name}"), &bytes);
    }
    initramfs.file("/gateway-ebpf", &fs::read(object)?);
    for test in tests {
        let name = test.file_name().unwrap_or_default().to_string_lossy();
        initramfs.program(&format!("/tests/{name}"), test)?;
    }
    Ok(initramfs.finish())
}

fn which(program: &str) -> Result<PathBuf> {
    let found = output(Command::new("sh").args(["-c", &format!("command -v {program}")]))
        .with_context(|| format!("{program} is missing: run `cargo xtask setup --for test`"))?;
    Ok(PathBuf::from(found.trim()))
}

/// Builds the kernel tests and names their binaries.
fn test_binaries() -> Result<Vec<PathBuf>> {
    let built = output(&mut cargo([
        "test",
        "--quiet",
        "--locked",
        "--package",
        "kernel-tests",
        "--no-run",
        "--message-format=json",
    ]))?;
    let binaries: Vec<PathBuf> = built.lines().filter_map(executable).collect();
    ensure!(!binaries.is_empty(), "kernel-tests has no test binary");
    Ok(binaries)
}

/// The path in one of cargo's messages, when it is about a test binary.
fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let is_test = message.get("profile")?.get("test")?.as_bool()?;
    let path = message.get("executable")?.as_str()?;
    is_test.then(|| PathBuf::from(path))
}

/// Copies without debug information: a guest has it in memory.
fn strip(binaries: &[PathBuf], dir: &Path) -> Result<Vec<PathBuf>> {
    let mut stripped = Vec::new();
    for binary in binaries {
        let copy = dir.join(binary.file_name().context("a binary has a name")?);
        output(Command::new("strip").arg("--strip-debug").arg("-o").arg(&copy).arg(binary))?;
        stripped.push(copy);
    }
    Ok(stripped)
}

/// What a kernel said as it went down: from where it says why, else the last lines of its console.
fn last_words(console: &Path) -> Vec<String> {
    /// A panic with its registers and stack.
    const LINES_MAX: usize = 40;
    let text = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let is_cause = |line: &&str| ["Oops", "BUG:", "panic"].iter().any(|word| line.contains(word));
    let first = lines.iter().position(is_cause).unwrap_or_else(|| lines.len().saturating_sub(LINES_MAX));
    lines.iter().skip(first).take(LINES_MAX).map(|&line| line.to_owned()).collect()
}

/// Prints a kernel's result in one piece, and gives its counts.
fn report(outcome: &Outcome) -> Counts {
    let Outcome { kernel, end, said, took } = outcome;
    let mut counts = libtest::counts(said);
    let is_fine = *end == End::Exited(0) && counts.passed > 0 && counts.failed == 0;
    if !is_fine && counts.failed == 0 {
        counts.failed = 1;
    }
    let result = match end {
        End::Exited(_) if is_fine => "passed".to_owned(),
        End::Exited(code) => format!("FAILED, exit code {code}"),
        End::Died => "FAILED: went down before its end, see the console".to_owned(),
        End::TimedOut => "FAILED: hung, stopped".to_owned(),
    };
    let mut text = format!(
        "kernel {:<7} {:<26} {result}: {} passed, {} failed in {:.0} s\n",
        kernel.series,
        kernel.version,
        counts.passed,
        counts.failed,
        took.as_secs_f64()
    );
    for fact in said.lines().filter_map(|line| line.split_once(FACT).map(|(_, fact)| fact)) {
        text.push_str(&format!("  {fact}\n"));
    }
    if !is_fine {
        let logs = directory().join("logs");
        text.push_str(&format!(
            "  its console and output: {0}/{1}.console, .result\n",
            logs.display(),
            kernel.series
        ));
        for name in libtest::failed_names(said) {
            text.push_str(&format!("  failed: {name}\n"));
        }
        for line in libtest::failures(said) {
            text.push_str(&format!("  | {line}\n"));
        }
        if *end == End::Died {
            for line in last_words(&logs.join(format!("{}.console", kernel.series))) {
                text.push_str(&format!("  console: {line}\n"));
            }
        }
    }
    print!("{text}");
    counts
}
