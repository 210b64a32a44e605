//! The Python module: maturin builds a wheel below `target/`, pip installs it into a virtual environment there, and pytest
//! tests it.
//!
//! The module is not part of the workspace, so that nothing else needs Python. It shares the workspace's target directory
//! and profile, so that common dependencies are built once.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};

use xtask::process;
use xtask::tally::{Tally, Verdict};
use xtask::workspace;

/// Runs `cargo xtask python`.
pub(crate) fn run() -> Result<Verdict> {
    let tally = measure()?;
    println!("{tally}");
    Ok(tally.verdict())
}

/// Builds the module and counts its test results. Skipped, with the reason, if Python or its packages are missing.
pub(crate) fn measure() -> Result<Tally> {
    let folder = folder();
    let environment = match Environment::ready(&folder) {
        Ok(environment) => environment,
        Err(error) => {
            println!("skipped: {error:#}");
            return Ok(Tally::skipped());
        }
    };
    workspace::test_binary()?;
    environment.build(&folder)?;
    println!("the wheel is in {}", wheels().display());
    environment.test(&folder)
}

/// Builds the module for [`measure`].
pub(crate) fn build() -> Result<()> {
    let folder = folder();
    Environment::ready(&folder)?.build(&folder)
}

fn folder() -> PathBuf {
    workspace::root().join("python")
}

/// Returns the directory of the built wheel.
fn wheels() -> PathBuf {
    workspace::root().join("target/python-wheels")
}

/// The Python virtual environment below `target/`. Only one thread has it: pip does not lock the packages that it replaces, and a
/// complete test run builds the module ahead of its step.
struct Environment {
    path: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

/// The version of PyO3's stable ABI (python/Cargo.toml), and of `requires-python` in python/pyproject.toml.
const VERSION_AT_LEAST: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";

impl Environment {
    /// Creates an environment with maturin, pytest and numpy, in the versions of
    /// `python/tests/requirements.txt`.
    fn ready(folder: &Path) -> Result<Environment> {
        let why = "Python 3.11 or later with venv is missing (apt-get install python3-venv)";
        process::run("python3", &["-c", VERSION_AT_LEAST]).context(why)?;
        let environment = Environment {
            path: workspace::root().join("target/python"),
            _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let path = environment.path.display().to_string();
        if !environment.path.join("bin/pip").exists() {
            process::run("python3", &["-m", "venv", &path])
                .context("creating the virtual environment")?;
        }
        let requirements = folder.join("tests/requirements.txt").display().to_string();
        let install = [
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--requirement",
            &requirements,
        ];
        process::run(environment.program("pip"), &install)
            .context("pip cannot install the packages for the tests")?;
        Ok(environment)
    }

    fn program(&self, name: &str) -> PathBuf {
        self.path.join("bin").join(name)
    }

    /// Builds the wheel, and installs it as users do.
    fn build(&self, folder: &Path) -> Result<()> {
        let wheels = wheels();
        if wheels.exists() {
            std::fs::remove_dir_all(&wheels).context("removing earlier wheels")?;
        }
        let mut maturin = Command::new(self.program("maturin"));
        // Build for this machine, whose C library can be newer than any manylinux tag permits.
        maturin
            .args([
                "build",
                "--locked",
                "--quiet",
                "--strip",
                "--compatibility",
                "linux",
                "--out",
            ])
            .arg(&wheels);
        maturin
            .arg("--manifest-path")
            .arg(folder.join("Cargo.toml"));
        maturin
            .env("VIRTUAL_ENV", &self.path)
            .env("CARGO_TARGET_DIR", workspace::root().join("target"));
        process::succeed(maturin).context("building the wheel")?;
        let mut pip = Command::new(self.program("pip"));
        pip.args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--force-reinstall",
        ]);
        for wheel in std::fs::read_dir(&wheels).with_context(|| wheels.display().to_string())? {
            pip.arg(wheel?.path());
        }
        process::succeed(pip).context("installing the wheel")
    }

    /// Runs pytest, shows its output, and reads the counts from its last line.
    fn test(&self, folder: &Path) -> Result<Tally> {
        let mut pytest = Command::new(self.program("python"));
        pytest
            .args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider", "-rs"])
            .current_dir(folder);
        pytest.env(
            "LINERATE_BIN",
            workspace::root().join("target/debug/linerate"),
        );
        pytest.env("PYTHONDONTWRITEBYTECODE", "1");
        // The tests and their child processes import the installed wheel, not the sources in this directory.
        pytest.env("PYTHONSAFEPATH", "1");
        let mut child = pytest
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run pytest")?;
        let stdout = child.stdout.take().context("pytest's output")?;
        let mut tally = Tally::default();
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            println!("{line}");
            if let Some(counts) = counted(&line) {
                tally = counts;
            }
        }
        if !child.wait()?.success() && tally.failed == 0 {
            tally += Tally::of(Verdict::Fails); // pytest itself failed
        }
        Ok(tally)
    }
}

/// Returns the counts of a line such as `2 failed, 40 passed, 1 skipped in 12.34s`.
fn counted(line: &str) -> Option<Tally> {
    let (counts, _) = line.split_once(" in ")?;
    let mut tally = Tally::default();
    for count in counts.split(", ") {
        let (number, what) = count.split_once(' ')?;
        let number = number.parse().ok()?;
        match what {
            "passed" => tally.passed = number,
            "failed" | "error" | "errors" => tally.failed += number,
            "skipped" => tally.skipped = number,
            _ => {}
        }
    }
    Some(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pytests_counts_are_read() {
        let line = "2 failed, 40 passed, 1 skipped, 3 warnings, 1 error in 12.34s (0:00:12)";
        assert_eq!(
            counted(line),
            Some(Tally {
                passed: 40,
                failed: 3,
                skipped: 1
            })
        );
        assert_eq!(counted("tests took 3 s in all"), None);
        assert_eq!(counted("............ [100%]"), None);
    }
}
