//! Errors of volume specifications: position, and remedy.

use std::fmt;
use std::ops::Range;

/// What is wrong with a specification, and the bytes it is about. Shows itself as a sentence with the
/// specification and a caret under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    text: String,
    at: Range<usize>,
    sentence: String,
}

impl SpecError {
    pub(super) fn new(text: &str, problem: Problem) -> SpecError {
        SpecError { text: text.to_owned(), at: problem.at, sentence: problem.sentence }
    }

    /// The same, with a specification that shows no secrets. Its letters must be at their columns still.
    #[must_use]
    pub fn masked(mut self, mask: impl FnOnce(&str) -> String) -> SpecError {
        self.text = mask(&self.text);
        self
    }

    /// What is wrong and what to do about it, in one sentence, for those who show the place themselves.
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// The bytes of the specification that the sentence is about.
    pub fn at(&self) -> Range<usize> {
        self.at.clone()
    }
}

impl std::error::Error for SpecError {}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = |text: Option<&str>| text.map_or(0, |text| text.chars().count());
        let before = letters(self.text.get(..self.at.start));
        let carets = letters(self.text.get(self.at.clone())).max(1);
        writeln!(f, "{} (column {})", self.sentence, before + 1)?;
        writeln!(f, "  {}", self.text)?;
        write!(f, "  {:before$}{:^<carets$}", "", "")
    }
}

/// The same while the specification is being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The bytes of the specification that it is about.
    pub at: Range<usize>,
    /// What is wrong and what to do about it.
    pub sentence: String,
}

impl Problem {
    /// A problem with these bytes.
    pub fn new(at: Range<usize>, sentence: impl Into<String>) -> Problem {
        Problem { at, sentence: sentence.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_points_at_the_word_counted_in_letters() {
        let error = SpecError::new("file:/dätä?blok=1", Problem::new(13..17, "unknown option `blok`"));
        let expected = "unknown option `blok` (column 12)\n  file:/dätä?blok=1\n             ^^^^";
        assert_eq!(error.to_string(), expected);
    }
}
