//! What is told at the end: the result on standard output.

use std::os::fd::AsFd;

use ::report::Report;
use ::report::measured::{Beside, Measured};
use bench::record::Record;

use super::arguments::OutputOptions;
use crate::failure::Failure;
use crate::output::say;

/// What was measured, on standard output. `tables` are what sessions told of the last run.
pub(super) fn print(
    options: &OutputOptions,
    congestion: Option<&str>,
    record: &Record,
    tables: &[String],
) -> Result<(), Failure> {
    let beside = Beside::new(record, congestion, options.statistics);
    if options.json {
        let mut runs = record.runs.iter();
        let lines = runs.try_for_each(|run| Measured::of(run, &beside).json().map(|line| say(&line)));
        return lines.map_err(Failure::failed);
    }
    if options.quiet || record.runs.is_empty() {
        return Ok(());
    }
    let mut cells = record.suite.cells();
    match (cells.next(), cells.next(), record.runs.as_slice()) {
        (Some(only), None, [run]) => say(&Measured::of(run, &beside).text(only, record, width())),
        _ => say(&Report::new(record).terminal(width())),
    }
    if options.statistics {
        tables.iter().for_each(|table| say(&format!("\n{table}")));
    }
    Ok(())
}

/// Columns of standard output: a file has room for all that there are.
pub(crate) fn width() -> usize {
    columns(std::io::stdout())
}

/// The same of another stream.
pub(super) fn columns(stream: impl AsFd) -> usize {
    let size = rustix::termios::tcgetwinsize(stream).ok();
    size.filter(|size| size.ws_col > 0).map_or(1000, |size| usize::from(size.ws_col))
}
