//! Runs simulations, for `cargo xtask simulate`.
//!
//! ```text
//! simulate show SEED [PART...]         one, step by step
//! simulate many FIRST SECONDS [PART...]  one after the other, until so much CPU time was used
//! simulate find FIRST SECONDS [PART...]  the same, until one has a fault
//! simulate minimize SEED               the smallest with the same kind of fault
//! simulate each SEED...                these
//! simulate print COMMANDS SEED...      what these have come to, each ended after so many commands
//! ```

use std::process::ExitCode;
use std::time::Duration;

use host::cputime;
use iscsi::observed::Met;
use iscsi::{initiator, target};
use sim::{Outcome, Part, Run, run};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<u64>().ok();
    let sound = match words[..] {
        ["show", seed, ref parts @ ..] => match number(seed) {
            Some(seed) => show(seed, parts),
            None => return usage(),
        },
        [word @ ("many" | "find"), first, seconds, ref parts @ ..] => {
            match (number(first), number(seconds)) {
                (Some(first), Some(seconds)) => {
                    many(first, Duration::from_secs(seconds), &named(parts), word == "find")
                }
                _ => return usage(),
            }
        }
        ["each", ref seeds @ ..] => each(seeds.iter().filter_map(|seed| number(seed))),
        ["print", commands, ref seeds @ ..] => match number(commands) {
            Some(commands) => print(commands, seeds.iter().filter_map(|seed| number(seed))),
            None => return usage(),
        },
        ["minimize", seed] => match number(seed) {
            Some(seed) => minimize(seed),
            None => return usage(),
        },
        _ => return usage(),
    };
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: simulate show SEED [PART...] | many FIRST SECONDS [PART...] | find FIRST SECONDS [PART...] | minimize SEED \
         | each SEED... | print COMMANDS SEED..."
    );
    ExitCode::from(2)
}

fn show(seed: u64, parts: &[&str]) -> bool {
    let without =
        Part::ALL.into_iter().filter(|part| parts.contains(&format!("{part:?}").as_str())).collect();
    let outcome = run(&Run { seed, shown: true, without, ..Run::default() });
    println!("{outcome:#?}");
    outcome.fault.is_none()
}

fn named(parts: &[&str]) -> Vec<Part> {
    Part::ALL.into_iter().filter(|part| parts.contains(&format!("{part:?}").as_str())).collect()
}

fn many(first: u64, limit: Duration, without: &[Part], until_a_fault: bool) -> bool {
    let begun = cputime::process();
    let mut all: Vec<Outcome> = Vec::new();
    let is_over = |all: &[Outcome]| until_a_fault && all.last().is_some_and(|last| last.fault.is_some());
    let used = || cputime::process().saturating_sub(begun);
    while used() < limit && !is_over(&all) {
        let seed = first + all.len() as u64;
        all.push(told(&Run { seed, without: without.to_vec(), ..Run::default() }));
    }
    summary(&all, used())
}

fn each(seeds: impl Iterator<Item = u64>) -> bool {
    let begun = cputime::process();
    let all: Vec<Outcome> = seeds.map(|seed| told(&Run { seed, ..Run::default() })).collect();
    summary(&all, cputime::process().saturating_sub(begun))
}

/// The same numbers come from every build and every machine.
fn print(commands: u64, seeds: impl Iterator<Item = u64>) -> bool {
    for seed in seeds {
        let Outcome { fingerprint, steps, commands, .. } =
            told(&Run { seed, commands: Some(commands), ..Run::default() });
        println!("{seed}: {fingerprint:016x} {steps} {commands}");
    }
    true
}

/// Plays one, and says so if it has a fault.
fn told(run_of_it: &Run) -> Outcome {
    let outcome = run(run_of_it);
    if let Some(fault) = &outcome.fault {
        println!("seed {}: {fault}", outcome.seed);
    }
    outcome
}

fn summary(all: &[Outcome], used: Duration) -> bool {
    let sum = |of: fn(&Outcome) -> u64| all.iter().map(of).sum::<u64>();
    let passed: Duration = all.iter().map(|outcome| outcome.passed).sum();
    let faults = sum(|outcome| u64::from(outcome.fault.is_some()));
    println!(
        "{} simulations, {} commands, {} crashes, {} orderly ends, {} blocks checked, {} s simulated in {} s of CPU time: {faults} faults",
        all.len(),
        sum(|outcome| outcome.commands),
        sum(|outcome| outcome.crashes),
        sum(|outcome| outcome.ends),
        sum(|outcome| outcome.checks),
        passed.as_secs(),
        used.as_secs(),
    );
    tell_met(all);
    faults == 0
}

/// What the machines have never met, of all that they could.
fn tell_met(all: &[Outcome]) {
    for (side, states, events) in [
        ("target", &target::TASK_STATES[..], &target::TASK_EVENTS[..]),
        ("initiator", &initiator::TASK_STATES[..], &initiator::TASK_EVENTS[..]),
    ] {
        let pairs =
            states.iter().flat_map(|state| events.iter().map(move |event| Met { side, state, event }));
        let never = |met: &Met| !all.iter().any(|outcome| outcome.met.contains_key(met));
        let (count, never) = (states.len() * events.len(), pairs.filter(never).collect::<Vec<_>>());
        println!("{side}: {} of {count} pairs of a task's state and an event; never:", count - never.len());
        for Met { state, event, .. } in never {
            println!("  {state}: {event}");
        }
    }
}

/// Takes away part after part, as long as some simulation without it has a fault of the same kind.
fn minimize(seed: u64) -> bool {
    let first = run(&Run { seed, ..Run::default() });
    let Some(fault) = first.fault.clone() else {
        println!("seed {seed} has no fault");
        return true;
    };
    println!("seed {seed}: {fault}");
    let (mut best, mut run_of_it) = (first, Run { seed, ..Run::default() });
    for part in Part::ALL {
        let mut without = run_of_it.without.clone();
        without.push(part);
        let tried = (0..TRIES).map(|turn| Run {
            seed: seed.wrapping_add(turn * 1_000_003),
            without: without.clone(),
            ..Run::default()
        });
        let found = tried
            .map(|tried| (run(&tried), tried))
            .find(|(outcome, _)| outcome.fault.as_ref().is_some_and(|other| kind(other) == kind(&fault)));
        if let Some((outcome, tried)) = found {
            (best, run_of_it) = (outcome, tried);
        }
    }
    let parts: Vec<String> = run_of_it.without.iter().map(|part| format!("{part:?}")).collect();
    println!(
        "{} steps, without {}: simulate show {} {}",
        best.steps,
        parts.join(", "),
        run_of_it.seed,
        parts.join(" ")
    );
    false
}

const TRIES: u64 = 20;

/// What a fault is about, without its numbers.
fn kind(fault: &str) -> String {
    fault.chars().filter(|letter| !letter.is_ascii_digit()).take(60).collect()
}
