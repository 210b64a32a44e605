//! `linerate published`: the tables of the five source documents, in their units and in ours.

use ::report::documents;
use clap::Args;
use published::{DOCUMENTS, Document, Row, Table, rows, tables};

use crate::failure::Failure;
use crate::nearest::hint;
use crate::output::say;

/// Print what the source documents measured, in their units and in ours
#[derive(Debug, Args)]
pub(crate) struct PublishedArguments {
    /// Only this document: 000, 001, 002, 003 or 004
    #[arg(value_name = "DOCUMENT")]
    document: Option<String>,
    /// Only tables with this in their name, such as "Table 2"
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Print every number as JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print every number as CSV
    #[arg(long)]
    csv: bool,
}

pub(crate) fn run(arguments: &PublishedArguments) -> Result<(), Failure> {
    let asked = asked_for(arguments.document.as_deref())?;
    let chosen = chosen(&asked, arguments.table.as_deref())?;
    if arguments.json || arguments.csv {
        let rows = numbers(&chosen);
        let text = if arguments.json {
            documents::json(&rows).map_err(Failure::failed)?
        } else {
            documents::csv(&rows).map_err(Failure::failed)?
        };
        say(&text);
        return Ok(());
    }
    for (document, tables) in &chosen {
        say(&documents::heading(document));
        tables.iter().for_each(|table| say(&documents::table(table)));
    }
    Ok(())
}

fn asked_for(number: Option<&str>) -> Result<Vec<Document>, Failure> {
    let Some(number) = number else { return Ok(DOCUMENTS.to_vec()) };
    let known = DOCUMENTS.map(|document| document.number);
    match DOCUMENTS.iter().find(|document| document.number == number) {
        Some(document) => Ok(vec![*document]),
        None => {
            Err(Failure::refused(format_args!("there is no document `{number}`{}", hint(number, &known))))
        }
    }
}

/// The tables that were asked for, with their documents. A name that is a table's whole name is that table only: "Table 1"
/// would otherwise be any of ten.
fn chosen(documents: &[Document], name: Option<&str>) -> Result<Vec<(Document, Vec<Table>)>, Failure> {
    let mut all: Vec<_> = documents.iter().map(|document| (*document, tables(document.number))).collect();
    let Some(name) = name else { return Ok(all) };
    let wanted = name.to_lowercase();
    let named: fn(&str, &str) -> bool =
        match all.iter().flat_map(|(_, tables)| tables).any(|table| table.name.to_lowercase() == wanted) {
            true => |table, wanted| table == wanted,
            false => |table, wanted| table.contains(wanted),
        };
    let names: Vec<String> =
        all.iter().flat_map(|(_, tables)| tables).map(|table| table.name.to_lowercase()).collect();
    all.iter_mut().for_each(|(_, tables)| tables.retain(|table| named(&table.name.to_lowercase(), &wanted)));
    all.retain(|(_, tables)| !tables.is_empty());
    if all.is_empty() {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        return Err(Failure::refused(format_args!("there is no table `{name}`{}", hint(name, &names))));
    }
    Ok(all)
}

/// The rows behind tables.
fn numbers(chosen: &[(Document, Vec<Table>)]) -> Vec<&'static Row> {
    let wanted = |row: &&Row| {
        let of = chosen.iter().find(|(document, _)| document.number == row.document);
        of.is_some_and(|(_, tables)| tables.iter().any(|table| table.holds(row)))
    };
    rows().iter().filter(wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(document: Option<&str>, table: Option<&str>) -> Result<Vec<String>, String> {
        let documents = asked_for(document).map_err(|failure| failure.to_string())?;
        let chosen = chosen(&documents, table).map_err(|failure| failure.to_string())?;
        Ok(chosen.into_iter().flat_map(|(_, tables)| tables).map(|table| table.name).collect())
    }

    #[test]
    fn what_is_not_there_is_named_with_what_is() {
        let document = names(Some("005"), None).expect_err("no such document");
        assert_eq!(document, "there is no document `005`; did you mean `000`?");
        let table = names(Some("002"), Some("iSCSI Throughput: Read")).expect("part of a name");
        assert_eq!(table, ["iSCSI Throughput: Reads"]);
        let table = names(Some("000"), Some("Tabel 2")).expect_err("a slip");
        assert_eq!(table, "there is no table `Tabel 2`; did you mean `table 2`?");
    }

    #[test]
    fn a_whole_name_is_one_table() {
        assert_eq!(names(Some("000"), Some("table 1")), Ok(vec!["Table 1".to_owned()]));
        assert_eq!(names(None, Some("Appendix B")).map(|names| names.len()), Ok(3));
    }

    #[test]
    fn the_numbers_of_a_table_are_its_rows() {
        let documents = asked_for(Some("000")).expect("a document");
        let numbers = numbers(&chosen(&documents, Some("Table 2")).expect("a table"));
        assert_eq!(numbers.len(), 22);
    }
}
