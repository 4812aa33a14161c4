//! Developer commands: one module per command, this file only names and dispatches them.
//!
//! It replaces shell scripts. It is no part of the product: nothing in `gateway-agent` depends on it.

mod bench;
mod build_ebpf;
mod cluster;
mod codegen;
mod command;
mod conformance;
mod demo;
mod deny;
mod fuzz;
mod image;
mod instructions;
mod libtest;
mod setup;
mod test;
mod tidy;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Developer commands of gateway-agent",
    disable_help_subcommand = true
)]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what a fresh Debian 12 machine with rustup lacks (needs root when something is missing)
    Setup(setup::Args),
    /// Build the one object that holds every kernel program, and list what is in it
    BuildEbpf,
    /// Run everything that a change must pass; as root
    Test(test::Args),
    /// Check the rules of this tree that neither the compiler nor clippy checks
    Tidy(tidy::Args),
    /// Check licences, banned and doubled crates against deny.toml
    Deny,
    /// Run the kernel tests on other kernels, in virtual machines
    Vm(vm::Args),
    /// Generate the Gateway API types and schemas from the CRDs of the pinned release (needs Go and kopium)
    Codegen,
    /// Run the agent on deploy/quickstart in network namespaces, with real clients and servers (needs root)
    Demo(demo::Args),
    /// Measure the agent beside its peers: CPU per unit of work, interleaved rounds (needs root)
    Bench(bench::Args),
    /// Look for bytes that break what the parsers promise, by coverage
    Fuzz(fuzz::Args),
    /// Count the instructions of the hot paths under valgrind, against those on record
    Instructions(instructions::Args),
    /// Build the agent's container image, an OCI archive, without a container engine
    Image(image::Args),
    /// A real Kubernetes of two nodes in network namespaces: up, down, status, kubectl, load (needs root and Go)
    Cluster(cluster::Args),
    /// Run the Gateway API's conformance suite against the agent in the running cluster (needs root and Go)
    Conformance(conformance::Args),
}

fn main() -> ExitCode {
    let result = match Args::parse().task {
        Task::Setup(args) => setup::run(&args),
        Task::BuildEbpf => build_ebpf::run(),
        Task::Test(args) => test::run(&args),
        Task::Tidy(args) => tidy::run(&args),
        Task::Deny => deny::run(),
        Task::Vm(args) => vm::run(&args),
        Task::Codegen => codegen::run(),
        Task::Demo(args) => demo::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Instructions(args) => instructions::run(&args),
        Task::Image(args) => image::run(&args),
        Task::Cluster(args) => cluster::run(&args),
        Task::Conformance(args) => conformance::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not returned from here: that would print a backtrace, which says nothing about a missing program.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    /// What flattened options make ambiguous is seen when the command is run, and only then.
    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        super::Args::command().debug_assert();
    }
}
