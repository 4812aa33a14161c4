//! The thin binary: arguments, telemetry, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    gateway_agent::app::main()
}
