//! The tables of docs/measured/wan.md, from measurements made with `linerate bench --suite wan --out DIR`.
//!
//! The current program generates the reports again, so that the page has the recorded numbers in the current wording.

use std::path::PathBuf;

use anyhow::{Context, Result};

use xtask::document;
use xtask::tally::Verdict;
use xtask::{process, workspace};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Directories that `linerate bench --suite wan --out DIR` wrote; each becomes a section
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// Program that generates the reports [default: a release build]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<Verdict> {
    let program = options
        .program
        .clone()
        .map_or_else(workspace::release_binary, Ok)?;
    for directory in &options.directories {
        let folder = directory.display().to_string();
        let report = process::run(&program, &["report", &folder, "--format", "markdown"])?;
        let section = Section::of(&report).with_context(|| {
            format!(
                "{} contains no record of the suite wan",
                directory.display()
            )
        })?;
        document::write_section("wan", &section.heading, &section.body)?;
    }
    Ok(Verdict::Holds)
}

/// A part of the page.
#[derive(Debug, PartialEq)]
struct Section {
    heading: String,
    body: String,
}

impl Section {
    /// Returns the tables of a report between the facts on the machine and the list of all cells, with headings one level
    /// deeper, and the errors of the model. The page's first paragraphs explain the tables, so paragraphs are omitted, and so
    /// are the model's figures and constants.
    fn of(report: &str) -> Option<Section> {
        let title = report
            .lines()
            .next()?
            .strip_prefix("# wan on a lab with a link of ")?;
        let measured = report.lines().nth(2)?;
        let verdict = report
            .lines()
            .filter(|line| line.starts_with("- "))
            .take_while(|line| line.contains("**"));
        let verdict: Vec<&str> = verdict.collect();
        let tables = report
            .split_once("\n## Requests over distance\n")?
            .1
            .split("\n## All results\n")
            .next()?;
        let (tables, model) = tables
            .split_once("\n## The model, and unreachable results\n")
            .unwrap_or((tables, ""));
        let mut body = format!(
            "{measured}\n\n{}\n\n### Requests over distance\n",
            verdict.join("\n")
        );
        // Document 002 published results of this rate, and of Gigabit Ethernet without a delay.
        let mut is_published = title == "160Mbit/s";
        for line in tables.lines() {
            is_published |= line == "## Gigabit Ethernet, without a delay";
            match line.chars().next() {
                Some('#') if line.ends_with(": measured / model") => {} // its table names the parameter
                Some('#') => body += &format!("#{line}\n"),
                Some('|') => body += &row(line, is_published),
                Some(_) => {}
                None if body.ends_with("\n\n") => {}
                None => body.push('\n'),
            }
        }
        let errors: Vec<&str> = model
            .lines()
            .filter(|line| line.starts_with("- "))
            .collect();
        let errors = errors.join("\n").replace("- In the", "- Model, in the");
        let body = format!("{}\n\n{errors}\n", body.trim_end());
        Some(Section {
            heading: format!("Measured at {title}"),
            body,
        })
    }
}

/// Returns a row of a table without the model's figure in each cell, and without the published one if it is of another link.
fn row(line: &str, is_published: bool) -> String {
    let is_number = |text: &str| text.parse::<f64>().is_ok();
    let cells = line.trim_matches('|').split('|').map(|cell| {
        let cell = cell.trim();
        match cell.split(" / ").collect::<Vec<_>>()[..] {
            [measured, _, published] if is_published => format!("{measured} / {published}"),
            [measured, _, _] => measured.to_owned(),
            [measured, model] if is_number(measured) && is_number(model) => measured.to_owned(),
            _ => cell.to_owned(),
        }
    });
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "# wan on a lab with a link of 1Gbit/s\n\nthe day\n\n**! to be read with care**\n\n\
        - published: **38 of 38**\n\n- a cell: a doubt\n\n## Environment\n\n| CPUs | 2 |\n\n\
        ## Requests over distance\n\nEach.\n\n### Reads\n\n| request | 0 ms |\n| --- | ---: |\n| 1 KiB | 2.93 / 2.89 / 2.3 ✗ |\n\n\
        ## Gigabit Ethernet, without a delay\n\n| 1 KiB | 5.60 / 5.50 / 5.4 |\n\n\
        ### Throughput, in MB/s: measured / model\n\n| 1 | 7.34 / 8.90 |\n\n## The model, and unreachable results\n\n\
        A request takes time.\n\n- In the predicted cells: 1 %.\n\n| why | cells: measured of published |\n\n\
        ## All results\n\n| cell |\n";

    #[test]
    fn a_section_has_measured_and_published_figures_and_the_errors_of_the_model() {
        let section = Section::of(REPORT).expect("a record of the suite wan");
        assert_eq!(section.heading, "Measured at 1Gbit/s");
        assert_eq!(
            section.body,
            "the day\n\n- published: **38 of 38**\n\n### Requests over distance\n\n#### Reads\n\n\
             | request | 0 ms |\n| --- | ---: |\n| 1 KiB | 2.93 |\n\n### Gigabit Ethernet, without a delay\n\n\
             | 1 KiB | 5.60 / 5.4 |\n\n| 1 | 7.34 |\n\n- Model, in the predicted cells: 1 %.\n"
        );
    }

    #[test]
    fn another_report_is_none_of_it() {
        assert_eq!(Section::of("# quick on ram:1GiB\n\nthe day\n"), None);
        assert_eq!(Section::of(""), None);
    }
}
