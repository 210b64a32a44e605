//! Rates and CPU loads beside those of the document.

use crate::Report;
use crate::document::{Block, Section, Table};
use crate::loads::Loads;

pub(super) fn section(report: &Report<'_>) -> Option<Section> {
    let loads = Loads::of(report)?;
    let cells: Vec<String> = loads.cells.iter().map(|cell| format!("#{cell}")).collect();
    let heads: Vec<&str> = std::iter::once("").chain(cells.iter().map(String::as_str)).collect();
    let mut table = Table::of(&format!("Document {}", loads.document), &heads);
    loads.rows.into_iter().for_each(|(name, values)| table.row(std::iter::once(name).chain(values)));
    let blocks = vec![Block::Text(loads.note), Block::Table(table)];
    Some(Section { id: "loads", title: "CPU loads beside the published ones", blocks })
}
