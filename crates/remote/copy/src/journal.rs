//! The durable checkpoint of a copy: all data before the recorded position are on the destination's stable
//! storage, since it was flushed before the position was recorded.
//!
//! One directory belongs to one copy and is locked while it runs. It records both ends and one number: the
//! byte before which everything is copied. Pieces end in any order but close together, so little is copied
//! twice.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use backends::location::Location;
use backends::{Failure, FailureKind};
use host::StateDirectory;
use reactor::JoinHandle;
use serde::{Deserialize, Serialize};
use volume::spec::Bytes;

use crate::destination::Destination;
use crate::digest;
use crate::options::{JournalPlace, Options};
use crate::pump::{Mark, Stop, flushed};
use crate::source::Source;

/// The record of an earlier copy.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Begun {
    source: String,
    destination: String,
    done_bytes: u64,
}

/// The journal of the copy that runs.
pub(crate) struct Journal {
    keep: Rc<StateDirectory>,
    directory: PathBuf,
    source: String,
    begun: Option<Begun>,
    interval: Duration,
    noted: Instant,
    noting: Option<JoinHandle<Result<Mark, Stop>>>,
}

/// The only name in the directory.
const NAME: &str = "copy.json";

impl Journal {
    /// Opens it and reads the record of an earlier copy; `None` if the source's data end with this process.
    pub(crate) async fn open(
        options: &Options<'_>,
        source: &Source,
        to: &Location,
    ) -> Result<Option<Journal>, Failure> {
        let Some(identity) = source.identity() else { return Ok(None) };
        let Some(directory) = directory(&options.journal, &source.name, &to.to_string()) else {
            return Ok(None);
        };
        let keep = StateDirectory::open(&directory).map_err(|error| not_opened(&directory, &error))?;
        let kept = keep.load(NAME).await.map_err(|error| unusable(&directory, &error))?;
        let begun = match kept.filter(|_| !options.restart) {
            Some(kept) => Some(serde_json::from_slice(&kept).map_err(|error| unusable(&directory, &error))?),
            None => None,
        };
        Ok(Some(Journal {
            keep: Rc::new(keep),
            directory,
            source: identity,
            begun,
            interval: options.checkpoint,
            noted: Instant::now(),
            noting: None,
        }))
    }

    /// What an earlier copy has left.
    pub(crate) fn begun(&self) -> Option<&Begun> {
        self.begun.as_ref()
    }

    /// Starts a checkpoint at the mark if one is due: flushes the destination and records the position, while
    /// the copy continues. Returns the result of the last checkpoint.
    pub(crate) async fn perhaps(
        &mut self,
        mark: Mark,
        destination: &Rc<Destination>,
    ) -> Result<Option<Mark>, Stop> {
        if self.noted.elapsed() < self.interval
            || self.noting.as_ref().is_some_and(|noting| !noting.is_finished())
        {
            return Ok(None);
        }
        let noted = self.noted().await?;
        self.noted = Instant::now();
        if let Some(begun) = self.entry(mark.done, destination) {
            let noting = note(Rc::clone(&self.keep), Rc::clone(destination), begun);
            self.noting = Some(reactor::spawn(async move { noting.await.map(|()| mark) }));
        }
        Ok(noted)
    }

    /// Makes a checkpoint now and waits for it.
    pub(crate) async fn last(&mut self, mark: Mark, destination: &Rc<Destination>) -> Result<(), Stop> {
        match self.entry(mark.done, destination) {
            Some(begun) => note(Rc::clone(&self.keep), Rc::clone(destination), begun).await,
            None => flushed(destination).await,
        }
    }

    /// Waits for the checkpoint in progress, if any, and returns its position.
    pub(crate) async fn noted(&mut self) -> Result<Option<Mark>, Stop> {
        match self.noting.take() {
            Some(noting) => noting.await.map(Some),
            None => Ok(None),
        }
    }

    fn entry(&self, done_bytes: u64, destination: &Destination) -> Option<Begun> {
        let destination = destination.identity()?.to_owned();
        Some(Begun { source: self.source.clone(), destination, done_bytes })
    }

