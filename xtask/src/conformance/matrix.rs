//! The outcome of every test in every configuration, and the resulting verdict.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::cunit::{Outcome, Test};
use anyhow::{Context, Result};
use xtask::tally::{Tally, Verdict};

/// One configuration's outcomes, by test name.
#[derive(Debug, Serialize)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) outcomes: BTreeMap<String, Outcome>,
}

impl Column {
    pub(super) fn new(name: &str) -> Column {
        Column {
            name: name.to_owned(),
            outcomes: BTreeMap::new(),
        }
    }
}

/// A cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Pass,
    /// A pass that is meaningless, because the test does not apply here.
    Vacuous,
    Fail,
    Skip,
    Hang,
    Crash,
    /// A failure caused by a bug in the test.
    Wrong,
    /// The test was not run in this configuration.
    Absent,
}

impl Cell {
    pub(super) fn is_failure(self) -> bool {
        matches!(self, Cell::Fail | Cell::Hang | Cell::Crash)
    }
}

/// All outcomes.
#[derive(Debug, Serialize)]
pub(super) struct Matrix {
    #[serde(serialize_with = "as_names")]
    pub(super) tests: Vec<Test>,
    pub(super) columns: Vec<Column>,
    #[serde(skip)]
    pub(super) errata: Errata,
}

fn as_names<S: Serializer>(tests: &[Test], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tests.iter().map(Test::name))
}

impl Matrix {
    pub(super) fn new(tests: Vec<Test>, columns: Vec<Column>, errata: Errata) -> Matrix {
        Matrix {
            tests,
            columns,
            errata,
        }
    }

    /// Returns the result of a test in a configuration.
    pub(super) fn cell(&self, test: &Test, column: &Column) -> Cell {
        let name = test.name();
        let wrong = self.errata.wrong(&name, &column.name);
        match column.outcomes.get(&name) {
            None => Cell::Absent,
            Some(Outcome::Passed) if self.errata.is_meaningful(&name, &column.name) => Cell::Pass,
            Some(Outcome::Passed) => Cell::Vacuous,
            Some(Outcome::Skipped(_)) => Cell::Skip,
            Some(Outcome::Failed(_)) if wrong.is_some() => Cell::Wrong,
            Some(Outcome::Crashed(_)) if wrong.is_some_and(|wrong| wrong.crashes) => Cell::Wrong,
            Some(Outcome::Failed(_)) => Cell::Fail,
            Some(Outcome::Hung) => Cell::Hang,
            Some(Outcome::Crashed(_)) => Cell::Crash,
        }
    }

    /// Returns the number of tests in a column with this result. The tool itself counts a vacuous pass as a
    /// pass.
    pub(super) fn count(&self, column: &Column, cell: Cell) -> usize {
        self.tests
            .iter()
            .filter(|test| self.cell(test, column) == cell)
            .count()
    }

    /// Returns the columns that affect the verdict.
    pub(super) fn own(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.name != "tgt")
    }

    /// Whether a test passes in some configuration.
    pub(super) fn holds_somewhere(&self, test: &Test) -> bool {
        self.own()
            .any(|column| self.cell(test, column) == Cell::Pass)
    }

    /// Returns the tests and configurations with failures that are not caused by bugs in the test.
    pub(super) fn failures(&self) -> Vec<(&Test, &Column)> {
        let everywhere = self
            .tests
            .iter()
            .flat_map(|test| self.own().map(move |column| (test, column)));
        everywhere
            .filter(|(test, column)| self.cell(test, column).is_failure())
            .collect()
    }

    /// Returns registered tests that pass in no configuration, except those that are wrong everywhere.
    pub(super) fn never_passed(&self) -> Vec<&Test> {
        let unshown = self.tests.iter().filter(|test| !self.holds_somewhere(test));
        unshown
            .filter(|test| !self.errata.wrong_everywhere(&test.name()))
            .collect()
    }

    /// Returns entries of the errata that a pass has disproved.
    pub(super) fn refuted(&self) -> Vec<(&Test, &Column)> {
        let everywhere = self
            .tests
            .iter()
            .flat_map(|test| self.own().map(move |column| (test, column)));
        let passed = everywhere.filter(|(test, column)| self.cell(test, column) == Cell::Pass);
        passed
            .filter(|(test, column)| self.errata.wrong(&test.name(), &column.name).is_some())
            .collect()
    }

    /// Counts each test once: as passed if it passes somewhere and fails nowhere.
    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for test in &self.tests {
            let failed = self
                .own()
                .any(|column| self.cell(test, column).is_failure());
            tally += match (failed, self.holds_somewhere(test)) {
                (true, _) => Tally::of(Verdict::Fails),
                (false, true) => Tally::of(Verdict::Holds),
                (false, false) => Tally::skipped(),
            };
        }
        tally
    }

    /// Fails if any test failed. In a complete run, every test must also pass somewhere.
    pub(super) fn verdict(&self, is_complete: bool) -> Verdict {
        let holds = self.failures().is_empty() && (!is_complete || self.never_passed().is_empty());
        Verdict::of(holds)
    }
}

