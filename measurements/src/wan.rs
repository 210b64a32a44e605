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
    /// Returns the part of a report between the facts on the machine and the list of all cells, with headings
    /// one level deeper.
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
        let deeper = tables.lines().map(|line| {
            if line.starts_with("##") {
                format!("#{line}")
            } else {
                line.to_owned()
            }
        });
        let tables: Vec<String> = deeper.collect();
        let body = format!(
            "{measured}\n\n{}\n\n### Requests over distance\n{}\n",
            verdict.join("\n"),
            tables.join("\n").trim_end()
        );
        Some(Section {
            heading: format!("Measured at {title}"),
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "# wan on a lab with a link of 1Gbit/s\n\nthe day\n\n**! to be read with care**\n\n\
        - published: **38 of 38**\n\n- a cell: a doubt\n\n## Environment\n\n| CPUs | 2 |\n\n\
        ## Requests over distance\n\nEach.\n\n### Reads\n\n| 1 |\n\n## All results\n\n| cell |\n";

    #[test]
    fn a_section_has_the_tables_and_neither_the_machine_nor_every_cell() {
        let section = Section::of(REPORT).expect("a record of the suite wan");
        assert_eq!(section.heading, "Measured at 1Gbit/s");
        assert_eq!(
            section.body,
            "the day\n\n- published: **38 of 38**\n\n### Requests over distance\n\nEach.\n\n#### Reads\n\n| 1 |\n"
        );
    }

    #[test]
    fn another_report_is_none_of_it() {
        assert_eq!(Section::of("# quick on ram:1GiB\n\nthe day\n"), None);
        assert_eq!(Section::of(""), None);
    }
}
