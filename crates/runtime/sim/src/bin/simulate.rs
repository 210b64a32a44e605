//! Runs simulations, for `cargo xtask simulate`.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum as _};
use host::cputime;
use sim::{Addition, Coverage, Feature, Outcome, Run, run};

/// Runs simulations; exits with 1 if one has a fault
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
    /// Add features to the simulations
    #[arg(long, global = true, value_name = "PART")]
    with: Vec<Addition>,
}

#[derive(Subcommand)]
enum Task {
    /// Run one seed, and print each step
    Show {
        seed: u64,
        /// Disable features
        without: Vec<Feature>,
    },
    /// Run consecutive seeds for a number of seconds of CPU time
    Many {
        first: u64,
        seconds: u64,
        /// Disable features
        without: Vec<Feature>,
    },
    /// Like `many`, but stop at the first fault
    Find {
        first: u64,
        seconds: u64,
        without: Vec<Feature>,
    },
    /// Run these seeds
    Each {
        #[arg(required = true)]
        seeds: Vec<u64>,
    },
    /// Print fingerprints after a number of commands: equal in every build and on every machine
    Print {
        commands: u64,
        #[arg(required = true)]
        seeds: Vec<u64>,
    },
    /// Measure the CPU time of a simulated second at 100,000 commands, in a day of commands at full rate
    Rate { seed: u64 },
    /// Minimize a faulty simulation, keeping the kind of fault
    Minimize { seed: u64 },
}

