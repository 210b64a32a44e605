//! Builds and runs the simulation, `crates/runtime/sim`.
//!
//! A *world* is one simulated environment: a server, initiators, networks and disks. It is determined by its seed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use xtask::process::{self, Ended};
use xtask::tally::{Tally, Verdict};
use xtask::workspace;

mod mutations;

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Show the world of this seed, step by step
    #[arg(long, conflicts_with_all = ["hours", "minimize", "rate"])]
    seed: Option<u64>,
    /// Run one world after another for this time
    #[arg(long, conflicts_with = "minimize")]
    hours: Option<f64>,
    /// First seed of --hours [default: from the clock]
    #[arg(long, requires = "hours")]
    from: Option<u64>,
    /// Find the smallest world with the same kind of fault as the world of this seed
    #[arg(long)]
    minimize: Option<u64>,
    /// Measure the cost of one second at the maximum command rate, with this seed
    #[arg(long, value_name = "SEED", conflicts_with_all = ["hours", "minimize"])]
    rate: Option<u64>,
    /// Inject a known bug into a copy of the tree, and pass if it is found; `all` tries each bug in turn
    #[arg(long, value_name = "NAME", conflicts_with_all = ["seed", "minimize"])]
    mutate: Option<String>,
    /// Disable a part of the worlds, such as Crashes or DiskTrouble; can be repeated
    #[arg(long, value_name = "PART")]
    without: Vec<String>,
    /// Enable a part of the worlds: Nbd (simple NBD clients on the initiators' volumes), OurNbd (our NBD clients), Journals
    /// (our NBD clients with journals), Breaks (sessions of our initiator that break after each login) or Floods (peers that never stop sending)
    #[arg(long, value_name = "PART")]
    with: Vec<String>,
}

/// Default of --hours: six minutes.
const HOURS: f64 = 0.1;

pub(crate) fn run(options: &Options) -> Result<Verdict> {
    if let Some(name) = &options.mutate {
        return mutate(name, options);
    }
    let mut words: Vec<String> = match (options.seed.or(options.rate), options.minimize) {
        (Some(seed), _) if options.rate.is_some() => vec!["rate".to_owned(), seed.to_string()],
        (Some(seed), _) => vec!["show".to_owned(), seed.to_string()],
        (_, Some(seed)) => vec!["minimize".to_owned(), seed.to_string()],
        _ => {
            let seconds = (options.hours.unwrap_or(HOURS) * 3600.0) as u64;
            new_worlds(options.from.unwrap_or_else(by_clock), seconds)
        }
    };
    words.extend(options.without.iter().cloned());
    words.extend(parts_told(&options.with));
    process::succeed(build())?;
    let mut command = simulate(Build::Fast);
    command.args(words);
    Ok(Verdict::of(process::succeed(command).is_ok()))
}

/// Returns the simulation's options for these parts.
fn parts_told(parts: &[String]) -> Vec<String> {
    parts.iter().map(|part| format!("--with={part}")).collect()
}

/// Returns a first seed that no earlier run has used.
fn by_clock() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(1, |since| since.as_secs())
}

/// Returns the arguments to run worlds for `seconds`, starting at the seed `first`.
fn new_worlds(first: u64, seconds: u64) -> Vec<String> {
    vec!["many".to_owned(), first.to_string(), seconds.to_string()]
}

/// Runs the simulations of each test run: new worlds, worlds that have found bugs, and in two builds the
/// first steps of the latter. The output of failures is also added to `failed`.
pub(crate) fn measure(failed: &mut String) -> Result<Tally> {
    process::succeed(build())?;
    let mut checks = Vec::new();
    // Each entry is an additional part, and the CPU time for new worlds.
    for (part, seconds) in [
        (None, 40),
        (Some("Nbd"), 10),
        (Some("OurNbd"), 15),
        (Some("Journals"), 15),
    ] {
        let parts: Vec<String> = part.into_iter().map(str::to_owned).collect();
        let seeds = seeds(&parts)?;
        checks.extend([
            Check::Worlds([&["each".to_owned()], &seeds[..], &parts_told(&parts)].concat()),
            new_worlds_with(&parts, seconds),
            Check::Builds(seeds, parts),
        ]);
    }
    // Worlds with these parts have found no faults except injected ones. A world of floods takes half a
    // minute.
    checks.extend(
        [("Breaks", 5), ("Floods", 1)]
            .map(|(part, seconds)| new_worlds_with(&[part.to_owned()], seconds)),
    );
    Ok(Tally::of_busy(&checks, Check::made, failed))
}

/// Returns a check that runs new worlds with these parts for `seconds` of CPU time.
fn new_worlds_with(parts: &[String], seconds: u64) -> Check {
    Check::Worlds([&new_worlds(by_clock(), seconds)[..], &parts_told(parts)].concat())
}

