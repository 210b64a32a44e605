//! Resumes an interrupted measurement on the same storage, with the suite of its record.

use bench::record::{Record, Subject};

use super::timestamp;
use backends::Failure;

/// The record of an interrupted measurement, to be gone on with on the storage that has been opened.
pub fn resumed(mut record: Record, subject: &Subject) -> Result<Record, Failure> {
    if let Some(ended) = &record.ended {
        return Err(Failure::refused(format!("that measurement came to its end at {ended}")));
    }
    let begun = &record.subject;
    if begun.identity.is_none() {
        let why =
            format!("{} ended with the program that measured it, and cannot be gone on with", begun.place);
        return Err(Failure::refused(why));
    }
    let is_same = (&begun.identity, begun.bytes, begun.block_bytes)
        == (&subject.identity, subject.bytes, subject.block_bytes);
    if !is_same {
        let why =
            format!("{} is not the storage that was measured, which was {}", subject.place, described(begun));
        return Err(Failure::refused(why));
    }
    let runs = record.runs.len();
    record.notes.push(format!("interrupted after {runs} runs, and gone on with at {}", timestamp::now()));
    Ok(record)
}

fn described(subject: &Subject) -> String {
    let identity = subject.identity.as_deref().unwrap_or("of no identity");
    format!("{} ({identity}) of {} bytes", subject.place, subject.bytes)
}

#[cfg(test)]
mod tests {
    use bench::plan::Suite;
    use bench::record::Facts;

    use super::*;
    use crate::begin;

    fn subject(identity: &str) -> Subject {
        Subject {
            place: "disk.img".to_owned(),
            kind: "file".to_owned(),
            bytes: 1 << 20,
            block_bytes: 512,
            product: None,
            identity: Some(identity.to_owned()),
        }
    }

    fn record() -> Record {
        let (name, title, about) = ("x".to_owned(), String::new(), String::new());
        let suite = Suite { name, title, about, document: None, assumed: Vec::new(), steps: Vec::new() };
        begin::record(subject("file 7"), suite, Facts::default(), Vec::new())
    }

    fn why(record: Record, subject: &Subject) -> String {
        resumed(record, subject).expect_err("a refusal").to_string()
    }

    #[test]
    fn what_is_complete_or_elsewhere_is_not_gone_on_with() {
        let ended = Record { ended: Some("2026-11-21T15:00:00Z".to_owned()), ..record() };
        assert!(why(ended, &subject("file 7")).contains("came to its end at 2026"));
        assert!(why(record(), &subject("file 8")).contains("(file 7) of 1048576 bytes"));
        let larger = Subject { bytes: 2 << 20, ..subject("file 7") };
        assert!(why(record(), &larger).contains("is not the storage"));
        let fleeting = Record { subject: Subject { identity: None, ..subject("x") }, ..record() };
        assert!(why(fleeting, &subject("file 7")).contains("cannot be gone on with"));
    }

    #[test]
    fn a_record_says_that_it_was_gone_on_with() {
        let record = resumed(record(), &subject("file 7")).expect("the same storage");
        assert!(record.notes[0].starts_with("interrupted after 0 runs"));
    }
}
