//! A table of the configuration file, read key by key.
//!
//! `serde` is not used: its derive stops at the first mistake and names Rust types. Here all mistakes of a
//! file are reported at once, an unknown key with the nearest known one, and an invalid value with a valid
//! example.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistake::Mistakes;
use volume::nearest::hint;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct Placed<T> {
    /// What it is.
    pub value: T,
    /// Its bytes in the file.
    pub at: Range<usize>,
}

/// A key that a table may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KnownKey {
    /// Its name.
    pub name: &'static str,
    /// What its value is, for people: `a string`, `a number from 1 to 1024`.
    pub kind: String,
}

/// A table, and which of its keys have been asked for.
pub struct Section<'a> {
    /// How it is written: `[limits]`.
    title: String,
    at: Range<usize>,
    table: &'a DeTable<'a>,
    asked: RefCell<Vec<KnownKey>>,
    /// Keys by the names that they had before.
    old: RefCell<Vec<&'static str>>,
    /// Where its mistakes go.
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
        Section {
            title: title.into(),
            at,
            table,
            asked: RefCell::default(),
            old: RefCell::default(),
            mistakes,
        }
    }

    /// Where its heading is.
    pub fn at(&self) -> Range<usize> {
        self.at.clone()
    }

    /// Where the value of `key` stands; the heading if there is none.
    pub fn placed(&self, key: &str) -> Range<usize> {
        self.table.get(key).map_or_else(|| self.at(), Spanned::span)
    }

    /// Whether `key` is there at all, right or wrong.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// How it is written in the file.
    pub fn title(&self) -> &str {
        &self.title
    }

    fn value(&self, key: &'static str, kind: impl Into<String>) -> Option<&'a Value<'a>> {
        self.asked.borrow_mut().push(KnownKey { name: key, kind: kind.into() });
        self.table.get(key)
    }

    /// The value of `key`, if it is there and `read` understands it. `read` answers a sentence otherwise.
    fn read<T>(
        &self,
        key: &'static str,
        kind: impl Into<String>,
        read: impl FnOnce(&'a DeValue<'a>) -> Result<T, String>,
    ) -> Option<Placed<T>> {
        let value = self.value(key, kind)?;
        match read(value.get_ref()) {
            Ok(read) => Some(Placed { value: read, at: value.span() }),
            Err(sentence) => {
                self.mistakes.add(value.span(), format!("`{key}`: {sentence}"));
                None
            }
        }
    }

    /// A string.
    pub fn text(&self, key: &'static str) -> Option<Placed<&'a str>> {
        self.read(key, "a string", text)
    }

    /// True or false.
    pub fn flag(&self, key: &'static str) -> Option<bool> {
        let flag = |value: &DeValue<'_>| {
            value.as_bool().ok_or_else(|| format!("{}; write true or false", is_not(value)))
        };
        self.read(key, "true or false", flag).map(|placed| placed.value)
    }

    /// The same for a key that was called `old` before.
    pub fn renamed_flag(&self, key: &'static str, old: &'static str) -> Option<bool> {
        self.old.borrow_mut().push(old);
        if self.has(key) || !self.has(old) {
            return self.flag(key);
        }
        let flag = self.flag(old);
        self.asked.borrow_mut().retain(|asked| asked.name != old);
        flag
    }

    /// A number in this range.
    pub fn count(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<Placed<u64>> {
        let kind = format!("a number from {} to {}", range.start(), range.end());
        self.read(key, kind, |value| count(value, &range))
    }

    /// A string that `T` can be read from.
    pub fn parsed<T: FromStr<Err: Display>>(&self, key: &'static str) -> Option<Placed<T>> {
        self.read(key, "a string", |value| parse(text(value)?))
    }

    /// An array of such strings, if it is there.
    pub fn list<T: FromStr<Err: Display>>(&self, key: &'static str) -> Option<Vec<T>> {
        let element = |value: &'a Value<'a>| match text(value.get_ref()).and_then(parse) {
            Ok(element) => Some(element),
            Err(sentence) => {
                self.mistakes.add(value.span(), format!("`{key}`: {sentence}"));
                None
            }
        };
        let array = self.array(key, "a list of strings", "write strings in brackets: [\"…\", \"…\"]")?;
        Some(array.filter_map(element).collect())
    }

    /// An array of numbers, if it is there.
    pub fn counts(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<Vec<Placed<u64>>> {
        let element = |value: &'a Value<'a>| match count(value.get_ref(), &range) {
            Ok(number) => Some(Placed { value: number, at: value.span() }),
            Err(sentence) => {
                self.mistakes.add(value.span(), format!("`{key}`: {sentence}"));
                None
            }
        };
        let array = self.array(key, "a list of numbers", "write numbers in brackets: [1, 2]")?;
        Some(array.filter_map(element).collect())
    }

    /// The elements of an array. An empty one is a mistake: it could mean "none" or "not set", and the key
    /// can be left out.
    fn array(
        &self,
        key: &'static str,
        kind: &str,
        remedy: &str,
    ) -> Option<impl Iterator<Item = &'a Value<'a>> + use<'a>> {
        let array = self.read(key, kind, |value| match value.as_array() {
            Some(array) if array.is_empty() => {
                Err("the list is empty; write at least one entry, or remove the key".to_owned())
            }
            Some(array) => Ok(array),
            None => Err(format!("{} and not a list; {remedy}", kind_of(value))),
        });
        array.map(|placed| placed.value.iter())
    }

    /// A table under `key`.
    pub fn section(&self, key: &'static str, title: &str) -> Option<Section<'a>> {
        let table = self.read(key, "a table", |value| {
            value.as_table().ok_or_else(|| format!("{}; write it as a table, {title}", is_not(value)))
        })?;
        Some(Section::new(title, table.at, table.value, self.mistakes))
    }

    /// The tables of an array of tables under `key`.
    pub fn sections(&self, key: &'static str, title: &str) -> Vec<Section<'a>> {
        let element = |value: &'a Value<'a>| match value.get_ref().as_table() {
            Some(table) => Some(Section::new(title, value.span(), table, self.mistakes)),
            None => {
                self.mistakes
                    .add(value.span(), format!("`{key}`: {}; write {title}", is_not(value.get_ref())));
                None
            }
        };
        let remedy = format!("write {title} with two brackets, once for each");
        self.array(key, "tables", &remedy).into_iter().flatten().filter_map(element).collect()
    }

    /// The tables under `key` that have names of the user's choice, in the order of the file.
    pub fn named(&self, key: &'static str) -> Vec<(Placed<&'a str>, Section<'a>)> {
        let Some(parent) = self.section(key, &format!("[{key}.NAME]")) else { return Vec::new() };
        let mut named: Vec<_> = parent.table.iter().filter_map(|entry| parent.child(key, entry)).collect();
        named.sort_by_key(|(name, _)| name.at.start);
        named
    }

    fn child(
        &self,
        key: &str,
        (name, value): (&'a Spanned<std::borrow::Cow<'a, str>>, &'a Value<'a>),
    ) -> Option<(Placed<&'a str>, Section<'a>)> {
        let placed = Placed { value: name.get_ref().as_ref(), at: name.span() };
        let Some(table) = value.get_ref().as_table() else {
            let sentence = format!("{} where a name should be; write [{key}.NAME]", is_not(value.get_ref()));
            self.mistakes.add(name.span(), sentence);
            return None;
        };
        let title = format!("[{key}.{}]", placed.value);
        Some((placed, Section::new(title, name.span(), table, self.mistakes)))
    }

    /// What `read` gave, and a mistake at the heading if the key was not there at all.
    pub fn required<T>(&self, key: &'static str, read: Option<T>, example: &str) -> Option<T> {
        if !self.has(key) {
            let sentence = format!("{} has no `{key}`; write one, such as {key} = {example}", self.title);
            self.mistakes.add(self.at(), sentence);
        }
        read
    }

    /// Reports every key that was not read as a mistake.
    pub fn done(&self) {
        let mut known = self.asked.borrow().clone();
        known.sort_unstable();
        let asked: Vec<&str> = known.iter().map(|key| key.name).collect();
        for (key, _) in self.table.iter() {
            let name: &str = key.get_ref();
            if !asked.contains(&name) && !self.old.borrow().contains(&name) {
                let sentence = format!("unknown key `{name}` in {}{}", self.title, hint(name, &asked));
                self.mistakes.add(key.span(), sentence);
            }
        }
        self.mistakes.section_read(&self.title, known);
    }
}

fn text<'a>(value: &'a DeValue<'a>) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("{}; write a string in quotes", is_not(value)))
}

fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn count(value: &DeValue<'_>, range: &RangeInclusive<u64>) -> Result<u64, String> {
    let number = value.as_integer().and_then(|integer| {
        u64::from_str_radix(integer.as_str(), integer.radix()).ok().filter(|number| range.contains(number))
    });
    number.ok_or_else(|| {
        let (least, most) = (range.start(), range.end());
        let found =
            value.as_integer().map_or_else(|| is_not(value), |integer| format!("{integer} is out of range"));
        format!("{found}; write a number from {least} to {most}")
    })
}

fn is_not(value: &DeValue<'_>) -> String {
    format!("{} is not what belongs here", kind_of(value))
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
