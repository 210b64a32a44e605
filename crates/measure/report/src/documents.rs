//! Formats the tables of the source documents as text, JSON and CSV.

use published::{Cell, Column, DOCUMENTS, Document, Row, Table, rows, tables};
use readable::figures::significant;
use serde_json::json;

use readable::table::{Align, Column as Fitting, hanging, rows_within};
use volume::spec::hint;

/// The number of letters from which a column heading wraps at a word boundary.
const HEAD_LETTERS: usize = 14;

/// Returns the document with this number. If there is none, the error contains suggestions.
fn document(number: &str) -> Result<Document, String> {
    let known = DOCUMENTS.map(|document| document.number);
    let found = DOCUMENTS
        .into_iter()
        .find(|document| document.number == number);
    found.ok_or_else(|| format!("unknown document `{number}`{}", hint(number, &known)))
}

/// Returns the tables whose name contains `name`, of one document or of all, together with their documents.
/// If `name` is the complete name of a table, only that table matches; otherwise "Table 1" would also match
/// "Table 10".
///
/// # Errors
/// There is no such document or table. The error contains suggestions.
pub fn chosen(
    number: Option<&str>,
    name: Option<&str>,
) -> Result<Vec<(Document, Vec<Table>)>, String> {
    let documents = match number {
        Some(number) => vec![document(number)?],
        None => DOCUMENTS.to_vec(),
    };
    let mut all: Vec<_> = documents
        .iter()
        .map(|document| (*document, tables(document.number)))
        .collect();
    let Some(name) = name else { return Ok(all) };
    let wanted = name.to_lowercase();
    let named: fn(&str, &str) -> bool = match all
        .iter()
        .flat_map(|(_, tables)| tables)
        .any(|table| table.name.to_lowercase() == wanted)
    {
        true => |table, wanted| table == wanted,
        false => |table, wanted| table.contains(wanted),
    };
    let names: Vec<String> = all
        .iter()
        .flat_map(|(_, tables)| tables)
        .map(|table| table.name.to_lowercase())
        .collect();
    all.iter_mut()
        .for_each(|(_, tables)| tables.retain(|table| named(&table.name.to_lowercase(), &wanted)));
    all.retain(|(_, tables)| !tables.is_empty());
    if all.is_empty() {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        return Err(format!("unknown table `{name}`{}", hint(name, &names)));
    }
    Ok(all)
}

/// Returns the rows on which tables are based.
pub fn numbers(chosen: &[(Document, Vec<Table>)]) -> Vec<&'static Row> {
    let wanted = |row: &&Row| {
        let of = chosen
            .iter()
            .find(|(document, _)| document.number == row.document);
        of.is_some_and(|(_, tables)| tables.iter().any(|table| table.holds(row)))
    };
    rows().iter().filter(wanted).collect()
}

/// Returns the description of a document, to be shown above its tables, in lines of up to `width` letters.
pub fn heading(document: &Document, width: usize) -> String {
    let Document {
        number,
        title,
        by,
        about,
    } = document;
    let parts = [
        (format!("{number}  "), title),
        ("     ".to_owned(), by),
        ("     ".to_owned(), about),
    ];
    let lines = parts
        .iter()
        .flat_map(|(mark, text)| hanging(mark, text, width));
    lines.map(|line| line + "\n").collect::<String>() + "\n"
}

/// Returns a table with its notes, in lines of up to `width` letters.
pub fn table(table: &Table, width: usize) -> String {
    let columns: Vec<Shown<'_>> = table
        .columns
        .iter()
        .enumerate()
        .flat_map(|at| shown(table, at))
        .collect();
    let mut heads: Vec<Vec<String>> = table
        .line_heads
        .iter()
        .map(|head| wrapped(head, HEAD_LETTERS))
        .collect();
    heads.extend(columns.iter().map(Shown::head));
    let height = heads.iter().map(Vec::len).max().unwrap_or(0);
    let head_line = |line: usize| {
        heads
            .iter()
            .map(|head| head.get(line).cloned().unwrap_or_default())
            .collect()
    };
    let mut rows: Vec<Vec<String>> = (0..height).map(head_line).collect();
    for line in &table.lines {
        let cells = columns
            .iter()
            .map(|column| column.text(line.cells[column.index].as_ref()));
        rows.push(line.heads.iter().cloned().chain(cells).collect());
    }
    let mut fitting = vec![
        Fitting {
            align: Align::Left,
            rank: 0
        };
        table.line_heads.len()
    ];
    fitting.extend(columns.iter().map(Shown::fitting));
    let names: Vec<String> = heads.iter().map(|head| head.join(" ")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut lines = hanging(&format!("{} · ", table.document), &table.name, width);
    if !table.common.is_empty() {
        lines.extend(hanging("", &table.common.join("; "), width));
    }
    lines.push(String::new());
    let room = width.saturating_sub(2);
    lines.extend(
        rows_within(&fitting, &rows, &names, room)
            .iter()
            .map(|line| format!("  {line}")),
    );
    for (index, note) in table.footnotes.iter().enumerate() {
        lines.extend(hanging(&format!("  {} ", mark(index)), note, width));
    }
    table
        .notes
        .iter()
        .for_each(|note| lines.extend(hanging("  ", note, width)));
    lines.join("\n") + "\n\n"
}

/// A displayed column: the document's numbers, or the same numbers converted to our unit.
struct Shown<'a> {
    column: &'a Column,
    index: usize,
    ours: bool,
    numbers: bool,
    /// The maximum number of footnote marks of a number in this column.
    marks_letters: usize,
}

