//! Runs every suite on every kind of storage with the real program. Each suite must complete, and its record must be
//! consistent. Writes docs/measured/suites.md.
//!
//! Suites are designed for disks and take minutes. Here, ordinary options reduce them to a small span and about a second per
//! run. The figures show that a suite works and is plausible, not the speed of the storage.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use xtask::tally::Verdict;
use xtask::{document, process, workspace};

use crate::page::Setting;
use crate::server::{Make, Server, Site, Started};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run only these suites
    #[arg(long, value_name = "NAME")]
    suite: Vec<String>,
    /// Use only these kinds of storage
    #[arg(long, value_name = "NAME", value_parser = STORAGE.map(|(name, _)| name))]
    storage: Vec<String>,
    /// Part of the storage to use, in MiB
    #[arg(long, default_value_t = 256)]
    span_mib: u64,
    /// Maximum seconds for each run of each cell
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Use this linerate binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Maximum number of runs of each cell; steady state needs five
    #[arg(long, default_value_t = 5)]
    repeats: u32,
    /// Do not write the page
    #[arg(long)]
    dry: bool,
}

/// The kinds of storage to measure.
const STORAGE: [(&str, Make); 4] = [
    ("linerate", Make::Linerate),
    ("tgt", Make::Tgt),
    ("file", Make::File),
    ("ext4", Make::Ext4),
];

/// The outcome of one suite on one kind of storage.
#[derive(Debug)]
struct Outcome {
    suite: String,
    storage: &'static str,
    wall_s: f64,
    /// The record of the run, or the error.
    record: Result<Record, String>,
    /// Inconsistencies in the record.
    doubts: Vec<String>,
}

/// Runs the suites, and prints and writes the table. Holds if every suite completed everywhere with a consistent record.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    process::require(&["tgtd", "losetup", "mkfs.ext4", "qemu-io"])?;
    let binary = options
        .binary
        .clone()
        .map_or_else(workspace::release_binary, Ok)?;
    let suites = if options.suite.is_empty() {
        names(&binary)?
    } else {
        options.suite.clone()
    };
    let mut site = Site::new(binary, PathBuf::from("fio"))?;
    let setting = Setting::look(&site, 1, 0.0);
    let asked =
        |name: &str| options.storage.is_empty() || options.storage.iter().any(|one| one == name);
    let mut outcomes = Vec::new();
    for (name, make) in STORAGE.into_iter().filter(|(name, _)| asked(name)) {
        let storage = Server::of(name, make).start(&mut site)?;
        for suite in &suites {
            let outcome = outcome(suite, name, &storage, &site.binary, options)?;
            println!(
                "{name}, {suite}: {:.0} s, {}",
                outcome.wall_s,
                outcome.verdict()
            );
            outcomes.push(outcome);
        }
    }
    println!("{}", summary(&outcomes));
    if !options.dry && options.suite.is_empty() && options.storage.is_empty() {
        let section = section(&outcomes, &setting, options);
        document::write_section("suites", "Every suite on every kind of storage", &section)?;
    }
    Ok(Verdict::of(outcomes.iter().all(Outcome::is_fine)))
}

/// Asks the program for the names of all suites.
fn names(binary: &Path) -> Result<Vec<String>> {
    let said = process::run(binary, &["bench", "--list"])?;
    let names: Vec<String> = said
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    ensure!(!names.is_empty(), "`linerate bench --list` printed nothing");
    Ok(names)
}

fn outcome(
    suite: &str,
    name: &'static str,
    storage: &Started,
    binary: &Path,
    options: &Options,
) -> Result<Outcome> {
    let folder = workspace::target_directory().join(format!("xtask/suites/{name}-{suite}"));
    let _ = fs::remove_dir_all(&folder); // of an earlier run, if any
    fs::create_dir_all(folder.parent().unwrap_or(&folder))?;
    let target = storage.target();
    let mut command = target.placement.command(binary);
    command.args([
        "bench",
        &target.places[0],
        "--suite",
        suite,
        "--allow-write",
        "--yes",
    ]);
    command.args([
        "--span",
        &format!("{}MiB", options.span_mib),
        "--seconds",
        &options.seconds.to_string(),
    ]);
    command.args(["--repeats", &options.repeats.to_string()]);
    command.arg("--out").arg(&folder);
    let begun = Instant::now();
    let ended = process::capture(command);
    let wall_s = begun.elapsed().as_secs_f64();
    let record =
        ended.and_then(|_| Record::read(&folder.join("result.json")).context("result.json"));
    let doubts = record.as_ref().map_or_else(|_| Vec::new(), doubts);
    let record = record.map_err(|error| format!("{error:#}"));
    Ok(Outcome {
        suite: suite.to_owned(),
        storage: name,
        wall_s,
        record,
        doubts,
    })
}

