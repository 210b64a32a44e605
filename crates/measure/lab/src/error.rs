//! Errors of plans, and of building a lab.

use std::io;

use derive_more::{Display, Error};

/// Something in a plan's text is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Display, Error)]
#[display("{line}:{column}: {what}")]
pub struct PlanError {
    /// Counted from 1.
    pub line: usize,
    /// In letters, counted from 1.
    pub column: usize,
    /// What is wrong, in a sentence.
    pub what: String,
}

/// Why a lab cannot be built, or a part of it not be had.
#[derive(Debug, Display)]
pub enum LabError {
    /// The plan contradicts itself.
    Plan(String),
    /// The machine or the process lacks something: the sentence says what.
    Missing(String),
    /// A program of the plan did not become ready: the sentence says which and why.
    NotReady(String),
    /// The lab has no host or link of this name.
    #[display("the lab has nothing named {_0}")]
    NoSuch(String),
    /// The kernel did not do its part.
    #[display("cannot {doing}: {error}")]
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

impl std::error::Error for LabError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LabError::System { error, .. } => Some(error),
            LabError::Plan(_) | LabError::Missing(_) | LabError::NotReady(_) | LabError::NoSuch(_) => None,
        }
    }
}
