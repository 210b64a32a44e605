//! The content of a report before it is formatted as HTML or Markdown: sections of texts, tables and figures.
//! The terminal summary uses only the verdict.

use super::chart::{Bars, Heat, Plot};

/// The content of a report.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// The names of the suite and of the storage.
    pub(super) title: String,
    /// The time of the measurement, and the version of the program.
    pub(super) subtitle: String,
    /// The summary at the start.
    pub(super) verdict: Verdict,
    /// The sections, in reading order.
    pub(super) sections: Vec<Section>,
}

/// The summary at the start of a report.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    /// Answers to the first questions, shown before all numbers: the measured storage, whether the result is
    /// good, and possible improvements.
    pub(super) lead: Vec<Lead>,
    /// The severity.
    pub(super) tone: Tone,
    /// Whether the numbers can be trusted, in a sentence or a few words. Empty if the lead contains this.
    pub(super) says: String,
    /// The most important numbers.
    pub(super) headlines: Vec<Headline>,
    /// Reservations, one sentence each, the most severe first.
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
    /// There is no problem.
    Good,
    /// Something needs attention or a fix.
    Care,
    /// A value is missing or unknown.
    Incomplete,
    /// The data was wrong, so the results must not be used.
    Bad,
}

/// A number in large letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Headline {
    /// The name of the number: `read`.
    pub(super) what: String,
    /// The number with its unit.
    pub(super) value: String,
    /// The cell of the number, and its share of the limit.
    pub(super) note: String,
}

/// A section with a heading.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// The name of the section in links.
    pub(super) id: &'static str,
    /// The heading.
    pub(super) title: &'static str,
    /// The content.
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
    /// A command line for a shell.
    Command(String),
    /// A table.
    Table(Table),
    /// Curves, with a sentence about them and a table of their numbers. Markdown contains the sentence and
    /// the table.
    Plot(Box<Plot>, String, Option<Table>),
    /// Bars, with a sentence about them. In HTML, the numbers are next to the bars; Markdown contains only
    /// the sentence.
    Bars(Bars, String),
    /// Squares, with a sentence about them. Markdown omits both, since other tables contain the numbers.
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
    /// Whether HTML shows only the caption until the reader opens the table. Markdown always shows the whole
    /// table.
    pub(super) folded: bool,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// The title, with the unit.
    pub(super) title: String,
    /// Whether it contains numbers, which are right-aligned.
    pub(super) numbers: bool,
}

/// A row of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// The cells.
    pub(super) cells: Vec<String>,
    /// Whether HTML highlights the row because it shows a problem.
    pub(super) marked: bool,
}

impl Table {
    /// Creates an empty table. Columns whose title starts with `#` contain numbers.
    pub(super) fn of(caption: &str, columns: &[&str]) -> Table {
        let column = |title: &&str| match title.strip_prefix('#') {
            Some(title) => Column {
                title: title.to_owned(),
                numbers: true,
            },
            None => Column {
                title: (*title).to_owned(),
                numbers: false,
            },
        };
        Table {
            caption: caption.to_owned(),
            columns: columns.iter().map(column).collect(),
            ..Table::default()
        }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(Row {
            cells: cells.into_iter().collect(),
            marked: false,
        });
    }

    /// Adds a row. If `marked`, HTML highlights it because it shows a problem.
    pub(super) fn marked_row(&mut self, marked: bool, cells: impl IntoIterator<Item = String>) {
        self.rows.push(Row {
            cells: cells.into_iter().collect(),
            marked,
        });
    }

    /// Sets whether the table is folded.
    pub(super) fn folded(mut self, folded: bool) -> Table {
        self.folded = folded;
        self
    }
}

impl Tone {
    /// Returns a character that represents the severity.
    pub(super) fn sign(self) -> char {
        match self {
            Tone::Good => '✓',
            Tone::Care => '!',
            Tone::Incomplete => '…',
            Tone::Bad => '✗',
        }
    }
}
