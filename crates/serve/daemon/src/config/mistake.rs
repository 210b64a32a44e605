//! Mistakes in a configuration file, shown with line and column. Values that may be secrets are not shown,
//! since messages end up in logs and bug reports.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Write};
use std::ops::Range;

use super::section::KnownKey;
use backends::secrets::{self, Exposed};

/// All mistakes of one file, in the order of the file.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError {
    shown: String,
}

impl ConfigError {
    /// The file itself could not be read.
    pub fn unreadable(file: &str, error: &std::io::Error) -> ConfigError {
        ConfigError { shown: format!("cannot read the configuration {file}: {error}") }
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Collects mistakes while a file is read.
pub struct Mistakes<'a> {
    file: &'a str,
    text: &'a str,
    /// The file, if others may use it. Told with the first secret in it.
    exposed: Cell<Option<Exposed>>,
    list: RefCell<Vec<Mistake>>,
    sections: RefCell<Vec<(String, Vec<KnownKey>)>>,
}

#[derive(PartialEq, Eq)]
struct Mistake {
    at: Range<usize>,
    sentence: String,
}

impl<'a> Mistakes<'a> {
    pub(super) fn new(file: &'a str, text: &'a str, exposed: Option<Exposed>) -> Mistakes<'a> {
        Mistakes {
            file,
            text,
            exposed: Cell::new(exposed),
            list: RefCell::default(),
            sections: RefCell::default(),
        }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// There is a secret at this place: a mistake, if others than its owner may use the file.
    pub(crate) fn found_secret(&self, at: &Range<usize>) {
        if let Some(exposed) = self.exposed.take() {
            self.add(at.clone(), exposed.to_string());
        }
    }

    /// One more, at its place in the file.
    pub fn add(&self, at: Range<usize>, sentence: impl Into<String>) {
        let mistake = Mistake { at, sentence: sentence.into() };
        let mut list = self.list.borrow_mut();
        // A key of several front ends is read by each.
        if !list.contains(&mistake) {
            list.push(mistake);
        }
    }

    /// A section has been read, which may have these keys.
    pub(super) fn section_read(&self, title: &str, keys: Vec<KnownKey>) {
        self.sections.borrow_mut().push((title.to_owned(), keys));
    }

    /// All sections that have been read, by their headings.
    pub(super) fn sections(&self) -> Vec<(String, Vec<KnownKey>)> {
        self.sections.borrow().clone()
    }

    /// The part `within` of the string that stands at `at`. If the string is written with escapes, letters
    /// cannot be told apart in it, and all of it is meant.
    pub fn inside(&self, at: &Range<usize>, value: &str, within: &Range<usize>) -> Range<usize> {
        let start = at.start + 1;
        if self.text.get(start..start + value.len()) == Some(value) {
            start + within.start..start + within.end
        } else {
            at.clone()
        }
    }

