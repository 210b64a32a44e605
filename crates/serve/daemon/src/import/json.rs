//! A JSON parser that reports the line of each value, and tracks which keys have been read.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use backends::Failure;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use super::san::{Note, Place};

pub(super) struct Document<'a> {
    file: Rc<str>,
    text: &'a str,
    /// The start of each line.
    lines: Vec<usize>,
}

pub(super) struct Object<'a> {
    document: &'a Document<'a>,
    at: usize,
    entries: Vec<(String, &'a RawValue)>,
    asked: RefCell<Vec<bool>>,
}

/// The keys and values of an object, in order.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Entries<'de>, D::Error> {
        struct AnyKeys;
        impl<'de> Visitor<'de> for AnyKeys {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(AnyKeys)
    }
}

impl<'a> Document<'a> {
    /// Creates a document with a text from a file.
    pub(super) fn new(file: Rc<str>, text: &'a str) -> Document<'a> {
        let lines = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        Document { file, text, lines }
    }

    /// The root object.
    ///
    /// # Errors
    /// The text is not JSON; the error has the line and column.
    pub(super) fn root(&'a self) -> Result<Object<'a>, Failure> {
        let wrong = |error: serde_json::Error| {
            let (line, column) = (error.line(), error.column());
            Failure::refused(format_args!(
                "{}:{line}:{column}: invalid JSON: {error}",
                self.file
            ))
        };
        let raw: &RawValue = serde_json::from_str(self.text).map_err(wrong)?;
        self.object(raw)
            .ok_or_else(|| Failure::refused(format_args!("{}: not a JSON object", self.file)))
    }

    fn object(&'a self, raw: &'a RawValue) -> Option<Object<'a>> {
        let Entries(entries) = serde_json::from_str(raw.get()).ok()?;
        let asked = RefCell::new(vec![false; entries.len()]);
        Some(Object {
            document: self,
            at: self.offset(raw),
            entries,
            asked,
        })
    }

    /// Returns the offset of a raw value, which is a part of the text.
    fn offset(&self, raw: &RawValue) -> usize {
        raw.get()
            .as_ptr()
            .addr()
            .wrapping_sub(self.text.as_ptr().addr())
    }

    fn place(&self, at: usize) -> Place {
        Place {
            file: Rc::clone(&self.file),
            line: self.lines.partition_point(|begin| *begin <= at) + 1,
        }
    }
}

impl<'a> Object<'a> {
    pub(super) fn place(&self) -> Place {
        self.document.place(self.at)
    }

    /// Returns the position of a key's value, or of the object if the key is missing.
    pub(super) fn place_of(&self, key: &str) -> Place {
        let raw = self.entries.iter().rfind(|(name, _)| name == key);
        raw.map_or_else(
            || self.place(),
            |(_, raw)| self.document.place(self.document.offset(raw)),
        )
    }

    /// Returns the last value with this name, as in Python. `null` counts as missing.
    fn value(&self, key: &str) -> Option<&'a RawValue> {
        let mut found = None;
        for ((name, raw), asked) in self.entries.iter().zip(self.asked.borrow_mut().iter_mut()) {
            if name == key {
                *asked = true;
                found = Some(*raw);
            }
        }
        found.filter(|raw| raw.get() != "null")
    }

    /// Returns a string, a number or a Boolean as text; true is "1".
    pub(super) fn scalar(&self, key: &str) -> Option<String> {
        scalar(self.value(key)?)
    }

    /// Returns a number that is not negative.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.scalar(key)?.parse().ok()
    }

    /// Returns a Boolean, which may be written as 0 or 1.
    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        self.scalar(key)
            .map(|value| !matches!(value.as_str(), "0" | "false" | ""))
    }

    pub(super) fn object(&self, key: &str) -> Option<Object<'a>> {
        self.document.object(self.value(key)?)
    }

    /// Returns the objects of a list under a key. Other elements are skipped.
    pub(super) fn objects(&self, key: &str) -> Vec<Object<'a>> {
        let list = self
            .value(key)
            .and_then(|raw| serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok());
        list.into_iter()
            .flatten()
            .filter_map(|raw| self.document.object(raw))
            .collect()
    }

    /// The values of all keys as text, with their positions; `None` for values that are not scalars.
    pub(super) fn scalars(&self) -> impl Iterator<Item = (&str, Option<String>, Place)> {
        self.asked
            .borrow_mut()
            .iter_mut()
            .for_each(|asked| *asked = true);
        let document = self.document;
        self.entries.iter().map(move |(name, raw)| {
            (
                name.as_str(),
                scalar(raw),
                document.place(document.offset(raw)),
            )
        })
    }

    /// A note for each key that has not been read.
    pub(super) fn unread(&self) -> Vec<Note> {
        let asked = self.asked.borrow();
        let unread = self
            .entries
            .iter()
            .zip(asked.iter())
            .filter(|(_, asked)| !**asked);
        let note = |((name, raw), _): (&(String, &RawValue), _)| {
            let place = self.document.place(self.document.offset(raw));
            Note::new(
                &place,
                format_args!("`{name}` is not imported: unknown setting"),
            )
        };
        unread.map(note).collect()
    }
}

fn scalar(raw: &RawValue) -> Option<String> {
    match serde_json::from_str(raw.get()).ok()? {
        serde_json::Value::String(text) => Some(text),
        serde_json::Value::Number(number) => Some(number.to_string()),
        serde_json::Value::Bool(flag) => Some(u8::from(flag).to_string()),
        _ => None,
    }
}
