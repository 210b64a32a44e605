//! Every suite on every kind of storage, by the real program: it must come to its end, and what it wrote must agree with
//! itself. Writes docs/measured/suites.md.
//!
//! Suites are made for disks and minutes; here they get a small span and a second or so for each run, by options that
//! everybody has. So the figures say that a suite runs and is sane, not how fast anything is.

mod page;
mod record;
mod sanity;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::measuring::machine::Setting;
use crate::measuring::server::{Make, Server, Site, Started};
use record::Record;
use xtask::document;
use xtask::process;
use xtask::tally::Verdict;
use xtask::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only these suites
    #[arg(long, value_name = "NAME")]
    suite: Vec<String>,
    /// Only these kinds of storage
    #[arg(long, value_name = "NAME", value_parser = STORAGE.map(|(name, _)| name))]
    storage: Vec<String>,
    /// The part of the storage that is used, in MiB
    #[arg(long, default_value_t = 256)]
    span_mib: u64,
    /// How long each run of each cell takes at most
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// A linerate that was built before, instead of building it
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// How often each cell is run at most; steady state needs five
    #[arg(long, default_value_t = 5)]
    repeats: u32,
    /// Leave the page as it is
    #[arg(long)]
    dry: bool,
}

/// The kinds of storage that people measure.
const STORAGE: [(&str, Make); 4] =
    [("linerate", Make::Linerate), ("tgt", Make::Tgt), ("file", Make::File), ("ext4", Make::Ext4)];

/// What came of one suite on one kind of storage.
#[derive(Debug)]
struct Outcome {
    suite: String,
    storage: &'static str,
    wall_s: f64,
    /// What it wrote, or why there is nothing.
    record: Result<Record, String>,
    /// What is wrong with that.
    doubts: Vec<String>,
}

/// Runs them, prints and writes the table. It holds if every suite came to its end everywhere, without a doubt.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    process::require(&["tgtd", "losetup", "mkfs.ext4", "qemu-io"])?;
    let binary = options.binary.clone().map_or_else(workspace::release_binary, Ok)?;
    let suites = if options.suite.is_empty() { names(&binary)? } else { options.suite.clone() };
    let mut site = Site::new(binary, PathBuf::from("fio"))?;
    let setting = Setting::look(&site, 1, 0.0);
    let asked = |name: &str| options.storage.is_empty() || options.storage.iter().any(|one| one == name);
    let mut outcomes = Vec::new();
    for (name, make) in STORAGE.into_iter().filter(|(name, _)| asked(name)) {
        let storage = Server::of(name, make).start(&mut site)?;
        for suite in &suites {
            let outcome = outcome(suite, name, &storage, &site.binary, options)?;
            println!("{name}, {suite}: {:.0} s, {}", outcome.wall_s, outcome.verdict());
            outcomes.push(outcome);
        }
    }
    println!("{}", page::table(&outcomes));
    if !options.dry && options.suite.is_empty() && options.storage.is_empty() {
        let section = page::section(&outcomes, &setting, options);
        document::write_section("suites", "Every suite on every kind of storage", &section)?;
    }
    let fine = outcomes.iter().all(|outcome| outcome.record.is_ok() && outcome.doubts.is_empty());
    Ok(Verdict::of(fine))
}

/// The names of all suites, as the program tells them.
fn names(binary: &Path) -> Result<Vec<String>> {
    let said = process::run(binary, &["bench", "--list"])?;
    let names: Vec<String> =
        said.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
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
    let _ = fs::remove_dir_all(&folder); // of an earlier run, if there was one
    fs::create_dir_all(folder.parent().unwrap_or(&folder))?;
    let target = storage.target();
    let mut command = target.placement.command(binary);
    command.args(["bench", &target.place, "--suite", suite, "--allow-write", "--yes"]);
    command.args(["--span", &format!("{}MiB", options.span_mib), "--seconds", &options.seconds.to_string()]);
    command.args(["--repeats", &options.repeats.to_string()]);
    command.arg("--out").arg(&folder);
    let begun = Instant::now();
    let ended = process::capture(command);
    let wall_s = begun.elapsed().as_secs_f64();
    let record = ended.and_then(|_| Record::read(&folder.join("result.json")).context("result.json"));
    let doubts = record.as_ref().map_or_else(|_| Vec::new(), sanity::doubts);
    let record = record.map_err(|error| format!("{error:#}"));
    Ok(Outcome { suite: suite.to_owned(), storage: name, wall_s, record, doubts })
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
