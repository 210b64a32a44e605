//! The content of a report before it becomes HTML or Markdown: sections of texts, tables and figures. The terminal
//! summary uses only the verdict.

use super::chart::{Bars, Heat, Plot};

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// The suite, and the storage.
    pub(super) title: String,
    /// The time of the measurement, and the program.
    pub(super) subtitle: String,
    /// The summary for hurried readers.
    pub(super) verdict: Verdict,
    /// In reading order.
    pub(super) sections: Vec<Section>,
}

/// The summary for hurried readers.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    /// What was measured, whether the result is good, and what would help; shown before all numbers.
    pub(super) lead: Vec<Lead>,
    /// The severity.
    pub(super) tone: Tone,
    /// Whether the numbers can be trusted, in a sentence or a few words; empty if the lead contains it.
    pub(super) says: String,
    /// The best of it.
    pub(super) headlines: Vec<Headline>,
    /// Caveats, one sentence each, the most severe first.
    pub(super) reservations: Vec<String>,
}

/// The answer to one of a reader's first questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lead {
    /// The question: `Is it good?`
    pub(super) about: &'static str,
    /// The answer, in a sentence or two.
    pub(super) says: String,
}

/// The severity, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tone {
    /// All is well.
    Good,
    /// Something needs attention, or a fix.
    Care,
    /// Something is missing, or unknown.
    Incomplete,
    /// The data was wrong: do not use the results.
    Bad,
}

/// A number in large letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Headline {
    /// The name of the number: `read`.
    pub(super) what: String,
    /// With its unit.
    pub(super) value: String,
    /// The cell, and the share of the limit.
    pub(super) note: String,
}

/// A part with a heading.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// Its name in links.
    pub(super) id: &'static str,
    /// Its heading.
    pub(super) title: &'static str,
    /// Its content.
    pub(super) blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, Debug)]
pub(super) enum Block {
    /// A heading within a section.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// Sentences, one per line.
    List(Vec<String>),
    /// For a shell.
    Command(String),
    /// A table.
    Table(Table),
    /// Curves, with a sentence about them, and their numbers. Markdown has the sentence and the numbers.
    Plot(Box<Plot>, String, Option<Table>),
    /// Bars, likewise, with the numbers next to them (in HTML; Markdown has the sentence only).
    Bars(Bars, String),
    /// Squares, likewise. Markdown omits them and their sentence: the numbers are in other tables.
    Heat(Heat, String),
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// The caption; empty if the section already explains it.
    pub(super) caption: String,
    /// The columns.
    pub(super) columns: Vec<Column>,
    /// The rows, each with as many cells as there are columns.
    pub(super) rows: Vec<Row>,
    /// Whether HTML shows only its title until the reader opens it. Markdown always shows the whole table.
    pub(super) folded: bool,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// With the unit.
    pub(super) title: String,
    /// Whether it contains numbers, which are right-aligned.
    pub(super) numbers: bool,
}

/// A row of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// Its cells.
    pub(super) cells: Vec<String>,
    /// Whether HTML highlights it, because something is wrong in it.
    pub(super) marked: bool,
}

impl Table {
    /// An empty table. Columns whose title begins with `#` contain numbers.
    pub(super) fn of(caption: &str, columns: &[&str]) -> Table {
        let column = |title: &&str| match title.strip_prefix('#') {
            Some(title) => Column { title: title.to_owned(), numbers: true },
            None => Column { title: (*title).to_owned(), numbers: false },
        };
        Table {
            caption: caption.to_owned(),
            columns: columns.iter().map(column).collect(),
            ..Table::default()
        }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(Row { cells: cells.into_iter().collect(), marked: false });
    }

    /// Adds a row, which HTML highlights if `marked`: something is wrong in it.
    pub(super) fn marked_row(&mut self, marked: bool, cells: impl IntoIterator<Item = String>) {
        self.rows.push(Row { cells: cells.into_iter().collect(), marked });
    }

    /// The same table, folded or not.
    pub(super) fn folded(mut self, folded: bool) -> Table {
        self.folded = folded;
        self
    }
}

impl Tone {
    /// As one character.
    pub(super) fn sign(self) -> char {
        match self {
            Tone::Good => '✓',
            Tone::Care => '!',
            Tone::Incomplete => '…',
            Tone::Bad => '✗',
        }
    }
}
