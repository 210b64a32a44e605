//! Tables as aligned text.

/// On which side a column's cells are filled up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Behind them.
    Left,
    /// Before them.
    Right,
}

/// Between two columns.
const GAP: &str = "  ";

/// A line for each row, none with blanks at its end.
pub fn lines<const N: usize>(columns: [Align; N], rows: &[[String; N]]) -> Vec<String> {
    rows_of(&columns, rows)
}

/// The same where the number of columns is not known beforehand: every row has as many cells as there are
/// columns.
pub fn rows_of<R: AsRef<[String]>>(columns: &[Align], rows: &[R]) -> Vec<String> {
    let widest =
        |column: usize| rows.iter().map(|row| row.as_ref()[column].chars().count()).max().unwrap_or(0);
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

/// Two columns as one text, each line of it behind `indent`: names and what they have.
pub fn pairs<K: Into<String>, V: Into<String>>(
    indent: &str,
    pairs: impl IntoIterator<Item = (K, V)>,
) -> String {
    let rows: Vec<[String; 2]> = pairs.into_iter().map(|(name, value)| [name.into(), value.into()]).collect();
    lines([Align::Left; 2], &rows).iter().map(|line| format!("{indent}{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell_in_letters() {
        let rows = [["π".into(), "1".into()], ["long".into(), "1,234".into()]];
        assert_eq!(lines([Align::Left, Align::Right], &rows), ["π         1", "long  1,234"]);
    }

    #[test]
    fn a_line_ends_with_its_last_letter() {
        assert_eq!(pairs("  ", [("name", "value"), ("nothing", "")]), "  name     value\n  nothing\n");
    }
}
