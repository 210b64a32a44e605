//! Formats a record as one HTML file, as Markdown, as tables, as a summary for a terminal, or in the formats
//! of other tools.
//!
//! ```text
//!   Record ── summary::of ── Report ──┬── sections ── Document ──┬── html
//!                                     │                          └── markdown
//!                                     ├── terminal, csv
//!                                     └── iometer, fio
//!   Reports ── several ──► one Document, followed by the Documents of its records
//! ```
//!
//! [`sections`] determines the content and its order, once for HTML and Markdown. Every number comes from the
//! summaries or the record; this crate only adds words, units and figures. Names in a record are not trusted,
//! since a target reports its own name and a suite can be a file from any source. Each output format escapes
//! text in one place.
//!
//! [`summary`] summarizes the runs of a record, [`compare`](mod@compare) finds significant differences
//! between two records, and [`wan`] evaluates the effects of distance. The results of all three are values.
//! [`measured`] shows one run, [`limits`] the maximum throughput of a link, and [`proof`] the result of a suite
//! on this machine. [`documents`] shows published results, and [`reproduced`] those of a document with ours.
//!
//! ```
//! use bench::test_record::{cell, record, run};
//! use report::compare::compare;
//! use report::Report;
//!
//! // Four runs of 4 KiB reads, and then the same cell on storage that is a tenth slower.
//! let cell = cell("read-4k", 4096, 8);
//! let measured = |iops: [f64; 4]| {
//!     let runs = (0..).zip(iops).map(|(round, iops)| run(&cell, round, &[iops]));
//!     record(vec![cell.clone()], runs.collect())
//! };
//! let (before, after) = (measured([10_020.0, 9_990.0, 10_000.0, 9_980.0]), measured([9_020.0, 9_000.0, 8_990.0, 8_980.0]));
//!
//! assert!(Report::new(&before).terminal(80).contains("read-4k"));
//! assert_eq!(compare(&before, &after).worse(3.0).count(), 1);
//! ```

mod beside;
mod chart;
pub mod compare;
mod csv;
mod diagnosis;
mod document;
pub mod documents;
mod fio;
mod html;
mod iometer;
pub mod limits;
mod loads;
mod markdown;
mod markup;
pub mod measured;
mod opening;
pub mod proof;
pub mod reproduced;
mod sections;
mod several;
pub mod summary;
mod terminal;
mod views;
pub mod wan;

pub use diagnosis::{DiagnosisReport, read as read_diagnosis, verdict};
pub use several::Reports;

use bench::record::Record;
use beside::{Counterpart, counterparts};
use diagnose::Diagnosis;
use summary::CellSummary;
use wan::Wan;

/// A record with its summaries, and the data shown together with it.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    record: &'a Record,
    summaries: Vec<CellSummary>,
    /// The numbers of the documents whose results are shown next to the measured ones.
    beside: Vec<String>,
    /// A diagnosis of the same storage.
    diagnosis: Option<Diagnosis>,
    /// The name of the record's directory.
    folder: Option<String>,
    /// The evaluation of distance, if the cells have settings.
    wan: Option<Wan>,
}

impl<'a> Report<'a> {
    /// Creates the report of a record.
    pub fn new(record: &'a Record) -> Report<'a> {
        let summaries = summary::of(record);
        let wan = Wan::of_summaries(record, &summaries);
        Report {
            record,
            summaries,
            beside: Vec::new(),
            diagnosis: None,
            folder: None,
            wan,
        }
    }

    /// Adds the results of these documents, such as `001`.
    #[must_use]
    pub fn beside(mut self, documents: &[String]) -> Report<'a> {
        self.beside = documents.to_vec();
        self.beside.sort();
        self.beside.dedup();
        self
    }

    /// Returns the documents with which the results are compared: the one that the suite repeats, and those that the
    /// caller specified.
    fn documents(&self) -> Vec<&str> {
        let own = self.record.suite.document.as_deref();
        let others = self
            .beside
            .iter()
            .map(String::as_str)
            .filter(|document| Some(*document) != own);
        own.into_iter().chain(others).collect()
    }

    /// Returns the published results of a document that are of the same class as measured ones.
    fn counterparts(&self, document: &str) -> Vec<Counterpart<'_>> {
        counterparts(&self.record.subject, &self.summaries, document)
    }

    /// Adds the name of the record's directory.
    #[must_use]
    pub fn in_folder(mut self, folder: String) -> Report<'a> {
        self.folder = Some(folder);
        self
    }

    /// Adds the remedies of a diagnosis. A diagnosis of different storage is ignored.
    #[must_use]
    pub fn with_diagnosis(mut self, diagnosis: Diagnosis) -> Report<'a> {
        let without_keys = |place: &str| place.split('?').next().map(str::to_owned);
        let is_same =
            without_keys(&diagnosis.evidence.place) == without_keys(&self.record.subject.place);
        self.diagnosis = is_same.then_some(diagnosis);
        self
    }

    /// Returns the report as a self-contained HTML file.
    pub fn html(&self) -> String {
        html::page(&sections::document(self))
    }

    /// Returns the report as Markdown, with numbers instead of figures.
    pub fn markdown(&self) -> String {
        markdown::page(&sections::document(self))
    }

    /// Returns every cell and every warning for a terminal with this number of columns, of which up to 100
    /// are used.
    pub fn terminal(&self, width: usize) -> String {
        terminal::summary(self, width)
    }

    /// Returns a CSV line for each cell.
    pub fn cells_csv(&self) -> String {
        csv::cells(self)
    }

    /// Returns a CSV line for each sample.
    pub fn samples_csv(&self) -> String {
        csv::samples(self)
    }

    /// Returns a line of JSON for each run ([`measured`]).
    ///
    /// # Errors
    /// There are none in practice: every record can be written as JSON.
    pub fn runs_json(&self) -> serde_json::Result<String> {
        let beside = measured::Beside::new(self.record, None, false);
        self.record
            .runs
            .iter()
            .map(|run| measured::Measured::of(run, &beside).json())
            .collect()
    }

    /// Returns the report as Iometer's result file.
    pub fn iometer_csv(&self) -> String {
        iometer::results(self.record)
    }

    /// Returns the report in the format of fio's `--output-format=json+`.
    pub fn fio_json(&self) -> String {
        fio::results(self.record)
    }
}
