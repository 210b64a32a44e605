//! The lines of a job file: sections and their options, each with its place.
//!
//! ```text
//!   [global]          ; every section whose name begins so holds for the jobs behind it
//!   bs=4k             # comments begin with ; or #, also behind a value
//!   [job]
//!   stonewall         ; options may stand without a value
//! ```

use super::Mistake;
use super::values::KbBase;

/// An option as it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written<'a> {
    pub(super) name: &'a str,
    /// `None` without `=`. Blanks behind that are kept, since they change what fio reads.
    pub(super) value: Option<&'a str>,
    /// Counted from 1.
    pub(super) line: usize,
    /// Of the name and of the value, counted in characters from 1.
    pub(super) columns: [usize; 2],
    /// What `k` is in its section.
    pub(super) base: KbBase,
}

/// A section.
#[derive(Debug)]
pub(super) struct Section<'a> {
    pub(super) name: &'a str,
    pub(super) line: usize,
    pub(super) options: Vec<Written<'a>>,
}

impl Section<'_> {
    /// Whether it says what later jobs have in common. fio compares six letters.
    pub(super) fn is_global(&self) -> bool {
        self.name.starts_with("global")
    }
}

impl Written<'_> {
    /// A mistake in its name.
    pub(super) fn unusable(&self, why: impl Into<String>) -> Mistake {
        Mistake { line: self.line, column: self.columns[0], why: why.into() }
    }

    /// A mistake in its value.
    pub(super) fn wrong(&self, why: impl std::fmt::Display) -> Mistake {
        Mistake { line: self.line, column: self.columns[1], why: format!("`{}`: {why}", self.name) }
    }
}

/// The sections of a file; what is no section and no option is a mistake.
pub(super) fn sections<'a>(text: &'a str, mistakes: &mut Vec<Mistake>) -> Vec<Section<'a>> {
    let mut sections: Vec<Section<'a>> = Vec::new();
    for (index, whole) in text.lines().enumerate() {
        let line = index + 1;
        let used = whole.find([';', '#']).map_or(whole, |comment| &whole[..comment]).trim();
        if used.is_empty() {
            continue;
        }
        // `used` and its parts are parts of the line.
        let column =
            |part: &str| 1 + whole[..part.as_ptr() as usize - whole.as_ptr() as usize].chars().count();
        let at = |part: &str, why: String| Mistake { line, column: column(part), why };
        if let Some(named) = used.strip_prefix('[') {
            match named.strip_suffix(']') {
                Some(name) => sections.push(Section { name, line, options: Vec::new() }),
                None => mistakes
                    .push(at(used, "the name of a job ends with `]`, and the line with it".to_owned())),
            }
            continue;
        }
        let Some(section) = sections.last_mut() else {
            mistakes.push(at(used, "options stand in a section, such as [global] or [job]".to_owned()));
            continue;
        };
        let (name, value) = match used.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(value)),
            None => (used, None),
        };
        // An empty value stands behind its `=`.
        let value_at = value.map_or(used, |value| if value.is_empty() { used } else { value });
        let written =
            Written { name, value, line, columns: [column(used), column(value_at)], base: KbBase::default() };
        match name.split_whitespace().next() {
            Some("include") => {
                mistakes.push(written.unusable("`include` is not followed: paste the file's options here"))
            }
            _ if value.is_some_and(|value| value.contains("${")) => {
                mistakes.push(written.wrong("variables of the environment are not read; write the value"));
            }
            _ => section.options.push(written),
        }
    }
    sections
}
