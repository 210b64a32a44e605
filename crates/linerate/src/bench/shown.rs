//! What is told at the end: the result on standard output, the files of its directory, and how it ended.

use std::process::ExitCode;

use ::report::Report;
use ::report::measured::{Beside, Measured};
use bench::record::Record;

use super::arguments::OutputOptions;
use super::folder::Folder;
use crate::failure::{Failure, Kind};
use crate::location::Location;
use crate::output::say;
use crate::wan;
use conduct::conductor::Outcome;

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
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    size.filter(|size| size.ws_col > 0).map_or(1000, |size| usize::from(size.ws_col))
}

/// The congestion control of our own sockets, if there are any: it is writes that it slows down, reads are up to the
/// target's.
pub(super) fn congestion(place: &Location) -> Option<String> {
    match place {
        Location::Lun(url) => Some(url.settings.stream.congestion.clone().unwrap_or_else(system_congestion)),
        Location::Volume(_) | Location::Path(_) => None,
    }
}

/// The system's choice for sockets that make none.
pub(crate) fn system_congestion() -> String {
    let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    default.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// The exit code: of what ended it, else of what was lost, else of requests that failed.
pub(super) fn verdict(
    record: &Record,
    outcome: Result<Outcome, Failure>,
    folder: Option<&Folder>,
    lost: Option<Failure>,
) -> Result<ExitCode, Failure> {
    let done = match record.runs.len() {
        1 => "1 run".to_owned(),
        runs => format!("{runs} runs"),
    };
    // A disk that is full is told by its own sentence.
    let kept = folder.filter(|_| lost.is_none());
    let then = kept.map(|folder| {
        let (subject, directory) = (&record.subject, folder.path().display());
        let suite = wan::NAME;
        match &subject.identity {
            Some(_) if wan::is_subject(subject) => {
                format!("linerate bench --suite {suite} --resume {directory} goes on")
            }
            Some(_) => format!("linerate bench {} --resume {directory} goes on", subject.place),
            None => format!("they are in {directory}"),
        }
    });
    match outcome {
        Err(failure) => Err(match then {
            Some(then) if !record.runs.is_empty() => failure.and(format_args!("{done} before that; {then}")),
            _ => failure,
        }),
        Ok(Outcome::Interrupted) => {
            let then = then.map(|then| format!("; {then}")).unwrap_or_default();
            Err(Failure::new(Kind::Interrupted, format_args!("interrupted after {done}{then}")))
        }
        Ok(Outcome::Complete) => {
            let mut clients = record.runs.iter().flat_map(|run| &run.clients);
            let failed = clients.any(|client| client.run.first_failure.is_some());
            lost.map_or(Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }), Err)
        }
    }
}
