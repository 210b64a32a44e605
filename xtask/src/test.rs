//! The complete test run, ordered to fail as early as possible, with one final line of totals.
//!
//! After a failed step, the next steps still run, so that one run reports all failures. Steps that use one core run in pairs,
//! and their lines are mixed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::book;
use crate::conformance;
use crate::fuzz;
use crate::guest;
use crate::instructions;
use crate::licences::Checker;
use crate::package;
use crate::python;
use crate::simulate;
use crate::tidy;
use xtask::process::{self, CLIPPY_ARGS};
use xtask::tally::{Tally, Verdict};
use xtask::{packages, workspace};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run every conformance test in every configuration, not only in those that need it
    #[arg(long)]
    full: bool,
    /// Seconds for each fuzz target; a dozen targets take about a minute, and the same again to build
    #[arg(long, default_value_t = 5)]
    fuzz_seconds: u64,
}

/// Installs missing packages, then runs every step.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    ensure_space()?;
    packages::ensure(packages::ALL)?;
    let checker = Mutex::new(Some(Checker::prepare()));
    let licences = || checker.lock().ok().and_then(|mut checker| checker.take());
    let fuzz_seconds = options.fuzz_seconds;
    let compiler = Compiler::default();
    let first = [
        Step("format", &|_| format()),
        Step("tidy", &|_| {
            tidy::run(&tidy::Options::default()).map(Tally::of)
        }),
        Step("clippy", &|_| {
            process::succeed(compiler.test(&["--no-run"]))
                .inspect_err(|_| compiler.is_plain.store(true, Ordering::Relaxed))
                .map(|()| Tally::of(Verdict::Holds))
        }),
        Step("tests", &|failures| {
            cargo_test(&compiler, fuzz_seconds, failures)
        }),
    ];
    // QEMU and valgrind use one core.
    let one_core = [
        Step("guest", &|failures| {
            guest::measure(&guest::Options::default(), failures)
        }),
        Step("instructions", &|_| instructions::measure()),
        Step("package", &|_| package::measure()),
    ];
    let other_core = [
        Step("python", &|_| python::measure()),
        Step("book", &|_| book::measure()),
        Step("conformance", &|_| conformance(options.full)),
        Step("licences and advisories", &|_| {
            licences().context("cargo-deny is prepared once")?.check()
        }),
    ];
    let all_cores = [
        Step("simulation", &simulate::measure),
        Step("fuzz", &|failures| {
            fuzz::measure(&fuzz::Options::short(fuzz_seconds), failures)
        }),
    ];
    let mut ended: Vec<Ended> = first.iter().map(Step::run).collect();
    thread::scope(|scope| {
        let other_core = scope.spawn(|| other_core.iter().map(Step::run).collect::<Vec<_>>());
        ended.extend(one_core.iter().map(Step::run));
        ended.extend(other_core.join().expect("a step returns its errors"));
    });
    ended.extend(all_cores.iter().map(Step::run));
    let failed: Vec<&Ended> = ended
        .iter()
        .filter(|step| step.tally.verdict() == Verdict::Fails)
        .collect();
    // Print failures last, because truncated logs lose their beginning.
    ended.iter().for_each(|step| print!("{}", step.failures));
    let times = ended
        .iter()
        .map(|step| format!("{} {:.0} s", step.name, step.time.as_secs_f64()));
    println!("times: {}", times.collect::<Vec<_>>().join(", "));
    if !failed.is_empty() {
        println!(
            "failed: {}",
            failed
                .iter()
                .map(|step| step.name)
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    if let Some(complaint) = failed.iter().find_map(|step| step.complaint.as_ref()) {
        println!("{complaint}");
    }
    let mut sum = Tally::default();
    ended.iter().for_each(|step| sum += step.tally);
    println!("{sum}");
    Ok(sum.verdict())
}

/// A step: its name, and its function, which appends the output of failures to a text.
struct Step<'a>(
    &'static str,
    &'a (dyn Fn(&mut String) -> Result<Tally> + Sync),
);

/// The result of a step.
struct Ended {
    name: &'static str,
    time: Duration,
    tally: Tally,
    failures: String,
    /// A message, if the step failed because a disk is full.
    complaint: Option<String>,
}

impl Step<'_> {
    fn run(&self) -> Ended {
        let Step(name, step) = *self;
        println!("== {name}");
        let (begun, mut failures) = (Instant::now(), String::new());
        // A step that cannot run counts as failed.
        let tally = step(&mut failures).unwrap_or_else(|error| {
            let message = format!("{name}: {error:#}\n");
            print!("{message}");
            failures.push_str(&message);
            Tally::of(Verdict::Fails)
        });
        let time = begun.elapsed();
        println!("== {name} {:.0} s: {tally}", time.as_secs_f64());
        let complaint = if tally.verdict() == Verdict::Fails {
            complaint()
        } else {
            None
        };
        Ended {
            name,
            time,
            tally,
            failures,
            complaint,
        }
    }
}