/// A check of each test run.
enum Check {
    /// A fast build finds no fault in these worlds.
    Worlds(Vec<String>),
    /// Two builds have the same output for the worlds of these seeds, with these parts.
    Builds(Vec<String>, Vec<String>),
}

impl Check {
    fn made(&self) -> (Verdict, String) {
        match self {
            Check::Worlds(words) => {
                let mut command = simulate(Build::Fast);
                // The output contains the seed, and replaying the seed shows the backtrace.
                command.args(words).env("RUST_BACKTRACE", "0");
                match process::within(CHECK_MAX, command) {
                    Ok((Ended::Exited(status), told)) => (Verdict::of(status.success()), told),
                    Ok((ended, told)) => (
                        Verdict::Fails,
                        format!("{told}simulate {words:?}: {ended:?}\n"),
                    ),
                    Err(error) => (Verdict::Fails, format!("simulate {words:?}: {error:#}\n")),
                }
            }
            Check::Builds(seeds, parts) => {
                match [Build::Fast, Build::Debug].map(|build| printed(build, seeds, parts)) {
                    [Ok(fast), Ok(debug)] => (
                        Verdict::of(fast == debug),
                        format!("{fast}a debug build:\n{debug}"),
                    ),
                    [fast, debug] => (
                        Verdict::Fails,
                        format!("{:#?}\n", [fast.err(), debug.err()]),
                    ),
                }
            }
        }
    }
}

/// Time limit, in case a world does not terminate.
const CHECK_MAX: Duration = Duration::from_mins(15);

/// Returns the seeds that have found bugs in worlds with these parts. In the file, the parts follow each
/// seed.
fn seeds(parts: &[String]) -> Result<Vec<String>> {
    let path = workspace::root().join("crates/runtime/sim/seeds.txt");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    let seeds: Vec<String> = lines
        .filter_map(|line| {
            let (seed, with) = line.split_once(' ').unwrap_or((line, ""));
            (!seed.is_empty() && with.split_whitespace().eq(parts)).then(|| seed.to_owned())
        })
        .collect();
    ensure!(
        !seeds.is_empty(),
        "{} contains no seed for these parts",
        path.display()
    );
    Ok(seeds)
}

/// Two independent builds of the same source.
#[derive(Clone, Copy)]
enum Build {
    Fast,
    Debug,
}

/// Builds the optimised simulation for [`measure`].
pub(crate) fn build() -> Command {
    build_of(workspace::root())
}

/// Builds the optimised simulation of a source tree.
fn build_of(tree: &Path) -> Command {
    // See `fuzz::build` about the workspace.
    let mut command = process::cargo(&[
        "build",
        "--workspace",
        "--features",
        "linerate-sim/optimised",
    ]);
    command
        .args(["--example", "simulate_optimised"])
        .current_dir(tree)
        .env(
            "RUSTC_WORKSPACE_WRAPPER",
            tree.join("crates/runtime/sim/optimise"),
        );
    command
}

/// Returns the optimised simulation in a target directory.
fn optimised(target: &Path) -> Command {
    Command::new(target.join("debug/examples/simulate_optimised"))
}

fn simulate(build: Build) -> Command {
    match (build, workspace::built_by_tests("simulate")) {
        (Build::Fast, _) => optimised(&workspace::target_directory()),
        (Build::Debug, Some(program)) => Command::new(program),
        (Build::Debug, None) => process::cargo(&[
            "run",
            "--package",
            "linerate-sim",
            "--bin",
            "simulate",
            "--",
        ]),
    }
}

/// Returns the output for the first steps of these worlds.
fn printed(build: Build, seeds: &[String], parts: &[String]) -> Result<String> {
    let mut command = simulate(build);
    command
        .args(["print", "2000"])
        .args(seeds)
        .args(parts_told(parts));
    process::capture(command)
}

/// Tries mutations. By default, their worlds start at seed 1, so that the time to find a mutation is
/// reproducible.
fn mutate(name: &str, options: &Options) -> Result<Verdict> {
    let chosen = match name {
        "all" => mutations::all().collect(),
        name => vec![mutations::named(name)?],
    };
    let seconds = options
        .hours
        .map_or(MUTATION_SECONDS, |hours| (hours * 3600.0) as u64);
    let mut missed = 0;
    for mutation in chosen {
        missed +=
            u64::from(mutation.try_out(options.from.unwrap_or(1), seconds)? == Verdict::Fails);
    }
    println!("{missed} not found");
    Ok(Verdict::of(missed == 0))
}

/// Time limit to find a mutation.
const MUTATION_SECONDS: u64 = 300;
