//! The outcomes as a page: docs/measured/conformance.md, and a shorter form for the terminal.

use std::collections::BTreeMap;
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

/// Returns the whole page: the counts, and every test that does not pass everywhere, with the reason.
pub(super) fn markdown(matrix: &Matrix) -> String {
    let mut page = String::from(INTRODUCTION);
    let _ = writeln!(page, "{}\n", headline(matrix));
    page.push_str(&configurations(matrix));
    page.push_str(&failures(matrix));
    page.push_str(&wrong_tests(matrix));
    page.push_str(&skips(matrix));
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

/// Returns a table of the configurations and their counts.
fn configurations(matrix: &Matrix) -> String {
    let mut text = String::from(
        "| configuration | volume | description | pass | fail | skip | wrong | not run |\n\
         |---|---|---|---:|---:|---:|---:|---:|\n",
    );
    for column in &matrix.columns {
        let known = configuration::ALL
            .iter()
            .find(|configuration| configuration.name == column.name);
        let (volume, what) = match known {
            Some(known) => (format!("`{}`", known.volume), known.what.to_owned()),
            None => ("100 MiB".to_owned(), Tgt::version()),
        };
        let count = |cell| matrix.count(column, cell);
        let _ = writeln!(
            text,
            "| {} | {volume} | {what} | {} | {} | {} | {} | {} |",
            column.name,
            count(Cell::Pass) + count(Cell::Vacuous),
            count(Cell::Fail) + count(Cell::Hang) + count(Cell::Crash),
            count(Cell::Skip),
            count(Cell::Wrong),
            count(Cell::Absent),
        );
    }
    text.push_str("\n`wrong` counts failures of tests that are themselves wrong.\n\n");
    text
}

/// Returns the failures in all configurations, including those of tgt.
fn failures(matrix: &Matrix) -> String {
    let failed = |test: &Test, column: &Column| {
        matrix
            .cell(test, column)
            .is_failure()
            .then(|| reason(test, column))
    };
    match by_reason(matrix, &matrix.columns.iter().collect::<Vec<_>>(), failed) {
        rows if rows.is_empty() => rows,
        rows => format!("## Failures\n\n{REASONS}{rows}\n"),
    }
}

/// Returns the reasons for skips by our server.
fn skips(matrix: &Matrix) -> String {
    let skipped = |test: &Test, column: &Column| match matrix.cell(test, column) {
        Cell::Skip => Some(reason(test, column)),
        Cell::Vacuous => Some(VACUOUS.to_owned()),
        _ => None,
    };
    let rows = by_reason(matrix, &matrix.own().collect::<Vec<_>>(), skipped);
    format!(
        "## Skipped tests\n\nA family without tests in brackets means all of its tests.\n\n{REASONS}{rows}"
    )
}

const REASONS: &str = "| reason | configurations | tests |\n|---|---|---|\n";

/// Returns a row for each reason and each set of tests to which it applies in the same configurations.
fn by_reason(
    matrix: &Matrix,
    columns: &[&Column],
    reason: impl Fn(&Test, &Column) -> Option<String>,
) -> String {
    let mut reasons: BTreeMap<String, BTreeMap<Vec<&Test>, Vec<&str>>> = BTreeMap::new();
    for column in columns {
        let mut here: BTreeMap<String, Vec<&Test>> = BTreeMap::new();
        for test in &matrix.tests {
            if let Some(reason) = reason(test, column) {
                here.entry(reason).or_default().push(test);
            }
        }
        for (reason, tests) in here {
            let configurations = reasons.entry(reason).or_default().entry(tests).or_default();
            configurations.push(&column.name);
        }
    }
    let mut text = String::new();
    for (reason, groups) in reasons {
        for (tests, configurations) in groups {
            let (configurations, tests) = (configurations.join(", "), by_family(matrix, &tests));
            let _ = writeln!(text, "| {reason} | {configurations} | {tests} |");
        }
    }
    text
}

/// The reason shown for a test that does not apply, but passes.
const VACUOUS: &str = "Passes without testing anything here.";

/// The number of tests from which a row has their number instead of their names.
const MANY: usize = 50;

/// Returns the names of tests: the family alone if these are all of its tests.
fn by_family(matrix: &Matrix, tests: &[&Test]) -> String {
    if tests.len() >= MANY {
        return format!("{} tests", tests.len());
    }
    let families = tests.chunk_by(|one, next| one.family == next.family);
    let named = |family: &[&Test]| {
        let name = &family[0].family;
        let all = matrix.tests.iter().filter(|test| test.family == *name);
        let names: Vec<&str> = family.iter().map(|test| test.test.as_str()).collect();
        match all.count() == names.len() {
            true => name.clone(),
            false => format!("{name} ({})", names.join(", ")),
        }
    };
    families.map(named).collect::<Vec<_>>().join("; ")
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

/// Returns the tool's message for a failure or a skip.
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

#[cfg(test)]
mod tests {
    use super::super::matrix::Errata;
    use super::*;

    #[test]
    fn the_page_has_what_does_not_pass_and_its_reason() {
        let test = |name: &str| {
            let (family, test) = name.split_once('.').expect("Family.Test");
            Test {
                family: family.to_owned(),
                test: test.to_owned(),
            }
        };
        let tests = [
            "Read10.Simple",
            "Read10.Async",
            "Unmap.Simple",
            "NoMedia.NoMediaSBC",
        ]
        .map(test);
        let skipped = |why: &str| Outcome::Skipped(why.to_owned());
        let column = |name: &str, outcomes: [Outcome; 4]| {
            let mut column = Column::new(name);
            column
                .outcomes
                .extend(tests.iter().map(Test::name).zip(outcomes));
            column
        };
        let passed = Outcome::Passed;
        let columns = vec![
            column(
                "plain",
                [
                    passed.clone(),
                    skipped("thick"),
                    skipped("thick"),
                    passed.clone(),
                ],
            ),
            column(
                "4k",
                [
                    passed.clone(),
                    skipped("thick"),
                    skipped("thick"),
                    passed.clone(),
                ],
            ),
            column(
                "tgt",
                [Outcome::Hung, passed.clone(), passed.clone(), passed],
            ),
        ];
        let errata = Errata::built_in().expect("readable");
        let matrix = Matrix::new(tests.to_vec(), columns, errata);
        let expected =
            format!("## Failures\n\n{REASONS}| did not end | tgt | Read10 (Simple) |\n\n");
        assert_eq!(failures(&matrix), expected);
        let rows = skips(&matrix);
        assert!(
            rows.ends_with(
                "| Passes without testing anything here. | plain, 4k | NoMedia |\n\
             | thick | plain, 4k | Read10 (Async); Unmap |\n"
            ),
            "{rows}"
        );
    }
}
