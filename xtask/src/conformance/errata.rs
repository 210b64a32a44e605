//! Tests that are themselves wrong, and passes that mean nothing: `conformance.toml`, read.

use anyhow::{Context, Result};
use serde::Deserialize;

/// All that is known to be wrong with the suite.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Errata {
    #[serde(default)]
    pub(super) wrong: Vec<Wrong>,
    #[serde(default)]
    vacuous: Vec<Vacuous>,
}

/// A test whose failure says nothing about the target.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wrong {
    pub(super) test: String,
    /// Where it is wrong; empty is everywhere.
    pub(super) configurations: Vec<String>,
    /// Whether the tool may die of it as well.
    #[serde(default)]
    pub(super) crashes: bool,
    pub(super) clause: String,
    pub(super) why: String,
}

/// A test that returns without a word where it does not apply.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vacuous {
    test: String,
    /// Where its pass is one.
    meaningful: Vec<String>,
}

impl Errata {
    /// What is kept beside this program's source.
    pub(super) fn built_in() -> Result<Errata> {
        toml::from_str(include_str!("../../conformance.toml")).context("xtask/conformance.toml")
    }

    /// The entry that says a test is wrong in a configuration.
    pub(super) fn wrong(&self, test: &str, configuration: &str) -> Option<&Wrong> {
        let here = |wrong: &&Wrong| {
            wrong.configurations.is_empty() || wrong.configurations.iter().any(|name| name == configuration)
        };
        self.wrong.iter().filter(|wrong| wrong.test == test).find(here)
    }

    /// Whether no configuration can show that the test holds.
    pub(super) fn wrong_everywhere(&self, test: &str) -> bool {
        self.wrong.iter().any(|wrong| wrong.test == test && wrong.configurations.is_empty())
    }

    /// Whether a pass in this configuration shows anything.
    pub(super) fn is_meaningful(&self, test: &str, configuration: &str) -> bool {
        let entry = self.vacuous.iter().find(|vacuous| vacuous.test == test);
        entry.is_none_or(|vacuous| vacuous.meaningful.iter().any(|name| name == configuration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_has_its_clause_and_its_reason() {
        let errata = Errata::built_in().expect("a readable file");
        for wrong in &errata.wrong {
            assert!(!wrong.clause.is_empty() && wrong.why.len() > 80, "{}", wrong.test);
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
