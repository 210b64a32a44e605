//! The tables of the documents with their layout, which arranges rows of numbers in lines and columns.

use std::collections::BTreeSet;

use super::document::{Megabyte, megabyte};
use super::row::{Row, Unit};

/// A table of a document.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The number of the document.
    pub document: String,
    /// The name of the table in the document.
    pub name: String,
    /// The properties that all numbers of the table have in common: system, direction, depth, ….
    pub common: Vec<String>,
    /// The headings of the lines: `block`, `depth`, ….
    pub line_heads: Vec<&'static str>,
    /// The columns.
    pub columns: Vec<Column>,
    /// The lines. Each line has a cell for each column.
    pub lines: Vec<Line>,
    /// Notes on single cells or columns, which refer to the notes by their index in this list.
    pub footnotes: Vec<String>,
    /// Notes on the whole table.
    pub notes: Vec<String>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The heading of the column.
    pub head: String,
    /// The common unit of the column's numbers, if there is one.
    pub unit: Option<String>,
    /// The footnotes that apply to all numbers of the column.
    pub footnotes: Vec<usize>,
}

/// A line of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The headings of the line, one for each of [`Table::line_heads`].
    pub heads: Vec<String>,
    /// The cells, one for each of [`Table::columns`]; `None` if the document has no number.
    pub cells: Vec<Option<Cell>>,
}

/// A number in a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The number, with its unit and the conditions of its measurement.
    pub row: &'static Row,
    /// The footnotes that apply only to this cell.
    pub footnotes: Vec<usize>,
}

impl Cell {
    /// Returns megabytes (10^6 bytes) per second, if the document uses another unit.
    pub fn megabytes_per_s(&self) -> Option<f64> {
        let si = self.row.si.filter(|si| si.unit == Unit::BytesPerSecond)?;
        let megabytes = si.value / 1e6;
        // If the digits are the same, the unit is the same. One part in a million is far below the precision
        // of any printed number.
        let same = self
            .row
            .printed
            .parse()
            .is_ok_and(|printed: f64| (printed / megabytes - 1.0).abs() < 1e-6);
        (!same).then_some(megabytes)
    }
}

impl Table {
    /// Whether this row belongs to the table.
    pub fn holds(&self, row: &Row) -> bool {
        row.document == self.document && name(row) == self.name
    }
}

/// A property that distinguishes a number from the others of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Table,
    System,
    Test,
    Direction,
    Pattern,
    Block,
    Depth,
    Rtt,
    Metric,
}

impl Key {
    fn head(self) -> &'static str {
        match self {
            Key::Table => "where",
            Key::System => "system",
            Key::Test => "test",
            Key::Direction => "direction",
            Key::Pattern => "pattern",
            Key::Block => "block",
            Key::Depth => "depth",
            Key::Rtt => "round trip",
            Key::Metric => "what",
        }
    }

    fn of(self, row: &Row) -> String {
        match self {
            Key::Table => row.table.clone(),
            Key::System => row.system.clone(),
            Key::Test => row.test.clone(),
            Key::Direction => row
                .direction
                .map_or_else(String::new, |direction| direction.to_string()),
            Key::Pattern => row.pattern.clone(),
            Key::Block => match (row.block_bytes, row.block_bytes_max) {
                (Some(least), Some(most)) => format!("{} to {}", size(least), size(most)),
                (length, _) => length.map_or_else(String::new, size),
            },
            Key::Depth => row
                .depth
                .map_or_else(String::new, |depth| depth.to_string()),
            Key::Rtt => row
                .rtt_ms
                .map_or_else(String::new, |rtt| format!("{rtt} ms")),
            Key::Metric => row.metric.replace('_', " "),
        }
    }

    /// Formats a property as a statement about a whole table.
    fn said_of_all(self, value: &str) -> Option<String> {
        match self {
            Key::Table => None,
            _ if value.is_empty() => None,
            Key::Block => Some(format!("{value} requests")),
            Key::Depth => Some(format!("depth {value}")),
            Key::Rtt => Some(format!("{value} round trip")),
            Key::System | Key::Test | Key::Direction | Key::Pattern | Key::Metric => {
                Some(value.to_owned())
            }
        }
    }
}

const KEYS: [Key; 9] = [
    Key::Table,
    Key::System,
    Key::Test,
    Key::Direction,
    Key::Pattern,
    Key::Block,
    Key::Depth,
    Key::Rtt,
    Key::Metric,
];

