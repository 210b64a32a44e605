//! libiscsi's `iscsi-test-cu` against our server, in every configuration that its tests need, and against tgt.
//!
//! Each test runs in a separate process, so that a hang or crash affects only one test, and tests share no state of the tool.
//! The tool's result counts unchanged: its exit code, `[SKIPPED]`, or a pass. Tests that are themselves wrong are listed in
//! `conformance.toml`, with the clause that proves it.

mod configuration;
mod cunit;
mod matrix;
mod page;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};

use configuration::Configuration;
use cunit::Test;
use matrix::{Column, Errata, Matrix};
use xtask::serving::ceph::{self, Ceph};
use xtask::serving::linerate::Linerate;
use xtask::serving::tgt::Tgt;
use xtask::serving::{Placement, Serving};
use xtask::tally::{Tally, Verdict};
use xtask::{document, process, workspace};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Test a LUN of another server, by its URL; give two URLs for two paths. ALL DATA ON IT IS LOST
    #[arg(long, value_name = "URL")]
    target: Vec<String>,
    /// Run only tests whose name (Family.Test) contains TEXT
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Run only this configuration; can be repeated
    #[arg(long, value_name = "NAME")]
    configuration: Vec<String>,
    /// Run every test on the plain volume, and in other configurations only tests that need them; uses a debug build
    #[arg(long)]
    quick: bool,
    /// Use this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Skip tgt
    #[arg(long)]
    no_tgt: bool,
}

impl Options {
    /// Returns the options that the complete test run uses.
    pub(crate) fn quick() -> Options {
        Options {
            target: Vec::new(),
            only: None,
            configuration: Vec::new(),
            quick: true,
            binary: None,
            no_tgt: true,
        }
    }

    /// Returns options for all tests in all configurations.
    pub(crate) fn full() -> Options {
        Options {
            quick: false,
            no_tgt: false,
            ..Options::quick()
        }
    }

    /// Whether all tests run in all configurations, which is required to write the page.
    fn is_complete(&self) -> bool {
        self.target.is_empty()
            && self.only.is_none()
            && self.configuration.is_empty()
            && !self.quick
    }
}

/// Runs the tests, prints the table, and writes the page and its numbers.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    measure(options).map(|(_, verdict)| verdict)
}

/// Like [`run`], and also counts the tests that passed, failed, or were skipped everywhere.
pub(crate) fn measure(options: &Options) -> Result<(Tally, Verdict)> {
    process::require(&["iscsi-test-cu"])?;
    let errata = Errata::built_in()?;
    let tests = chosen_tests(options)?;
    let columns = if options.target.is_empty() {
        ours(options, &tests)?
    } else {
        vec![given(options, &tests)?]
    };
    let matrix = Matrix::new(tests, columns, errata);
    print!("{}", page::for_terminal(&matrix));
    write_numbers(&matrix)?;
    if options.is_complete() {
        document::write("conformance", &page::markdown(&matrix))?;
    }
    let verdict = matrix.verdict(options.target.is_empty() && options.configuration.is_empty());
    Ok((matrix.tally(), verdict))
}

fn chosen_tests(options: &Options) -> Result<Vec<Test>> {
    let mut tests = cunit::registered()?;
    if let Some(text) = &options.only {
        tests.retain(|test| test.name().contains(text.as_str()));
    }
    ensure!(
        !tests.is_empty(),
        "no registered test matches: see `iscsi-test-cu --list`"
    );
    Ok(tests)
}

/// The source of a column's results.
#[derive(Clone, Copy, Debug)]
enum Job {
    Ours(&'static Configuration),
    Tgt,
}

/// Runs all configurations, up to one per core at a time. Tests spend most of their time waiting.
fn ours(options: &Options, tests: &[Test]) -> Result<Vec<Column>> {
    let jobs = jobs(options)?;
    let binary = binary_for(&jobs, options)?;
    let waiting = Mutex::new(
        jobs.iter()
            .copied()
            .enumerate()
            .collect::<VecDeque<(usize, Job)>>(),
    );
    let done = Mutex::new(Vec::new());
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((at, job)) = take(&waiting) {
                    let column = one_column(job, &binary, tests, options);
                    locked(&done).push((at, column));
                }
            });
        }
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, column)| column).collect()
}

