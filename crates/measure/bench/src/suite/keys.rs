//! Looks up values by key in TOML tables: in a role, then in its cell, then in the defaults of all cells.

use std::ops::{Range, RangeInclusive};

use derive_more::{Display, Error};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use volume::spec::{Bytes, NotAValue, Time};

use crate::plan::Percent;

pub(super) type Value<'a> = Spanned<DeValue<'a>>;

/// The tables in which keys are looked up.
#[derive(Clone)]
pub(super) struct Keys<'a> {
    /// The name of the innermost table in messages: `this cell`.
    title: &'static str,
    at: Range<usize>,
    /// Values chosen from lists. Each replaces the list of its key.
    chosen: Vec<(&'static str, &'a Value<'a>)>,
    /// The tables, the innermost first.
    tables: Vec<&'a DeTable<'a>>,
}

impl<'a> Keys<'a> {
    /// Returns the keys of a table. Fails if the table has a key that is not in `known`.
    pub(super) fn of(
        title: &'static str,
        at: Range<usize>,
        table: &'a DeTable<'a>,
        known: &[&[&str]],
    ) -> Result<Keys<'a>, Mistake> {
        let known = known.concat();
        match table
            .iter()
            .find(|(key, _)| !known.contains(&key.get_ref().as_ref()))
        {
            None => Ok(Keys {
                title,
                at,
                chosen: Vec::new(),
                tables: vec![table],
            }),
            Some((key, _)) => {
                let name = key.get_ref();
                let why = format!("{title} has no key `{name}`; valid keys: {}", list(&known));
                Err(Mistake::new(key.span(), why))
            }
        }
    }

    /// Adds `outer` for keys that these tables do not contain.
    pub(super) fn within(mut self, outer: &Keys<'a>) -> Keys<'a> {
        // A choice from a list of the outer table applies unless an inner table overrides the key.
        let said_nearer = |key: &str| self.tables.iter().any(|table| table.contains_key(key));
        let chosen = outer.chosen.iter().filter(|(key, _)| !said_nearer(key));
        self.chosen.extend(chosen);
        self.tables.extend(&outer.tables);
        self
    }

    /// Selects one value of a key that has a list.
    pub(super) fn choosing(mut self, key: &'static str, value: &'a Value<'a>) -> Keys<'a> {
        self.chosen.push((key, value));
        self
    }

    /// Returns an error about the table as a whole.
    pub(super) fn mistake(&self, why: impl Into<String>) -> Mistake {
        Mistake::new(self.at.clone(), why)
    }

    pub(super) fn value(&self, key: &str) -> Option<&'a Value<'a>> {
        let chosen = self
            .chosen
            .iter()
            .rev()
            .find(|(known, _)| *known == key)
            .map(|(_, value)| *value);
        chosen.or_else(|| self.tables.iter().find_map(|table| table.get(key)))
    }

    /// Returns a value, parsed by `read`, which returns a message on error.
    pub(super) fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'a DeValue<'a>) -> Result<T, String>,
    ) -> Result<Option<T>, Mistake> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let read = read(value.get_ref());
        read.map(Some)
            .map_err(|why| Mistake::new(value.span(), format!("`{key}`: {why}")))
    }

    /// Returns the result of `read`, or an error about the table if the key is missing.
    pub(super) fn required<T>(&self, key: &str, read: Option<T>) -> Result<T, Mistake> {
        read.ok_or_else(|| self.mistake(format!("{} requires the key `{key}`", self.title)))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, Mistake> {
        self.read(key, text)
    }

    pub(super) fn number(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Mistake> {
        self.read(key, |value| whole(value, &range))
    }

    pub(super) fn percent(&self, key: &str) -> Result<Option<Percent>, Mistake> {
        self.read(key, percent)
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, Mistake> {
        self.read(key, |value| {
            value
                .as_bool()
                .ok_or_else(|| wanted("true or false", value))
        })
    }

    pub(super) fn bytes(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Mistake> {
        self.read(key, |value| {
            let bytes = bytes(text(value)?)?;
            let (least, most) = (Bytes(*range.start()), Bytes(*range.end()));
            range
                .contains(&bytes)
                .then_some(bytes)
                .ok_or_else(|| format!("write {least} to {most}"))
        })
    }

    pub(super) fn seconds(&self, key: &str) -> Result<Option<f64>, Mistake> {
        self.read(key, |value| {
            let Time(time) = text(value)?
                .parse()
                .map_err(|why: NotAValue| why.to_string())?;
            let seconds = time.as_secs_f64();
            // The limit is one week.
            (seconds <= 604_800.0)
                .then_some(seconds)
                .ok_or_else(|| "write at most 168h".to_owned())
        })
    }

    /// Returns a number above `low` and up to `high`, possibly with a decimal point.
    pub(super) fn fraction(&self, key: &str, low: f64, high: f64) -> Result<Option<f64>, Mistake> {
        self.read(key, |value| fraction(value, low, high))
    }

    /// Returns the table under `key`, whose keys must be in `known`.
    pub(super) fn table(
        &self,
        key: &str,
        title: &'static str,
        known: &[&str],
    ) -> Result<Option<Keys<'a>>, Mistake> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let table = value.get_ref().as_table();
        let table = table.ok_or_else(|| {
            Mistake::new(
                value.span(),
                format!("`{key}`: {}", wanted("a table", value.get_ref())),
            )
        })?;
        Keys::of(title, value.span(), table, &[known]).map(Some)
    }

    /// Returns the tables of the list under `key`, whose keys must be in `known`.
    pub(super) fn tables(
        &self,
        key: &str,
        title: &'static str,
        known: &[&[&str]],
    ) -> Result<Vec<Keys<'a>>, Mistake> {
        // Look only in the innermost table: a role does not inherit the roles of its cell.
        let Some(value) = self.tables.first().and_then(|table| table.get(key)) else {
            return Ok(Vec::new());
        };
        let wrong = |value: &Value<'_>| {
            Mistake::new(
                value.span(),
                format!("`{key}`: {}", wanted("a list of tables", value.get_ref())),
            )
        };
        let list = value.get_ref().as_array().ok_or_else(|| wrong(value))?;
        let table = |value: &'a Value<'a>| {
            let table = value.get_ref().as_table().ok_or_else(|| wrong(value))?;
            Keys::of(title, value.span(), table, known)
        };
        list.iter().map(table).collect()
    }
}