impl Outcome {
    fn is_fine(&self) -> bool {
        self.record.is_ok() && self.doubts.is_empty()
    }

    /// Returns `fine`, or the first problem.
    fn verdict(&self) -> String {
        match (&self.record, self.doubts.as_slice()) {
            (Err(why), _) => format!("FAILED: {why}"),
            (Ok(_), []) => "fine".to_owned(),
            (Ok(_), [first, more @ ..]) => format!("{first} (and {} more)", more.len()),
        }
    }
}

/// Returns the suites with their cells, the kinds of storage, and every problem.
fn summary(outcomes: &[Outcome]) -> String {
    let (mut suites, mut storages): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        if let Ok(record) = &outcome.record {
            let suite = format!("{} {}", outcome.suite, record.cells().count());
            if !suites.contains(&suite) {
                suites.push(suite);
            }
        }
        if !storages.contains(&outcome.storage) {
            storages.push(outcome.storage);
        }
    }
    let others: Vec<&Outcome> = outcomes.iter().filter(|it| !it.is_fine()).collect();
    let mut text = format!(
        "Suites, with their cells: {}. Storage: {}. Of {} combinations, {} are fine.\n",
        suites.join(", "),
        storages.join(", "),
        outcomes.len(),
        outcomes.len() - others.len()
    );
    for outcome in others {
        let (suite, storage, verdict) = (&outcome.suite, outcome.storage, outcome.verdict());
        let _ = write!(text, "\n- `{suite}` on {storage}: {verdict}");
    }
    text + "\n"
}

/// Returns the section of the page.
fn section(outcomes: &[Outcome], setting: &Setting, options: &Options) -> String {
    format!(
        "`cargo measure suites` runs and writes this section. Each suite is that of `linerate bench --suite NAME`, reduced by \
         three ordinary options: `--span {}MiB` instead of all of the storage (some suites need gigabytes), `--seconds {}` for \
         each run of each cell, and `--repeats {}`. So the figures show that every suite completes everywhere and is plausible, \
         not the speed of the storage. The server is on core 0, the client on core 1, in a network namespace ({}). linerate has \
         a RAM volume, tgt a file on /dev/shm. The file is on this machine's disk, and the ext4 file system is on a loop device \
         over an attached LUN of `linerate serve`; both are accessed with `O_DIRECT`.\n\n\
         *Fine* means: the exit code is 0; the record is complete and has every cell; no request failed; the number of latencies \
         equals the number of requests; samples add up to the run in requests, bytes and seconds; bytes match the requests' \
         lengths; readers did not write, nor writers read; the queue depth was not exceeded; and the rate times the mean latency \
         equals the measured number of outstanding requests, except for the effects at the ends of a run (Little's law). All of \
         this is computed from `result.json` by code that is independent of the program.\n\n{}{}",
        options.span_mib,
        options.seconds,
        options.repeats,
        setting.congestion,
        setting.line(),
        summary(outcomes)
    )
}

/// The parts of a `result.json` that are read. The types are separate from the program's, and all figures are recomputed here,
/// so that errors in the program's own summary are found.
#[derive(Debug, Deserialize)]
struct Record {
    ended: Option<String>,
    suite: Suite,
    runs: Vec<CellRun>,
}

#[derive(Debug, Deserialize)]
struct Suite {
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    Purge,
    Fill {},
    Measure { cells: Vec<Cell> },
}

#[derive(Debug, Deserialize)]
struct Cell {
    name: String,
    roles: Vec<Role>,
}

#[derive(Debug, Deserialize)]
struct Role {
    name: String,
    sessions: u16,
    workload: Workload,
}