/// Returns the document's column, followed by a column in our unit if the units differ.
fn shown<'a>(table: &Table, (index, column): (usize, &'a Column)) -> Vec<Shown<'a>> {
    let cells: Vec<&Cell> = table
        .lines
        .iter()
        .filter_map(|line| line.cells[index].as_ref())
        .collect();
    let numbers = cells.iter().all(|cell| cell.row.si.is_some());
    let marks_letters = cells
        .iter()
        .map(|cell| marks(&cell.footnotes).chars().count())
        .max()
        .unwrap_or(0);
    let theirs = Shown {
        column,
        index,
        ours: false,
        numbers,
        marks_letters,
    };
    let differ = cells.iter().any(|cell| cell.megabytes_per_s().is_some());
    let ours = Shown {
        column,
        index,
        ours: true,
        numbers,
        marks_letters: 0,
    };
    if differ {
        vec![theirs, ours]
    } else {
        vec![theirs]
    }
}

impl Shown<'_> {
    /// Returns the alignment of the column, and the condition under which it is omitted. Converted numbers
    /// follow from the document's, so they are omitted first if there is not enough space.
    fn fitting(&self) -> Fitting {
        let align = if self.numbers {
            Align::Right
        } else {
            Align::Left
        };
        Fitting {
            align,
            rank: if self.ours { 2 } else { 1 },
        }
    }

    fn head(&self) -> Vec<String> {
        if self.ours {
            return vec!["= MB/s".to_owned()];
        }
        let mut head = wrapped(&self.column.head, HEAD_LETTERS);
        head.extend(self.column.unit.clone().filter(|unit| !unit.is_empty()));
        if let Some(last) = head.last_mut() {
            *last += &marks(&self.column.footnotes);
        }
        head
    }

    fn text(&self, cell: Option<&Cell>) -> String {
        let Some(cell) = cell else {
            return String::new();
        };
        if self.ours {
            return cell.megabytes_per_s().map_or_else(String::new, significant);
        }
        let unit = match (&self.column.unit, cell.row.unit.as_str()) {
            (Some(_), _) | (None, "") => String::new(),
            (None, unit) => format!(" {unit}"),
        };
        let marks = marks(&cell.footnotes);
        // Pad the marks, so that numbers with and without marks are aligned.
        let room = if self.numbers { self.marks_letters } else { 0 };
        format!("{}{unit}{marks:<room$}", cell.row.printed)
    }
}

/// Wraps words into lines of up to this number of letters, if possible.
fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn marks(footnotes: &[usize]) -> String {
    footnotes.iter().map(|index| mark(*index)).collect()
}

/// Returns a footnote mark. It is a superscript letter, because a digit would look like an exponent.
fn mark(index: usize) -> String {
    const LETTERS: [char; 16] = [
        'ᵃ', 'ᵇ', 'ᶜ', 'ᵈ', 'ᵉ', 'ᶠ', 'ᵍ', 'ʰ', 'ⁱ', 'ʲ', 'ᵏ', 'ˡ', 'ᵐ', 'ⁿ', 'ᵒ', 'ᵖ',
    ];
    LETTERS
        .get(index)
        .map_or_else(|| format!("[{}]", index + 1), char::to_string)
}

/// Returns every number as a JSON object.
///
/// # Errors
/// There are none in practice, since all numbers are finite.
pub fn json(rows: &[&Row]) -> serde_json::Result<String> {
    let text = serde_json::to_string_pretty(&json!({ "version": 1, "published": rows }));
    text.map(|text| text + "\n")
}

