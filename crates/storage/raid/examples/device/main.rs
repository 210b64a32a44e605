//! Compares the cost of the RAID levels, over members in memory, on one core:
//!
//! ```console
//! cargo measure raid
//! ```
//!
//! This command builds the example, pins it to a core, and writes its output to `docs/measured/raid.md`. All
//! sets exist at the same time and alternate within each round. Times are CPU times, so other processes do
//! not affect them; members in memory complete requests immediately, so nothing waits. A figure is the median
//! over the rounds; a ratio is the median of the ratios in each round. `--quick` runs one short round.

mod medium;
mod sets;
mod tasks;

use std::process::ExitCode;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use medium::{Medium, bare_write_ns};
use sets::{SETS, TestSet};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    SequentialWrite,
    SequentialRead,
    RandomRead,
    RandomWrite,
    DegradedSequentialRead,
    DegradedRandomRead,
}

const WORKS: [(Work, &str); 6] = [
    (Work::SequentialWrite, "full stripes, sequential write"),
    (Work::SequentialRead, "sequential read"),
    (Work::RandomRead, "4 KiB random read"),
    (Work::RandomWrite, "4 KiB random write"),
    (
        Work::DegradedSequentialRead,
        "sequential read, one member failed",
    ),
    (
        Work::DegradedRandomRead,
        "4 KiB random read, one member failed",
    ),
];

const ROUNDS: usize = 7;

/// Returns the CPU time of this thread in nanoseconds. It excludes other threads on this core.
pub(crate) fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// CPU time per request in nanoseconds, by workload, set and round.
struct Figures(Vec<Vec<Vec<f64>>>);

impl Figures {
    fn of(&self, work: Work, set: &str) -> &[f64] {
        let at = WORKS.iter().position(|(other, _)| *other == work);
        let set = SETS.iter().position(|other| other.name == set);
        at.zip(set).map_or(&[], |(at, set)| &self.0[at][set])
    }

    /// Returns the median over the rounds of `a / b`, where both are in nanoseconds per byte.
    fn ratio(&self, a: (Work, &str), b: (Work, &str)) -> f64 {
        let each = |(work, set): (Work, &str)| -> Vec<f64> {
            let bytes = SETS
                .iter()
                .find(|other| other.name == set)
                .map_or(1, |set| set.request_bytes(work));
            self.of(work, set)
                .iter()
                .map(|ns| ns / bytes as f64)
                .collect()
        };
        median(each(a).iter().zip(each(b)).map(|(a, b)| a / b).collect())
    }
}

struct Goal {
    what: &'static str,
    ratio: fn(&Figures) -> f64,
    least: f64,
}

const GOALS: [Goal; 4] = [
    Goal {
        what: "full stripes of RAID 5 against RAID 0: rate",
        ratio: |of| {
            of.ratio(
                (Work::SequentialWrite, "raid0"),
                (Work::SequentialWrite, "raid5"),
            )
        },
        least: 0.6,
    },
    Goal {
        what: "RAID 5, sequential read, one member failed against none: rate",
        ratio: |of| {
            of.ratio(
                (Work::SequentialRead, "raid5"),
                (Work::DegradedSequentialRead, "raid5"),
            )
        },
        least: 0.5,
    },
    Goal {
        what: "RAID 5, 4 KiB random read, one member failed against none: rate",
        ratio: |of| {
            of.ratio(
                (Work::RandomRead, "raid5"),
                (Work::DegradedRandomRead, "raid5"),
            )
        },
        least: 0.5,
    },
    Goal {
        what: "RAID 5, 4 KiB random write, with a journal in a file against none: rate",
        ratio: |of| {
            let journal = "raid5, journal in a separate file";
            of.ratio((Work::RandomWrite, "raid5"), (Work::RandomWrite, journal))
        },
        least: 1.0 / 1.3,
    },
];

fn pin() {
    let Ok(mut cpus) = sched_getaffinity(None) else {
        return;
    };
    let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| cpus.is_set(*cpu));
    if let Some(last) = last {
        cpus = CpuSet::new();
        cpus.set(last);
        let _ = sched_setaffinity(None, &cpus);
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let is_quick = arguments.iter().any(|argument| argument == "--quick");
    // With a profiler, use for example `--only 'raid5, journal' RandomWrite`.
    let only = arguments
        .iter()
        .position(|argument| argument == "--only")
        .map(|at| &arguments[at + 1..]);
    pin();
    let is_wanted = |name: &str| only.is_none_or(|only| only.iter().any(|wanted| wanted == name));
    let mut sets: Vec<Option<TestSet>> = SETS
        .iter()
        .map(|set| is_wanted(set.name).then(|| TestSet::new(set)))
        .collect();
    let mut figures = Figures(WORKS.iter().map(|_| vec![Vec::new(); SETS.len()]).collect());
    let file = Medium::file(4 << 20).expect("/dev/shm has room");
    let mut bare = Vec::new();
    for (at, (work, _)) in WORKS.iter().enumerate() {
        if !is_wanted(&format!("{work:?}")) {
            continue;
        }
        for round in 0..if is_quick { 1 } else { ROUNDS + 1 } {
            if *work == Work::RandomWrite {
                bare.push(bare_write_ns(&file, if is_quick { 100 } else { 20_000 }));
            }
            for turn in 0..sets.len() {
                // Start with a different set in each round.
                let index = (turn + round) % sets.len();
                let Some(set) = sets[index].as_mut() else {
                    continue;
                };
                let Some(ns) = set.measured(*work, is_quick) else {
                    continue;
                };
                // The first round is a warm-up that makes the kernel allocate the memory.
                if is_quick || round > 0 {
                    figures.0[at][index].push(ns);
                }
            }
        }
    }
    print(&figures);
    if is_quick || only.is_some() {
        return ExitCode::SUCCESS;
    }
    // The sets have no figure for the first round.
    let write = figures.of(Work::RandomWrite, "raid5");
    let share = median(
        bare.iter()
            .skip(1)
            .zip(write)
            .map(|(bare, write)| bare / write)
            .collect(),
    );
    let bare = median(bare) / 1e3;
    println!(
        "\nA record's `pwritev2` alone: {bare:.2} µs, {:.0} % of a 4 KiB random write to RAID 5 without a journal.",
        100.0 * share
    );
    println!("\n| goal | at least | reached |\n|---|---:|---:|");
    let mut is_reached = true;
    for Goal { what, ratio, least } in &GOALS {
        let ratio = ratio(&figures);
        is_reached &= ratio >= *least;
        println!("| {what} | {least:.2} | {ratio:.2} |");
    }
    ExitCode::from(u8::from(!is_reached))
}

/// Prints the tables of the document.
fn print(figures: &Figures) {
    println!(
        "| set | members |{}",
        WORKS
            .iter()
            .map(|(_, name)| format!(" {name} |"))
            .collect::<String>()
    );
    println!("|---|---:|{}", "---:|".repeat(WORKS.len()));
    for set in &SETS {
        let cell = |work: Work| {
            let ns = median(figures.of(work, set.name).to_vec());
            match work {
                _ if ns.is_nan() => " |".to_owned(),
                Work::SequentialWrite | Work::SequentialRead | Work::DegradedSequentialRead => {
                    format!(" {:.2} GB/s |", set.request_bytes(work) as f64 / ns)
                }
                _ => format!(" {:.2} µs |", ns / 1e3),
            }
        };
        let cells: String = WORKS.iter().map(|(work, _)| cell(*work)).collect();
        println!("| {} | {} |{cells}", set.name, set.members);
    }
}
