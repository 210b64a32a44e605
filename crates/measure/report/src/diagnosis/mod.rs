//! The report of a diagnosis: the cause, its evidence, the expected gain from a fix, and the remedies.
//!
//! Every format starts with the verdict, followed by up to three findings, and the time of one request by
//! layer ([`waterfall`]). Then every load is shown with its limits, and at the end all measurements. The
//! output for a terminal is a summary of this. All conclusions come from [`diagnose`].
//!
//! The evidence contains text from the target. Like all other text in a report, it passes through `markup`,
//! `markdown` or [`terminal`], which escape markup and replace control characters.

mod before;
mod sections;
mod terminal;
mod waterfall;
mod words;

pub(super) use words::{at, term};

use serde::Serialize;

use super::{html, markdown};
use diagnose::Diagnosis;

/// The report of a diagnosis, with the time of the diagnosis and the version of the program.
#[derive(Clone, Copy, Debug)]
pub struct DiagnosisReport<'a> {
    diagnosis: &'a Diagnosis,
    /// An earlier diagnosis, to compare with.
    before: Option<&'a Diagnosis>,
    /// The start time in human-readable form; not shown if empty.
    begun: &'a str,
    /// The version of the program that made the diagnosis.
    version: &'a str,
}

impl<'a> DiagnosisReport<'a> {
    /// Creates the report of a diagnosis that started at this time and was made by this version.
    pub fn new(diagnosis: &'a Diagnosis, begun: &'a str, version: &'a str) -> DiagnosisReport<'a> {
        DiagnosisReport {
            diagnosis,
            before: None,
            begun,
            version,
        }
    }

    /// Returns the report with a comparison with an earlier diagnosis.
    #[must_use]
    pub fn after(self, before: Option<&'a Diagnosis>) -> DiagnosisReport<'a> {
        DiagnosisReport { before, ..self }
    }

    /// Returns the report as a self-contained HTML file.
    pub fn html(&self) -> String {
        html::page(&sections::document(self))
    }

    /// Returns the report as Markdown, with numbers instead of figures.
    pub fn markdown(&self) -> String {
        markdown::page(&sections::document(self))
    }

    /// Returns the complete diagnosis for programs. Its names are stable, and documented in
    /// `docs/diagnose-json.md`.
    ///
    /// # Errors
    /// Fails if the diagnosis cannot be written as JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        let DiagnosisReport {
            diagnosis,
            before,
            begun,
            version,
        } = *self;
        let told = Told {
            version: FORMAT,
            format: FORMAT,
            linerate: version,
            begun,
            says: verdict(diagnosis),
            compared: before.map(|before| before::compared(before, diagnosis)),
            diagnosis,
        };
        serde_json::to_string_pretty(&told).map(|text| text + "\n")
    }

    /// Returns the verdict and the first finding for a terminal with this number of columns, of which up to 100 are used:
    /// one screen.
    pub fn terminal(&self, width: usize) -> String {
        terminal::screen(self.diagnosis, self.before, width)
    }

    /// Returns all findings, layers and loads for a terminal with this number of columns, of which up to 100 are used.
    pub fn details(&self, width: usize) -> String {
        terminal::details(self.diagnosis, self.before, width)
    }
}

/// The JSON document of a diagnosis.
#[derive(Serialize)]
struct Told<'a> {
    /// The version of the format, under the name that the JSON of all commands uses.
    version: u32,
    /// The version of the format, under its older name.
    format: u32,
    /// The program's version.
    linerate: &'a str,
    begun: &'a str,
    /// The verdict as a sentence.
    says: String,
    /// The loads of this and the earlier diagnosis.
    #[serde(skip_serializing_if = "Option::is_none")]
    compared: Option<Vec<before::ComparedLoad>>,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
}

/// The version of the format. It is incremented if an older reader would misunderstand the new format.
const FORMAT: u32 = 1;

/// Parses a `diagnosis.json`.
///
/// # Errors
/// The text is not a diagnosis, or has a different format version.
pub fn read(json: &str) -> Result<Diagnosis, String> {
    #[derive(serde::Deserialize)]
    struct Format {
        format: u32,
    }
    let format = serde_json::from_str::<Format>(json)
        .map_err(|error| error.to_string())?
        .format;
    if format != FORMAT {
        return Err(format!(
            "it has format {format}, but this program supports {FORMAT}"
        ));
    }
    serde_json::from_str(json).map_err(|error| error.to_string())
}

/// Returns the verdict as one sentence, for a separate line.
pub fn verdict(diagnosis: &Diagnosis) -> String {
    words::verdict(diagnosis)
}