/// Checks the formatting of the workspace, and of the Python module, which is a separate workspace.
fn format() -> Result<Tally> {
    let mut tally = checked(&["fmt", "--all", "--check"])?;
    tally += checked(&["fmt", "--check", "--manifest-path", "python/Cargo.toml"])?;
    Ok(tally)
}

fn checked(arguments: &[&str]) -> Result<Tally> {
    process::succeed(process::cargo(arguments)).map(|()| Tally::of(Verdict::Holds))
}

/// The compiler of the tests. Clippy's driver is the compiler with lints: it checks and compiles in one pass, in half of the time of
/// two. If there are warnings, the tests are compiled without it, so that they run nevertheless.
#[derive(Default)]
struct Compiler {
    is_plain: AtomicBool,
}

impl Compiler {
    /// Returns the command `cargo test --workspace`.
    fn test(&self, options: &[&str]) -> Command {
        let mut command = process::cargo(&[&["test", "--workspace"], options].concat());
        if !self.is_plain.load(Ordering::Relaxed) {
            // As `cargo clippy` does. Dependencies from registries are compiled without a wrapper.
            command
                .env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
                .env(CLIPPY_ARGS.0, CLIPPY_ARGS.1);
        }
        command
    }
}

fn conformance(full: bool) -> Result<Tally> {
    if !process::installed("iscsi-test-cu") {
        println!("skipped: iscsi-test-cu is missing");
        return Ok(Tally::skipped());
    }
    let options = if full {
        conformance::Options::full()
    } else {
        conformance::Options::quick()
    };
    let (mut tally, verdict) = conformance::measure(&options)?;
    if tally.verdict() != verdict {
        tally += Tally::of(verdict); // nothing failed, but a test passed in no configuration
    }
    Ok(tally)
}

/// Time without a completed test after which a test counts as hung. The longest test takes a minute, or two
/// on a loaded machine.
const SILENCE_MAX: Duration = Duration::from_mins(8);

/// Runs `cargo test` over the workspace: unit, documentation and integration tests, counted from its output. The output of
/// failures is added to `failed`. If a test hangs, only its own binary is killed.
fn cargo_test(compiler: &Compiler, fuzz_seconds: u64, failed: &mut String) -> Result<Tally> {
    // Build first, including the examples that tests run: a build must not count as a hanging test. Cargo
    // prints each crate that it compiles, so that a build of several minutes does not look like a hang.
    process::succeed(compiler.test(&["--no-run"]))?;
    workspace::use_programs_of_tests();
    thread::spawn(move || build_ahead(fuzz_seconds));
    let mut command = compiler.test(&["--no-fail-fast"]);
    // Most tests spend most of their time waiting for processes and clocks.
    let cores = thread::available_parallelism().map_or(1, usize::from);
    command.env("RUST_TEST_THREADS", (2 * cores).to_string());
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cargo test")?;
    let stdout = child.stdout.take().context("the output of cargo test")?;
    let (heard, lines) = mpsc::channel();
    thread::spawn(move || {
        BufReader::new(stdout)
            .lines()
            .try_for_each(|line| heard.send(line))
    });
    let mut failures = Failures::default();
    let mut tally = Tally::default();
    loop {
        match lines.recv_timeout(SILENCE_MAX) {
            Ok(line) => {
                let line = line?;
                println!("{line}");
                failures.hear(&line);
                if let Some(binary) = counted(&line) {
                    tally += binary;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                failures.hung();
                tally += Tally::of(Verdict::Fails);
                if process::kill_children(child.id())? == 0 {
                    child.kill()?;
                    break;
                }
            }
        }
    }
    if !child.wait()?.success() && tally.failed == 0 {
        tally += Tally::of(Verdict::Fails); // a test binary crashed
    }
    failed.push_str(&failures.told());
    Ok(tally)
}

/// Builds for later steps while the tests wait. A step whose build is still running waits for it; a step whose build failed
/// builds again, and then reports the error.
fn build_ahead(fuzz_seconds: u64) {
    // Applies only to this thread and its child processes.
    if rustix::process::nice(19).is_err() {
        return;
    }
    for build in [
        Ok(simulate::build()),
        Ok(instructions::build()),
        fuzz::build(fuzz_seconds),
    ]
    .into_iter()
    .flatten()
    {
        let _ = process::capture(build);
    }
    let _ = python::build();
}

/// The output of failed tests. It is repeated at the end of the log. Otherwise, thousands of lines would
/// follow it.
#[derive(Default)]
struct Failures {
    lines: Vec<String>,
    /// Whether the current lines are the output of a failed test.
    under_way: bool,
    /// Slow tests that have not completed.
    slow: Vec<String>,
}

/// Lines to keep of each failure: its message, and the beginning of its backtrace.
const FAILURE_LINES_MAX: usize = 12;

impl Failures {
    /// Processes a line of cargo's output. The output of a test starts at `---- NAME stdout ----`, and ends
    /// at the start of the next test's output or at the list of names.
    fn hear(&mut self, line: &str) {
        if line.starts_with("---- ") {
            self.under_way = true;
            self.lines.push(String::new());
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.under_way = false;
        }
        if let Some(told) = self.lines.last_mut().filter(|_| self.under_way)
            && told.lines().count() < FAILURE_LINES_MAX
        {
            *told += &format!("{line}\n");
        }
        if let Some(test) = line.strip_prefix("test ") {
            if let Some((name, _)) = test.split_once(" has been running for over ") {
                self.slow.push(name.to_owned());
            } else {
                self.slow.retain(|slow| {
                    !test
                        .strip_prefix(slow)
                        .is_some_and(|rest| rest.starts_with(" ... "))
                });
            }
        }
    }

    /// Reports that there was no output for [`SILENCE_MAX`].
    fn hung(&mut self) {
        let (time, tests) = (SILENCE_MAX.as_secs(), self.slow.join(", "));
        let told = format!(
            "no test ended within {time} s, so the test binary was killed; running tests: {tests}\n"
        );
        print!("{told}");
        self.lines.push(told);
        self.slow.clear();
    }

    fn told(&self) -> String {
        self.lines.concat()
    }
}

/// Returns the counts of a line such as `test result: ok. 12 passed; 0 failed; 1 ignored; …`.
fn counted(line: &str) -> Option<Tally> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut numbers = counts
        .split("; ")
        .map_while(|part| part.split(' ').next()?.parse().ok());
    Some(Tally {
        passed: numbers.next()?,
        failed: numbers.next()?,
        skipped: numbers.next()?,
    })
}