    /// `value`, if nothing was wrong.
    pub(super) fn verdict<T>(self, value: Option<T>) -> Result<T, ConfigError> {
        let mut list = self.list.into_inner();
        list.sort_by_key(|mistake| mistake.at.start);
        match value {
            Some(value) if list.is_empty() => Ok(value),
            _ => Err(ConfigError { shown: shown(self.file, self.text, &list) }),
        }
    }
}

fn shown(file: &str, text: &str, list: &[Mistake]) -> String {
    let mut shown = String::new();
    for (index, mistake) in list.iter().enumerate() {
        let place = SourceLine::at(text, &mistake.at);
        let margin = place.line.to_string().len();
        let lead = if index > 0 { "\n" } else { "" };
        // Writing into a String does not fail.
        let _ = write!(
            shown,
            "{lead}{file}:{line}:{column}: {sentence}\n{line} | {source}\n{:margin$} | {:before$}{:^<carets$}",
            "",
            "",
            "",
            line = place.line,
            column = place.column,
            sentence = mistake.sentence,
            source = place.source,
            before = place.before,
            carets = place.carets,
        );
    }
    shown
}

/// A source line and the marked part of it. Lines and columns count from 1, columns in characters.
struct SourceLine {
    line: usize,
    column: usize,
    /// As it is shown.
    source: String,
    /// Letters of `source` before the carets.
    before: usize,
    carets: usize,
}

impl SourceLine {
    fn at(text: &str, at: &Range<usize>) -> SourceLine {
        let before = text.get(..at.start).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let rest = text.get(start..).unwrap_or("");
        let source = rest.lines().next().unwrap_or("");
        let column = before.get(start..).unwrap_or("").chars().count() + 1;
        let meant = text.get(at.clone()).unwrap_or("").lines().next().unwrap_or("");
        let (before_it, carets) = (column - 1, meant.chars().count().max(1));
        let place = SourceLine {
            line: before.matches('\n').count() + 1,
            column,
            source: String::new(),
            before: before_it,
            carets,
        };
        match harmless_part(text.get(..start).unwrap_or(""), source) {
            None => SourceLine { source: secrets::masked(source), ..place },
            Some(part) if before_it < part.chars().count() => {
                let carets = carets.min(part.chars().count() - before_it);
                SourceLine { source: format!("{part}{NOT_SHOWN}"), carets, ..place }
            }
            Some(part) => SourceLine {
                source: format!("{part}{NOT_SHOWN}"),
                before: part.chars().count(),
                carets: NOT_SHOWN.len(),
                ..place
            },
        }
    }
}

/// Replaces text that is not shown.
const NOT_SHOWN: &str = "(not shown)";

/// The beginning of a line that can be shown although the rest may be a secret; `None` if all of it can.
///
/// A file with a mistake cannot be trusted to have its secrets where they belong: a quote may be missing, a
/// key may be misspelt. So this looks at words alone: every value is hidden from the first word that speaks
/// of secrets to the end of the section.
fn harmless_part<'a>(before: &str, line: &'a str) -> Option<&'a str> {
    let section = before.lines().rev().scan(true, |inside, line| {
        let go_on = std::mem::replace(inside, !is_heading(line));
        go_on.then_some(line)
    });
    if is_heading(line) {
        let end = line.find('#').unwrap_or(line.len());
        return (end < line.len()).then(|| &line[..end]);
    }
    if !std::iter::once(line).chain(section).any(speaks_of_secrets) {
        return None;
    }
    let key = line.split_once('=').map(|(key, _)| key).filter(|key| key.split('.').all(is_known_key));
    // With the blank behind the `=`, if there is one: another letter there may be longer than a byte.
    let blank = |key: &str| usize::from(line[key.len() + 1..].starts_with(' '));
    Some(key.map_or("", |key| &line[..key.len() + 1 + blank(key)]))
}

/// `[target.chap]`, complete or not.
fn is_heading(line: &str) -> bool {
    let heading = line.split('#').next().unwrap_or("").trim();
    let letter = |c: char| c.is_ascii_alphanumeric() || "[]._- ".contains(c);
    let begins = heading.trim_start_matches('[').starts_with(|c: char| c.is_ascii_alphanumeric());
    heading.starts_with('[') && begins && heading.chars().all(letter)
}

fn speaks_of_secrets(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["secret", "passw", "chap", "account", "mutual"].iter().any(|word| line.contains(word))
}

/// The keys around secrets. Others may be misplaced secrets.
fn is_known_key(key: &str) -> bool {
    let known = [
        "account",
        "algorithms",
        "chap",
        "discovery",
        "initiators",
        "mutual",
        "secret",
        "secret-file",
        "target",
        "user",
    ];
    known.contains(&key.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_shown_in_the_order_of_the_file() {
        let text = "a = 1\nbcd = 2\n";
        let mistakes = Mistakes::new("x.toml", text, None);
        mistakes.add(6..9, "second");
        mistakes.add(4..5, "first");
        let error = mistakes.verdict(Some(())).expect_err("two mistakes");
        assert_eq!(
            error.to_string(),
            "x.toml:1:5: first\n1 | a = 1\n  |     ^\nx.toml:2:1: second\n2 | bcd = 2\n  | ^^^"
        );
    }

    #[test]
    fn a_place_beyond_the_text_is_shown_at_its_end() {
        let mistakes = Mistakes::new("x", "", None);
        mistakes.add(5..9, "?");
        assert_eq!(mistakes.verdict(None::<()>).expect_err("one").to_string(), "x:1:1: ?\n1 | \n  | ^");
    }
}
