//! `setup`: installs what a fresh Debian 12 machine with rustup lacks, and is the only place that does.
//!
//! Every item is looked for first, so a second run only looks (well under a second) and changes nothing; what is
//! there is what counts, no record of an earlier run is believed. It starts no service, and removes nothing.

mod apt;
mod rust;

use std::time::Instant;

use anyhow::Result;
use clap::ValueEnum;

pub(crate) use self::rust::NIGHTLY;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What the machine is to be fit for; each but `build` includes `build`. Without it: everything
    #[arg(long = "for", value_enum, value_name = "PURPOSE")]
    purposes: Vec<Purpose>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Purpose {
    /// Building the agent with its kernel programs
    Build,
    /// `cargo xtask demo`
    Demo,
    /// `cargo xtask test` and `cargo xtask vm`
    Test,
    /// `cargo xtask bench`
    Bench,
    /// `cargo xtask fuzz`
    Fuzz,
    /// `cargo xtask cluster`; Go is not among it
    Cluster,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.purposes.is_empty() {
        return prepare(Purpose::value_variants());
    }
    prepare(&args.purposes)
}

/// Makes the machine fit for `purposes`.
pub(crate) fn prepare(purposes: &[Purpose]) -> Result<()> {
    let start = Instant::now();
    // The toolchains come over the network and unpack, the packages too: side by side they cost the longer of the
    // two. bpf-linker is compiled and links to a package, so it comes after both.
    std::thread::scope(|scope| {
        let toolchains = scope.spawn(|| rust::toolchains(purposes));
        let packages = apt::packages(purposes);
        toolchains.join().expect("the toolchain thread does not panic").and(packages)
    })?;
    rust::bpf_linker()?;
    println!("setup: ready in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// One line for each thing looked at.
fn report(what: &str, why: &str, state: &str) {
    println!("setup: {what} ({why}): {state}");
}