// Checks that the disk has space for a complete test run. A full disk makes correct tests fail.

/// Size of the target directory after a run in a fresh clone (8.5 GB on 2026-11-27), with a margin.
const NEEDED: u64 = 10 * GIB;

/// Additional space for incremental builds.
const INCREMENTAL: u64 = 4 * GIB;

/// With less free space than this, the disk counts as full.
const LITTLE: u64 = GIB;

const GIB: u64 = 1 << 30;

/// Fails if the target directory cannot grow to the size of a complete run.
fn ensure_space() -> Result<()> {
    let target = workspace::target_directory();
    // Cargo creates the directory and its parents if they do not exist yet.
    let existing = target
        .ancestors()
        .find(|folder| folder.exists())
        .unwrap_or(Path::new("/"));
    // A concurrent build can delete files while they are counted, which is not an error.
    let (free, held) = (
        free_bytes(existing)?,
        held_bytes(&target).unwrap_or(NEEDED + INCREMENTAL),
    );
    let is_incremental = std::env::var_os("CARGO_INCREMENTAL").is_none_or(|set| set != "0");
    let needed = NEEDED + if is_incremental { INCREMENTAL } else { 0 };
    ensure!(
        free >= LITTLE && free.saturating_add(held) >= needed,
        "{} has {} GiB, and {} GiB are free there; a complete run needs {} GiB: free some space (`cargo clean` deletes the \
         builds), or set CARGO_TARGET_DIR to a directory on another disk",
        target.display(),
        held / GIB,
        free / GIB,
        needed / GIB,
    );
    Ok(())
}

/// Returns a hint for a failure if a disk that the run uses is full.
fn complaint() -> Option<String> {
    let folders = [workspace::target_directory(), std::env::temp_dir()];
    let full = folders
        .iter()
        .find(|folder| free_bytes(folder).is_ok_and(|free| free < LITTLE))?;
    Some(format!(
        "the disk of {} is full, which alone can make tests fail",
        full.display()
    ))
}

fn free_bytes(folder: &Path) -> Result<u64> {
    let system = rustix::fs::statvfs(folder)
        .with_context(|| format!("cannot determine the free space of {}", folder.display()))?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

fn held_bytes(folder: &Path) -> Result<u64> {
    if !folder.exists() {
        return Ok(0);
    }
    let folder = folder
        .to_str()
        .context("the target directory's name is not UTF-8")?;
    let told = process::run("du", &["--summarize", "--block-size=1", folder])?;
    let (bytes, _) = told
        .split_once('\t')
        .context("du prints bytes and a name")?;
    Ok(bytes.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_counts_are_read() {
        let line = "test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.03s";
        assert_eq!(
            counted(line),
            Some(Tally {
                passed: 12,
                failed: 2,
                skipped: 1
            })
        );
        assert_eq!(counted("running 3 tests"), None);
    }

    #[test]
    fn what_failed_is_told_again_at_the_end() {
        let mut failures = Failures::default();
        let printed = "running 2 tests\ntest one ... ok\ntest two ... FAILED\n\nfailures:\n\n---- two stdout ----\nit broke\n\n\n\
                       failures:\n    two\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\nrunning 1 test";
        printed.lines().for_each(|line| failures.hear(line));
        assert_eq!(failures.told().trim_end(), "---- two stdout ----\nit broke");
    }

    #[test]
    fn tests_that_hang_are_told() {
        let mut failures = Failures::default();
        let heard = ["one", "two", "two::more"]
            .map(|name| format!("test {name} has been running for over 60 seconds"));
        heard.iter().for_each(|line| failures.hear(line));
        failures.hear("test two ... ok");
        failures.hung();
        assert!(
            failures
                .told()
                .trim_end()
                .ends_with("running tests: one, two::more")
        );
    }
}