// Reads `conformance.toml`: tests that are themselves wrong, and vacuous passes.

/// All known bugs of the suite.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Errata {
    #[serde(default)]
    pub(super) wrong: Vec<Wrong>,
    #[serde(default)]
    vacuous: Vec<Vacuous>,
}

/// A test whose failure does not indicate a bug of the target.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wrong {
    pub(super) test: String,
    /// The configurations in which it is wrong; empty means all.
    pub(super) configurations: Vec<String>,
    /// Whether it can also crash the tool.
    #[serde(default)]
    pub(super) crashes: bool,
    pub(super) clause: String,
    pub(super) why: String,
}

/// A test that passes without reporting a skip where it does not apply.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vacuous {
    test: String,
    /// The configurations in which its pass is meaningful.
    meaningful: Vec<String>,
}

impl Errata {
    /// Returns the errata from xtask/conformance.toml, which are compiled into this program.
    pub(super) fn built_in() -> Result<Errata> {
        toml::from_str(include_str!("../../conformance.toml")).context("xtask/conformance.toml")
    }

    /// Returns the entry for a test that is wrong in a configuration.
    pub(super) fn wrong(&self, test: &str, configuration: &str) -> Option<&Wrong> {
        let here = |wrong: &&Wrong| {
            wrong.configurations.is_empty()
                || wrong
                    .configurations
                    .iter()
                    .any(|name| name == configuration)
        };
        self.wrong
            .iter()
            .filter(|wrong| wrong.test == test)
            .find(here)
    }

    /// Whether the test can pass in no configuration.
    pub(super) fn wrong_everywhere(&self, test: &str) -> bool {
        self.wrong
            .iter()
            .any(|wrong| wrong.test == test && wrong.configurations.is_empty())
    }

