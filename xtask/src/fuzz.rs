//! Every fuzz target for a while, with cargo-fuzz on stable Rust.

use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::tally::{Tally, Verdict};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds for each target
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Only this target; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

impl Options {
    /// A run of so many seconds for each target.
    pub(crate) fn short(seconds: u64) -> Options {
        Options { seconds, only: Vec::new() }
    }
}

/// Runs the targets one after the other; a finding is kept under fuzz/artifacts by cargo-fuzz.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    measure(options).map(Tally::verdict)
}

/// The same, counted by target; one skip if there is nothing to run them with.
pub(crate) fn measure(options: &Options) -> Result<Tally> {
    if let Err(error) = ensure() {
        println!("fuzz: skipped: {error:#}");
        return Ok(Tally::skipped());
    }
    let list = process::capture(cargo_fuzz(&["list"])).context("listing the fuzz targets")?;
    let chosen = |name: &&str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let mut tally = Tally::default();
    for target in list.lines().map(str::trim).filter(chosen) {
        let limit = format!("-max_total_time={}", options.seconds);
        println!("fuzz: {target} for {} s", options.seconds);
        let outcome = process::succeed(cargo_fuzz(&[
            "run",
            "--sanitizer",
            "none",
            target,
            "--",
            &limit,
            // Without a line for every input that is kept: what a finding prints is not drowned.
            "-verbosity=0",
            "-print_final_stats=1",
        ]));
        if let Err(error) = &outcome {
            println!("fuzz: {target}: {error:#}");
        }
        tally += Tally::of(Verdict::of(outcome.is_ok()));
    }
    Ok(tally)
}

/// Installs cargo-fuzz if it is missing.
fn ensure() -> Result<()> {
    match process::installed("cargo-fuzz") {
        true => Ok(()),
        false => process::succeed(process::cargo(&["install", "cargo-fuzz", "--locked"]))
            .context("cargo-fuzz is missing, and could not be installed"),
    }
}

/// On stable Rust, hence without sanitizers: the code under test has no `unsafe` for them to look into.
fn cargo_fuzz(arguments: &[&str]) -> Command {
    let mut command = process::cargo(&["fuzz"]);
    command.args(arguments);
    command
}
