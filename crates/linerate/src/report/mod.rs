//! `linerate report`: what a result says, again and in any form, without measuring anything.

use std::fs;
use std::path::{Path, PathBuf};

use ::report::{Report, Reports, documents, read_diagnosis};
use bench::record::Record;
use clap::{Args, ValueEnum};
use published::Curve;

use crate::bench::folder::{self, Folder};
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
    let curves = curves(&arguments.beside)?;
    let folders = found(&arguments.directories)?;
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
    let page = write_together(&folders, &arguments.beside, out)?;
    together(&folders, &curves, |reports| {
        say(&reports.terminal(width()));
        Ok(())
    })?;
    say(&format!("\nreports: {}\n", page.display()));
    Ok(())
}

/// All folders with results in these directories, each once.
fn found(directories: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for directory in directories {
        let mut found = if directory.is_dir() { folder::with_results(directory)? } else { Vec::new() };
        if found.is_empty() {
            // To be refused by its name.
            found.push(directory.clone());
        }
        found.retain(|path| !folders.contains(path));
        folders.append(&mut found);
    }
    Ok(folders)
}

/// Does something with the reports of these folders.
fn together(
    folders: &[PathBuf],
    curves: &[Curve],
    then: impl FnOnce(&Reports<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let folders: Vec<Folder> = folders.iter().map(|path| Folder::open(path)).collect();
    let records: Vec<Record> = folders.iter().map(Folder::load).collect::<Result<_, _>>()?;
    let each = folders.iter().zip(&records);
    let reports = each.map(|(folder, record)| of_folder(folder, record, curves.to_vec()));
    then(&Reports::new(reports.collect::<Result<_, _>>()?))
}

/// Writes the page of several results, and says where it is.
pub(crate) fn write_together(folders: &[PathBuf], beside: &[String], out: &Path) -> Result<PathBuf, Failure> {
    let out = Folder::replace(out)?;
    together(folders, &curves(beside)?, |reports| {
        out.write("reports.md", reports.markdown().as_bytes())?;
        out.write("reports.html", reports.html().as_bytes())
    })?;
    Ok(out.file("reports.html"))
}

/// Writes what people and other programs read beside the record.
pub(crate) fn write(folder: &Folder, record: &Record, beside: Vec<Curve>) -> Result<(), Failure> {
    let report = of_folder(folder, record, beside)?;
    folder.write("cells.csv", report.cells_csv().as_bytes())?;
    folder.write("samples.csv", report.samples_csv().as_bytes())?;
    folder.write("report.md", report.markdown().as_bytes())?;
    folder.write("report.html", report.html().as_bytes())
}

/// The report of a record, with the name of its folder and the diagnosis that is there.
fn of_folder<'a>(folder: &Folder, record: &'a Record, beside: Vec<Curve>) -> Result<Report<'a>, Failure> {
    let report = Report::new(record).beside(beside).in_folder(folder.path().display().to_string());
    let files = ["diagnosis.json", "diagnosis/diagnosis.json"].map(|name| folder.file(name));
    let Some(file) = files.into_iter().find(|file| file.is_file()) else { return Ok(report) };
    let refused = |why: String| Failure::refused(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(&file).map_err(|error| refused(error.to_string()))?;
    read_diagnosis(&text).map(|diagnosis| report.with_diagnosis(diagnosis)).map_err(refused)
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
