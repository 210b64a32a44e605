//! The growing record of a measurement, and its directory, if any.

use std::time::{Duration, Instant};

use bench::record::{CellRun, Record};

use super::folder::Folder;
use super::timestamp;
use backends::Failure;

/// A record and its directory.
pub struct Keeper {
    record: Record,
    folder: Option<Folder>,
    /// When the record began, on this machine's clock: one that is gone on with began earlier than this
    /// program.
    begun: Instant,
    before: Duration,
    /// Why the directory does not have all of it.
    lost: Option<Failure>,
}

impl Keeper {
    /// Writes what is there already, so that a directory that cannot be written to is known before anything
    /// is measured.
    pub fn new(record: Record, folder: Option<Folder>) -> Result<Keeper, Failure> {
        if let Some(folder) = &folder {
            folder.save(&record)?;
        }
        let last = record.runs.iter().map(|run| run.begun_s + longest(run)).fold(0.0, f64::max);
        Ok(Keeper {
            record,
            folder,
            begun: Instant::now(),
            before: Duration::from_secs_f64(last),
            lost: None,
        })
    }

    /// The record as far as it is.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Where it is kept, if it is.
    pub fn folder(&self) -> Option<&Folder> {
        self.folder.as_ref()
    }

    /// Seconds since the record began.
    pub fn seconds_at(&self, instant: Instant) -> f64 {
        (self.before + instant.saturating_duration_since(self.begun)).as_secs_f64()
    }

    /// Adds a run. What it gives is to be told to people: that it could not be written down.
    pub fn keep(&mut self, run: CellRun) -> Option<String> {
        self.record.runs.push(run);
        self.save()
    }

    /// Adds something that a reader of the record should know.
    pub fn note(&mut self, sentence: String) {
        self.record.notes.push(sentence);
    }

    /// All has been measured.
    pub fn complete(&mut self) {
        self.record.ended = Some(timestamp::now());
    }

    /// Writes the record. Says so the first time that this fails; space may come back.
    pub fn save(&mut self) -> Option<String> {
        let saved = self.folder.as_ref()?.save(&self.record);
        let Err(failure) = saved else {
            self.lost = None;
            return None;
        };
        let sentence = self.lost.is_none().then(|| failure.to_string());
        self.lost = Some(failure);
        sentence
    }

    /// Writes the record a last time. Gives it, and why the directory does not have all of it, if so.
    pub fn end(mut self) -> (Record, Option<Folder>, Option<Failure>) {
        self.save();
        (self.record, self.folder, self.lost)
    }
}

fn longest(run: &CellRun) -> f64 {
    run.clients.iter().map(|client| client.run.seconds).fold(0.0, f64::max)
}