#[derive(Debug, Deserialize)]
struct Workload {
    accesses: Vec<Access>,
    depth: u32,
}

#[derive(Debug, Deserialize)]
struct Access {
    block_bytes: u32,
    read: u8,
}

#[derive(Debug, Deserialize)]
struct CellRun {
    cell: String,
    ended: String,
    clients: Vec<ClientRun>,
}

#[derive(Debug, Deserialize)]
struct ClientRun {
    role: String,
    run: Run,
    cpu: Cpu,
}

#[derive(Debug, Deserialize)]
struct Run {
    seconds: f64,
    under_way_mean: f64,
    reads: Flow,
    writes: Flow,
    errors: u64,
    mismatches: u64,
    samples: Vec<Sample>,
}

#[derive(Debug, Deserialize)]
struct Flow {
    ios: u64,
    bytes: u64,
    /// (nanoseconds, number of requests).
    service: Vec<(u64, u64)>,
}

#[derive(Debug, Deserialize)]
struct Sample {
    at_s: f64,
    seconds: f64,
    reads: u64,
    writes: u64,
    read_bytes: u64,
    written_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Cpu {
    seconds: f64,
    cpus: u32,
}

impl Record {
    fn read(path: &Path) -> Result<Record> {
        Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
    }

    /// Returns all cells of the suite.
    fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.suite.steps.iter().flat_map(|step| match step {
            Step::Measure { cells } => cells.as_slice(),
            Step::Purge | Step::Fill {} => &[],
        })
    }
}

impl Run {
    fn ios(&self) -> u64 {
        self.reads.ios + self.writes.ios
    }

    /// Returns the mean of all latencies, in seconds.
    fn latency_mean_s(&self) -> f64 {
        let all = || self.reads.service.iter().chain(&self.writes.service);
        let sum_ns: f64 = all().map(|(ns, times)| *ns as f64 * *times as f64).sum();
        let count: u64 = all().map(|(_, times)| times).sum();
        sum_ns / 1e9 / count.max(1) as f64
    }

    /// Returns the longest latency, in seconds.
    fn latency_max_s(&self) -> f64 {
        let last = |flow: &Flow| flow.service.last().map_or(0, |(ns, _)| *ns);
        last(&self.reads).max(last(&self.writes)) as f64 / 1e9
    }
}

/// Permitted difference between the rate times the mean latency and the measured number of outstanding requests, in addition to
/// the effects at the ends of a run. Latencies are recorded to one part in a thousand.
const LITTLE_PERCENT: f64 = 1.0;

/// Returns all inconsistencies of a record, as messages.
fn doubts(record: &Record) -> Vec<String> {
    let mut doubts = Vec::new();
    if record.ended.is_none() {
        doubts.push("the record is incomplete".to_owned());
    }
    for cell in record.cells() {
        let runs: Vec<_> = record
            .runs
            .iter()
            .filter(|run| run.cell == cell.name)
            .collect();
        if runs.is_empty() {
            doubts.push(format!("{}: never ran", cell.name));
        }
        doubts.extend(
            runs.iter()
                .flat_map(|run| of_run(cell, run))
                .map(|doubt| format!("{}: {doubt}", cell.name)),
        );
    }
    doubts
}

fn of_run(cell: &Cell, run: &CellRun) -> Vec<String> {
    let mut doubts = Vec::new();
    if matches!(run.ended.as_str(), "failures" | "interrupted") {
        doubts.push(format!("ended by {}", run.ended));
    }
    if run.clients.len() != cell.roles.len() {
        doubts.push(format!(
            "{} clients for {} roles",
            run.clients.len(),
            cell.roles.len()
        ));
    }
    for client in &run.clients {
        match cell.roles.iter().find(|role| role.name == client.role) {
            Some(role) => doubts.extend(of_client(role, client)),
            None => doubts.push(format!("a client has the unknown role {}", client.role)),
        }
    }
    doubts
}

