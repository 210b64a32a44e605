//! The numbers that the source documents published.
//!
//! The numbers are data files in the directory `data` of this crate. Each row contains one number exactly as
//! printed, with the measured quantity, the method and notes. This crate parses the rows and converts the
//! numbers to base units ([`Row::si`], explained in [`megabyte`]). It returns them as [`rows`], as [`tables`]
//! with the layout of the documents, and, for a measurement, the [`comparable`] ones.
//!
//! ```
//! let reads = published::tables("002").into_iter().find(|table| table.name == "iSCSI Throughput: Reads");
//! assert_eq!(reads.expect("it is printed").lines.len(), 8);
//! assert_eq!(published::rows().len(), 511);
//! ```

mod class;
mod document;
mod row;
mod source;
mod table;

use std::sync::LazyLock;

pub use class::{Class, Conditions, Level, Load, Medium, Path, Scope, comparable};
pub use document::{DOCUMENTS, Document, Megabyte, megabyte};
use row::parse;
pub use row::{Direction, Quantity, Row, Unit};
pub use source::Source;
pub use table::{Cell, Column, Line, Table};

const FILES: [&str; 6] = [
    include_str!("../data/000_novell_iscsi_factors.csv"),
    include_str!("../data/000_novell_iscsi_parameters.csv"),
    include_str!("../data/001_iomega_ix4_iometer.csv"),
    include_str!("../data/002_intransa_wan.csv"),
    include_str!("../data/003_alacritech_gbe.csv"),
    include_str!("../data/004_cern_iscsi_raid.csv"),
];

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    // The files are part of the program, and a test parses each of them.
    FILES
        .iter()
        .flat_map(|file| parse(file).expect("a published table"))
        .collect()
});

/// Returns every number of the source documents, in order.
pub fn rows() -> &'static [Row] {
    &ROWS
}

/// Returns the tables of a document, such as `001`, with the document's layout.
pub fn tables(document: &str) -> Vec<Table> {
    table::of(rows().iter().filter(|row| row.document == document))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_read() {
        for file in FILES {
            parse(file).expect("rows");
        }
        assert_eq!(rows().len(), 511);
        let documents: Vec<&str> = DOCUMENTS.iter().map(|document| document.number).collect();
        assert!(
            rows()
                .iter()
                .all(|row| documents.contains(&row.document.as_str()))
        );
    }

    /// Tests the reason why DPMETERM's MB is taken as 1000 KiB.
    #[test]
    fn table_4_of_000_is_whole_requests_a_second_if_a_megabyte_is_1000_kib() {
        let table = rows()
            .iter()
            .filter(|row| row.document == "000" && row.table == "Table 4");
        let iops: Vec<f64> = table
            .map(|row| {
                row.bytes_per_s().expect("a rate") / f64::from(row.block_bytes.expect("a length"))
            })
            .collect();
        let whole = iops
            .iter()
            .filter(|iops| (*iops - iops.round()).abs() < 1e-6)
            .count();
        assert_eq!((iops.len(), whole), (16, 14));
    }

    /// Tests the reason why Iometer's MB is taken as 2^20 bytes: its MB/s and its requests per second then
    /// agree.
    #[test]
    fn iometers_throughput_is_its_requests_times_their_length() {
        let iometer: Vec<&Row> = rows()
            .iter()
            .filter(|row| row.document == "001" && row.block_bytes.is_some())
            .collect();
        let mut compared = 0;
        for iops in iometer.iter().filter(|row| row.metric == "iops") {
            let throughput = iometer
                .iter()
                .find(|row| row.test == iops.test && row.metric == "throughput");
            let throughput = throughput
                .and_then(|row| row.bytes_per_s())
                .expect("its throughput");
            let expected =
                iops.si.expect("a number").value * f64::from(iops.block_bytes.expect("a length"));
            assert!(
                (throughput / expected - 1.0).abs() < 1e-5,
                "{}: {throughput} {expected}",
                iops.test
            );
            compared += 1;
        }
        assert_eq!(compared, 11);
    }
}
