//! `linerate report`: what a result says, again and in any form, without measuring anything.

use std::path::PathBuf;

use ::report::{Report, documents};
use clap::{Args, ValueEnum};
use published::Curve;

use crate::bench::folder::Folder;
use crate::bench::width;
use crate::failure::Failure;
use crate::output::say;

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// Directory that `linerate bench --out` wrote
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Draw the published curves of a source document beside it; repeatable
    #[arg(long, value_name = "DOCUMENT", value_parser = ["000", "001", "002", "003", "004"])]
    beside: Vec<String>,
    /// Print this form, instead of writing report.html, report.md, cells.csv and samples.csv
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
}

/// What a report can be printed as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A summary for a terminal
    Terminal,
    /// One HTML file that needs nothing else
    Html,
    /// The same as Markdown
    Markdown,
    /// A line of CSV for each cell
    Cells,
    /// A line of CSV for each sample
    Samples,
    /// Iometer's result file
    IometerCsv,
    /// fio's JSON+
    FioJson,
    /// A line of JSON for each run, as `bench --json` prints them
    Json,
}

/// Runs the command.
pub(crate) fn run(arguments: &ReportArguments) -> Result<(), Failure> {
    let curves = curves(&arguments.beside)?;
    let folder = Folder::open(&arguments.directory);
    let record = folder.load()?;
    let report = Report::new(&record).beside(curves);
    match arguments.format {
        Some(format) => say(&printed(&report, format).map_err(Failure::failed)?),
        None => {
            write(&folder, &report)?;
            say(&report.terminal(width()));
            say(&format!("\nreport: {}\n", folder.file("report.html").display()));
        }
    }
    Ok(())
}

/// Writes what people and other programs read beside the record.
pub(crate) fn write(folder: &Folder, report: &Report<'_>) -> Result<(), Failure> {
    folder.write("cells.csv", report.cells_csv().as_bytes())?;
    folder.write("samples.csv", report.samples_csv().as_bytes())?;
    folder.write("report.md", report.markdown().as_bytes())?;
    folder.write("report.html", report.html().as_bytes())
}

fn printed(report: &Report<'_>, format: Format) -> serde_json::Result<String> {
    Ok(match format {
        Format::Terminal => report.terminal(width()),
        Format::Html => report.html(),
        Format::Markdown => report.markdown(),
        Format::Cells => report.cells_csv(),
        Format::Samples => report.samples_csv(),
        Format::IometerCsv => report.iometer_csv(),
        Format::FioJson => report.fio_json(),
        Format::Json => report.runs_json()?,
    })
}

/// The curves of these documents, as `--beside` names them.
pub(crate) fn curves(numbers: &[String]) -> Result<Vec<Curve>, Failure> {
    let mut curves = Vec::new();
    for number in numbers {
        let document = documents::document(number);
        let document = document.map_err(|why| Failure::refused(format_args!("--beside: {why}")))?;
        curves.extend(published::curves(document.number));
    }
    Ok(curves)
}