/// Returns every number as a line of CSV. The last two columns contain its value in base units.
pub fn csv(rows: &[&Row]) -> Result<String, csv::Error> {
    const COLUMNS: &str = "document,table,system,test,direction,pattern,block_bytes,block_bytes_max,depth,rtt_ms,tcp_window_bytes,\
                           metric,unit,printed,note,si_value,si_unit";
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(COLUMNS.split(','))?;
    for row in rows {
        let some =
            |number: Option<u32>| number.map_or_else(String::new, |number| number.to_string());
        let fields: [&str; 17] = [
            &row.document,
            &row.table,
            &row.system,
            &row.test,
            &row.direction
                .map_or_else(String::new, |direction| direction.to_string()),
            &row.pattern,
            &some(row.block_bytes),
            &some(row.block_bytes_max),
            &some(row.depth),
            &row.rtt_ms.map_or_else(String::new, |rtt| rtt.to_string()),
            &some(row.tcp_window_bytes),
            &row.metric,
            &row.unit,
            &row.printed,
            &row.note,
            &row.si.map_or_else(String::new, |si| si.value.to_string()),
            &row.si.map_or_else(String::new, |si| si.unit.to_string()),
        ];
        table.write_record(fields)?;
    }
    let bytes = table.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use published::{rows, tables};

    use super::*;

    fn lines(document: &str, name: &str) -> Vec<String> {
        let table = tables(document)
            .into_iter()
            .find(|table| table.name == name)
            .expect("the table");
        super::table(&table, 1000)
            .lines()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn a_table_stands_as_in_its_document() {
        let lines = lines("002", "iSCSI Throughput: Gigabit Ethernet LAN");
        let of_64k = lines
            .iter()
            .position(|line| line.contains("64 KiB"))
            .expect("a line for 64 KiB");
        let numbers = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            numbers(&lines[of_64k]),
            ["64", "KiB", "1", "56.1", "65.9", "61.3"]
        );
        assert_eq!(
            numbers(&lines[of_64k + 1]),
            ["64", "KiB", "32", "96.5", "99.8", "91.9"]
        );
    }

    #[test]
    fn another_unit_than_ours_has_ours_beside_it() {
        let lines = lines("001", "Super ATTO Clone pattern");
        let of_32k = lines
            .iter()
            .find(|line| line.contains("32 KiB"))
            .expect("a line for 32 KiB");
        // These are 37.686 and 9.828 multiplied by 1.048576.
        assert_eq!(
            of_32k.split_whitespace().collect::<Vec<_>>()[2..],
            ["37.686", "39.5", "9.828", "10.3"]
        );
    }

    #[test]
    fn no_table_is_wider_than_the_terminal() {
        for document in published::DOCUMENTS {
            for width in [80, 120, 160] {
                let mut text = heading(&document, width);
                tables(document.number)
                    .iter()
                    .for_each(|table| text += &super::table(table, width));
                for line in text.lines() {
                    assert!(line.chars().count() <= width, "{width}: {line}");
                }
            }
        }
    }

    #[test]
    fn csv_reads_back() {
        let all: Vec<&Row> = rows().iter().collect();
        let text = csv(&all).expect("a table");
        assert_eq!(text.lines().count(), 1 + all.len());
        assert!(text.contains("000,Table 2,\"SLES 10 SP1 initiator+target (IET), 2x Dell"));
        assert!(text.contains(",114.0,count reduced to 100 (RAM drive too small),114000000,B/s\n"));
    }

    fn names(document: Option<&str>, table: Option<&str>) -> Result<Vec<String>, String> {
        let chosen = chosen(document, table)?;
        Ok(chosen
            .into_iter()
            .flat_map(|(_, tables)| tables)
            .map(|table| table.name)
            .collect())
    }

    #[test]
    fn what_is_not_there_is_named_with_what_is() {
        let document = names(Some("005"), None).expect_err("no such document");
        assert_eq!(document, "unknown document `005`; did you mean `000`?");
        let table = names(Some("002"), Some("iSCSI Throughput: Read")).expect("part of a name");
        assert_eq!(table, ["iSCSI Throughput: Reads"]);
        let table = names(Some("000"), Some("Tabel 2")).expect_err("a slip");
        assert_eq!(table, "unknown table `Tabel 2`; did you mean `table 2`?");
    }

    #[test]
    fn a_whole_name_is_one_table() {
        assert_eq!(
            names(Some("000"), Some("table 1")),
            Ok(vec!["Table 1".to_owned()])
        );
        assert_eq!(
            names(None, Some("Appendix B")).map(|names| names.len()),
            Ok(3)
        );
    }

    #[test]
    fn the_numbers_of_a_table_are_its_rows() {
        let numbers = numbers(&chosen(Some("000"), Some("Table 2")).expect("a table"));
        assert_eq!(numbers.len(), 22);
    }
}
