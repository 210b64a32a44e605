//! A record made readable: one HTML file, Markdown, tables, a summary for a terminal, and the formats of other tools.
//!
//! ```text
//!   Record ── summary::of ── Report ──┬── sections ── Document ──┬── html
//!                                     │                          └── markdown
//!                                     ├── terminal, csv
//!                                     └── iometer, fio
//!   Reports ── several ──► one Document, and those of its records behind it
//! ```
//!
//! What is said, and in which order, is decided in [`sections`], once for HTML and Markdown. Every number comes from the
//! summaries or the record; here they are only put into words, units and pictures. All names in a record may be anybody's (a
//! target says what it is called, a suite is a file from somewhere): each output has one place that makes text harmless.
//!
//! [`summary`] says what the runs of a record come to, [`compare`](mod@compare) which differences between two records are real, and [`wan`]
//! what a record says of distance; all three are values. [`measured`] tells of one run, [`limits`] what a link carries at most, [`proof`] of a suite on this very machine,
//! [`documents`] what others published.
//!
//! ```
//! use bench::test_record::{cell, record, run};
//! use report::compare::compare;
//! use report::Report;
//!
//! // Four runs of 4 KiB reads, then the same cell on storage that is a tenth slower.
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
mod sections;
mod series;
mod several;
pub mod summary;
mod terminal;
mod views;
pub mod wan;

pub use diagnosis::{DiagnosisReport, read as read_diagnosis, verdict};
pub use several::Reports;

use bench::record::Record;
use diagnose::Diagnosis;
use published::Curve;
use summary::CellSummary;
use wan::Wan;

/// A record, what it comes to, and what it is to be seen beside.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    record: &'a Record,
    summaries: Vec<CellSummary>,
    beside: Vec<Curve>,
    /// What is published of the same requests: by the document that the suite repeats, and what is laid beside.
    published: Vec<Curve>,
    /// What was found out of the same place.
    diagnosis: Option<Diagnosis>,
    /// The folder that it is in.
    folder: Option<String>,
    /// What it says of distance, if its cells were measured over ways that were made for them.
    wan: Option<Wan>,
}

impl<'a> Report<'a> {
    /// The report of a record.
    pub fn new(record: &'a Record) -> Report<'a> {
        let summaries = summary::of(record);
        let wan = Wan::of_summaries(record, &summaries);
        let published = record.suite.document.as_deref().map(published::curves).unwrap_or_default();
        Report { record, summaries, beside: Vec::new(), published, diagnosis: None, folder: None, wan }
    }

    /// The same, with published curves laid over its own.
    #[must_use]
    pub fn beside(mut self, curves: Vec<Curve>) -> Report<'a> {
        self.published.extend_from_slice(&curves);
        self.beside = curves;
        self
    }

    /// The same, with the name of the folder that the record is in.
    #[must_use]
    pub fn in_folder(mut self, folder: String) -> Report<'a> {
        self.folder = Some(folder);
        self
    }

    /// The same, with what a diagnosis says would help. One of another place is left out.
    #[must_use]
    pub fn with_diagnosis(mut self, diagnosis: Diagnosis) -> Report<'a> {
        let without_keys = |place: &str| place.split('?').next().map(str::to_owned);
        let is_same = without_keys(&diagnosis.evidence.place) == without_keys(&self.record.subject.place);
        self.diagnosis = is_same.then_some(diagnosis);
        self
    }

    /// One HTML file that needs nothing else.
    pub fn html(&self) -> String {
        html::page(&sections::document(self))
    }

    /// The same as Markdown, with numbers in place of figures.
    pub fn markdown(&self) -> String {
        markdown::page(&sections::document(self))
    }

    /// Every cell and every doubt, for a terminal of so many columns; no more than 100 of them are used.
    pub fn terminal(&self, width: usize) -> String {
        terminal::summary(self, width)
    }

    /// A line for each cell.
    pub fn cells_csv(&self) -> String {
        csv::cells(self)
    }

    /// A line for each sample.
    pub fn samples_csv(&self) -> String {
        csv::samples(self)
    }

    /// A line of JSON for each run ([`measured`]).
    ///
    /// # Errors
    /// None that a record can cause.
    pub fn runs_json(&self) -> serde_json::Result<String> {
        let beside = measured::Beside::new(self.record, None, false);
        self.record.runs.iter().map(|run| measured::Measured::of(run, &beside).json()).collect()
    }

    /// Iometer's result file.
    pub fn iometer_csv(&self) -> String {
        iometer::results(self.record)
    }

    /// fio's `--output-format=json+`.
    pub fn fio_json(&self) -> String {
        fio::results(self.record)
    }
}
