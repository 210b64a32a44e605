//! `linerate report`: what a result says, again and in any form, without measuring anything.

use std::path::PathBuf;

use ::report::Report;
use bench_runner::folder::{self, Folder};
use bench_runner::reports::{of_folder, together, write, write_together};
use clap::{Args, ValueEnum};
use published::Curve;

use crate::bench::width;
use crate::failure::Failure;
use crate::output::say;

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// Directories that `linerate bench --out` wrote, or that contain such directories
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// Directory for the page of several results, reports.html and reports.md [default: DIR, if only one is named]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
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
    /// A line of JSON for each run, as `bench` prints them
    Json,
}

/// Runs the command.
pub(crate) fn run(arguments: &ReportArguments) -> Result<(), Failure> {
    let curves = curves(&arguments.beside);
    let folders = folder::with_results_in(&arguments.directories)?;
    if let ([only], None) = (folders.as_slice(), &arguments.out) {
        let folder = Folder::open(only);
        let record = folder.load()?;
        match arguments.format {
            Some(format) => {
                say(&printed(&of_folder(&folder, &record, curves)?, format).map_err(Failure::failed)?)
            }
            None => {
                write(&folder, &record, curves)?;
                say(&Report::new(&record).terminal(width()));
                say(&format!("\nreport: {}\n", folder.file("report.html").display()));
            }
        }
        return Ok(());
    }
    if let Some(format) = arguments.format {
        return together(&folders, &curves, |reports| {
            let text = match format {
                Format::Terminal => reports.terminal(width()),
                Format::Html => reports.html(),
                Format::Markdown => reports.markdown(),
                Format::Cells | Format::Samples | Format::IometerCsv | Format::FioJson | Format::Json => {
                    return Err(Failure::refused(
                        "--format: this form holds one result, and several were found",
                    ));
                }
            };
            say(&text);
            Ok(())
        });
    }
    let out = match (&arguments.out, arguments.directories.as_slice()) {
        (Some(out), _) | (None, [out]) => out,
        _ => return Err(Failure::refused("say where the page of several results goes: --out DIR")),
    };
    for path in &folders {
        let folder = Folder::open(path);
        write(&folder, &folder.load()?, curves.clone())?;
    }
    let page = write_together(&folders, &curves, out)?;
    together(&folders, &curves, |reports| {
        say(&reports.terminal(width()));
        Ok(())
    })?;
    say(&format!("\nreports: {}\n", page.display()));
    Ok(())
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
pub(crate) fn curves(numbers: &[String]) -> Vec<Curve> {
    numbers.iter().flat_map(|number| published::curves(number)).collect()
}
