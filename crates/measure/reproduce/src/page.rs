//! The files of a reproduction: its plan, and the page in HTML and Markdown with its numbers as CSV.

use std::fs;
use std::path::Path;

use backends::Failure;
use bench::record::Record;
use bench_runner::folder::Folder;
use report::reproduced::{self, Reproduction};

use crate::plan::{Bed, Plan};
use crate::run::begun;

/// The plan's file in the directory of a reproduction.
pub const PLAN: &str = "plan.toml";

/// Creates a directory for a reproduction, with its plan.
///
/// # Errors
/// It contains a reproduction, or cannot be written.
pub fn create(out: &Path, text: &str) -> Result<(), Failure> {
    if out.join(PLAN).exists() {
        let out = out.display();
        return Err(Failure::refused(format!(
            "{out} contains a reproduction; resume it (--resume {out}), or name another directory"
        )));
    }
    Folder::create(out)?.write(PLAN, text.as_bytes())
}

/// Returns the plan's text in a directory.
///
/// # Errors
/// The directory contains no reproduction.
pub fn plan_in(out: &Path) -> Result<String, Failure> {
    let path = out.join(PLAN);
    fs::read_to_string(&path)
        .map_err(|error| Failure::refused(format!("cannot read {}: {error}", path.display())))
}

/// Writes the page from the results of all tests. Returns the agreement of each bed, in a line each.
///
/// # Errors
/// A result cannot be read, or the page cannot be written.
pub fn write(plan: &Plan, out: &Path) -> Result<String, Failure> {
    let mut records: Vec<Vec<Option<Record>>> = Vec::new();
    for bed in &plan.beds {
        let tests = plan.tests.iter().map(|test| begun(out, bed, test));
        records.push(tests.collect::<Result<_, _>>()?);
    }
    let beds = plan
        .beds
        .iter()
        .zip(&records)
        .map(|(bed, records)| shown(plan, bed, records));
    let page = Reproduction::new(plan.document, plan.is_quick, beds.collect());
    let folder = Folder::replace(out)?;
    let numbers = page.csv().map_err(Failure::failed)?;
    folder.write("numbers.csv", numbers.as_bytes())?;
    folder.write("report.md", page.markdown().as_bytes())?;
    folder.write("report.html", page.html().as_bytes())?;
    Ok(page.terminal())
}

fn shown<'a>(plan: &Plan, bed: &Bed, records: &'a [Option<Record>]) -> reproduced::Bed<'a> {
    let tests = plan.tests.iter().zip(records).filter_map(|(test, record)| {
        let storage = test
            .clients
            .iter()
            .filter_map(|client| bed.storage(client).ok());
        Some(reproduced::Test {
            rows: test.rows.clone(),
            place: storage.collect::<Vec<_>>().join(", "),
            note: test.note.clone(),
            record: record.as_ref()?,
        })
    });
    reproduced::Bed {
        name: bed.name.clone(),
        about: bed.about.clone(),
        fitted: bed.fitted.clone(),
        tests: tests.collect(),
    }
}
