//! How a diagnosis is told: on the terminal or as JSON, as a directory with a report, and by the exit code if a script
//! wants to know.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::report::{DiagnosisReport, verdict};
use diagnose::{Diagnosis, Verdict};

use crate::bench::folder::{DIAGNOSIS, Folder};
use crate::bench::{timestamp, width};
use crate::failure::{Failure, FailureKind};
use crate::output::say;
use crate::progress::ProgressKind;

/// Where a diagnosis goes.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Output")]
pub(super) struct ShowOptions {
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Form of the progress [default: a bar on a terminal, else a line every five seconds]
    #[arg(long, value_name = "HOW")]
    pub(super) progress: Option<ProgressKind>,
    /// Also write a report there: report.html, report.md and diagnosis.json
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// End with exit code 13 if something holds the path back, and with 1 if it is slow and nothing tells why
    #[arg(long)]
    check: bool,
    /// Tell nothing here.
    #[arg(skip)]
    quiet: bool,
}

/// Where a diagnosis is told, found to be possible before anything is measured.
pub(super) struct Stage<'a> {
    options: &'a ShowOptions,
    folder: Option<Folder>,
    begun: String,
}

impl ShowOptions {
    /// On the terminal, if it is not to be quiet, and as a report there.
    pub(super) fn report(out: PathBuf, quiet: bool) -> ShowOptions {
        ShowOptions { json: false, progress: None, out: Some(out), check: false, quiet }
    }
}

impl<'a> Stage<'a> {
    /// Makes the directory, if there is to be one: `make` says whether what is in it may be replaced.
    pub(super) fn new(
        options: &'a ShowOptions,
        make: fn(&Path) -> Result<Folder, Failure>,
    ) -> Result<Stage<'a>, Failure> {
        let folder = options.out.as_deref().map(make).transpose()?;
        Ok(Stage { options, folder, begun: timestamp::now() })
    }

    /// Tells it. What was found is shown even if there is no room for the report.
    pub(super) fn show(&self, diagnosis: &Diagnosis) -> Result<ExitCode, Failure> {
        let version = env!("CARGO_PKG_VERSION");
        let report = DiagnosisReport::new(diagnosis, &self.begun, version);
        let json = report.json().map_err(Failure::failed)?;
        let quiet = self.options.quiet;
        match self.options.json {
            _ if quiet => {}
            true => say(&json),
            false => say(&report.terminal(width())),
        }
        if let Some(folder) = &self.folder {
            folder.write(DIAGNOSIS, json.as_bytes())?;
            folder.write("report.md", report.markdown().as_bytes())?;
            folder.write("report.html", report.html().as_bytes())?;
            if !self.options.json && !quiet {
                say(&format!("\nreport: {}\n", folder.file("report.html").display()));
            }
        }
        if self.options.check { check(diagnosis) } else { Ok(ExitCode::SUCCESS) }
    }
}

/// A path that nobody understands is no success: whoever asks in a script must not be told that all is well.
fn check(diagnosis: &Diagnosis) -> Result<ExitCode, Failure> {
    match diagnosis.verdict {
        Verdict::Fine { .. } => Ok(ExitCode::SUCCESS),
        Verdict::HeldBack => Err(Failure::new(FailureKind::HeldBack, verdict(diagnosis))),
        Verdict::NotKnown { .. } | Verdict::Uncertain { .. } => Err(Failure::failed(verdict(diagnosis))),
    }
}