/// Parses a number of bytes.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    text.parse()
        .map(|Bytes(bytes)| bytes)
        .map_err(|why: NotAValue| why.to_string())
}

pub(super) fn text<'a>(value: &'a DeValue<'a>) -> Result<&'a str, String> {
    value
        .as_str()
        .ok_or_else(|| wanted("a text in quotes", value))
}

pub(super) fn whole(value: &DeValue<'_>, range: &RangeInclusive<u64>) -> Result<u64, String> {
    let integer = value
        .as_integer()
        .ok_or_else(|| wanted("a whole number", value))?;
    let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
    let number = number.filter(|number| range.contains(number));
    number.ok_or_else(|| format!("{integer} is not from {} to {}", range.start(), range.end()))
}

pub(super) fn percent(value: &DeValue<'_>) -> Result<Percent, String> {
    let share = whole(value, &(0..=100))?;
    let share = u8::try_from(share).ok().and_then(Percent::new);
    share.ok_or_else(|| "a share is 0 to 100".to_owned())
}

pub(super) fn fraction(value: &DeValue<'_>, low: f64, high: f64) -> Result<f64, String> {
    let written = match value {
        DeValue::Float(float) => float.as_str(),
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
        _ => return Err(wanted("a number", value)),
    };
    let number = written
        .parse()
        .ok()
        .filter(|number: &f64| low < *number && *number <= high);
    number.ok_or_else(|| format!("{written} is not above {low} and at most {high}"))
}

fn wanted(what: &str, found: &DeValue<'_>) -> String {
    format!("write {what}, not a value of type {}", found.type_str())
}

/// Joins names: `a`, `b` and `c`.
pub(super) fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// An error in a suite file, with its position.
#[derive(Clone, Debug, PartialEq, Eq, Display, Error)]
#[display("line {line}, column {column}: {why}")]
pub struct SuiteError {
    /// The line number, counted from 1.
    pub line: usize,
    /// The column, counted in characters from 1.
    pub column: usize,
    /// The error, and the correct form.
    pub why: String,
}

/// An error in a suite file, with its position in bytes.
#[derive(Clone, Debug)]
pub(super) struct Mistake {
    at: Range<usize>,
    why: String,
}

impl Mistake {
    pub(super) fn new(at: Range<usize>, why: impl Into<String>) -> Mistake {
        Mistake {
            at,
            why: why.into(),
        }
    }

    /// Converts the position to a line and a column of `text`.
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