    /// Whether a copy to this destination is resumable by it.
    pub(crate) fn serves(&self, destination: &Destination) -> bool {
        destination.identity().is_some()
    }

    /// Removes it.
    pub(crate) async fn forget(self) -> Result<(), Failure> {
        let removed = self.keep.remove(NAME).await;
        removed.map_err(|error| unusable(&self.directory, &error))
    }
}

impl Drop for Journal {
    /// Removes the directory if it has neither a record nor other files.
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.directory);
    }
}

async fn note(keep: Rc<StateDirectory>, destination: Rc<Destination>, begun: Begun) -> Result<(), Stop> {
    flushed(&destination).await?;
    let bytes = serde_json::to_vec(&begun).map_err(Failure::failed)?;
    Ok(keep.save(NAME, bytes).await.map_err(|error| Failure::unwritten("the journal", &error))?)
}

impl Begun {
    /// Whether both ends are what they were when that copy was begun.
    pub(crate) fn is_of(&self, source: &Source, destination: Option<&str>) -> Result<(), Failure> {
        if source.identity().as_ref() != Some(&self.source) {
            return Err(another("source", &source.name));
        }
        if destination != Some(&self.destination) {
            return Err(another("destination", destination.unwrap_or("this one")));
        }
        Ok(())
    }

    /// The position: everything before this byte is copied.
    pub(crate) fn done_bytes(&self) -> u64 {
        self.done_bytes
    }
}

fn another(end: &str, name: &str) -> Failure {
    Failure::refused(format!(
        "the {end} has changed since this copy was interrupted ({name}); say --restart to begin again"
    ))
}

/// The destination of a copy to be resumed does not exist any more.
pub(crate) fn gone(name: &str) -> Failure {
    Failure::refused(format!("{name} is gone, to which this copy was begun; say --restart to begin again"))
}

/// The failure of an interrupted copy.
pub(crate) fn interrupted(done: u64, bytes: u64, is_resumable: bool) -> Failure {
    let then = match is_resumable {
        true => "run the same command again to go on",
        false => "what is at the destination is not complete",
    };
    let (done, bytes) = (Bytes(done), Bytes(bytes));
    Failure::new(FailureKind::Interrupted, format_args!("interrupted at {done} of {bytes}; {then}"))
}

/// A remark that a copy cannot be resumed, if that is for want of an identity: what is at one end after an interruption could be
/// another disk, or an empty one.
pub(crate) fn remark(options: &Options<'_>, source: &Source, destination: &Destination) -> Option<String> {
    let nameless = match (source.identity(), destination.identity()) {
        (None, _) => &source.name,
        (_, None) => &destination.name,
        _ => return None,
    };
    let is_wanted = !matches!(options.journal, JournalPlace::Nowhere);
    is_wanted.then(|| {
        format!(
            "this copy cannot be resumed if it is interrupted: nothing tells {nameless} from other storage"
        )
    })
}

/// Where the journal is; nothing, if there is no place for one.
fn directory(place: &JournalPlace, from: &str, to: &str) -> Option<PathBuf> {
    let copies = match place {
        JournalPlace::Nowhere => return None,
        JournalPlace::Directory(named) => return Some(named.clone()),
        JournalPlace::Below(copies) => copies,
    };
    if let Err(error) = std::fs::create_dir_all(copies) {
        tracing::warn!(directory = %copies.display(), %error, "no journal: this copy cannot be resumed");
        return None;
    }
    Some(copies.join(&digest::hex(format!("{from}\n{to}").as_bytes())[..16]))
}

fn unusable(directory: &Path, error: &dyn fmt::Display) -> Failure {
    Failure::refused(format!("the journal in {} cannot be used: {error}", directory.display()))
}

/// Two copies with one journal would overwrite each other's checkpoints.
fn not_opened(directory: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::WouldBlock => Failure::refused("the same copy is running already"),
        _ => unusable(directory, error),
    }
}
