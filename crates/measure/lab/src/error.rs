//! Errors of plans, and of building a lab.

use std::io;

use derive_more::{Display, Error};

/// An error in a plan's text.
#[derive(Clone, Debug, PartialEq, Eq, Display, Error)]
#[display("{line}:{column}: {what}")]
pub struct PlanError {
    /// Counted from 1.
    pub line: usize,
    /// In letters, counted from 1.
    pub column: usize,
    /// The error, in a sentence.
    pub what: String,
}

/// The reason why a lab, or a part of it, is not available.
#[derive(Debug, Display)]
pub enum LabError {
    /// The plan contradicts itself.
    Plan(String),
    /// A requirement of the machine or the process is not met; the sentence names it.
    Missing(String),
    /// A program of the plan did not become ready; the sentence names it and the reason.
    NotReady(String),
    /// The lab has no host or link of this name.
    #[display("the lab has no host or link named {_0}")]
    NoSuch(String),
    /// A system call failed.
    #[display("cannot {doing}: {error}")]
    System {
        /// The attempted operation.
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
