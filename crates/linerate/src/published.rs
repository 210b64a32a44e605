//! `linerate report published`: the tables of the five source documents, in their units and in ours.

use ::report::documents;
use clap::Args;

use crate::bench::width;
use crate::failure::Failure;
use crate::output::say;

#[derive(Debug, Args)]
pub(crate) struct PublishedArguments {
    /// Print only this document
    #[arg(value_name = "DOCUMENT", value_parser = ["000", "001", "002", "003", "004"])]
    document: Option<String>,
    /// Print only tables with this in their name, such as "Table 2"
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
    let (document, table) = (arguments.document.as_deref(), arguments.table.as_deref());
    let chosen = documents::chosen(document, table).map_err(Failure::refused)?;
    if arguments.json || arguments.csv {
        let rows = documents::numbers(&chosen);
        let text = if arguments.json {
            documents::json(&rows).map_err(Failure::failed)?
        } else {
            documents::csv(&rows).map_err(Failure::failed)?
        };
        say(&text);
        return Ok(());
    }
    for (document, tables) in &chosen {
        say(&documents::heading(document, width()));
        tables.iter().for_each(|table| say(&documents::table(table, width())));
    }
    Ok(())
}
