//! `linerate report` prints a result in any form, without a measurement. `linerate compare` compares two
//! results. `linerate report published` prints the numbers of the source documents.

use std::path::PathBuf;
use std::process::ExitCode;

use ::report::compare::{Comparison, compare, listed};
use ::report::{Report, documents};
use bench_runner::folder::{
    self, Folder, read_result, report_of, together, write_report, write_together,
};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::failure::{Failure, FailureKind};
use crate::output::{say, say_json, width};

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// Directories that `linerate bench --out` wrote, or that contain such directories
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// Directory for the page of several results, reports.html and reports.md [default: DIR, if only one is named]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Compare the results with those of the same class in a source document; repeatable
    #[arg(long, value_name = "DOCUMENT", value_parser = ["000", "001", "002", "003", "004"])]
    beside: Vec<String>,
    /// Print this form, instead of writing report.html, report.md, cells.csv and samples.csv
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
}

/// The formats of a printed report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A summary for a terminal
    Terminal,
    /// One self-contained HTML file
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
    /// A line of JSON for each run, as printed by `bench`
    Json,
}

/// Runs the command.
pub(crate) fn run(arguments: &ReportArguments) -> Result<(), Failure> {
    let beside = arguments.beside.as_slice();
    let folders = folder::with_results_in(&arguments.directories)?;
    if let ([only], None) = (folders.as_slice(), &arguments.out) {
        let folder = Folder::open(only);
        let record = folder.load()?;
        match arguments.format {
            Some(format) => {
                say(&printed(&report_of(&folder, &record, beside)?, format)
                    .map_err(Failure::failed)?)
            }
            None => {
                write_report(&folder, &record, beside)?;
                say(&Report::new(&record).beside(beside).terminal(width()));
                say(&format!(
                    "\nreport: {}\n",
                    folder.file("report.html").display()
                ));
            }
        }
        return Ok(());
    }
    if let Some(format) = arguments.format {
        return together(&folders, beside, |reports| {
            let text = match format {
                Format::Terminal => reports.terminal(width()),
                Format::Html => reports.html(),
                Format::Markdown => reports.markdown(),
                Format::Cells
                | Format::Samples
                | Format::IometerCsv
                | Format::FioJson
                | Format::Json => {
                    return Err(Failure::refused(
                        "--format: this format supports only one result, but several were found",
                    ));
                }
            };
            say(&text);
            Ok(())
        });
    }
    let out = match (&arguments.out, arguments.directories.as_slice()) {
        (Some(out), _) | (None, [out]) => out,
        _ => {
            return Err(Failure::refused(
                "several results need a directory for the report: --out DIR",
            ));
        }
    };
    for path in &folders {
        let folder = Folder::open(path);
        write_report(&folder, &folder.load()?, beside)?;
    }
    let page = write_together(&folders, beside, out)?;
    together(&folders, beside, |reports| {
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

#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// Baseline: a directory that `linerate bench --out` wrote, or its result.json
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Result to judge
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Fail only if something is worse by more than this percentage
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = percent)]
    fail_above: f64,
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print Markdown, for a merge request
    #[arg(long)]
    markdown: bool,
}

/// The result as JSON.
#[derive(Serialize)]
struct Told<'a> {
    a: &'a PathBuf,
    b: &'a PathBuf,
    fail_above_percent: f64,
    /// Names of the cells that make the command fail.
    worse: Vec<&'a str>,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

/// Runs the command.
pub(crate) fn run_compare(arguments: &CompareArguments) -> Result<ExitCode, Failure> {
    let (a, b) = (read_result(&arguments.a)?, read_result(&arguments.b)?);
    let comparison = compare(&a, &b);
    if comparison.cells.is_empty() {
        return Err(Failure::refused(format_args!(
            "nothing to compare: {} and {} have no cell in common (suites {} and {})",
            arguments.a.display(),
            arguments.b.display(),
            a.suite.name,
            b.suite.name
        )));
    }
    match (arguments.json, arguments.markdown) {
        (true, _) => json(arguments, &comparison)?,
        (_, true) => say(&comparison.markdown()),
        _ => say(&comparison.terminal(width())),
    }
    verdict(&comparison, arguments.fail_above)
}

fn json(arguments: &CompareArguments, comparison: &Comparison) -> Result<(), Failure> {
    let told = Told {
        a: &arguments.a,
        b: &arguments.b,
        fail_above_percent: arguments.fail_above,
        worse: comparison
            .worse(arguments.fail_above)
            .map(|cell| cell.cell.as_str())
            .collect(),
        comparison,
    };
    say_json(&told)
}

/// The exit code of a comparison. If no cell could be compared, the command fails, because a CI gate must not
/// pass without data.
fn verdict(comparison: &Comparison, fail_above: f64) -> Result<ExitCode, Failure> {
    let worse: Vec<&str> = comparison
        .worse(fail_above)
        .map(|cell| cell.cell.as_str())
        .collect();
    if !worse.is_empty() {
        return Err(Failure::new(
            FailureKind::Worse,
            format_args!("B is worse in {}", listed(&worse)),
        ));
    }
    if comparison.judged() == 0 {
        return Err(Failure::failed(
            "no cell could be compared: the workloads differ, or there are too few measurements",
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').trim_end().parse::<f64>().ok();
    let possible = percent.filter(|percent| percent.is_finite() && *percent >= 0.0);
    possible.ok_or_else(|| "give a percentage of 0 or more, such as 5".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct PublishedArguments {
    /// Print only this document
    #[arg(value_name = "DOCUMENT", value_parser = ["000", "001", "002", "003", "004"])]
    document: Option<String>,
    /// Print only tables whose name contains this text, such as "Table 2"
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Print every number as JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print every number as CSV
    #[arg(long)]
    csv: bool,
}

pub(crate) fn run_published(arguments: &PublishedArguments) -> Result<(), Failure> {
    let (document, table) = (arguments.document.as_deref(), arguments.table.as_deref());
    let chosen = documents::chosen(document, table).map_err(Failure::refused)?;
    if arguments.json || arguments.csv {
        let rows = documents::numbers(&chosen);
        let text = if arguments.json {
            documents::json(&rows).map_err(Failure::failed)?
        } else {
            documents::csv(&rows).map_err(Failure::failed)?
        };
        say(&text);
        return Ok(());
    }
    for (document, tables) in &chosen {
        say(&documents::heading(document, width()));
        tables
            .iter()
            .for_each(|table| say(&documents::table(table, width())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_may_have_its_sign() {
        assert_eq!(percent("2.5%"), Ok(2.5));
        assert_eq!(percent("0"), Ok(0.0));
        for wrong in ["-1", "five", "inf", "nan", ""] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
