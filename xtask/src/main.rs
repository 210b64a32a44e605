//! The project's automation, run as `cargo xtask COMMAND`: the complete test run, the rules of the source tree, the
//! conformance table. It imports no crate of the product, so that it builds in seconds; measurements are in
//! `measurements`. Nothing here is shipped.
//!
//! A checking command prints its findings, and its exit code is non-zero if a check failed.

mod book;
mod conformance;
mod fuzz;
mod guest;
mod instructions;
mod licences;
mod package;
mod python;
mod simulate;
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
    /// Run every check that a change must pass before it is merged; ends with one line of totals
    #[command(visible_alias = "ci")]
    Test(test::Options),
    /// Check the rules of the source tree: imports between crates, unsafe, reasons for dependencies, file lengths
    Tidy(tidy::Options),
    /// Run libiscsi's test suite over every configuration and tgt; writes docs/measured/conformance.md
    Conformance(conformance::Options),
    /// Count the instructions of one command at each end with callgrind, and compare them with the baseline
    Instructions(instructions::Options),
    /// Run every fuzz target for a limited time
    Fuzz(fuzz::Options),
    /// Simulate servers, initiators, networks and disks from seeds, and check the data that is read
    Simulate(simulate::Options),
    /// Test a Linux kernel in an emulated machine (QEMU, without KVM) as initiator, client and target
    Guest(guest::Options),
    /// Build the Python module, and test it with pytest; needs Python 3.11 with venv
    Python,
    /// Build the book of docs/ with mdBook, and check its links
    Book,
    /// Build a Debian package; --check installs, removes and purges it in a separate root directory
    Package(package::Options),
    /// Install the Debian packages that tests and comparisons use, without starting their daemons
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
        Command::Book => book::run(),
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