/// The layout of a table. Single numbers in the text of 003 form one table.
struct Layout {
    name: &'static str,
    lines: &'static [Key],
    columns: &'static [Key],
}

fn layout(row: &Row) -> Layout {
    let at = |lines, columns| Layout {
        name: "",
        lines,
        columns,
    };
    match (row.document.as_str(), row.table.as_str()) {
        ("000", "Cabling Issues (unnumbered)") => at(&[Key::System], &[Key::Test]),
        ("000", "Table 7") => at(&[Key::Block], &[Key::Pattern]),
        ("000", table) if table.starts_with("Table") => at(&[Key::Block], &[Key::Test]),
        ("000", "negotiated/configured iSCSI parameters") => at(&[Key::Metric], &[Key::System]),
        ("000", _) => at(&[Key::Test, Key::System], &[]),
        ("001", "Super ATTO Clone pattern") => at(&[Key::Block], &[Key::Direction]),
        ("001", "text") => at(&[Key::Test], &[]),
        ("001", _) => at(&[Key::Test, Key::Block], &[Key::Metric]),
        ("002", table) if table.starts_with("TCP") => at(&[Key::Direction], &[Key::Rtt]),
        ("002", table) if table.ends_with("LAN") => at(&[Key::Block, Key::Depth], &[Key::Pattern]),
        ("002", _) => at(&[Key::Block, Key::Depth], &[Key::Rtt]),
        ("003", "Appendix A") => at(&[Key::Test], &[]),
        ("003", "Appendix B summary") => at(&[Key::Direction], &[]),
        ("003", table) if table.starts_with("Appendix") || table.starts_with("Ack") => {
            at(&[Key::Metric], &[])
        }
        ("003", _) => Layout {
            name: "Results in figures 4 to 9 and in the text",
            ..at(&[Key::Table, Key::Test, Key::Block], &[])
        },
        ("004", "text") => at(&[Key::Test, Key::System], &[]),
        _ => at(&[Key::System, Key::Metric], &[Key::Test]),
    }
}

