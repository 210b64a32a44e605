//! The comparison of every cell with the results of the documents that the reader named.

use crate::Report;
use crate::beside::Counterpart;
use crate::document::{Block, Section, Table};
use crate::views::listed;
use published::DOCUMENTS;
use readable::figures::{megabytes, significant};

/// The comparison with one document.
pub(crate) struct Beside {
    /// The heading: `Document 000: iSCSI Performance Factors`.
    pub(crate) title: String,
    /// The comparable cells and clients.
    pub(crate) rows: Vec<Compared>,
    /// The cells without a counterpart, and assumptions.
    pub(crate) notes: Vec<String>,
}

/// The comparison of a cell or client.
pub(crate) struct Compared {
    /// The values of [`COLUMNS`].
    pub(crate) cells: [String; 4],
    /// The table and column of the published number.
    pub(crate) source: String,
}

/// The columns of a comparison. A `#` marks numbers.
pub(crate) const COLUMNS: [&str; 4] = ["cell", "#measured, MB/s", "#published, MB/s", "#ratio"];

/// Returns the comparisons with the named documents. The records of `wan` have their own tables.
pub(crate) fn comparisons(report: &Report<'_>) -> Vec<Beside> {
    let documents = report
        .beside
        .iter()
        .filter(|_| report.wan.is_none() && !report.record.runs.is_empty());
    documents
        .map(|document| comparison(report, document))
        .collect()
}

pub(super) fn section(report: &Report<'_>) -> Option<Section> {
    let mut blocks = Vec::new();
    for Beside { title, rows, notes } in comparisons(report) {
        blocks.push(Block::Heading(title));
        if !rows.is_empty() {
            let mut table = Table::of("", &[&COLUMNS[..], &["table and column"]].concat());
            rows.into_iter()
                .for_each(|row| table.row(row.cells.into_iter().chain([row.source])));
            blocks.push(Block::Table(table));
        }
        blocks.push(Block::List(notes));
    }
    blocks.retain(|block| !matches!(block, Block::List(notes) if notes.is_empty()));
    (!blocks.is_empty()).then_some(Section {
        id: "beside",
        title: "Compared with published results",
        blocks,
    })
}

fn comparison(report: &Report<'_>, document: &str) -> Beside {
    let counterparts = report.counterparts(document);
    let title = DOCUMENTS
        .iter()
        .find(|known| known.number == document)
        .map_or("", |known| known.title);
    let is_without = |name: &str| {
        !counterparts
            .iter()
            .any(|found| found.client.is_none() && found.summary.cell.name == name)
    };
    let measured = report.summaries.iter().filter(|summary| summary.runs > 0);
    let without: Vec<&str> = measured
        .map(|summary| summary.cell.name.as_str())
        .filter(|name| is_without(name))
        .collect();
    let mut notes = Vec::new();
    if !without.is_empty() {
        notes.push(format!(
            "Not compared: {}. Document {document} has no result with the same path (network or local), medium, \
             caching, requests, depth and number of clients.",
            listed(&without)
        ));
    }
    let mut assumed: Vec<&str> = Vec::new();
    for class in counterparts
        .iter()
        .filter_map(|found| found.row.class.as_ref())
    {
        if !class.assumed.is_empty() && !assumed.contains(&class.assumed.as_str()) {
            assumed.push(&class.assumed);
        }
    }
    if !assumed.is_empty() {
        notes.push(format!(
            "Assumed, because the document does not state it: {}.",
            assumed.join(", ")
        ));
    }
    Beside {
        title: format!("Document {document}: {title}"),
        rows: counterparts.iter().map(row).collect(),
        notes,
    }
}

fn row(found: &Counterpart<'_>) -> Compared {
    let name = &found.summary.cell.name;
    let source = found.row.source();
    Compared {
        cells: [
            found
                .client
                .map_or_else(|| name.clone(), |client| format!("{name}, {client}")),
            megabytes(found.measured),
            megabytes(found.published),
            significant(found.times()),
        ],
        source: format!("{}, {}", source.table, source.column),
    }
}
