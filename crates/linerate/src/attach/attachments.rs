//! `linerate attach --list`: what is attached here, and whether it is well.

use std::fmt::Write;

use attach::record::{FoundRecord, Record};

use super::records;
use crate::failure::Failure;
use crate::output::say;
use crate::spec::Bytes;

/// Lists what is attached.
pub(super) fn list(as_json: bool) -> Result<(), Failure> {
    let all = FoundRecord::all(&records()?).map_err(Failure::failed)?;
    say(&if as_json { json(&all)? } else { text(&all) });
    Ok(())
}

fn json(all: &[FoundRecord]) -> Result<String, Failure> {
    let records: Vec<&Record> = all.iter().map(|found| &found.record).collect();
    serde_json::to_string_pretty(&records).map(|text| text + "\n").map_err(Failure::failed)
}

fn text(all: &[FoundRecord]) -> String {
    if all.is_empty() {
        return "nothing is attached\n".to_owned();
    }
    let mut text = String::new();
    for found in all {
        let Record { path, volume, bytes, pid, log, .. } = &found.record;
        let _ = write!(text, "{}\n  {volume}, {}, {}", path.display(), Bytes(*bytes), state(found));
        let _ = write!(text, ", process {pid}");
        let _ = log.as_ref().map(|log| write!(text, ", log {}", log.display()));
        text.push('\n');
    }
    text
}

fn state(found: &FoundRecord) -> String {
    match (&found.record.failure, found.is_alive()) {
        (Some(why), false) => format!("ended: {why}"),
        (_, false) => "its process was killed; detach it".to_owned(),
        (_, true) if found.record.read_only => "read-only".to_owned(),
        (_, true) => "read-write".to_owned(),
    }
}
