//! How a measurement has ended, and how it is resumed.

use backends::{Failure, FailureKind};
use bench::record::{CellRun, Record};
use volume::shell;

use super::conductor::Outcome;
use super::folder::Folder;

/// Options of `bench` that say how storage is reached and what may be done to it: a measurement is resumed with the same.
const KEPT: [&str; 7] = [
    "--span",
    "--connections",
    "--congestion",
    "--poll-us",
    "--agents",
    "--server-agent",
    "--agent-secret-file",
];
/// Those of them without a value behind them.
const KEPT_ALONE: [&str; 2] = ["--allow-write", "--yes"];

/// What `bench` is to be told to resume a measurement, before `--resume`: what was measured (`subject`), and of the words of its
/// command line those that it needs again.
pub fn again(subject: &[&str], mut line: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = subject.iter().map(|&word| word.to_owned()).collect();
    while let Some(word) = line.next() {
        let name = word.split_once('=').map_or(&word[..], |(name, _)| name);
        let is_with_value = KEPT.contains(&name);
        if is_with_value || KEPT_ALONE.contains(&name) {
            let value = (is_with_value && name.len() == word.len()).then(|| line.next()).flatten();
            words.extend([word].into_iter().chain(value));
        }
    }
    let words: Vec<String> = words.iter().map(|word| shell::word(word)).collect();
    words.join(" ")
}

/// Whether every request has succeeded, and some in every run. `lost` is why the folder does not have all of the record, and `again` what the program's
/// `bench` is to be told to resume it.
///
/// # Errors
/// What ended it, else what was lost.
pub fn verdict(
    record: &Record,
    outcome: Result<Outcome, Failure>,
    folder: Option<&Folder>,
    lost: Option<Failure>,
    again: &str,
) -> Result<bool, Failure> {
    let done = match record.runs.len() {
        1 => "1 run".to_owned(),
        runs => format!("{runs} runs"),
    };
    // A disk that is full is told by its own sentence.
    let kept = folder.filter(|_| lost.is_none());
    let then = kept.map(|folder| {
        let directory = folder.path().display().to_string();
        match record.subject.identity {
            Some(_) => format!("to resume: linerate bench {again} --resume {}", shell::word(&directory)),
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
            Err(Failure::new(FailureKind::Interrupted, format_args!("interrupted after {done}{then}")))
        }
        Ok(Outcome::Complete) => match lost.or_else(|| silent(&record.runs)) {
            Some(failure) => Err(failure),
            None => Ok(record.runs.iter().all(CellRun::went_well)),
        },
    }
}

/// The failure of runs in which nothing completed, with the cause if a request told one: not everybody sees the tables.
fn silent(runs: &[CellRun]) -> Option<Failure> {
    let is_silent = |run: &&CellRun| run.clients.iter().all(|client| client.run.ios() == 0);
    let silent: Vec<&CellRun> = runs.iter().filter(is_silent).collect();
    let mut clients = silent.first()?.clients.iter();
    let why = clients.find_map(|client| client.run.first_failure.as_deref());
    Some(Failure::failed(format_args!(
        "no request completed in {} of {} runs: {}",
        silent.len(),
        runs.len(),
        why.unwrap_or("the storage did not answer in that time (--seconds makes runs longer)")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_is_resumed_with_what_it_needs_again() {
        let line = "linerate bench U --bs 4k --allow-write=1GiB..3GiB --yes --span 2GiB --agents=a,b --out d --seconds 5";
        let again = again(&["iscsi://a/iqn.b/0?login-time=5"], line.split(' ').map(str::to_owned));
        let expected =
            "'iscsi://a/iqn.b/0?login-time=5' --allow-write=1GiB..3GiB --yes --span 2GiB --agents=a,b";
        assert_eq!(again, expected);
    }
}
