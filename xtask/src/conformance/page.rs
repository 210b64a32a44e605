//! The outcomes as a page: docs/measured/conformance.md, and a shorter form for the terminal.

use std::fmt::Write;

use super::configuration;
use super::cunit::{Outcome, Test};
use super::matrix::{Cell, Column, Matrix};
use xtask::serving::tgt::Tgt;

/// Returns the summary for a terminal: the counts, and all problems.
pub(super) fn for_terminal(matrix: &Matrix) -> String {
    let mut text = summary(matrix);
    for (test, column) in matrix.failures() {
        let _ = writeln!(
            text,
            "{} in {}: {}",
            test.name(),
            column.name,
            reason(test, column)
        );
    }
    let failed: Vec<&Test> = matrix
        .failures()
        .into_iter()
        .map(|(test, _)| test)
        .collect();
    for test in matrix
        .never_passed()
        .into_iter()
        .filter(|test| !failed.contains(test))
    {
        let _ = writeln!(
            text,
            "{} passes in no configuration: {}",
            test.name(),
            skipped_because(matrix, test)
        );
    }
    for (test, column) in matrix.refuted() {
        let _ = writeln!(
            text,
            "{} passes in {}: its entry in conformance.toml is out of date",
            test.name(),
            column.name
        );
    }
    text
}

/// Returns the whole page.
pub(super) fn markdown(matrix: &Matrix) -> String {
    let mut page = String::from(INTRODUCTION);
    let _ = writeln!(page, "{}\n\n{}", headline(matrix), summary(matrix));
    page.push_str(
        "`wrong` counts failures of tests that are themselves wrong; they are listed below.\n\n",
    );
    page.push_str(&configurations(matrix));
    page.push_str(&families(matrix));
    page.push_str(&wrong_tests(matrix));
    page.push_str(&every_test(matrix));
    page
}

const INTRODUCTION: &str = "\
# Conformance

All registered tests of libiscsi 1.19's `iscsi-test-cu`, each in a separate process, in every configuration that the
tests need. `cargo xtask conformance` runs the tests and writes this page; `cargo xtask conformance --target URL` tests
any other target (its data is lost). The tool's results are unchanged: an exit code other than 0 is a failure,
`[SKIPPED]` in its output a skip, and anything else a pass.

";

fn headline(matrix: &Matrix) -> String {
    let holding = matrix
        .tests
        .iter()
        .filter(|test| matrix.holds_somewhere(test))
        .count();
    let wrong = matrix
        .tests
        .iter()
        .filter(|test| matrix.errata.wrong_everywhere(&test.name()))
        .count();
    format!(
        "**{holding} of {} registered tests pass in at least one configuration; failures: {}; tests that cannot pass \
         against any target: {wrong}.**",
        matrix.tests.len(),
        matrix.failures().len(),
    )
}

/// Counts of outcomes, one line per configuration.
fn summary(matrix: &Matrix) -> String {
    let mut text =
        String::from("| configuration | pass | fail | skip | hang | crash | wrong | not run |\n");
    text.push_str("|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for column in &matrix.columns {
        let count = |cell| matrix.count(column, cell);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            column.name,
            count(Cell::Pass) + count(Cell::Vacuous),
            count(Cell::Fail),
            count(Cell::Skip),
            count(Cell::Hang),
            count(Cell::Crash),
            count(Cell::Wrong),
            count(Cell::Absent),
        );
    }
    text
}

fn configurations(matrix: &Matrix) -> String {
    let mut text =
        String::from("## Configurations\n\n| name | volume | description |\n|---|---|---|\n");
    for configuration in configuration::ALL {
        let _ = writeln!(
            text,
            "| {} | `{}` | {} |",
            configuration.name, configuration.volume, configuration.what
        );
    }
    if matrix.columns.iter().any(|column| column.name == "tgt") {
        let _ = writeln!(text, "| tgt | 100 MiB | {} |", Tgt::version());
    }
    text.push('\n');
    text
}

/// Returns the passes of each family in each configuration.
fn families(matrix: &Matrix) -> String {
    let mut text = String::from("## Families\n\nTests passed and tests run.\n\n");
    text.push_str(&header("family", matrix));
    let mut families: Vec<&str> = matrix
        .tests
        .iter()
        .map(|test| test.family.as_str())
        .collect();
    families.dedup(); // the tool lists a family's tests together
    for family in families {
        let _ = write!(text, "| {family} |");
        for column in &matrix.columns {
            let _ = write!(text, " {} |", family_cell(matrix, family, column));
        }
        text.push('\n');
    }
    text.push('\n');
    text
}

fn family_cell(matrix: &Matrix, family: &str, column: &Column) -> String {
    let tests = matrix.tests.iter().filter(|test| test.family == family);
    let cells: Vec<Cell> = tests
        .map(|test| matrix.cell(test, column))
        .filter(|cell| *cell != Cell::Absent)
        .collect();
    let passed = cells.iter().filter(|cell| **cell == Cell::Pass).count();
    if cells.is_empty() {
        String::new()
    } else {
        format!("{passed}/{}", cells.len())
    }
}

fn wrong_tests(matrix: &Matrix) -> String {
    let mut text = String::from("## Tests that are wrong\n\n");
    for wrong in &matrix.errata.wrong {
        let places = if wrong.configurations.is_empty() {
            "everywhere".to_owned()
        } else {
            wrong.configurations.join(", ")
        };
        let _ = writeln!(
            text,
            "**{}** ({places}; {}). {}\n",
            wrong.test,
            wrong.clause,
            wrong.why.trim()
        );
    }
    text
}

fn every_test(matrix: &Matrix) -> String {
    let mut text = String::from(
        "## Every test\n\n`(pass)`: the test does not apply, but passes without reporting a skip. Empty: not run.\n\n",
    );
    text.push_str(&header("test", matrix));
    for test in &matrix.tests {
        let _ = write!(text, "| {} |", test.name());
        for column in &matrix.columns {
            let _ = write!(text, " {} |", matrix.cell(test, column).word());
        }
        text.push('\n');
    }
    text
}

fn header(first: &str, matrix: &Matrix) -> String {
    let names: Vec<&str> = matrix
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    format!(
        "| {first} | {} |\n|---|{}\n",
        names.join(" | "),
        "---|".repeat(names.len())
    )
}

/// Returns the tool's message for a failure.
fn reason(test: &Test, column: &Column) -> String {
    match column.outcomes.get(&test.name()) {
        Some(Outcome::Failed(reason) | Outcome::Skipped(reason)) => reason.clone(),
        Some(Outcome::Hung) => "did not end".to_owned(),
        Some(Outcome::Crashed(signal)) => {
            format!("iscsi-test-cu was terminated by signal {signal}")
        }
        Some(Outcome::Passed) | None => String::new(),
    }
}

/// Returns the tool's reasons why a test passed nowhere, without duplicates.
fn skipped_because(matrix: &Matrix, test: &Test) -> String {
    let mut reasons: Vec<String> = matrix
        .columns
        .iter()
        .map(|column| reason(test, column))
        .collect();
    reasons.retain(|reason| !reason.is_empty());
    reasons.sort();
    reasons.dedup();
    reasons.join("; ")
}