pub(crate) fn main() -> ExitCode {
    let Arguments { task, with } = Arguments::parse();
    let all = Run {
        with,
        ..Run::default()
    };
    let sound = match task {
        Task::Show { seed, without } => show(&Run {
            seed,
            without,
            shown: true,
            ..all
        }),
        Task::Many {
            first,
            seconds,
            without,
        } => many(first, seconds, &Run { without, ..all }),
        Task::Find {
            first,
            seconds,
            without,
        } => find(first, seconds, &Run { without, ..all }),
        Task::Each { seeds } => each(&seeds, &all),
        Task::Print { commands, seeds } => print(
            &seeds,
            &Run {
                commands: Some(commands),
                ..all
            },
        ),
        Task::Rate { seed } => rate(seed),
        Task::Minimize { seed } => minimize(Run { seed, ..all }),
    };
    if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn show(shown: &Run) -> bool {
    let outcome = run(shown);
    println!("{outcome:#?}");
    outcome.fault.is_none()
}

fn many(first: u64, seconds: u64, all: &Run) -> bool {
    let mut coverage = Coverage::default();
    let sum = play(first, seconds, all, |outcome| {
        coverage.add(outcome);
        ControlFlow::Continue(())
    });
    print!("{coverage}");
    sum.tell() && coverage.is_sound()
}

fn find(first: u64, seconds: u64, all: &Run) -> bool {
    let until_fault = |outcome: &Outcome| match outcome.fault {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    };
    play(first, seconds, all, until_fault).tell()
}

/// Runs consecutive seeds until the CPU time is used up or `look` breaks.
fn play(
    first: u64,
    seconds: u64,
    all: &Run,
    mut look: impl FnMut(&Outcome) -> ControlFlow<()>,
) -> Sum {
    let mut sum = Sum::new();
    let limit = Duration::from_secs(seconds);
    for seed in first.. {
        if sum.used() >= limit {
            break;
        }
        let outcome = run(&Run {
            seed,
            ..all.clone()
        });
        sum.add(&outcome);
        if look(&outcome).is_break() {
            break;
        }
    }
    sum
}

fn each(seeds: &[u64], all: &Run) -> bool {
    let mut sum = Sum::new();
    seeds.iter().for_each(|&seed| {
        sum.add(&run(&Run {
            seed,
            ..all.clone()
        }))
    });
    sum.tell()
}

fn print(seeds: &[u64], all: &Run) -> bool {
    let mut is_sound = true;
    for &seed in seeds {
        let outcome = run(&Run {
            seed,
            ..all.clone()
        });
        let Outcome {
            fingerprint,
            steps,
            commands,
            fault,
            ..
        } = outcome;
        println!(
            "{seed}: {fingerprint:016x} {steps} {commands} {}",
            fault.as_deref().unwrap_or("sound")
        );
        is_sound &= fault.is_none();
    }
    is_sound
}

fn rate(seed: u64) -> bool {
    let before = cputime::process();
    let outcome = run(&Run {
        seed,
        dense: true,
        ..Run::default()
    });
    let used = cputime::process().saturating_sub(before).as_secs_f64();
    let (commands, simulated) = (outcome.commands as f64, outcome.passed.as_secs_f64());
    println!(
        "seed {seed}: {:.0} commands ({:.0} blocks checked) a simulated second, which costs {:.2} s of CPU \
         time; 100,000 commands cost {:.2} s; {}",
        commands / simulated,
        outcome.checks as f64 / simulated,
        used / simulated,
        used * 1e5 / commands,
        outcome.fault.as_deref().unwrap_or("sound")
    );
    outcome.fault.is_none()
}

/// The sum of the results of several simulations. Faults are printed as they occur.
struct Sum {
    begun: Duration,
    worlds: u64,
    commands: u64,
    crashes: u64,
    ends: u64,
    checks: u64,
    passed: Duration,
    faults: u64,
}

impl Sum {
    fn new() -> Sum {
        let (begun, passed) = (cputime::process(), Duration::ZERO);
        Sum {
            begun,
            worlds: 0,
            commands: 0,
            crashes: 0,
            ends: 0,
            checks: 0,
            passed,
            faults: 0,
        }
    }

    /// Returns the CPU time used so far.
    fn used(&self) -> Duration {
        cputime::process().saturating_sub(self.begun)
    }

    fn add(&mut self, outcome: &Outcome) {
        self.worlds += 1;
        self.commands += outcome.commands;
        self.crashes += outcome.crashes;
        self.ends += outcome.ends;
        self.checks += outcome.checks;
        self.passed += outcome.passed;
        if let Some(fault) = &outcome.fault {
            self.faults += 1;
            println!("seed {}: {fault}", outcome.seed);
        }
    }

    /// Prints the sum. Returns true if there was no fault.
    fn tell(&self) -> bool {
        println!(
            "{} simulations, {} commands, {} crashes, {} orderly shutdowns, {} blocks checked, {} s \
             simulated in {} s of CPU time: {} faults",
            self.worlds,
            self.commands,
            self.crashes,
            self.ends,
            self.checks,
            self.passed.as_secs(),
            self.used().as_secs(),
            self.faults,
        );
        self.faults == 0
    }
}

/// Removes one part after another, as long as a simulation without it still has a fault of the same kind.
fn minimize(first_run: Run) -> bool {
    let seed = first_run.seed;
    let first = run(&first_run);
    let Some(fault) = first.fault.clone() else {
        println!("seed {seed} has no fault");
        return true;
    };
    println!("seed {seed}: {fault}");
    let (mut best, mut run_of_it) = (first, first_run);
    for &part in Feature::value_variants() {
        let mut without = run_of_it.without.clone();
        without.push(part);
        let tried = (0..TRIES).map(|turn| Run {
            seed: seed.wrapping_add(turn * 1_000_003),
            without: without.clone(),
            ..run_of_it.clone()
        });
        let found = tried
            .map(|tried| (run(&tried), tried))
            .find(|(outcome, _)| {
                outcome
                    .fault
                    .as_ref()
                    .is_some_and(|other| kind(other) == kind(&fault))
            });
        if let Some((outcome, tried)) = found {
            (best, run_of_it) = (outcome, tried);
        }
    }
    let parts: Vec<String> = run_of_it
        .without
        .iter()
        .map(|part| format!("{part:?}"))
        .collect();
    println!(
        "{} steps, without {}: simulate show {} {}{}",
        best.steps,
        parts.join(", "),
        run_of_it.seed,
        parts.join(" "),
        run_of_it
            .with
            .iter()
            .map(|part| format!(" --with {part:?}"))
            .collect::<String>()
    );
    false
}

const TRIES: u64 = 20;

/// Returns the kind of a fault: its text without numbers.
fn kind(fault: &str) -> String {
    fault
        .chars()
        .filter(|letter| !letter.is_ascii_digit())
        .take(60)
        .collect()
}
