//! Runs every fuzz target for a limited time, with libFuzzer on stable Rust.
//!
//! There are no sanitizers: they need nightly Rust, and the code under test has no `unsafe` for them to
//! check. Dependencies have no coverage counters, because short runs use the dependencies that the tests have
//! built.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use xtask::process::{self, CLIPPY_ARGS, Ended};
use xtask::tally::{Tally, Verdict};
use xtask::workspace;

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
    /// Returns options to run each target for `seconds`.
    pub(crate) fn short(seconds: u64) -> Options {
        Options {
            seconds,
            only: Vec::new(),
        }
    }
}

/// Runs the targets, one on each core.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    measure(options, &mut String::new()).map(Tally::verdict)
}

/// Like [`run`], but counts targets. The output of failures is also added to `failed`.
pub(crate) fn measure(options: &Options, failed: &mut String) -> Result<Tally> {
    let targets = targets()?;
    if let Some(unknown) = options
        .only
        .iter()
        .find(|only| targets.iter().all(|target| target.name != **only))
    {
        bail!("fuzz/Cargo.toml has no target {unknown}");
    }
    let is_chosen =
        |target: &Target| options.only.is_empty() || options.only.contains(&target.name);
    let targets: Vec<Target> = targets.into_iter().filter(is_chosen).collect();
    process::succeed(build(options.seconds)?).context("building the fuzz targets")?;
    let make = |target: &Target| {
        let (verdict, told) = fuzz(&target.name, options.seconds)
            .unwrap_or_else(|error| (Verdict::Fails, format!("{error:#}")));
        // If the target passes, libFuzzer's dictionary and function names are not useful.
        let told = match verdict {
            Verdict::Holds => told
                .lines()
                .filter(|line| line.starts_with("stat::"))
                .collect::<Vec<_>>()
                .join("\n"),
            Verdict::Fails => told,
        };
        (
            verdict,
            format!(
                "fuzz: {} for {} s\n{}\n",
                target.name,
                options.seconds,
                told.trim_end()
            ),
        )
    };
    // libFuzzer is single-threaded: each target keeps one core busy.
    Ok(Tally::of_busy(&targets, make, failed))
}

/// The programs of fuzz/Cargo.toml.
#[derive(Deserialize)]
struct Targets {
    bin: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

fn targets() -> Result<Vec<Target>> {
    let manifest = fs::read_to_string(workspace::root().join("fuzz/Cargo.toml"))?;
    let Targets { bin } = toml::from_str(&manifest).context("fuzz/Cargo.toml")?;
    Ok(bin)
}

/// Runs one target, and returns its output. Its corpus is in fuzz/corpus, its findings are in fuzz/artifacts.
fn fuzz(target: &str, seconds: u64) -> Result<(Verdict, String)> {
    let [corpus, artifacts] = ["corpus", "artifacts"]
        .map(|folder| workspace::root().join("fuzz").join(folder).join(target));
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&artifacts)?;
    let mut command = Command::new(workspace::target_directory().join("debug").join(target));
    command
        .arg(corpus)
        .arg(format!("-artifact_prefix={}/", artifacts.display()));
    // Suppress the line for each new input, which would hide the output of a finding.
    command.args([
        &format!("-max_total_time={seconds}"),
        "-verbosity=0",
        "-print_final_stats=1",
    ]);
    // libFuzzer limits the time of each input. This limit is for a target that does not start.
    Ok(
        match process::within(Duration::from_secs(seconds) + SPARE, command)? {
            (Ended::Exited(status), told) => (Verdict::of(status.success()), told),
            (ended, told) => (Verdict::Fails, format!("{told}fuzz: {target}: {ended:?}\n")),
        },
    )
}

/// Additional time for a target to start and exit.
const SPARE: Duration = Duration::from_mins(5);

/// Builds all targets, for runs of `seconds`. In short runs, optimisation takes more time than it saves.
pub(crate) fn build(seconds: u64) -> Result<Command> {
    // Cargo selects the features of the dependencies for all selected packages together, with those of
    // development dependencies if there is an example. With the same features as for the tests, both share them. The example
    // is one of this package: instrumented crates need libFuzzer to link.
    let mut command = process::cargo(&["build", "--workspace", "--example", "fuzz_nothing"]);
    for target in targets()? {
        command.args(["--bin", &target.name]);
    }
    let wrapper = if seconds < OPTIMISED_SECONDS_MIN {
        "fuzz/instrument"
    } else {
        "fuzz/instrument-optimised"
    };
    command
        .env("RUSTC_WORKSPACE_WRAPPER", workspace::root().join(wrapper))
        .env(CLIPPY_ARGS.0, CLIPPY_ARGS.1);
    Ok(command)
}

const OPTIMISED_SECONDS_MIN: u64 = 30;
