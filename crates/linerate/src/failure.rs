//! How a command fails, and the exit code for it.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | tried and failed: no server answers, data did not match, the system broke down |
//! | 2 | refused before anything was served: bad arguments, configuration, volume, address |

use std::fmt::Display;
use std::process::ExitCode;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked for cannot be done as asked; the sentence says what to change.
    Refused(String),
    /// It was tried, and failed.
    Failed(String),
}

impl Failure {
    pub(crate) fn refused(why: impl Display) -> Failure {
        Failure::Refused(why.to_string())
    }

    pub(crate) fn failed(why: impl Display) -> Failure {
        Failure::Failed(why.to_string())
    }

    /// Says so on standard error.
    pub(crate) fn report(&self) -> ExitCode {
        let (code, sentence) = match self {
            Failure::Refused(sentence) => (2, sentence),
            Failure::Failed(sentence) => (1, sentence),
        };
        eprintln!("linerate: {sentence}");
        ExitCode::from(code)
    }
}
