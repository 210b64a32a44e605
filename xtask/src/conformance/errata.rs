//! Reads `conformance.toml`: tests that are themselves wrong, and vacuous passes.

use anyhow::{Context, Result};
use serde::Deserialize;

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
    /// The errata from xtask/conformance.toml, compiled into this program.
    pub(super) fn built_in() -> Result<Errata> {
        toml::from_str(include_str!("../../conformance.toml")).context("xtask/conformance.toml")
    }

    /// The entry for a test that is wrong in a configuration.
    pub(super) fn wrong(&self, test: &str, configuration: &str) -> Option<&Wrong> {
        let here = |wrong: &&Wrong| {
            wrong.configurations.is_empty() || wrong.configurations.iter().any(|name| name == configuration)
        };
        self.wrong.iter().filter(|wrong| wrong.test == test).find(here)
    }

    /// Whether the test can pass in no configuration.
    pub(super) fn wrong_everywhere(&self, test: &str) -> bool {
        self.wrong.iter().any(|wrong| wrong.test == test && wrong.configurations.is_empty())
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
