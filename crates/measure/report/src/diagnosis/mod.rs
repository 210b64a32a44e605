//! The report of a diagnosis: the cause, its evidence, the expected gain from a fix, and the remedies.
//!
//! Every form starts with the verdict, followed by up to three findings and the time of one request by layer
//! ([`waterfall`]). Every load with its limits follows, and at the end all measurements. A terminal shows the
//! same in lines of its width. All conclusions come from [`diagnose`].
//!
//! Evidence contains text from the target. Like all other text in a report, it passes through `markup`,
//! `markdown`, or here [`terminal`], which remove markup and cursor movements.

mod sections;
mod terminal;
mod waterfall;
mod words;

pub(super) use words::{at, term};

use serde::Serialize;

use super::{html, markdown};
use diagnose::Diagnosis;

/// A diagnosis, with its time and program version.
#[derive(Clone, Copy, Debug)]
pub struct DiagnosisReport<'a> {
    diagnosis: &'a Diagnosis,
    /// The start time, in human-readable form; empty if not needed.
    begun: &'a str,
    /// The version of the program that made it.
    version: &'a str,
}

impl<'a> DiagnosisReport<'a> {
    /// The report of a diagnosis that began at this time, made by this version.
    pub fn new(diagnosis: &'a Diagnosis, begun: &'a str, version: &'a str) -> DiagnosisReport<'a> {
        DiagnosisReport { diagnosis, begun, version }
    }

    /// A self-contained HTML file.
    pub fn html(&self) -> String {
        html::page(&sections::document(self))
    }

    /// The same as Markdown, with numbers in place of figures.
    pub fn markdown(&self) -> String {
        markdown::page(&sections::document(self))
    }

    /// The complete diagnosis for programs. Its names are stable, and documented in `docs/diagnose-json.md`.
    ///
    /// # Errors
    /// The diagnosis cannot be written as JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        let DiagnosisReport { diagnosis, begun, version } = *self;
        let told = Told {
            version: FORMAT,
            format: FORMAT,
            linerate: version,
            begun,
            says: verdict(diagnosis),
            diagnosis,
        };
        serde_json::to_string_pretty(&told).map(|text| text + "\n")
    }

    /// The same for a terminal with this number of columns, of which up to 100 are used.
    pub fn terminal(&self, width: usize) -> String {
        terminal::summary(self.diagnosis, width)
    }
}

/// The JSON of a diagnosis.
#[derive(Serialize)]
struct Told<'a> {
    /// As in the JSON of all commands.
    version: u32,
    /// The same, under its older name.
    format: u32,
    /// The program's version.
    linerate: &'a str,
    begun: &'a str,
    /// The verdict in words.
    says: String,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
}

/// Incremented when an older reader would misunderstand the format.
const FORMAT: u32 = 1;

/// The diagnosis in a `diagnosis.json`.
///
/// # Errors
/// The text is not a diagnosis, or has another format.
pub fn read(json: &str) -> Result<Diagnosis, String> {
    #[derive(serde::Deserialize)]
    struct Format {
        format: u32,
    }
    let format = serde_json::from_str::<Format>(json).map_err(|error| error.to_string())?.format;
    if format != FORMAT {
        return Err(format!("it has format {format}, but this program supports {FORMAT}"));
    }
    serde_json::from_str(json).map_err(|error| error.to_string())
}

/// A verdict in one sentence, for a separate line.
pub fn verdict(diagnosis: &Diagnosis) -> String {
    words::verdict(diagnosis)
}