    /// Whether a pass in this configuration is meaningful.
    pub(super) fn is_meaningful(&self, test: &str, configuration: &str) -> bool {
        let entry = self.vacuous.iter().find(|vacuous| vacuous.test == test);
        entry.is_none_or(|vacuous| vacuous.meaningful.iter().any(|name| name == configuration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(outcomes: &[(&str, &str, Outcome)]) -> Matrix {
        let mut columns: Vec<Column> = Vec::new();
        let mut tests: Vec<Test> = Vec::new();
        for (column, name, outcome) in outcomes {
            let (family, test) = name.split_once('.').expect("Family.Test");
            let test = Test {
                family: family.to_owned(),
                test: test.to_owned(),
            };
            if !tests.contains(&test) {
                tests.push(test);
            }
            if !columns.iter().any(|known| known.name == *column) {
                columns.push(Column::new(column));
            }
            let column = columns
                .iter_mut()
                .find(|known| known.name == *column)
                .expect("pushed above");
            column.outcomes.insert((*name).to_owned(), outcome.clone());
        }
        Matrix::new(tests, columns, Errata::built_in().expect("readable"))
    }

    fn skipped() -> Outcome {
        Outcome::Skipped("not removable".to_owned())
    }

    fn failed() -> Outcome {
        Outcome::Failed("an assertion".to_owned())
    }

    #[test]
    fn a_test_skipped_here_and_passed_there_holds() {
        let matrix = matrix(&[
            ("plain", "PreventAllow.Eject", skipped()),
            ("removable", "PreventAllow.Eject", Outcome::Passed),
        ]);
        assert_eq!(matrix.verdict(true), Verdict::Holds);
        assert_eq!(
            matrix.tally(),
            Tally {
                passed: 1,
                failed: 0,
                skipped: 0
            }
        );
    }

    #[test]
    fn a_test_that_passes_nowhere_fails_a_complete_run() {
        let matrix = matrix(&[("plain", "PreventAllow.Eject", skipped())]);
        assert_eq!(matrix.verdict(true), Verdict::Fails);
        assert_eq!(matrix.verdict(false), Verdict::Holds);
    }

    #[test]
    fn one_failure_in_any_configuration_fails_the_run() {
        let matrix = matrix(&[
            ("plain", "Read10.Simple", Outcome::Passed),
            ("4k", "Read10.Simple", failed()),
        ]);
        assert_eq!(matrix.verdict(false), Verdict::Fails);
    }

    #[test]
    fn tgts_failures_are_tgts() {
        let matrix = matrix(&[
            ("plain", "Read10.Simple", Outcome::Passed),
            ("tgt", "Read10.Simple", failed()),
        ]);
        assert_eq!(matrix.verdict(true), Verdict::Holds);
    }

    #[test]
    fn a_wrong_test_fails_nobody_but_a_hang_is_never_excused() {
        let lun_reset = "iSCSITMF.LUNResetSimpleAsync";
        assert_eq!(
            matrix(&[("plain", lun_reset, failed())]).verdict(true),
            Verdict::Holds
        );
        assert_eq!(
            matrix(&[("plain", lun_reset, Outcome::Crashed(6))]).verdict(true),
            Verdict::Holds
        );
        assert_eq!(
            matrix(&[("plain", lun_reset, Outcome::Hung)]).verdict(true),
            Verdict::Fails
        );
        let sanitize = "Sanitize.Reset";
        assert_eq!(
            matrix(&[("plain", sanitize, Outcome::Crashed(6))]).verdict(false),
            Verdict::Fails
        );
    }

    #[test]
    fn a_pass_refutes_an_entry_of_the_errata() {
        let matrix = matrix(&[("512e", "GetLBAStatus.UnmapSingle", Outcome::Passed)]);
        assert_eq!(matrix.refuted().len(), 1);
    }

    #[test]
    fn a_vacuous_pass_is_not_enough() {
        let matrix = matrix(&[("plain", "NoMedia.NoMediaSBC", Outcome::Passed)]);
        assert_eq!(matrix.verdict(true), Verdict::Fails);
    }

    #[test]
    fn every_entry_has_its_clause_and_its_reason() {
        let errata = Errata::built_in().expect("a readable file");
        for wrong in &errata.wrong {
            assert!(
                !wrong.clause.is_empty() && wrong.why.len() > 80,
                "{}",
                wrong.test
            );
        }
    }

    #[test]
    fn a_test_may_be_wrong_in_one_configuration_only() {
        let errata = Errata::built_in().expect("a readable file");
        assert!(errata.wrong("GetLBAStatus.UnmapSingle", "512e").is_some());
        assert!(errata.wrong("GetLBAStatus.UnmapSingle", "plain").is_none());
        assert!(errata.wrong_everywhere("iSCSITMF.LUNResetSimpleAsync"));
    }

    #[test]
    fn a_vacuous_pass_counts_only_where_it_means_something() {
        let errata = Errata::built_in().expect("a readable file");
        assert!(!errata.is_meaningful("NoMedia.NoMediaSBC", "plain"));
        assert!(errata.is_meaningful("NoMedia.NoMediaSBC", "removable"));
        assert!(errata.is_meaningful("Read10.Simple", "plain"));
    }
}
