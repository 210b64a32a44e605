//! A table of the configuration file, read key by key, and the errors in it.
//!
//! `serde` is not used: its derive stops at the first error and names Rust types. This module reports all
//! errors of a file together, each with its line and column. An unknown key is reported with the most similar
//! known key, and an invalid value with a valid example. Values that may be secrets are not shown, because
//! messages are copied to logs and bug reports.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Display, Write};
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::str::FromStr;

use backends::secrets::{self, Exposed};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use volume::spec::hint;

/// A value and its position.
#[derive(Clone, Debug)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Its byte range in the file.
    pub at: Range<usize>,
}

/// A key that a table may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KnownKey {
    /// Its name.
    pub name: &'static str,
    /// A human-readable description of its value: `a string`, `a number from 1 to 1024`.
    pub kind: String,
}

/// A table, and the keys that have been read.
pub struct Section<'a> {
    /// Its heading: `[limits]`.
    title: String,
    at: Range<usize>,
    table: &'a DeTable<'a>,
    asked: RefCell<Vec<KnownKey>>,
    /// Collects the errors in the table.
    pub mistakes: &'a Mistakes<'a>,
}

type Value<'a> = Spanned<DeValue<'a>>;

impl<'a> Section<'a> {
    pub(super) fn new(
        title: impl Into<String>,
        at: Range<usize>,
        table: &'a DeTable<'a>,
        mistakes: &'a Mistakes<'a>,
    ) -> Section<'a> {
        debug_assert!(at.start <= at.end, "a place in the file");
        Section {
            title: title.into(),
            at,
            table,
            asked: RefCell::default(),
            mistakes,
        }
    }

    /// The position of the heading.
    pub fn at(&self) -> Range<usize> {
        self.at.clone()
    }

    /// Returns the position of the value of `key`, or of the heading if the key is missing.
    pub fn placed(&self, key: &str) -> Range<usize> {
        self.table.get(key).map_or_else(|| self.at(), Spanned::span)
    }

    /// Whether `key` exists, valid or not.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Its heading in the file.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the value of `key`, if it exists and `read` accepts it. If `read` rejects the value, it
    /// returns a sentence, which is recorded as an error.
    fn read<T>(
        &self,
        key: &'static str,
        kind: impl Into<String>,
        read: impl FnOnce(&'a DeValue<'a>) -> Result<T, String>,
    ) -> Option<Placed<T>> {
        self.asked.borrow_mut().push(KnownKey {
            name: key,
            kind: kind.into(),
        });
        let value = self.table.get(key)?;
        match read(value.get_ref()) {
            Ok(read) => Some(Placed {
                value: read,
                at: value.span(),
            }),
            Err(sentence) => {
                self.mistakes
                    .add(value.span(), format!("`{key}`: {sentence}"));
                None
            }
        }
    }

    /// Reads a string.
    pub fn text(&self, key: &'static str) -> Option<Placed<&'a str>> {
        self.read(key, "a string", text)
    }

    /// Reads a Boolean value.
    pub fn flag(&self, key: &'static str) -> Option<bool> {
        let flag = |value: &DeValue<'_>| {
            value
                .as_bool()
                .ok_or_else(|| format!("{}; write true or false", is_not(value)))
        };
        self.read(key, "true or false", flag)
            .map(|placed| placed.value)
    }

    /// Reads a number in this range.
    pub fn count(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<Placed<u64>> {
        let kind = format!("a number from {} to {}", range.start(), range.end());
        self.read(key, kind, |value| count(value, &range))
    }

    /// Reads a string that parses as `T`.
    pub fn parsed<T: FromStr<Err: Display>>(&self, key: &'static str) -> Option<Placed<T>> {
        self.read(key, "a string", |value| parse(text(value)?))
    }

    /// Reads an array of strings that parse as `T`, if the key exists.
    pub fn list<T: FromStr<Err: Display>>(&self, key: &'static str) -> Option<Vec<T>> {
        self.list_by(key, str::parse)
    }

    /// Reads an array, if the key exists. A function parses its elements.
    pub fn list_by<T, E: Display>(
        &self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Vec<T>> {
        let read = |value| read(text(value)?).map_err(|error| error.to_string());
        let list = self.elements(
            key,
            "a list of strings",
            "write strings in brackets: [\"…\", \"…\"]",
            read,
        )?;
        Some(list.into_iter().map(|element| element.value).collect())
    }

    /// Reads an array of numbers, if the key exists.
    pub fn counts(
        &self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<Vec<Placed<u64>>> {
        let read = |value| count(value, &range);
        self.elements(
            key,
            "a list of numbers",
            "write numbers in brackets: [1, 2]",
            read,
        )
    }

    /// Returns the elements of an array that `read` accepts. An empty array is an error, because it could
    /// mean "none" or "not set". To leave a list unset, users omit the key.
    fn elements<T>(
        &self,
        key: &'static str,
        kind: &str,
        remedy: &str,
        read: impl Fn(&'a DeValue<'a>) -> Result<T, String>,
    ) -> Option<Vec<Placed<T>>> {
        let element = |value: &'a Value<'a>| match read(value.get_ref()) {
            Ok(read) => Some(Placed {
                value: read,
                at: value.span(),
            }),
            Err(sentence) => {
                self.mistakes
                    .add(value.span(), format!("`{key}`: {sentence}"));
                None
            }
        };
        let array = self.read(key, kind, |value| match value.as_array() {
            Some(array) if array.is_empty() => {
                Err("the list is empty; write at least one entry, or remove the key".to_owned())
            }
            Some(array) => Ok(array),
            None => Err(format!("{}, not a list; {remedy}", kind_of(value))),
        })?;
        Some(array.value.iter().filter_map(element).collect())
    }

    /// Reads the table under `key`.
    pub fn section(&self, key: &'static str, title: &str) -> Option<Section<'a>> {
        let table = self.read(key, "a table", |value| {
            value
                .as_table()
                .ok_or_else(|| format!("{}; write it as a table, {title}", is_not(value)))
        })?;
        Some(Section::new(title, table.at, table.value, self.mistakes))
    }

    /// Reads the array of tables under `key`.
    pub fn sections(&self, key: &'static str, title: &str) -> Vec<Section<'a>> {
        let read = |value: &'a DeValue<'a>| {
            value
                .as_table()
                .ok_or_else(|| format!("{}; write {title}", is_not(value)))
        };
        debug_assert!(
            title.starts_with("[["),
            "each of them has a separate heading"
        );
        let remedy = format!("write {title} with two brackets, once for each");
        let tables = self
            .elements(key, "tables", &remedy, read)
            .unwrap_or_default();
        tables
            .into_iter()
            .map(|table| Section::new(title, table.at, table.value, self.mistakes))
            .collect()
    }

    /// Reads the tables under `key` with names chosen by the user, in the order of the file.
    pub fn named(&self, key: &'static str) -> Vec<(Placed<&'a str>, Section<'a>)> {
        let Some(parent) = self.section(key, &format!("[{key}.NAME]")) else {
            return Vec::new();
        };
        let mut named: Vec<_> = parent
            .table
            .iter()
            .filter_map(|entry| parent.child(key, entry))
            .collect();
        named.sort_by_key(|(name, _)| name.at.start);
        named
    }

    fn child(
        &self,
        key: &str,
        (name, value): (&'a Spanned<std::borrow::Cow<'a, str>>, &'a Value<'a>),
    ) -> Option<(Placed<&'a str>, Section<'a>)> {
        let placed = Placed {
            value: name.get_ref().as_ref(),
            at: name.span(),
        };
        let Some(table) = value.get_ref().as_table() else {
            let sentence = format!(
                "{} instead of a name; write [{key}.NAME]",
                is_not(value.get_ref())
            );
            self.mistakes.add(name.span(), sentence);
            return None;
        };
        let title = format!("[{key}.{}]", placed.value);
        Some((
            placed,
            Section::new(title, name.span(), table, self.mistakes),
        ))
    }

    /// Returns `read`. If the key is missing, records an error at the heading.
    pub fn required<T>(&self, key: &'static str, read: Option<T>, example: &str) -> Option<T> {
        if !self.has(key) {
            let sentence = format!(
                "{} has no `{key}`; write one, such as {key} = {example}",
                self.title
            );
            self.mistakes.add(self.at(), sentence);
        }
        read
    }

    /// Reads the secret from `secret`, or from the file that `secret-file` names. Also returns the position
    /// of that key.
    pub(crate) fn secret(&self, example: &str) -> Option<(Placed<&'a str>, Vec<u8>)> {
        let refuse = |place: &Placed<&str>, sentence: String| {
            self.mistakes.add(place.at.clone(), sentence);
            None
        };
        match (self.text("secret"), self.text("secret-file")) {
            (Some(_), Some(file)) => refuse(
                &file,
                "both `secret` and `secret-file` are set; keep one of them".to_owned(),
            ),
            (None, Some(file)) => match secrets::read(Path::new(file.value)) {
                Ok(bytes) => Some((file, bytes.to_vec())),
                Err(error) => refuse(
                    &file,
                    format!("cannot read the secret in {}: {error}", file.value),
                ),
            },
            (secret, None) => {
                let inline = self.required("secret", secret, &format!("\"{example}\""))?;
                self.mistakes.found_secret(&inline.at);
                let bytes = inline.value.as_bytes().to_vec();
                Some((inline, bytes))
            }
        }
    }

    /// Reports every key that was not read as an error.
    pub fn done(&self) {
        let mut known = self.asked.borrow().clone();
        known.sort_unstable();
        let asked: Vec<&str> = known.iter().map(|key| key.name).collect();
        for (key, _) in self.table.iter() {
            let name: &str = key.get_ref();
            if !asked.contains(&name) {
                let sentence = format!(
                    "unknown key `{name}` in {}{}",
                    self.title,
                    hint(name, &asked)
                );
                self.mistakes.add(key.span(), sentence);
            }
        }
        self.mistakes.section_read(&self.title, known);
    }
}

fn text<'a>(value: &'a DeValue<'a>) -> Result<&'a str, String> {
    value
        .as_str()
        .ok_or_else(|| format!("{}; write a string in quotes", is_not(value)))
}

fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn count(value: &DeValue<'_>, range: &RangeInclusive<u64>) -> Result<u64, String> {
    let number = value.as_integer().and_then(|integer| {
        u64::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .filter(|number| range.contains(number))
    });
    number.ok_or_else(|| {
        let (least, most) = (range.start(), range.end());
        let found = value.as_integer().map_or_else(
            || is_not(value),
            |integer| format!("{integer} is out of range"),
        );
        format!("{found}; write a number from {least} to {most}")
    })
}

fn is_not(value: &DeValue<'_>) -> String {
    format!("{} is not allowed here", kind_of(value))
}

fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// All errors of one file, in the order of the file.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError {
    shown: String,
}

impl ConfigError {
    /// Creates the error for a file that cannot be read.
    pub fn unreadable(file: &str, error: &std::io::Error) -> ConfigError {
        ConfigError {
            shown: format!("cannot read the configuration {file}: {error}"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Collects errors while a file is read.
pub struct Mistakes<'a> {
    file: &'a str,
    text: &'a str,
    /// The file's permissions, if others can access it. Reported with the first secret in it.
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
        let exposed = Cell::new(exposed);
        Mistakes {
            file,
            text,
            exposed,
            list: RefCell::default(),
            sections: RefCell::default(),
        }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// Records that the file contains a secret at `at`, which is an error if users other than the owner can
    /// access the file.
    pub(crate) fn found_secret(&self, at: &Range<usize>) {
        if let Some(exposed) = self.exposed.take() {
            self.add(at.clone(), exposed.to_string());
        }
    }

    /// Adds an error at its place in the file.
    pub fn add(&self, at: Range<usize>, sentence: impl Into<String>) {
        debug_assert!(at.start <= at.end, "a place in the file");
        let mistake = Mistake {
            at,
            sentence: sentence.into(),
        };
        let mut list = self.list.borrow_mut();
        // A key that several front ends share is read by each of them.
        if !list.contains(&mistake) {
            list.push(mistake);
        }
    }

    /// Records a section that has been read, and the keys that it may have.
    pub(super) fn section_read(&self, title: &str, keys: Vec<KnownKey>) {
        self.sections.borrow_mut().push((title.to_owned(), keys));
    }

    /// All sections that have been read, by heading.
    pub(super) fn sections(&self) -> Vec<(String, Vec<KnownKey>)> {
        self.sections.borrow().clone()
    }

    /// Returns the position of the part `within` of the string at `at`. If the string contains escapes,
    /// positions inside it cannot be determined, so this returns the position of the whole string.
    pub fn inside(&self, at: &Range<usize>, value: &str, within: &Range<usize>) -> Range<usize> {
        let start = at.start + 1;
        if self.text.get(start..start + value.len()) == Some(value) {
            start + within.start..start + within.end
        } else {
            at.clone()
        }
    }

    /// Returns `value` if there were no errors.
    pub(super) fn verdict<T>(self, value: Option<T>) -> Result<T, ConfigError> {
        let mut list = self.list.into_inner();
        debug_assert!(
            value.is_some() || !list.is_empty(),
            "a file without errors has a value"
        );
        list.sort_by_key(|mistake| mistake.at.start);
        match value {
            Some(value) if list.is_empty() => Ok(value),
            _ => Err(ConfigError {
                shown: shown(self.file, self.text, &list),
            }),
        }
    }
}

fn shown(file: &str, text: &str, list: &[Mistake]) -> String {
    let mut shown = String::new();
    for (index, mistake) in list.iter().enumerate() {
        let place = SourceLine::at(text, &mistake.at);
        let margin = place.line.to_string().len();
        let lead = if index > 0 { "\n" } else { "" };
        // Writing to a `String` does not fail.
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
    /// The line as displayed.
    source: String,
    /// Number of characters of `source` before the carets.
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
        let meant = text
            .get(at.clone())
            .unwrap_or("")
            .lines()
            .next()
            .unwrap_or("");
        debug_assert!(start <= before.len(), "the line begins before the place");
        let (before_it, carets) = (column - 1, meant.chars().count().max(1));
        let place = SourceLine {
            line: before.matches('\n').count() + 1,
            column,
            source: String::new(),
            before: before_it,
            carets,
        };
        match harmless_part(text.get(..start).unwrap_or(""), source) {
            None => SourceLine {
                source: secrets::masked(source),
                ..place
            },
            Some(part) if before_it < part.chars().count() => {
                let carets = carets.min(part.chars().count() - before_it);
                SourceLine {
                    source: format!("{part}{NOT_SHOWN}"),
                    carets,
                    ..place
                }
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

/// Shown instead of hidden text.
const NOT_SHOWN: &str = "(not shown)";

/// Returns the start of a line that can be shown although the rest may be a secret; `None` if all of it can
/// be shown.
///
/// In a file with an error, secrets may be in the wrong place: a quote may be missing, a key may be misspelt.
/// This function therefore looks only at words: every value is hidden from the first word that indicates a
/// secret to the end of the section.
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
    let key = line
        .split_once('=')
        .map(|(key, _)| key)
        .filter(|key| key.split('.').all(is_known_key));
    // Include the space after the `=`, if there is one. Any other character at this position may be longer
    // than a byte.
    let blank = |key: &str| usize::from(line[key.len() + 1..].starts_with(' '));
    Some(key.map_or("", |key| &line[..key.len() + 1 + blank(key)]))
}

/// `[target.chap]`, complete or not.
fn is_heading(line: &str) -> bool {
    let heading = line.split('#').next().unwrap_or("").trim();
    let letter = |c: char| c.is_ascii_alphanumeric() || "[]._- ".contains(c);
    let begins = heading
        .trim_start_matches('[')
        .starts_with(|c: char| c.is_ascii_alphanumeric());
    heading.starts_with('[') && begins && heading.chars().all(letter)
}

fn speaks_of_secrets(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["secret", "passw", "chap", "account", "mutual"]
        .iter()
        .any(|word| line.contains(word))
}

/// Whether this is one of the keys that occur near secrets. Any other word may be a misplaced secret.
fn is_known_key(key: &str) -> bool {
    const KNOWN: &str =
        "account algorithms chap discovery initiators mutual secret secret-file target user";
    KNOWN.split(' ').any(|known| known == key.trim())
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
        assert_eq!(
            mistakes.verdict(None::<()>).expect_err("one").to_string(),
            "x:1:1: ?\n1 | \n  | ^"
        );
    }
}