fn of_client(role: &Role, client: &ClientRun) -> Vec<String> {
    let ClientRun { run, cpu, .. } = client;
    let mut doubts = Vec::new();
    let mut doubt = |odd: bool, what: String| doubts.extend(odd.then_some(what));
    doubt(run.errors > 0, format!("{} errors", run.errors));
    doubt(
        run.mismatches > 0,
        format!("{} blocks were wrong", run.mismatches),
    );
    doubt(
        run.ios() == 0 || run.seconds <= 0.0,
        "no requests".to_owned(),
    );
    let kinds = || role.workload.accesses.iter();
    doubt(
        kinds().all(|access| access.read == 100) && run.writes.ios > 0,
        "a reader wrote".to_owned(),
    );
    doubt(
        kinds().all(|access| access.read == 0) && run.reads.ios > 0,
        "a writer read".to_owned(),
    );
    let sizes: Vec<u64> = kinds()
        .map(|access| u64::from(access.block_bytes))
        .collect();
    for (name, flow) in [("reads", &run.reads), ("writes", &run.writes)] {
        doubt(
            counted(flow) != flow.ios,
            format!("{} {name}, {} latencies", flow.ios, counted(flow)),
        );
        let (least, most) = (
            sizes.iter().min().unwrap_or(&0),
            sizes.iter().max().unwrap_or(&0),
        );
        let possible = flow.ios * least..=flow.ios * most;
        doubt(
            !possible.contains(&flow.bytes),
            format!("{} {name} of {} bytes", flow.ios, flow.bytes),
        );
    }
    let asked = f64::from(role.workload.depth) * f64::from(role.sessions);
    doubt(
        run.under_way_mean > asked * 1.001,
        format!(
            "{} outstanding requests, more than {asked}",
            run.under_way_mean
        ),
    );
    doubt(
        cpu.seconds > run.seconds * 1.2 * f64::from(cpu.cpus),
        format!("{} s of CPU time in {} s", cpu.seconds, run.seconds),
    );
    doubts.extend(samples(run));
    doubts.extend(little(asked, run));
    doubts
}

fn counted(flow: &Flow) -> u64 {
    flow.service.iter().map(|(_, times)| times).sum()
}

/// Checks that samples cover the whole run, in order. The end of the run may have no sample: the program
/// omits a last piece shorter than half a sample as noise.
fn samples(run: &Run) -> Vec<String> {
    let mut doubts = Vec::new();
    let longest_s = run
        .samples
        .iter()
        .map(|sample| sample.seconds)
        .fold(0.0, f64::max);
    let left_s = run.seconds - run.samples.iter().map(|sample| sample.seconds).sum::<f64>();
    if !(-1e-6..longest_s * 0.501).contains(&left_s) {
        doubts.push(format!("samples omit {left_s} s of {} s", run.seconds));
    }
    let sum = |of: fn(&Sample) -> u64| run.samples.iter().map(of).sum::<u64>();
    let told = (run.ios(), run.reads.bytes + run.writes.bytes);
    let seen = (
        sum(|sample| sample.reads + sample.writes),
        sum(|sample| sample.read_bytes + sample.written_bytes),
    );
    let is_whole = left_s < 1e-6;
    if (is_whole && seen != told) || seen.0 > told.0 || seen.1 > told.1 {
        doubts.push(format!(
            "samples have {seen:?} requests and bytes, the run has {told:?}"
        ));
    }
    if !run.samples.is_sorted_by(|one, next| one.at_s < next.at_s) {
        doubts.push("samples are out of order".to_owned());
    }
    doubts
}

/// Checks Little's law over the counted time. A request that completes in this time counts completely, even
/// if it started earlier; a request that completes later does not count. So at each end of the counted time,
/// the deviation is at most all outstanding requests, each with about the longest latency. Uncounted requests
/// can be slower than all counted ones, so the limit is doubled.
fn little(asked: f64, run: &Run) -> Option<String> {
    let expected = run.ios() as f64 / run.seconds * run.latency_mean_s();
    let ends = 2.0 * asked * run.latency_max_s() / run.seconds;
    let odd =
        (expected - run.under_way_mean).abs() > ends + run.under_way_mean * LITTLE_PERCENT / 100.0;
    odd.then(|| {
        format!(
            "rate times latency is {expected:.2}, but the mean number of outstanding requests {:.2}",
            run.under_way_mean
        )
    })
}
