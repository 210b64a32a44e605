//! Runs every fuzz target for a limited time, with cargo-fuzz on stable Rust.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use xtask::process::{self, Ended};
use xtask::tally::{Tally, Verdict};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds for each target
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Run only this target; can be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

impl Options {
    /// A run of `seconds` for each target.
    pub(crate) fn short(seconds: u64) -> Options {
        Options { seconds, only: Vec::new() }
    }
}

/// Runs the targets, one on each core; cargo-fuzz stores findings under fuzz/artifacts.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    measure(options, &mut String::new()).map(Tally::verdict)
}

/// Like [`run`], but counts targets; a single skip if cargo-fuzz is unavailable. The output of failures is also added to
/// `failed`.
pub(crate) fn measure(options: &Options, failed: &mut String) -> Result<Tally> {
    if let Err(error) = ensure() {
        println!("fuzz: skipped: {error:#}");
        return Ok(Tally::skipped());
    }
    let list =
        process::capture(cargo_fuzz(options.seconds, &["list"])).context("listing the fuzz targets")?;
    let chosen = |name: &&str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let targets: Vec<&str> = list.lines().map(str::trim).filter(chosen).collect();
    process::succeed(build(options.seconds)).context("building the fuzz targets")?;
    let make = |target: &&str| {
        let (verdict, told) = fuzz(target, options.seconds);
        // If the target passes, libFuzzer's dictionary and function names are not useful.
        let told = match verdict {
            Verdict::Holds => {
                told.lines().filter(|line| line.starts_with("stat::")).collect::<Vec<_>>().join("\n")
            }
            Verdict::Fails => told,
        };
        (verdict, format!("fuzz: {target} for {} s\n{}\n", options.seconds, told.trim_end()))
    };
    // libFuzzer is single-threaded: each target keeps one core busy.
    Ok(Tally::of_busy(&targets, make, failed))
}

/// Runs one target, and returns its output.
fn fuzz(target: &str, seconds: u64) -> (Verdict, String) {
    let limit = format!("-max_total_time={seconds}");
    // No line for every new input, which would hide the output of a finding.
    let quiet = ["-verbosity=0", "-print_final_stats=1"];
    let command =
        cargo_fuzz(seconds, &["run", "--sanitizer", "none", target, "--", &limit, quiet[0], quiet[1]]);
    // libFuzzer limits the time of each input; this limit covers a target that does not start.
    match process::within(Duration::from_secs(seconds) + SPARE, command) {
        Ok((Ended::Exited(status), told)) => (Verdict::of(status.success()), told),
        Ok((ended, told)) => (Verdict::Fails, format!("{told}fuzz: {target}: {ended:?}\n")),
        Err(error) => (Verdict::Fails, format!("fuzz: {target}: {error:#}\n")),
    }
}

/// Additional time for a target to start and exit.
const SPARE: Duration = Duration::from_mins(5);

/// Builds all targets, for runs of `seconds`.
pub(crate) fn build(seconds: u64) -> Command {
    cargo_fuzz(seconds, &["build", "--sanitizer", "none"])
}

/// Installs cargo-fuzz if it is missing.
fn ensure() -> Result<()> {
    match process::installed("cargo-fuzz") {
        true => Ok(()),
        false => process::succeed(process::cargo(&["install", "cargo-fuzz", "--locked"]))
            .context("cargo-fuzz is missing, and could not be installed"),
    }
}

/// On stable Rust, hence without sanitizers; the code under test has no `unsafe` for them to check.
fn cargo_fuzz(seconds: u64, arguments: &[&str]) -> Command {
    let mut command = process::cargo(&["fuzz"]);
    command.args(arguments);
    if seconds < OPTIMISED_SECONDS_MIN {
        command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    }
    command
}

/// In shorter runs, optimising takes more time than it saves.
const OPTIMISED_SECONDS_MIN: u64 = 30;
