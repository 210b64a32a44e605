//! Errors in a plan, and errors while building a lab.

use std::io;

use derive_more::{Display, Error};

/// An error in a plan's text.
#[derive(Clone, Debug, PartialEq, Eq, Display, Error)]
#[display("{line}:{column}: {what}")]
pub struct PlanError {
    /// Counted from 1.
    pub line: usize,
    /// Counted in letters from 1.
    pub column: usize,
    /// The error, as a sentence.
    pub what: String,
}

impl PlanError {
    /// Formats the error with its line of the plan's text, and a mark below its column.
    pub fn shown_in(&self, text: &str) -> String {
        let line = text.lines().nth(self.line - 1).unwrap_or_default();
        let before: String = line
            .chars()
            .take(self.column - 1)
            .map(|letter| if letter == '\t' { '\t' } else { ' ' })
            .collect();
        format!("{self}\n  {line}\n  {before}^")
    }
}

/// The reason why a lab, or a part of a lab, is not available.
#[derive(Debug, Display)]
pub enum LabError {
    /// The plan is inconsistent.
    Plan(String),
    /// The machine or the process does not meet a requirement, which the sentence names.
    Missing(String),
    /// A program of the plan did not become ready. The sentence names the program and the reason.
    NotReady(String),
    /// The lab has no host or link of this name.
    #[display("the lab has no host or link named {_0}")]
    NoSuch(String),
    /// A system call failed.
    #[display("cannot {doing}: {error}")]
    System {
        /// The operation that failed.
        doing: String,
        /// The error of the system call.
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
            LabError::Plan(_)
            | LabError::Missing(_)
            | LabError::NotReady(_)
            | LabError::NoSuch(_) => None,
        }
    }
}