/// Returns the tables of a document's rows, in order.
pub(super) fn of(rows: impl Iterator<Item = &'static Row>) -> Vec<Table> {
    let mut tables: Vec<(String, Vec<&'static Row>)> = Vec::new();
    for row in rows {
        let name = name(row);
        match tables.iter_mut().find(|(known, _)| known == name) {
            Some((_, rows)) => rows.push(row),
            None => tables.push((name.to_owned(), vec![row])),
        }
    }
    tables
        .into_iter()
        .map(|(name, rows)| table(name, &rows))
        .collect()
}

fn name(row: &Row) -> &str {
    match layout(row).name {
        "" => &row.table,
        name => name,
    }
}

fn table(name: String, rows: &[&'static Row]) -> Table {
    let Layout { lines, columns, .. } = layout(rows[0]);
    let (common, shortened) = common(rows, &[lines, columns].concat());
    let head = |keys: &[Key], row: &Row| -> Vec<String> {
        keys.iter()
            .map(|key| shortened.short(*key, key.of(row)))
            .collect()
    };
    let line_heads = distinct(rows.iter().map(|row| head(lines, row)));
    let column_heads = distinct(rows.iter().map(|row| head(columns, row)));
    let place = |row: &Row| {
        (
            index(&line_heads, &head(lines, row)),
            index(&column_heads, &head(columns, row)),
        )
    };
    let places: Vec<(usize, usize)> = rows.iter().map(|row| place(row)).collect();
    let columns_of_rows: Vec<usize> = places.iter().map(|(_, column)| *column).collect();
    let mut notes = Notes::of(rows, &columns_of_rows, column_heads.len());
    let mut cells = vec![vec![None; column_heads.len()]; line_heads.len()];
    for ((row, (line, column)), footnotes) in rows.iter().zip(places).zip(notes.on_row.drain(..)) {
        cells[line][column] = Some(Cell { row, footnotes });
    }
    let column = |(index, head): (usize, &Vec<String>)| Column {
        head: head.join(", "),
        unit: one(cells
            .iter()
            .filter_map(|line| line[index].as_ref().map(|cell| cell.row.unit.clone()))),
        footnotes: notes.on_column[index].clone(),
    };
    Table {
        document: rows[0].document.clone(),
        common,
        line_heads: lines.iter().map(|key| key.head()).collect(),
        columns: column_heads.iter().enumerate().map(column).collect(),
        lines: line_heads
            .into_iter()
            .zip(cells)
            .map(|(heads, cells)| Line { heads, cells })
            .collect(),
        footnotes: notes.foot,
        notes: notes.below.into_iter().chain(megabytes(rows)).collect(),
        name,
    }
}

/// Explains the document's megabytes, if a table contains any.
fn megabytes(rows: &[&Row]) -> Option<String> {
    let row = rows.iter().find(|row| row.unit == "MB/s")?;
    let megabyte: Megabyte = megabyte(&row.document, &row.table);
    Some(megabyte.why().to_owned())
}

/// Prefixes that the names of all systems in a table share, and that are shown only once.
struct Shortened(Vec<(Key, String)>);

impl Shortened {
    fn short(&self, key: Key, value: String) -> String {
        let beginning = self.0.iter().find(|(known, _)| *known == key);
        match beginning.and_then(|(_, beginning)| value.strip_prefix(beginning.as_str())) {
            Some(rest) => rest.to_owned(),
            None => value,
        }
    }
}

/// Returns the properties that all rows have in common, except those that the layout shows anyway.
fn common(rows: &[&Row], shown: &[Key]) -> (Vec<String>, Shortened) {
    let mut common = Vec::new();
    let mut shortened = Vec::new();
    for key in KEYS {
        let values = distinct(rows.iter().map(|row| key.of(row)));
        match values.as_slice() {
            [value] if !shown.contains(&key) => common.extend(key.said_of_all(value)),
            [first, rest @ ..] if key == Key::System && !rest.is_empty() => {
                let beginning = shared_beginning(first, rest);
                if !beginning.is_empty() {
                    common.push(beginning.trim_end_matches(", ").to_owned());
                    shortened.push((key, beginning.to_owned()));
                }
            }
            _ => {}
        }
    }
    (distinct(common.into_iter()), Shortened(shortened))
}

/// Returns the longest common prefix that ends with a comma.
fn shared_beginning<'a>(first: &'a str, rest: &[String]) -> &'a str {
    let ends = first
        .match_indices(", ")
        .map(|(at, comma)| &first[..at + comma.len()]);
    ends.filter(|beginning| rest.iter().all(|other| other.starts_with(beginning)))
        .last()
        .unwrap_or("")
}

/// The notes of a table, on the table itself, on columns, or on cells. Notes on exactly the same numbers are
/// merged.
struct Notes {
    below: Vec<String>,
    foot: Vec<String>,
    on_column: Vec<Vec<usize>>,
    on_row: Vec<Vec<usize>>,
}

impl Notes {
    /// Creates the notes of these rows, whose columns are `columns_of_rows`.
    fn of(rows: &[&Row], columns_of_rows: &[usize], columns: usize) -> Notes {
        let mut notes = Notes {
            below: Vec::new(),
            foot: Vec::new(),
            on_column: vec![Vec::new(); columns],
            on_row: vec![Vec::new(); rows.len()],
        };
        for (note, noted) in by_numbers(rows) {
            if noted.len() == rows.len() {
                notes.below.push(note);
                continue;
            }
            let of_columns: BTreeSet<usize> =
                noted.iter().map(|row| columns_of_rows[*row]).collect();
            let in_these = columns_of_rows
                .iter()
                .filter(|column| of_columns.contains(column))
                .count();
            let footnote = notes.foot.len();
            notes.foot.push(note);
            if in_these == noted.len() {
                of_columns
                    .iter()
                    .for_each(|column| notes.on_column[*column].push(footnote));
            } else {
                noted
                    .iter()
                    .for_each(|row| notes.on_row[*row].push(footnote));
            }
        }
        notes
    }
}

/// Returns each note with the indices of its rows. Notes on the same rows are merged.
fn by_numbers(rows: &[&Row]) -> Vec<(String, Vec<usize>)> {
    let mut notes: Vec<(String, Vec<usize>)> = Vec::new();
    for part in distinct(rows.iter().flat_map(|row| parts(&row.note))) {
        let noted: Vec<usize> = (0..rows.len())
            .filter(|row| parts(&rows[*row].note).any(|other| other == part))
            .collect();
        match notes
            .iter_mut()
            .find(|(_, known)| *known == noted && noted.len() < rows.len())
        {
            Some((note, _)) => *note += &format!("; {part}"),
            None => notes.push((part.to_owned(), noted)),
        }
    }
    notes
}

