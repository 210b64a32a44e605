//! Checks that tables in documents match the code from which their rows are generated.

use std::fs;
use std::path::Path;

/// Checks that the table with this header has exactly these rows. If not, writes the rows to the document and
/// fails, so that the table need not be edited by hand.
///
/// # Panics
/// If the document was rewritten, or does not contain the table.
#[track_caller]
pub fn assert_table(document: impl AsRef<Path>, header: &str, rows: &[String]) {
    let document = document.as_ref();
    let name = document.display();
    let page = fs::read_to_string(document).unwrap_or_else(|error| panic!("{name}: {error}"));
    let updated =
        with_rows(&page, header, rows).unwrap_or_else(|| panic!("{name} has no table {header}"));
    if updated != page {
        fs::write(document, updated)
            .unwrap_or_else(|error| panic!("{name} is out of date: {error}"));
        panic!("{name} was out of date. It has been updated: check the difference and commit it");
    }
}

/// Returns the page with these rows below the table's header and its line of dashes; `None` if the page has
/// no such table.
fn with_rows(page: &str, header: &str, rows: &[String]) -> Option<String> {
    let lines: Vec<&str> = page.split('\n').collect();
    let begin = lines.iter().position(|line| *line == header)? + 2;
    let is_row = |line: &&&str| line.starts_with('|');
    let end = begin + lines.get(begin..)?.iter().take_while(is_row).count();
    let rows = rows.iter().map(String::as_str);
    let updated = lines[..begin]
        .iter()
        .copied()
        .chain(rows)
        .chain(lines[end..].iter().copied());
    Some(updated.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str =
        "text\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n| c |\n|---|\n| 5 |\n";

    #[test]
    fn the_rows_of_one_table_are_replaced() {
        let rows = ["| 6 | 7 |".to_owned()];
        let updated = "text\n\n| a | b |\n|---|---|\n| 6 | 7 |\n\n| c |\n|---|\n| 5 |\n";
        assert_eq!(
            with_rows(PAGE, "| a | b |", &rows).as_deref(),
            Some(updated)
        );
        assert_eq!(
            with_rows(updated, "| a | b |", &rows).as_deref(),
            Some(updated)
        );
    }

    #[test]
    fn a_table_at_the_end_of_its_page_is_found_and_a_missing_one_is_not() {
        let rows = ["| 8 |".to_owned()];
        assert_eq!(
            with_rows(PAGE, "| c |", &rows),
            Some(PAGE.replace('5', "8"))
        );
        assert_eq!(with_rows(PAGE, "| d |", &rows), None);
        assert_eq!(with_rows("| c |", "| c |", &rows), None, "it has no dashes");
    }
}
