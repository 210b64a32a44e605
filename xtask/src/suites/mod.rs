//! Every suite on every kind of storage, by the real program: it must come to its end, and what it wrote must agree with
//! itself. Writes docs/measured/suites.md.
//!
//! Suites are made for disks and minutes; here they get a small span and a second or so for each run, by options that
//! everybody has. So the figures say that a suite runs and is sane, not how fast anything is.

mod page;
mod record;
mod sanity;
mod storage;

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::measuring::document;
use crate::measuring::machine::Setting;
use crate::measuring::namespace::Namespace;
use crate::process;
use crate::tally::Verdict;
use crate::workspace;
use record::Record;
use storage::{Kind, Storage};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only these suites
    #[arg(long, value_name = "NAME")]
    suite: Vec<String>,
    /// Only these kinds of storage
    #[arg(long, value_enum)]
    storage: Vec<Kind>,
    /// The part of the storage that is used, in MiB
    #[arg(long, default_value_t = 256)]
    span_mib: u64,
    /// How long each run of each cell takes at most
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// How often each cell is run at most; steady state needs five
    #[arg(long, default_value_t = 5)]
    repeats: u32,
    /// Leave the page as it is
    #[arg(long)]
    dry: bool,
}

/// What came of one suite on one kind of storage.
#[derive(Debug)]
struct Outcome {
    suite: String,
    kind: Kind,
    wall_s: f64,
    /// What it wrote, or why there is nothing.
    record: Result<Record, String>,
    /// What is wrong with that.
    doubts: Vec<String>,
}

/// Runs them, prints and writes the table. It holds if every suite came to its end everywhere, without a doubt.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    for program in ["tgtd", "losetup", "mkfs.ext4", "taskset", "ip"] {
        ensure!(process::installed(program), "{program} is missing: run `cargo xtask packages`");
    }
    let binary = workspace::release_binary()?;
    let suites = if options.suite.is_empty() { names(&binary)? } else { options.suite.clone() };
    let namespace = Namespace::create()?;
    let setting = Setting::look(&namespace, 1, 0.0);
    let asked = |kind: &Kind| options.storage.is_empty() || options.storage.contains(kind);
    let mut outcomes = Vec::new();
    for kind in Kind::ALL.into_iter().filter(asked) {
        let storage = Storage::prepare(kind, options.span_mib << 20, &binary, &namespace)?;
        for suite in &suites {
            let outcome = outcome(suite, &storage, &binary, options)?;
            println!("{kind:?}, {suite}: {:.0} s, {}", outcome.wall_s, outcome.verdict());
            outcomes.push(outcome);
        }
    }
    println!("{}", page::table(&outcomes));
    if !options.dry && options.suite.is_empty() && options.storage.is_empty() {
        let section = page::section(&outcomes, &setting, options);
        document::write_section("suites", "Every suite on every kind of storage", &section)?;
    }
    let fine = outcomes.iter().all(|outcome| outcome.record.is_ok() && outcome.doubts.is_empty());
    Ok(if fine { Verdict::Holds } else { Verdict::Fails })
}

/// The names of all suites, as the program tells them.
fn names(binary: &Path) -> Result<Vec<String>> {
    let mut command = std::process::Command::new(binary);
    command.args(["bench", "--list"]);
    let said = process::capture(command)?;
    let names: Vec<String> =
        said.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    ensure!(!names.is_empty(), "`linerate bench --list` printed nothing");
    Ok(names)
}

fn outcome(suite: &str, storage: &Storage, binary: &Path, options: &Options) -> Result<Outcome> {
    let folder = workspace::target_directory().join(format!("xtask/suites/{:?}-{suite}", storage.kind));
    let _ = fs::remove_dir_all(&folder); // of an earlier run, if there was one
    fs::create_dir_all(folder.parent().unwrap_or(&folder))?;
    let mut command = storage.client().command(binary);
    command.args(["bench", &storage.place(), "--suite", suite, "--allow-write", "--yes"]);
    command.args(["--span", &format!("{}MiB", options.span_mib), "--seconds", &options.seconds.to_string()]);
    command.args(["--repeats", &options.repeats.to_string()]);
    command.arg("--out").arg(&folder);
    let begun = Instant::now();
    let ended = process::capture(command);
    let wall_s = begun.elapsed().as_secs_f64();
    let record = ended.and_then(|_| Record::read(&folder.join("result.json")).context("result.json"));
    let doubts = record.as_ref().map_or_else(|_| Vec::new(), sanity::doubts);
    let record = record.map_err(|error| format!("{error:#}"));
    Ok(Outcome { suite: suite.to_owned(), kind: storage.kind, wall_s, record, doubts })
}

impl Outcome {
    /// `fine`, or the first thing that is wrong.
    fn verdict(&self) -> String {
        match (&self.record, self.doubts.as_slice()) {
            (Err(why), _) => format!("FAILED: {why}"),
            (Ok(_), []) => "fine".to_owned(),
            (Ok(_), [first, more @ ..]) => format!("{first} (and {} more)", more.len()),
        }
    }
}