/// Returns the path of our server, and builds it if a job needs it. In a test run, it is already built.
fn binary_for(jobs: &[Job], options: &Options) -> Result<PathBuf> {
    if let Some(binary) = &options.binary {
        return Ok(binary.clone());
    }
    match jobs.iter().any(|job| matches!(job, Job::Ours(_))) {
        true if options.quick => workspace::test_binary(),
        true => workspace::release_binary(),
        false => Ok(PathBuf::new()),
    }
}

fn take(waiting: &Mutex<VecDeque<(usize, Job)>>) -> Option<(usize, Job)> {
    locked(waiting).pop_front()
}

/// Locks a mutex even if a worker panicked while it held the lock. The guarded data is always consistent.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn jobs(options: &Options) -> Result<Vec<Job>> {
    for name in &options.configuration {
        let known = configuration::ALL
            .iter()
            .any(|configuration| configuration.name == name);
        ensure!(
            known || name == "tgt",
            "unknown configuration {name}; the configurations are {}",
            configuration::names()
        );
    }
    let named = |name: &str| options.configuration.iter().any(|one| one == name);
    let wanted = |name: &str| options.configuration.is_empty() || named(name);
    let is_run = |configuration: &&Configuration| match configuration.is_long {
        true => named(configuration.name),
        false => wanted(configuration.name),
    };
    let mut jobs: Vec<Job> = configuration::ALL
        .iter()
        .filter(is_run)
        .map(Job::Ours)
        .collect();
    if wanted("tgt") && !options.no_tgt && process::installed("tgtd") {
        jobs.push(Job::Tgt);
    }
    Ok(jobs)
}

fn one_column(job: Job, binary: &Path, tests: &[Test], options: &Options) -> Result<Column> {
    match job {
        Job::Ours(configuration) => {
            let start = |volume: &str, listeners| {
                Linerate::start(
                    binary,
                    &[format!("disk={volume}")],
                    listeners,
                    &Placement::default(),
                )
            };
            let far = configuration
                .far
                .map(|volume| start(volume, 1))
                .transpose()?;
            let url = far
                .as_ref()
                .map(|far| far.url_of("disk", 0))
                .unwrap_or_default();
            let ceph = configuration
                .volume
                .contains("{rbd}")
                .then(|| Ceph::start(ceph::IN_MEMORY))
                .transpose()?;
            let image = ceph
                .as_ref()
                .map(|ceph| ceph.volume("conformance", ""))
                .unwrap_or_default();
            let volume = configuration
                .volume
                .replace("{far}", &url)
                .replace("{rbd}", &image);
            let server = start(&volume, configuration.listeners)
                .with_context(|| format!("configuration {}", configuration.name))?;
            let urls: Vec<String> = (0..configuration.listeners)
                .map(|at| server.url_of("disk", at))
                .collect();
            let runs = |test: &Test| configuration.runs(test, options.quick);
            column(configuration.name, &urls, tests, runs, |test| {
                configuration.may_lose_data(test)
            })
        }
        Job::Tgt => {
            let server = Tgt::start(configuration::SIZE_BYTES, &Placement::default())?;
            column("tgt", &[server.url()], tests, |_| true, |_| true)
        }
    }
}

/// Tests another server, in its current configuration.
fn given(options: &Options, tests: &[Test]) -> Result<Column> {
    if options.target.len() > 2 {
        bail!("up to two paths are supported");
    }
    column("given", &options.target, tests, |_| true, |_| true)
}

fn column(
    name: &str,
    urls: &[String],
    tests: &[Test],
    runs: impl Fn(&Test) -> bool,
    may_lose_data: impl Fn(&Test) -> bool,
) -> Result<Column> {
    let mut column = Column::new(name);
    for test in tests.iter().filter(|test| runs(test)) {
        let outcome = cunit::run(test, urls, may_lose_data(test))?;
        column.outcomes.insert(test.name(), outcome);
    }
    Ok(column)
}

fn write_numbers(matrix: &Matrix) -> Result<()> {
    let path = workspace::target_directory().join("conformance.json");
    fs::write(&path, serde_json::to_string_pretty(matrix)?)
        .with_context(|| path.display().to_string())
}
