//! What a journal costs where sets are used: a set of files in memory, written by `linerate bench` in its own process and over iSCSI
//! from `linerate serve`, without a journal, with one on its members, and with one on a volume of its own.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::measuring::cpu;
use crate::measuring::figures::middle;
use crate::measuring::server::{CLIENT_CORE, SERVER_CORE};
use xtask::process;
use xtask::serving::linerate::{Linerate, await_sync};
use xtask::serving::{Placement, Serving};

/// What protects a set, with the options of `raid create`.
const GUARDS: [(&str, &[&str]); 3] = [
    ("none (`--journal 0`)", &["--journal", "0"]),
    ("on two members", &[]),
    ("on a volume of its own (`--journal-on`)", &["--journal-on"]),
];
const ALONE: usize = 2;

const MEMBERS: usize = 4;
const ROUNDS: usize = 5;
const SECONDS: &str = "1";
/// Issue 18: at most 30 % more than without a journal.
const COST_MAX: f64 = 1.3;

/// Who writes, and with how many requests outstanding.
const USERS: [(User, &str); 3] = [(User::Bench, "1"), (User::Served, "1"), (User::Served, "16")];

#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    Bench,
    Served,
}

#[derive(Clone, Copy)]
struct Run {
    /// Time of a request, by the rate: that of the processor, where one is outstanding.
    us: f64,
    /// CPU time of the process that has the set.
    cpu_us: f64,
}

/// A folder in memory, which is gone when this is dropped.
struct InMemory(PathBuf);

