//! Wiring: channels, runtimes, shutdown order. No logic.

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Cli;

pub fn main() -> ExitCode {
    let _cli = Cli::parse();
    ExitCode::SUCCESS
}
