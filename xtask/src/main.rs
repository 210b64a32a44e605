//! The project's automation, run as `cargo xtask COMMAND`: the whole test run, the rules of the source tree, the
//! conformance table. It imports no crate of the product, so that it builds in seconds; measurements are in
//! `measurements`. Nothing here is shipped.
//!
//! A command that checks something prints what it found and ends with a non-zero exit code if something failed.

mod conformance;
mod fuzz;
mod guest;
mod instructions;
mod licences;
mod package;
mod python;
mod simulate;
mod space;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{packages, tally};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Linerate's automation")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything that must hold before a change is merged; ends with one line of totals
    #[command(visible_alias = "ci")]
    Test(test::Options),
    /// The rules of the source tree: arrows between crates, unsafe, dependencies with reasons, file lengths
    Tidy(tidy::Options),
    /// libiscsi's test suite over every configuration, beside tgt; writes docs/measured/conformance.md
    Conformance(conformance::Options),
    /// Instructions for one command at each end beside the stored baseline, by callgrind
    Instructions(instructions::Options),
    /// Every fuzz target for a while
    Fuzz(fuzz::Options),
    /// Simulated worlds of a server, initiators, networks and disks, each from a seed; checks what is read in them
    Simulate(simulate::Options),
    /// A Linux kernel in an emulated computer (QEMU, without KVM) as initiator, client and target
    Guest(guest::Options),
    /// The Python module: built, and tested by pytest where Python 3.11 with venv is installed
    Python,
    /// A Debian package of the program; --check installs, removes and purges it in a root of its own
    Package(package::Options),
    /// Install the Debian packages that tests and comparisons use; none of their daemons is started
    Packages,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Tidy(options) => tidy::run(&options),
        Command::Conformance(options) => conformance::run(&options),
        Command::Instructions(options) => instructions::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Guest(options) => guest::run(&options),
        Command::Python => python::run(),
        Command::Package(options) => package::run(&options),
        Command::Packages => packages::ensure(packages::ALL).map(|()| tally::Verdict::Holds),
    };
    match outcome {
        Ok(tally::Verdict::Holds) => ExitCode::SUCCESS,
        Ok(tally::Verdict::Fails) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}
