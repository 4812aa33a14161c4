//! Wiring: channels, runtimes, shutdown order. No logic.

mod cluster;
mod report;
mod worker;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;

use crate::args::{self, Cli, Command, ServeArgs};
use crate::manifests;
use crate::{ebpf, holder, telemetry};

/// What the worker may take beyond its grace period to take the programs off.
const HOLDER_PATIENCE: Duration = Duration::from_secs(5);

/// The whole program: arguments to exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Some(Command::Check { dir, gateway_class_names }) => check(&dir, gateway_class_names),
        None => serve(&cli.serve),
    }
}

fn check(dir: &Path, gateway_class_names: Vec<String>) -> ExitCode {
    let config = worker::config(&ServeArgs { gateway_class_names, ..ServeArgs::default() }, Vec::new());
    let conditions = |load: &manifests::Load| report::condition_findings(load, &config);
    manifests::check(dir, &mut std::io::stdout().lock(), conditions).into()
}

fn serve(args: &ServeArgs) -> ExitCode {
    if let Err(error) = telemetry::init(&args.log_level, args.log_format) {
        report::usage_error(&error);
        return ExitCode::from(holder::REFUSED_TO_START);
    }
    if args.holder_fd.is_none() && ebpf::wants_holder(args.datapath, args.bpffs.as_deref()) {
        return holder::run(args::raw(), args.grace() + HOLDER_PATIENCE);
    }
    match worker::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(holder::REFUSED_TO_START)
        }
    }
}
