//! Simulated worlds: `crates/runtime/sim` runs them, here it is built and told what to do.

use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use xtask::process::{self, Ended};
use xtask::tally::{Tally, Verdict};
use xtask::workspace;

mod mutations;

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// The one world of this seed, step by step
    #[arg(long, conflicts_with_all = ["hours", "minimize", "rate"])]
    seed: Option<u64>,
    /// World after world, for so long
    #[arg(long, conflicts_with = "minimize")]
    hours: Option<f64>,
    /// The first seed of --hours; by the clock if it is left out
    #[arg(long, requires = "hours")]
    from: Option<u64>,
    /// The smallest world with the same kind of fault as that of this seed
    #[arg(long)]
    minimize: Option<u64>,
    /// What a second of as many commands as possible costs, with this seed
    #[arg(long, value_name = "SEED", conflicts_with_all = ["hours", "minimize"])]
    rate: Option<u64>,
    /// Puts a fault back into a copy of the tree, and holds if it is found; `all` for one after the other
    #[arg(long, value_name = "NAME", conflicts_with_all = ["seed", "minimize"])]
    mutate: Option<String>,
    /// What the worlds are to be without, such as Crashes or DiskTrouble; may be repeated
    #[arg(long, value_name = "PART")]
    without: Vec<String>,
    /// What the worlds are to have besides: Nbd, for simple NBD clients on the initiators' volumes, OurNbd, for ours,
    /// Breaks, for sessions of our initiator that break after each login, or Floods, for peers that never stop sending
    #[arg(long, value_name = "PART")]
    with: Vec<String>,
}

/// A tenth of an hour, if nothing is said.
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
    let mut command = simulate(Build::Fast);
    command.args(words);
    Ok(Verdict::of(process::succeed(command).is_ok()))
}

/// As the simulation is told of them.
fn parts_told(parts: &[String]) -> Vec<String> {
    parts.iter().map(|part| format!("--with={part}")).collect()
}

/// The first of the seeds that nobody has seen yet.
fn by_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs())
}

/// Worlds from this seed on, for so long.
fn new_worlds(first: u64, seconds: u64) -> Vec<String> {
    vec!["many".to_owned(), first.to_string(), seconds.to_string()]
}

/// What each run of the tests plays: worlds that nobody has seen yet, those that have found something, and the beginnings of these by
/// two builds. What failed is told in `failed` as well.
pub(crate) fn measure(failed: &mut String) -> Result<Tally> {
    process::succeed(build())?;
    let mut checks = Vec::new();
    for (part, seconds) in
        [(None, NEW_SECONDS), (Some("Nbd"), NEW_NBD_SECONDS), (Some("OurNbd"), NEW_NBD_SECONDS)]
    {
        let parts: Vec<String> = part.into_iter().map(str::to_owned).collect();
        let seeds = seeds(&parts)?;
        checks.extend([
            Check::Worlds([&["each".to_owned()], &seeds[..], &parts_told(&parts)].concat()),
            Check::Worlds([&new_worlds(by_clock(), seconds)[..], &parts_told(&parts)].concat()),
            Check::Builds(seeds, parts),
        ]);
    }
    Ok(Tally::of_busy(&checks, Check::made, failed))
}

/// A check that each run of the tests makes.
enum Check {
    /// A fast build finds nothing in these worlds.
    Worlds(Vec<String>),
    /// Two builds agree on the worlds of these seeds, with these parts.
    Builds(Vec<String>, Vec<String>),
}

impl Check {
    fn made(&self) -> (Verdict, String) {
        match self {
            Check::Worlds(words) => {
                let mut command = simulate(Build::Fast);
                // The seed is printed; replaying it shows the backtrace.
                command.args(words).env("RUST_BACKTRACE", "0");
                match process::within(CHECK_MAX, command) {
                    Ok((Ended::Exited(status), told)) => (Verdict::of(status.success()), told),
                    Ok((ended, told)) => (Verdict::Fails, format!("{told}simulate {words:?}: {ended:?}\n")),
                    Err(error) => (Verdict::Fails, format!("simulate {words:?}: {error:#}\n")),
                }
            }
            Check::Builds(seeds, parts) => {
                match [Build::Fast, Build::Debug].map(|build| printed(build, seeds, parts)) {
                    [Ok(fast), Ok(debug)] => {
                        (Verdict::of(fast == debug), format!("{fast}a debug build:\n{debug}"))
                    }
                    [fast, debug] => (Verdict::Fails, format!("{:#?}\n", [fast.err(), debug.err()])),
                }
            }
        }
    }
}

/// For worlds that never end.
const CHECK_MAX: Duration = Duration::from_mins(15);

/// CPU time for worlds that nobody has seen yet, without NBD clients and with each kind of them.
const NEW_SECONDS: u64 = 40;
const NEW_NBD_SECONDS: u64 = 20;

/// The seeds that have found something in worlds with these parts, which stand behind them.
fn seeds(parts: &[String]) -> Result<Vec<String>> {
    let path = workspace::root().join("crates/runtime/sim/seeds.txt");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let seeds: Vec<String> = lines
        .filter_map(|line| {
            let (seed, with) = line.split_once(' ').unwrap_or((line, ""));
            (!seed.is_empty() && with.split_whitespace().eq(parts)).then(|| seed.to_owned())
        })
        .collect();
    ensure!(!seeds.is_empty(), "{}: no seed", path.display());
    Ok(seeds)
}

/// Two builds that have nothing in common but the source.
#[derive(Clone, Copy)]
enum Build {
    Fast,
    Debug,
}

const PACKAGE: [&str; 4] = ["--package", "linerate-sim", "--bin", "simulate"];

/// Builds what [`measure`] plays the worlds with.
pub(crate) fn build() -> Command {
    process::cargo(&[&["build", "--profile", "simulation"], &PACKAGE[..]].concat())
}

fn simulate(build: Build) -> Command {
    let profile = match build {
        Build::Fast => "simulation",
        Build::Debug => "dev",
    };
    process::cargo(&[&["run", "--profile", profile], &PACKAGE[..], &["--"]].concat())
}

/// What the beginnings of these worlds come to.
fn printed(build: Build, seeds: &[String], parts: &[String]) -> Result<String> {
    let mut command = simulate(build);
    command.args(["print", "2000"]).args(seeds).args(parts_told(parts));
    process::capture(command)
}

/// The worlds of a mutation are those from seed 1 on, so that its time can be measured again.
fn mutate(name: &str, options: &Options) -> Result<Verdict> {
    let chosen = match name {
        "all" => mutations::all().collect(),
        name => vec![mutations::named(name)?],
    };
    let seconds = options.hours.map_or(MUTATION_SECONDS, |hours| (hours * 3600.0) as u64);
    let mut missed = 0;
    for mutation in chosen {
        missed += u64::from(mutation.try_out(options.from.unwrap_or(1), seconds)? == Verdict::Fails);
    }
    println!("{missed} not found");
    Ok(Verdict::of(missed == 0))
}

/// A fault has to be found within five minutes.
const MUTATION_SECONDS: u64 = 300;