impl InMemory {
    fn new() -> Result<InMemory> {
        let folder = PathBuf::from(format!("/dev/shm/linerate-raid-{}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(InMemory(folder))
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The table, and whether the goal is met.
pub(super) fn measured(binary: &Path) -> Result<(String, bool)> {
    let folder = InMemory::new()?;
    let sets: Vec<String> = GUARDS
        .iter()
        .enumerate()
        .map(|(at, (_, options))| created(binary, &folder.0.join(at.to_string()), options))
        .collect::<Result<_>>()?;
    let mut runs: Vec<[Vec<Run>; GUARDS.len()]> = USERS.iter().map(|_| Default::default()).collect();
    // The first round makes the files be there.
    for round in 0..=ROUNDS {
        for ((user, depth), runs) in USERS.iter().zip(&mut runs) {
            for turn in 0..GUARDS.len() {
                let at = (turn + round) % GUARDS.len();
                let run = measure(binary, *user, depth, &sets[at])?;
                if round > 0 {
                    runs[at].push(run);
                }
            }
        }
    }
    Ok(told(&runs))
}

/// A new set of files, in sync: its specification.
fn created(binary: &Path, folder: &Path, options: &[&str]) -> Result<String> {
    std::fs::create_dir(folder)?;
    let file = |name: &str, mib: usize| format!("file:{}?size={mib}MiB", folder.join(name).display());
    let members: Vec<String> = (0..MEMBERS).map(|member| file(&format!("disk{member}"), 128)).collect();
    let set = format!("raid5:64KiB:[{}]", members.join(", "));
    let mut words: Vec<String> = ["raid", "create", &set, "--yes"].map(str::to_owned).to_vec();
    words.extend(options.iter().map(|option| (*option).to_owned()));
    let journal = file("journal", 40);
    if options.last() == Some(&"--journal-on") {
        words.push(journal.clone());
    }
    process::run(binary, &words.iter().map(String::as_str).collect::<Vec<_>>())?;
    let set = match options.last() == Some(&"--journal-on") {
        true => format!("raid5:64KiB:[{}, {journal}]", members.join(", ")),
        false => set,
    };
    // Nothing is measured beside that, nor the writes of a set that lacks parity yet.
    let server = Linerate::start(binary, &[format!("vol0={set}")], 1, &Placement::default())?;
    await_sync(binary, &server.control(), "vol0")?;
    Ok(set)
}

fn measure(binary: &Path, user: User, depth: &str, set: &str) -> Result<Run> {
    let client = Placement { core: Some(CLIENT_CORE), ..Placement::default() };
    let bench = |storage: &str| -> Result<(f64, f64)> {
        let mut command = client.command(binary);
        command
            .args(["--log", "error", "bench", storage, "--block", "4096", "--depth", depth, "--read", "0"]);
        command.args(["--random", "100", "--span", "256MiB", "--seconds", SECONDS, "--warm-up", "0.3"]);
        command.args(["--json", "--progress", "none", "--allow-write", "--yes"]);
        let said: Value = serde_json::from_str(&process::capture(command)?)?;
        let number = |key: &str| said[key].as_f64().with_context(|| format!("{key} in {said}"));
        ensure!(number("errors")? == 0.0, "{said}");
        Ok((number("iops")?, number("ios")?))
    };
    if user == User::Bench {
        let before = cpu::of_ended_children()?;
        let (iops, ios) = bench(set)?;
        return Ok(Run { us: 1e6 / iops, cpu_us: (cpu::of_ended_children()? - before) * 1e6 / ios });
    }
    let server = Placement { core: Some(SERVER_CORE), ..Placement::default() };
    let server = Linerate::start(binary, &[format!("vol0={set}")], 1, &server)?;
    let pid = server.process().pid();
    let before = cpu::of_process(pid)?;
    let (iops, ios) = bench(&server.url())?;
    Ok(Run { us: 1e6 / iops, cpu_us: (cpu::of_process(pid)? - before) * 1e6 / ios })
}

fn told(runs: &[[Vec<Run>; GUARDS.len()]]) -> (String, bool) {
    let mut text =
        "| who writes | outstanding | journal | time, µs | ratio | CPU, µs | ratio |\n|---|---:|---|---:|---:|---:|---:|\n".to_owned();
    let mut holds = true;
    for ((user, depth), runs) in USERS.iter().zip(runs) {
        for (at, (name, _)) in GUARDS.iter().enumerate() {
            let median =
                |figure: fn(&Run) -> f64| middle(runs[at].iter().map(figure).collect()).unwrap_or(f64::NAN);
            let ratio = |figure: fn(&Run) -> f64| {
                middle(runs[at].iter().zip(&runs[0]).map(|(run, base)| figure(run) / figure(base)).collect())
                    .unwrap_or(f64::NAN)
            };
            let cost = ratio(|run| run.us);
            holds &= at != ALONE || cost <= COST_MAX;
            let who = if *user == User::Bench { "`linerate bench`" } else { "`linerate serve`, over iSCSI" };
            let _ = writeln!(
                text,
                "| {who} | {depth} | {name} | {:.1} | {cost:.2} | {:.1} | {:.2} |",
                median(|run| run.us),
                median(|run| run.cpu_us),
                ratio(|run| run.cpu_us)
            );
        }
    }
    let verdict = if holds { "reached" } else { "missed" };
    let _ = writeln!(
        text,
        "\nGoal: with a journal on a volume of its own, time at most {COST_MAX:.2} of that without one: {verdict}."
    );
    (text, holds)
}

/// The binary that is measured.
pub(super) fn binary(given: Option<&PathBuf>) -> Result<PathBuf> {
    given.cloned().map_or_else(xtask::workspace::release_binary, Ok)
}

pub(super) const TEXT: &str = "\
Random writes of 4 KiB to RAID 5 of four files in /dev/shm (strips of 64 KiB, in sync), whose journal is in files there, too: by `linerate bench` with the set \
in its own process, and over iSCSI from `linerate serve`, server and client on a core each. The sets take turns in each of five rounds; figures are \
medians, and ratios the medians of the ratios of a round, to the set without a journal, which has a bitmap that closes no write hole. *Time* is that \
of a request by the rate, *CPU* the time of the process that has the set (of `linerate bench` with its start and end), in steps of 10 ms.
";
