//! Tables as aligned text, with the width of their cells or of a terminal.

/// The alignment of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Padded on the right.
    Left,
    /// Padded on the left.
    Right,
}

/// The gap between two columns.
const GAP: &str = "  ";

/// A line for each row, without trailing blanks.
pub fn lines<const N: usize>(columns: [Align; N], rows: &[[String; N]]) -> Vec<String> {
    rows_of(&columns, rows)
}

/// Like [`lines`], for a number of columns that is not known at compile time. Every row has one cell for each
/// column.
pub fn rows_of<R: AsRef<[String]>>(columns: &[Align], rows: &[R]) -> Vec<String> {
    let widest = |column: usize| {
        rows.iter()
            .map(|row| row.as_ref()[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(widest).collect();
    let line = |row: &R| {
        let cells = columns.iter().zip(&widths).zip(row.as_ref());
        let cells: Vec<String> = cells
            .map(|((align, width), cell)| match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            })
            .collect();
        cells.join(GAP).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// The terminal width for [`pairs`].
const PAIRS_WIDTH: usize = 80;

/// Formats two columns, names and values, as one text in which each line starts with `indent`. A value wraps
/// between words to fit a terminal of 80 columns; words are never broken.
pub fn pairs<K: Into<String>, V: Into<String>>(
    indent: &str,
    pairs: impl IntoIterator<Item = (K, V)>,
) -> String {
    let rows: Vec<[String; 2]> = pairs
        .into_iter()
        .map(|(name, value)| [name.into(), value.into()])
        .collect();
    let widest = rows
        .iter()
        .map(|[name, _]| name.chars().count())
        .max()
        .unwrap_or(0);
    let room = PAIRS_WIDTH.saturating_sub(indent.len() + widest + GAP.len());
    let folded = |[name, value]: [String; 2]| {
        let mut names = std::iter::once(name).chain(std::iter::repeat(String::new()));
        folded(&value, room)
            .into_iter()
            .map(|line| [names.next().unwrap_or_default(), line])
            .collect::<Vec<_>>()
    };
    let rows: Vec<[String; 2]> = rows.into_iter().flat_map(folded).collect();
    lines([Align::Left; 2], &rows)
        .iter()
        .map(|line| format!("{indent}{line}\n"))
        .collect()
}

/// Wraps a text into lines of at most `width` characters, unless a word is longer. A text that fits is unchanged.
fn folded(text: &str, width: usize) -> Vec<String> {
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines
            .last_mut()
            .filter(|line| line.chars().count() + 1 + word.chars().count() <= width)
        {
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A column of a table with a limited width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The alignment of its cells. Left-aligned cells are text, which wraps; right-aligned ones are figures.
    pub align: Align,
    /// If the columns do not all fit, the one with the highest rank is omitted first; those with rank 0 are
    /// always kept.
    pub rank: u8,
}

/// A table with a limited width. Cells are never truncated: text wraps, and columns are omitted as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FittedTable {
    /// The lines of each row.
    pub rows: Vec<Vec<String>>,
    /// The indexes of omitted columns.
    pub left_out: Vec<usize>,
}

impl FittedTable {
    /// A note that names the omitted columns, and states where to find them. Columns without a name are not
    /// mentioned.
    pub fn note(&self, names: &[&str]) -> Option<String> {
        let names = self.left_out.iter().map(|column| names[*column]);
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        let note = || {
            format!(
                "no space for {}; use a wider terminal or JSON",
                names.join(", ")
            )
        };
        (!names.is_empty()).then(note)
    }
}

/// Minimum width of text columns before a column is omitted.
const TEXT_MIN: usize = 16;

/// Lays out every row in lines of at most `width` characters, without trailing blanks. A row has one cell for
/// each column.
pub fn fitted<R: AsRef<[String]>>(columns: &[Column], rows: &[R], width: usize) -> FittedTable {
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let natural = |column: usize| {
        rows.iter()
            .map(|row| row.as_ref()[column].chars().count())
            .max()
            .unwrap_or(0)
            .clamp(1, width.max(1))
    };
    let natural: Vec<usize> = (0..columns.len()).map(natural).collect();
    let least = |column: usize| match columns[column].align {
        Align::Left => natural[column].min(TEXT_MIN),
        Align::Right => natural[column],
    };
    let gaps = |shown: &[usize]| GAP.len() * shown.len().saturating_sub(1);
    while gaps(&shown) + shown.iter().map(|column| least(*column)).sum::<usize>() > width {
        let last = shown
            .iter()
            .enumerate()
            .max_by_key(|(at, column)| (columns[**column].rank, *at));
        match last {
            Some((at, column)) if columns[*column].rank > 0 => drop(shown.remove(at)),
            _ => break,
        }
    }
    let mut widths: Vec<usize> = shown.iter().map(|column| natural[*column]).collect();
    let room = width.saturating_sub(gaps(&shown));
    // The widest column shrinks first: text to its minimum width, and, if that is not enough, any column to
    // one character.
    let least: Vec<usize> = shown.iter().map(|column| least(*column)).collect();
    let floors = [least, vec![1; shown.len()]];
    for floor in floors {
        while widths.iter().sum::<usize>() > room {
            let wide = (0..widths.len()).filter(|at| widths[*at] > floor[*at]);
            match wide.max_by_key(|at| widths[*at]) {
                Some(widest) => widths[widest] -= 1,
                None => break,
            }
        }
    }
    let left_out = (0..columns.len())
        .filter(|column| !shown.contains(column))
        .collect();
    let lines = |row: &R| {
        let cells = shown.iter().zip(&widths);
        let cells: Vec<Vec<String>> = cells
            .map(|(column, width)| wrapped(&row.as_ref()[*column], *width))
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let line = |at: usize| {
            let aligned = shown
                .iter()
                .zip(&widths)
                .zip(&cells)
                .map(|((column, width), cell)| {
                    let part = cell.get(at).map_or("", String::as_str);
                    match columns[*column].align {
                        Align::Left => format!("{part:<width$}"),
                        Align::Right => format!("{part:>width$}"),
                    }
                });
            aligned.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
        };
        (0..height).map(line).collect()
    };
    FittedTable {
        rows: rows.iter().map(lines).collect(),
        left_out,
    }
}

/// Lays out rows like [`rows_of`] if they fit into `width`, otherwise like [`fitted`], followed by a line
/// that names the omitted columns.
pub fn rows_within<R: AsRef<[String]>>(
    columns: &[Column],
    rows: &[R],
    names: &[&str],
    width: usize,
) -> Vec<String> {
    let aligned: Vec<Align> = columns.iter().map(|column| column.align).collect();
    let lines = rows_of(&aligned, rows);
    if lines.iter().all(|line| line.chars().count() <= width) {
        return lines;
    }
    let table = fitted(columns, rows, width);
    let note = table
        .note(names)
        .map_or_else(Vec::new, |note| hanging("", &note, width));
    table.rows.concat().into_iter().chain(note).collect()
}

/// Minimum length of the last part of a broken word: a single letter on the last line would be misread.
const REST_MIN: usize = 3;

/// Wraps a text into lines of at most `width` characters; returns at least one line. Lines are broken at
/// spaces if possible, otherwise after punctuation, otherwise anywhere.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let (mut lines, mut line, mut letters) = (Vec::new(), String::new(), 0);
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        if letters > 0 && letters + 1 + word.len() <= width {
            line.push(' ');
            letters += 1;
        } else if letters > 0 {
            lines.push(std::mem::take(&mut line));
            letters = 0;
        }
        while word.len() > width {
            let most = width.min(word.len().saturating_sub(REST_MIN)).max(1);
            let last = word[..most]
                .iter()
                .rposition(|letter| letter.is_ascii_punctuation());
            let rest = word.split_off(last.filter(|at| *at > 0).map_or(most, |at| at + 1));
            lines.push(std::mem::replace(&mut word, rest).into_iter().collect());
        }
        letters += word.len();
        line.extend(word);
    }
    if letters > 0 || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// Wraps a sentence into lines of at most `width` characters. The first line starts with `mark`; the others
/// are indented to match.
pub fn hanging(mark: &str, text: &str, width: usize) -> Vec<String> {
    let indent = mark.chars().count();
    let lines = wrapped(text, width.saturating_sub(indent))
        .into_iter()
        .enumerate();
    lines
        .map(|(at, line)| {
            if at == 0 {
                format!("{mark}{line}")
            } else {
                format!("{:indent$}{line}", "")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell_in_letters() {
        let rows = [["π".into(), "1".into()], ["long".into(), "1,234".into()]];
        assert_eq!(
            lines([Align::Left, Align::Right], &rows),
            ["π         1", "long  1,234"]
        );
    }

    #[test]
    fn a_table_without_room_wraps_text_and_then_loses_what_is_least_important() {
        let (text, figure) = (Align::Left, Align::Right);
        let columns = [(text, 0), (figure, 0), (figure, 2), (figure, 1)];
        let columns = columns.map(|(align, rank)| Column { align, rank });
        let row = ["random-read-4KiB-depth-64", "61,097", "109.2", "1.56 µs"].map(str::to_owned);
        let at = |width| {
            let FittedTable { rows, left_out } =
                fitted(&columns, std::slice::from_ref(&row), width);
            (rows.concat(), left_out)
        };
        let all = "random-read-4KiB-depth-64  61,097  109.2  1.56 µs".to_owned();
        assert_eq!(at(49), (vec![all], vec![]));
        let second = "depth-64".to_owned();
        let first = "random-read-4KiB-  61,097  109.2  1.56 µs".to_owned();
        assert_eq!(at(41), (vec![first, second.clone()], vec![]));
        let first = "random-read-4KiB-  61,097  1.56 µs".to_owned();
        assert_eq!(at(34), (vec![first, second], vec![2]));
    }

    #[test]
    fn a_word_that_is_too_long_is_broken_behind_its_punctuation() {
        assert_eq!(
            wrapped("iqn.2026-01.io.linerate:vm1 is", 16),
            ["iqn.2026-01.io.", "linerate:vm1 is"]
        );
        assert_eq!(wrapped("abcdef", 4), ["abc", "def"]);
        assert_eq!(
            wrapped("random-read-4KiB-1", 17),
            ["random-read-", "4KiB-1"]
        );
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(hanging("  · ", "two words", 9), ["  · two", "    words"]);
    }

    #[test]
    fn a_line_ends_with_its_last_letter() {
        assert_eq!(
            pairs("  ", [("name", "value"), ("nothing", "")]),
            "  name     value\n  nothing\n"
        );
    }

    proptest! {
        #[test]
        fn no_line_of_a_table_is_wider_than_asked_and_every_cell_is_in_it(
            ranks in vec((any::<bool>(), 0..4u8), 1..8),
            texts in vec("[a-zµ×:.-]{0,20}( [a-z0-9]{1,9}){0,3}", 8..64),
            width in 24..160usize
        ) {
            let align = |left| if left { Align::Left } else { Align::Right };
            let columns: Vec<_> =
                ranks.iter().map(|(left, rank)| Column { align: align(*left), rank: *rank }).collect();
            let rows: Vec<&[String]> = texts.chunks_exact(columns.len()).collect();
            let table = fitted(&columns, &rows, width);
            prop_assert!(table.left_out.iter().all(|column| columns[*column].rank > 0));
            for (row, lines) in rows.iter().zip(&table.rows) {
                prop_assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:#?}");
                // The lines of a cell are below each other, so the order of characters is lost: compare the
                // characters only.
                let mut seen: Vec<char> = lines.concat().chars().filter(|letter| !letter.is_whitespace()).collect();
                let shown = row.iter().enumerate().filter(|(column, _)| !table.left_out.contains(column));
                let mut told: Vec<char> =
                    shown.flat_map(|(_, cell)| cell.chars()).filter(|letter| !letter.is_whitespace()).collect();
                seen.sort_unstable();
                told.sort_unstable();
                prop_assert_eq!(seen, told);
            }
        }

        #[test]
        fn a_wrapped_text_has_all_its_words_in_order(text in "([a-z,.:/-]{1,30} ){0,12}", width in 1..60usize) {
            let lines = wrapped(&text, width);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:#?}");
            let bare = |text: &str| text.chars().filter(|letter| !letter.is_whitespace()).collect::<String>();
            prop_assert_eq!(bare(&lines.concat()), bare(&text));
            let kept = |word: &&str| word.chars().count() <= width;
            let joined = lines.join(" ");
            prop_assert!(text.split_whitespace().filter(kept).all(|word| joined.split(' ').any(|seen| seen == word)));
        }
    }
}
