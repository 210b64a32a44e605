//! The lines of an Iometer configuration file.
//!
//! A line with an apostrophe names what follows (a *key*), or only describes its columns if blanks follow the apostrophe;
//! every other line is a *value*. Case does not matter, nor do blanks at either end.

use derive_more::{Display, Error};

/// Where a file is not an Iometer configuration file, or asks for what cannot be done here, and why.
#[derive(Clone, Debug, PartialEq, Eq, Display, Error)]
#[display("line {line}, column {column}: {why}")]
pub struct IcfError {
    /// Counted from 1.
    pub line: usize,
    /// Counted in characters from 1.
    pub column: usize,
    /// What is wrong there, and what was expected.
    pub why: String,
}

/// A line without the blanks around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) text: &'a str,
    pub(super) number: usize,
    /// Of the first letter of `text`.
    pub(super) column: usize,
}

impl<'a> Line<'a> {
    pub(super) fn error(&self, why: impl Into<String>) -> IcfError {
        IcfError { line: self.number, column: self.column, why: why.into() }
    }

    /// What a key names, without its apostrophe; `None` for values.
    pub(super) fn key(&self) -> Option<&'a str> {
        self.text.strip_prefix('\'').map(str::trim)
    }

    /// Whether it only describes the columns of the value after it.
    fn describes(&self) -> bool {
        self.text.strip_prefix('\'').is_some_and(|rest| rest.starts_with([' ', '\t']))
    }

    pub(super) fn is_key(&self, name: &str) -> bool {
        self.key().is_some_and(|key| key.eq_ignore_ascii_case(name))
    }

    /// Whether it is a key that begins so: names have grown from version to version.
    pub(super) fn is_key_like(&self, beginning: &str) -> bool {
        let start = self.key().and_then(|key| key.get(..beginning.len()));
        start.is_some_and(|start| start.eq_ignore_ascii_case(beginning))
    }

    /// Its words, between commas and blanks, each with its place.
    pub(super) fn words(&self) -> impl Iterator<Item = Line<'a>> + use<'a> {
        let Line { text, number, column } = *self;
        let words = text.split(|letter: char| letter == ',' || letter.is_whitespace());
        words.filter(|word| !word.is_empty()).map(move |word| {
            // Words are parts of the text, and follow each other in it.
            let before = &text[..word.as_ptr() as usize - text.as_ptr() as usize];
            Line { text: word, number, column: column + before.chars().count() }
        })
    }

    /// A whole number within a range.
    pub(super) fn whole(&self, what: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, IcfError> {
        let (least, most) = (range.start(), range.end());
        let number = self.text.parse().ok().filter(|number| range.contains(number));
        let found = if self.text.is_empty() { "nothing".to_owned() } else { format!("`{}`", self.text) };
        number.ok_or_else(|| {
            self.error(format!("{what}: expected a whole number from {least} to {most}, found {found}"))
        })
    }

    /// ENABLED or DISABLED.
    pub(super) fn enabled(&self, what: &str) -> Result<bool, IcfError> {
        match self.text {
            text if text.eq_ignore_ascii_case("ENABLED") => Ok(true),
            text if text.eq_ignore_ascii_case("DISABLED") => Ok(false),
            text => Err(self.error(format!("{what}: expected ENABLED or DISABLED, found `{text}`"))),
        }
    }
}

/// The lines of a file, one after the other. Empty ones are skipped where no value is awaited.
pub(super) struct Lines<'a> {
    lines: Vec<Line<'a>>,
    next: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn of(text: &'a str) -> Lines<'a> {
        let line = |(index, line): (usize, &'a str)| {
            let start = line.trim_start();
            let column = 1 + line[..line.len() - start.len()].chars().count();
            Line { text: start.trim_end(), number: index + 1, column }
        };
        Lines { lines: text.lines().enumerate().map(line).collect(), next: 0 }
    }

    /// The next line that is not empty.
    pub(super) fn next(&mut self) -> Option<Line<'a>> {
        loop {
            let line = *self.lines.get(self.next)?;
            self.next += 1;
            if !line.text.is_empty() {
                return Some(line);
            }
        }
    }

    /// The same without going on.
    pub(super) fn peek(&self) -> Option<Line<'a>> {
        self.lines[self.next..].iter().find(|line| !line.text.is_empty()).copied()
    }

    /// The next line, which must be there; `expected` says what it should be.
    pub(super) fn expect(&mut self, expected: &str) -> Result<Line<'a>, IcfError> {
        let end = self.end();
        self.next().ok_or_else(|| end.error(format!("the file ends where {expected} was expected")))
    }

    /// The value of the key before: the next line that is none that describes columns. It is empty, and stands where it
    /// should, if a key follows at once.
    pub(super) fn value(&mut self) -> Line<'a> {
        while self.lines.get(self.next).is_some_and(Line::describes) {
            self.next += 1;
        }
        match self.lines.get(self.next) {
            Some(line) if line.key().is_none() => {
                self.next += 1;
                *line
            }
            Some(key) => Line { text: "", ..*key },
            None => self.end(),
        }
    }

    fn end(&self) -> Line<'a> {
        Line { text: "", number: self.lines.len() + 1, column: 1 }
    }
}
