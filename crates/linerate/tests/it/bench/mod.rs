//! `linerate bench` as users run it, including everything that can fail: every result is compared with an
//! independent counter, every error is one sentence, and no measurement is lost.

mod figures;
mod fio_jobs;
mod killed;
mod known;
mod mistakes;
mod promises;
mod suite_files;
mod trouble;
mod wan;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Ended, LINERATE, run_command};

const REFUSED: i32 = 2;
const NO_SPACE: i32 = 11;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(LINERATE);
    command.arg("bench").args(arguments);
    command
}

fn bench(arguments: &[&str]) -> Ended {
    run_command(&mut command(arguments))
}

/// Starts a run in the background.
fn begun(arguments: &[&str]) -> Child {
    let mut command = command(arguments);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the linerate binary")
}

/// Checks that a command ended with this exit code and one sentence, which contains all of these words.
fn expect(ended: Ended, code: i32, words: &[&str]) -> String {
    let Ended { status, said } = ended;
    assert_eq!(status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    let sentences = said
        .lines()
        .filter(|line| line.starts_with("linerate: ") || line.starts_with("error: "))
        .count();
    assert_eq!(sentences, 1, "{said}");
    said
}

/// A directory with files to measure, and space for results.
struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Scene {
        Scene {
            folder: TempDir::new().expect("a temporary folder"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A file of this many MiB, completely written.
    fn image(&self, name: &str, mib: usize) -> String {
        fs::write(self.path(name), vec![0x5a; mib << 20]).expect("a temporary file");
        self.text(name)
    }

    fn file(&self, name: &str, content: &str) -> String {
        fs::write(self.path(name), content).expect("a temporary file");
        self.text(name)
    }
}

/// The record that `--out` has saved.
fn record(folder: &Path) -> Value {
    let path = folder.join("result.json");
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn runs(record: &Value) -> &[Value] {
    record["runs"].as_array().expect("a list of runs")
}

/// The cells in the order in which they were run, each with its round.
fn cells_run(record: &Value) -> Vec<(String, u64)> {
    let named = |run: &Value| {
        let (cell, round) = (run["cell"].as_str(), run["round"].as_u64());
        (cell.expect("a name").to_owned(), round.expect("a number"))
    };
    runs(record).iter().map(named).collect()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}
