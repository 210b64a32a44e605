//! How a measurement has ended, and how it is resumed.

use backends::{Failure, Kind};
use bench::record::{CellRun, Record};

use super::conductor::Outcome;
use super::folder::Folder;

/// Whether every request has succeeded, and some in every run. `lost` is why the folder does not have all of the record, and `subject` what the program's
/// `bench` is to be told to resume it.
///
/// # Errors
/// What ended it, else what was lost.
pub fn verdict(
    record: &Record,
    outcome: Result<Outcome, Failure>,
    folder: Option<&Folder>,
    lost: Option<Failure>,
    subject: &str,
) -> Result<bool, Failure> {
    let done = match record.runs.len() {
        1 => "1 run".to_owned(),
        runs => format!("{runs} runs"),
    };
    // A disk that is full is told by its own sentence.
    let kept = folder.filter(|_| lost.is_none());
    let then = kept.map(|folder| {
        let directory = folder.path().display();
        match record.subject.identity {
            Some(_) => format!("linerate bench {subject} --resume {directory} goes on"),
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
        Ok(Outcome::Complete) => lost.map_or_else(|| Ok(record.runs.iter().all(CellRun::went_well)), Err),
    }
}
