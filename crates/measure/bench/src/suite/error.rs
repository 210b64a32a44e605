//! Where a file is not a suite, and why.

use std::ops::Range;

use derive_more::{Display, Error};

/// Where a file is not a suite, and why.
#[derive(Clone, Debug, PartialEq, Eq, Display, Error)]
#[display("line {line}, column {column}: {why}")]
pub struct SuiteError {
    /// Counted from 1.
    pub line: usize,
    /// Counted in characters from 1.
    pub column: usize,
    /// What is wrong there, and what would be right.
    pub why: String,
}

/// The same with its place counted in bytes, as it is found.
#[derive(Clone, Debug)]
pub(super) struct Mistake {
    pub(super) at: Range<usize>,
    pub(super) why: String,
}

impl Mistake {
    pub(super) fn new(at: Range<usize>, why: impl Into<String>) -> Mistake {
        Mistake { at, why: why.into() }
    }

    /// With the place that a reader of `text` counts.
    pub(super) fn within(self, text: &str) -> SuiteError {
        let before = text.get(..self.at.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        SuiteError {
            line: 1 + before.matches('\n').count(),
            column: 1 + before[line_start..].chars().count(),
            why: self.why,
        }
    }
}
