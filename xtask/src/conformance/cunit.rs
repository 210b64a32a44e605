//! Runs `iscsi-test-cu`: lists its registered tests, runs one test, and interprets its output.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;

use xtask::process::{self, Ended};

/// A registered test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Test {
    pub(super) family: String,
    pub(super) test: String,
}

impl Test {
    /// Returns `Family.Test`, which is the test's name in the tool.
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.family, self.test)
    }
}

/// The outcome of one test, with the tool's message if any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "outcome", content = "reason")]
pub(super) enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
    /// The test did not complete within its time limit.
    Hung,
    /// The tool was terminated by a signal.
    Crashed(i32),
}

/// Time limit of a test. The slowest tests, of reservations and resets, sleep for three seconds several
/// times.
const LIMIT: Duration = Duration::from_secs(60);

/// Time limit of Sanitize.Reset, which polls for completion of the operation once a minute.
const SANITIZE_LIMIT: Duration = Duration::from_secs(240);

/// Returns every test once: the family ALL contains the tests of all other families.
pub(super) fn registered() -> Result<Vec<Test>> {
    let mut command = Command::new("iscsi-test-cu");
    command.arg("--list");
    let tests = listed(&process::capture(command)?);
    if tests.is_empty() {
        bail!("iscsi-test-cu lists no tests");
    }
    Ok(tests)
}

fn listed(list: &str) -> Vec<Test> {
    let names = list
        .lines()
        .filter_map(|line| line.strip_prefix("ALL."))
        .filter_map(|name| name.split_once('.'));
    names
        .map(|(family, test)| Test {
            family: family.to_owned(),
            test: test.to_owned(),
        })
        .collect()
}

/// Runs one test in a separate process.
pub(super) fn run(test: &Test, urls: &[String], may_lose_data: bool) -> Result<Outcome> {
    let mut command = Command::new("iscsi-test-cu");
    command
        .arg("--allow-sanitize")
        .arg(format!("--test=ALL.{}", test.name()));
    if may_lose_data {
        command.arg("--dataloss");
    }
    command.args(urls);
    let limit = if test.name() == "Sanitize.Reset" {
        SANITIZE_LIMIT
    } else {
        LIMIT
    };
    let (ended, output) = process::within(limit, command)?;
    Ok(match ended {
        Ended::OutOfTime => Outcome::Hung,
        Ended::Crashed(signal) => Outcome::Crashed(signal),
        Ended::Exited(status) => judged(status.success(), &output),
    })
}

/// Interprets an exit code and the output. The tool also exits with 0 for a skipped test.
fn judged(success: bool, output: &str) -> Outcome {
    let ran = output.contains("Tests completed with return value");
    match (success, ran, said(output, "[SKIPPED]")) {
        (true, true, None) => Outcome::Passed,
        (true, true, Some(reason)) => Outcome::Skipped(reason),
        (false, true, _) => Outcome::Failed(failure(output)),
        (_, false, _) => Outcome::Failed(format!("the test did not run: {}", last_line(output))),
    }
}

/// Returns the tool's message, and the first failed assertion.
fn failure(output: &str) -> String {
    let assertion = output
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("1. "))
        .unwrap_or_default();
    let assertion = assertion
        .trim_start_matches("1. ")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    match said(output, "[FAILED]") {
        Some(said) => format!("{said} ({assertion})"),
        None => assertion,
    }
}

/// Returns the text after the first occurrence of a mark in the output. Marks quoted in an assertion's source
/// do not count.
fn said(output: &str, mark: &str) -> Option<String> {
    let mut lines = output.lines().filter(|line| !line.contains("CU_"));
    lines
        .find_map(|line| line.split_once(mark))
        .map(|(_, after)| after.trim().to_owned())
}

fn last_line(output: &str) -> String {
    output
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("no output")
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_every_test_once() {
        let list = "ALL\nALL.Read6\nALL.Read6.Simple\nALL.Read6.BeyondEol\nSCSI\nSCSI.Read6\nSCSI.Read6.Simple\n";
        let names: Vec<String> = listed(list).iter().map(Test::name).collect();
        assert_eq!(names, ["Read6.Simple", "Read6.BeyondEol"]);
    }

    #[test]
    fn a_skipped_test_is_no_pass() {
        let output = "  Test: Simple ...    [SKIPPED] Media is not removable.\npassed\nTests completed with return value: 0\n";
        assert_eq!(
            judged(true, output),
            Outcome::Skipped("Media is not removable.".to_owned())
        );
        assert_eq!(
            judged(true, "passed\nTests completed with return value: 0\n"),
            Outcome::Passed
        );
    }

    #[test]
    fn a_failure_is_told_in_the_tools_words() {
        let output = "\
  Test: Range ...    [FAILED] PRIN/SA=0x3 failed
FAILED
    1. test_prin_serviceaction_range.c:50  - CU_ASSERT_EQUAL(ret,0)
Tests completed with return value: 0
";
        let told =
            "PRIN/SA=0x3 failed (test_prin_serviceaction_range.c:50 - CU_ASSERT_EQUAL(ret,0))";
        assert_eq!(judged(false, output), Outcome::Failed(told.to_owned()));
    }

    #[test]
    fn a_login_that_fails_is_a_failure_whatever_the_exit_code() {
        let Outcome::Failed(told) = judged(true, "Login Failed. Target not found\n") else {
            panic!("not a failure")
        };
        assert_eq!(told, "the test did not run: Login Failed. Target not found");
    }
}
