//! The tables of a plan, read with the position of every mistake.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::PlanError;

/// A mistake in a plan.
#[derive(Clone, Debug)]
pub struct Mistake {
    /// The position in the text, in bytes.
    pub at: Range<usize>,
    /// The mistake, as a sentence.
    pub what: String,
}

/// A value, or the mistake in it.
pub type Read<T> = Result<T, Mistake>;

/// Returns a mistake with its line and column in the text.
pub fn placed(text: &str, mistake: Mistake) -> PlanError {
    let before = text.get(..mistake.at.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    PlanError {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        what: mistake.what,
    }
}

/// Parses the text of a plan.
///
/// # Errors
/// It is larger than 1 MiB, or not valid TOML.
pub fn document(text: &str) -> Result<DeTable<'_>, PlanError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(PlanError {
            line: 1,
            column: 1,
            what: "the plan is larger than 1 MiB".to_owned(),
        });
    }
    let whole = DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        let what = format!("the file is not valid TOML: {}", error.message());
        placed(text, Mistake { at, what })
    })?;
    Ok(whole.into_inner())
}

/// Maximum length of a plan. Plans are written by people, so they are short.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// A string with its position.
pub type PlacedText<'a> = (Range<usize>, &'a str);

/// A table of the file.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// The position of the section's name.
    pub at: Range<usize>,
    /// The keys and values.
    pub table: &'a DeTable<'a>,
}

impl<'a> Section<'a> {
    /// Returns a mistake of the section as a whole.
    pub fn wrong(&self, what: impl Into<String>) -> Mistake {
        Mistake {
            at: self.at.clone(),
            what: what.into(),
        }
    }

    /// Returns a mistake at the value of a key.
    pub fn wrong_at(&self, key: &str, what: impl Into<String>) -> Mistake {
        let at = self
            .table
            .get(key)
            .map_or_else(|| self.at.clone(), Spanned::span);
        Mistake {
            at,
            what: format!("`{key}`: {}", what.into()),
        }
    }

    /// Rejects keys that are not valid in this section.
    ///
    /// # Errors
    /// There is another key.
    pub fn knows(&self, keys: &[&str]) -> Read<()> {
        let mut unknown: Vec<_> = self
            .table
            .iter()
            .filter(|(key, _)| !keys.contains(&key.get_ref().as_ref()))
            .collect();
        unknown.sort_by_key(|(key, _)| key.span().start);
        unknown.first().map_or(Ok(()), |(key, _)| {
            let what = format!(
                "unknown key `{}`; valid keys: {}",
                key.get_ref(),
                keys.join(", ")
            );
            Err(Mistake {
                at: key.span(),
                what,
            })
        })
    }

    /// Reads a string.
    ///
    /// # Errors
    /// It is another kind of value.
    pub fn text(&self, key: &str) -> Read<Option<&'a str>> {
        let Some(value) = self.table.get(key) else {
            return Ok(None);
        };
        let text = value.get_ref().as_str();
        text.map(Some)
            .ok_or_else(|| self.wrong_at(key, "use a string in quotes"))
    }

    /// Reads a string, or a number, which is parsed like a string.
    ///
    /// # Errors
    /// It is another kind of value, or `read` refuses it.
    pub fn read<T>(&self, key: &str, read: fn(&str) -> Result<T, String>) -> Read<Option<T>> {
        let Some(value) = self.table.get(key) else {
            return Ok(None);
        };
        let text = match value.get_ref() {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(number) => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => return Err(self.wrong_at(key, "use a string in quotes")),
        };
        read(text)
            .map(Some)
            .map_err(|what| self.wrong_at(key, what))
    }

    /// Reads a whole number in a range.
    ///
    /// # Errors
    /// It is another kind of value, or outside the range.
    pub fn number(&self, key: &str, range: std::ops::RangeInclusive<u64>) -> Read<Option<u64>> {
        let Some(value) = self.table.get(key) else {
            return Ok(None);
        };
        let integer = value.get_ref().as_integer();
        let number =
            integer.and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok());
        number
            .filter(|number| range.contains(number))
            .map(Some)
            .ok_or_else(|| {
                self.wrong_at(
                    key,
                    format!("use a number from {} to {}", range.start(), range.end()),
                )
            })
    }

    /// Reads a list of strings, with their positions.
    ///
    /// # Errors
    /// It is another kind of value.
    pub fn texts(&self, key: &str) -> Read<Option<Vec<PlacedText<'a>>>> {
        let Some(value) = self.table.get(key) else {
            return Ok(None);
        };
        let refused = || self.wrong_at(key, "use strings in brackets: [\"…\", \"…\"]");
        let list = value.get_ref().as_array().ok_or_else(refused)?;
        let text = |value: &'a Spanned<DeValue<'a>>| {
            value
                .get_ref()
                .as_str()
                .map(|text| (value.span(), text))
                .ok_or_else(refused)
        };
        list.iter().map(text).collect::<Read<_>>().map(Some)
    }

    /// As `texts`, without the positions.
    ///
    /// # Errors
    /// It is another kind of value.
    pub fn words(&self, key: &str) -> Read<Option<Vec<String>>> {
        let texts = self.texts(key)?;
        Ok(texts.map(|texts| texts.into_iter().map(|(_, word)| word.to_owned()).collect()))
    }

    /// Returns the table under a key.
    ///
    /// # Errors
    /// It is another kind of value.
    pub fn section(&self, key: &str) -> Read<Option<Section<'a>>> {
        let Some(value) = self.table.get(key) else {
            return Ok(None);
        };
        let table = value.get_ref().as_table();
        let table = table.ok_or_else(|| self.wrong_at(key, format!("use a table, [{key}]")))?;
        Ok(Some(Section {
            at: value.span(),
            table,
        }))
    }

    /// Returns the tables of an array of tables.
    ///
    /// # Errors
    /// It is another kind of value.
    pub fn sections(&self, key: &str) -> Read<Vec<Section<'a>>> {
        let Some(value) = self.table.get(key) else {
            return Ok(Vec::new());
        };
        let refused = || {
            self.wrong_at(
                key,
                format!("use a table with double brackets for each: [[…{key}]]"),
            )
        };
        let list = value.get_ref().as_array().ok_or_else(refused)?;
        let table = |value: &'a Spanned<DeValue<'a>>| {
            let table = value.get_ref().as_table().ok_or_else(refused)?;
            Ok(Section {
                at: value.span(),
                table,
            })
        };
        list.iter().map(table).collect()
    }

    /// Returns the tables under `key`, which have user-defined names, in the order of the file.
    ///
    /// # Errors
    /// It is another kind of value.
    pub fn tables(&self, key: &str) -> Read<Vec<(&'a str, Section<'a>)>> {
        let Some(parent) = self.section(key)? else {
            return Ok(Vec::new());
        };
        let mut entries: Vec<_> = parent.table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let named = entries.into_iter().map(|(name, value)| {
            let what = || format!("use a table, [{key}.{}]", name.get_ref());
            let table = value.get_ref().as_table().ok_or_else(|| Mistake {
                at: name.span(),
                what: what(),
            })?;
            Ok((
                name.get_ref().as_ref(),
                Section {
                    at: name.span(),
                    table,
                },
            ))
        });
        named.collect()
    }
}