/// Splits a note at semicolons outside parentheses.
fn parts(note: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    let split = note.split(move |letter: char| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        letter == ';' && depth == 0
    });
    split.map(str::trim).filter(|part| !part.is_empty())
}

/// Returns the values without duplicates, in order of appearance.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    all.for_each(|one| {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    });
    distinct
}

fn index<T: PartialEq>(all: &[T], one: &T) -> usize {
    // The caller created the list from the same rows.
    all.iter()
        .position(|known| known == one)
        .expect("a value of these rows")
}

/// Returns the common value, if there is exactly one.
fn one(all: impl Iterator<Item = String>) -> Option<String> {
    let mut distinct = distinct(all);
    if distinct.len() == 1 {
        distinct.pop()
    } else {
        None
    }
}

fn size(bytes: u32) -> String {
    match bytes {
        at_least if at_least >= 1 << 20 => format!("{} MiB", f64::from(bytes) / f64::from(1 << 20)),
        at_least if at_least >= 1 << 10 => format!("{} KiB", f64::from(bytes) / 1024.0),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use crate::{DOCUMENTS, Table, rows, tables};

    fn named(document: &str, name: &str) -> Table {
        tables(document)
            .into_iter()
            .find(|table| table.name == name)
            .expect("the table")
    }

    #[test]
    fn every_number_is_shown_exactly_once() {
        for document in DOCUMENTS {
            let tables = tables(document.number);
            let cells = tables
                .iter()
                .flat_map(|table| &table.lines)
                .flat_map(|line| line.cells.iter().flatten());
            let shown: Vec<&str> = cells.map(|cell| cell.row.printed.as_str()).collect();
            let rows = rows().iter().filter(|row| row.document == document.number);
            assert_eq!(shown.len(), rows.count(), "{}", document.number);
        }
    }

    #[test]
    fn a_table_has_the_documents_lines_and_columns() {
        let table = named("002", "iSCSI Throughput: Reads");
        let heads: Vec<&str> = table
            .columns
            .iter()
            .map(|column| column.head.as_str())
            .collect();
        assert_eq!(heads, ["0 ms", "2 ms", "10 ms", "50 ms"]);
        assert_eq!(table.line_heads, ["block", "depth"]);
        assert_eq!(table.lines[0].heads, ["1 KiB", "1"]);
        assert_eq!(table.lines[7].heads, ["256 KiB", "32"]);
        let last = table.lines[7].cells[3].as_ref().expect("a number");
        assert_eq!(
            (last.row.printed.as_str(), last.megabytes_per_s()),
            ("19.3", None)
        );
    }

    #[test]
    fn what_all_of_a_table_has_in_common_is_said_once() {
        let table = named("000", "Cabling Issues (unnumbered)");
        let cables: Vec<&str> = table
            .lines
            .iter()
            .map(|line| line.heads[0].as_str())
            .collect();
        assert_eq!(
            cables,
            [
                "direct straight cable Cat 5 5ft",
                "direct straight cable Cat 6 25ft"
            ]
        );
        assert!(
            table.common.iter().any(|said| said == "depth 1"),
            "{:?}",
            table.common
        );
    }

    #[test]
    fn a_note_stands_where_it_belongs() {
        let dd = named("000", "Table 2");
        let reduced = dd
            .footnotes
            .iter()
            .position(|note| note.contains("count reduced"))
            .expect("the note");
        let marked = |line: usize| {
            dd.lines[line].cells[0]
                .as_ref()
                .expect("a number")
                .footnotes
                .contains(&reduced)
        };
        assert_eq!([6, 7, 10].map(marked), [false, true, true]);

        let cern = named("004", "3.2 HyperSCSI and ENBD");
        assert!(
            cern.columns
                .iter()
                .all(|column| column.footnotes.len() == 1),
            "{:?}",
            cern.columns
        );
    }

    #[test]
    fn other_megabytes_than_ours_are_counted_again() {
        let table = named("000", "Table 4");
        let first = table.lines[0].cells[0].as_ref().expect("a number");
        let ours = first.megabytes_per_s().expect("another unit");
        assert!((ours - 19.844 * 1.024).abs() < 1e-9, "{ours}");
    }
}
