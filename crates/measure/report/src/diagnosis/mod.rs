//! A diagnosis made readable: what holds a path back, what shows it, what mending it would bring, and what to change.
//!
//! The verdict comes first in every form, then at most three findings, then where the time of one request goes, layer by
//! layer ([`waterfall`]), then every load beside its limits, and at the end whatever was measured. A terminal shows the
//! same in lines of its width. Nothing here decides anything: that is [`diagnose`]'s part.
//!
//! Evidence holds what a target says of itself. It passes through the same doors as everything else in a report
//! (`markup`, `markdown`, and here [`terminal`]), which leave nothing in it that is markup or moves a cursor.

mod sections;
mod terminal;
mod waterfall;
mod words;

pub(super) use words::{at, term};

use serde::Serialize;

use super::{html, markdown};
use diagnose::Diagnosis;

/// A diagnosis, and how it came about.
#[derive(Clone, Copy, Debug)]
pub struct DiagnosisReport<'a> {
    diagnosis: &'a Diagnosis,
    /// When it began, as people write it; empty if nobody has to know.
    begun: &'a str,
    /// Which version of the program made it.
    version: &'a str,
}

impl<'a> DiagnosisReport<'a> {
    /// The report of a diagnosis that this version of the program began then.
    pub fn new(diagnosis: &'a Diagnosis, begun: &'a str, version: &'a str) -> DiagnosisReport<'a> {
        DiagnosisReport { diagnosis, begun, version }
    }

    /// One HTML file that needs nothing else.
    pub fn html(&self) -> String {
        html::page(&sections::document(self))
    }

    /// The same as Markdown, with numbers in place of figures.
    pub fn markdown(&self) -> String {
        markdown::page(&sections::document(self))
    }

    /// All of it for programs. Its names are promised, and `docs/diagnose-json.md` has them.
    ///
    /// # Errors
    /// A diagnosis that is no JSON.
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

    /// The same for a terminal of so many columns; no more than 100 of them are used.
    pub fn terminal(&self, width: usize) -> String {
        terminal::summary(self.diagnosis, width)
    }
}

/// The JSON of a diagnosis.
#[derive(Serialize)]
struct Told<'a> {
    /// As in the JSON of all commands.
    version: u32,
    /// The same, by its older name.
    format: u32,
    /// The program's version.
    linerate: &'a str,
    begun: &'a str,
    /// The verdict in words.
    says: String,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
}

/// Counted up when a reader of an older one would misunderstand a newer one.
const FORMAT: u32 = 1;

/// The diagnosis in a `diagnosis.json`.
///
/// # Errors
/// It is none, or of another format; in a sentence.
pub fn read(json: &str) -> Result<Diagnosis, String> {
    #[derive(serde::Deserialize)]
    struct Format {
        format: u32,
    }
    let format = serde_json::from_str::<Format>(json).map_err(|error| error.to_string())?.format;
    if format != FORMAT {
        return Err(format!("it is of format {format}, and this program reads {FORMAT}"));
    }
    serde_json::from_str(json).map_err(|error| error.to_string())
}

/// What a verdict says, in one sentence, for a line by itself.
pub fn verdict(diagnosis: &Diagnosis) -> String {
    words::verdict(diagnosis)
}
