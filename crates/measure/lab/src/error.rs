//! What is wrong with a plan, and why a lab cannot be built.

use std::fmt;
use std::io;

/// Something in a plan's text is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// Counted from 1.
    pub line: usize,
    /// In letters, counted from 1.
    pub column: usize,
    /// What is wrong, in a sentence.
    pub what: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.what)
    }
}

impl std::error::Error for PlanError {}

/// Why a lab cannot be built, or a part of it not be had.
#[derive(Debug)]
pub enum LabError {
    /// The plan contradicts itself.
    Plan(String),
    /// The machine or the process lacks something: the sentence says what.
    Missing(String),
    /// The lab has no host or link of this name.
    NoSuch(String),
    /// The kernel did not do its part.
    System {
        /// What was to be done.
        doing: String,
        /// Its output.
        error: io::Error,
    },
}

impl LabError {
    pub(crate) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        let doing = doing.into();
        move |error| LabError::System { doing, error }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Plan(what) | LabError::Missing(what) => f.write_str(what),
            LabError::NoSuch(name) => write!(f, "the lab has nothing named {name}"),
            LabError::System { doing, error } => write!(f, "cannot {doing}: {error}"),
        }
    }
}

impl std::error::Error for LabError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LabError::System { error, .. } => Some(error),
            LabError::Plan(_) | LabError::Missing(_) | LabError::NoSuch(_) => None,
        }
    }
}
