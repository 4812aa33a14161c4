//! Wiring: channels, runtimes, shutdown order. No logic.

mod acknowledge;
mod authorities;
mod cluster;
mod deliver;
mod report;
mod scope;
mod worker;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;

use crate::args::{self, AcknowledgeArgs, Cli, Command, LogArgs, ServeArgs};
use crate::manifests;
use crate::{ebpf, features, holder, telemetry};

/// What the worker may take beyond its grace period to take the programs off.
const HOLDER_PATIENCE: Duration = Duration::from_secs(5);

/// The whole program: arguments to exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Some(Command::Check { dir, gateway_class_names }) => check(&dir, gateway_class_names),
        Some(Command::Features) => features(),
        Some(Command::Acknowledge(args)) => acknowledge(&args),
        None => serve(&cli.serve),
    }
}

fn features() -> ExitCode {
    let text: String = features::SUPPORTED.iter().map(|feature| format!("{feature}\n")).collect();
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(holder::REFUSED_TO_START),
    }
}

fn check(dir: &Path, gateway_class_names: Vec<String>) -> ExitCode {
    let config = worker::config(&ServeArgs { gateway_class_names, ..ServeArgs::default() }, Vec::new());
    let conditions = |load: &manifests::Load| report::condition_findings(load, &config);
    manifests::check(dir, &mut std::io::stdout().lock(), conditions).into()
}

fn acknowledge(args: &AcknowledgeArgs) -> ExitCode {
    if let Err(refused) = start_log(&args.log) {
        return refused;
    }
    code(acknowledge::run(args))
}

fn start_log(args: &LogArgs) -> Result<(), ExitCode> {
    telemetry::init(&args.log_level, args.log_format).map_err(|error| {
        report::usage_error(&error);
        ExitCode::from(holder::REFUSED_TO_START)
    })
}

fn code(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(holder::REFUSED_TO_START)
        }
    }
}

fn serve(args: &ServeArgs) -> ExitCode {
    if let Err(refused) = start_log(&args.log) {
        return refused;
    }
    if args.holder_fd.is_none() && ebpf::wants_holder(args.datapath, args.bpffs.as_deref()) {
        return holder::run(args::raw(), args.grace() + HOLDER_PATIENCE);
    }
    code(worker::run(args))
}
