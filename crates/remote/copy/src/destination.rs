//! The destination of a copy.

use std::cell::Cell;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::ops::{AddAssign, Range};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use backends::location::{self, Location, Opened};
use backends::{Failure, FailureKind};
use block::{Allocation, BlockSize, DeviceError, Slice, bytewise};
use disk_contents::{Consent, Overwritten};
use host::{FileDevice, FileOptions, OpenError, StateDirectory, private_file};
use iscsi_client::Unit;
use reactor::JoinHandle;
use serde::{Deserialize, Serialize};
use volume::spec::Bytes;

use crate::options::{Flight, JournalPlace, Options};
use crate::source::{self, Source};

/// A destination, open for writing.
pub(crate) struct Destination {
    opened: Opened,
    pub(crate) name: String,
    /// The file that this copy has created or resumes.
    file: Option<PathBuf>,
    /// Whether unwritten parts read as zeros.
    is_fresh: Cell<bool>,
}

impl Destination {
    /// Opens the destination, or creates the file. The destination must be large enough, must not be the
    /// source, and overwriting it must be allowed. `begun` is the record of an interrupted copy to resume.
    pub(crate) async fn open(
        place: &Location,
        source: &Source,
        begun: Option<&Begun>,
        consent: Consent<'_>,
    ) -> Result<Destination, Failure> {
        let name = place.to_string();
        let path = regular_file(place);
        let opened = match path {
            Some(path) if begun.is_none() => fresh_file(path, &name, source, consent)?,
            Some(path) if !path.exists() => return Err(gone(&name)),
            _ => place.open_by_bytes(false).await?,
        };
        let is_fresh = Cell::new(path.is_some() && begun.is_none());
        let file = path.map(Path::to_owned);
        let destination = Destination {
            file,
            is_fresh,
            ..Destination::from_opened(opened, name)
        };
        let checked = destination.check(source, begun, consent).await;
        if checked.is_err() {
            destination.close().await;
        }
        checked.map(|()| destination)
    }

    /// Uses an opened device as the destination. Its content is unknown.
    pub(crate) fn from_opened(opened: Opened, name: String) -> Destination {
        Destination {
            opened,
            name,
            file: None,
            is_fresh: Cell::new(false),
        }
    }

    /// The number and size of outstanding requests for a copy from `source`. The data of a local copy passes
    /// through memory twice. By default, little of it is outstanding, so that the second pass finds the data
    /// in a CPU cache (measured against qemu-img and dd: docs/copy.md).
    pub(crate) fn flight(&self, options: &Options<'_>, source: &Source) -> Flight {
        let is_local = source.unit().is_none() && self.unit().is_none();
        let (depth, request_bytes) = if is_local {
            (2, 1 << 20)
        } else {
            (16, 256 << 10)
        };
        Flight {
            depth: options.depth.unwrap_or(depth),
            request_bytes: options.request_bytes.unwrap_or(request_bytes),
        }
    }

    async fn check(
        &self,
        source: &Source,
        begun: Option<&Begun>,
        consent: Consent<'_>,
    ) -> Result<(), Failure> {
        let (device, name) = (&self.opened.device, &self.name);
        if source.is_at(&self.opened) {
            return Err(Failure::refused(format!("{name} is the source itself")));
        }
        let (needed, found) = (source.bytes, device.length_bytes());
        if found < needed {
            let (has, needs) = (Bytes(found), Bytes(needed));
            return Err(Failure::refused(format!(
                "{name} is too small: it has {has}, and the source {needs}"
            )));
        }
        let is_known = begun.is_some() || self.file.is_some();
        let consent = if is_known { Consent::Given } else { consent };
        Overwritten {
            device: &**device,
            name,
            part: None,
        }
        .consent(consent)
        .await?;
        begun.map_or(Ok(()), |begun| begun.is_of(source, self.identity()))
    }

    /// The identity that must match for a copy to be resumed; `None` if it is not resumable.
    pub(crate) fn identity(&self) -> Option<&str> {
        self.opened.identity.as_deref()
    }

    /// The size of a logical block, in bytes.
    pub(crate) fn block_bytes(&self) -> u64 {
        u64::from(self.opened.device.geometry().block_size.bytes())
    }

    /// A remark if the destination is longer than the source.
    pub(crate) fn note(&self, source_bytes: u64) -> Option<String> {
        // A file is not longer: it is truncated to the exact length at the end of the copy.
        let behind = self
            .opened
            .device
            .length_bytes()
            .saturating_sub(source_bytes);
        let left_alone = behind > 0 && self.file.is_none();
        left_alone.then(|| format!("the last {behind} bytes of {} are not changed", self.name))
    }

    pub(crate) async fn read(&self, range: Range<u64>) -> Result<Slice, DeviceError> {
        bytewise::read(&*self.opened.device, range).await
    }

    pub(crate) async fn write(&self, at: u64, data: Slice) -> Result<(), DeviceError> {
        bytewise::write(&*self.opened.device, at, data).await
    }

    pub(crate) async fn flush(&self) -> Result<(), DeviceError> {
        self.opened.device.flush().await
    }

    /// Waits until no aborted request can still change the destination.
    pub(crate) async fn quiesced(&self) -> Result<(), DeviceError> {
        self.opened.device.quiesced().await
    }

    /// Records that the part after the checkpoint is copied again. Its blocks may already have been written,
    /// so zeros must be written there as well.
    pub(crate) fn copied_again(&self) {
        self.is_fresh.set(false);
    }

    /// Makes `range` read as zeros. Returns the number of bytes that had to be zeroed.
    pub(crate) async fn clear(&self, range: Range<u64>) -> Result<u64, DeviceError> {
        let mut cleared = 0;
        if self.is_fresh.get() {
            return Ok(cleared);
        }
        let mut at = range.start;
        while at < range.end {
            let (end, is_zero) = self.is_zero(at..range.end).await?;
            debug_assert!(
                at < end && end <= range.end,
                "each look reaches further into the range"
            );
            if !is_zero {
                bytewise::zero(&*self.opened.device, at..end).await?;
                cleared += end - at;
            }
            at = end;
        }
        Ok(cleared)
    }

    /// Whether the start of `range` is known to read as zeros. Also returns the end of the part to which the
    /// result applies.
    pub(crate) async fn is_zero(&self, range: Range<u64>) -> Result<(u64, bool), DeviceError> {
        let device = &self.opened.device;
        if !device.profile().thin {
            return Ok((range.end, false));
        }
        let runs = device
            .allocation(bytewise::covering(&**device, &range)?, 1)
            .await?;
        let geometry = device.geometry();
        let first = runs.first().map(|run| {
            let end = geometry.offset(run.extent) + geometry.length(run.extent);
            (
                end.min(range.end),
                run.allocation == Allocation::Deallocated,
            )
        });
        // If the device reports nothing, the whole range counts as data.
        Ok(first
            .filter(|(end, _)| *end > range.start)
            .unwrap_or((range.end, false)))
    }

    /// Completes the copy: truncates a file to the source's exact length.
    pub(crate) fn complete(&self, source_bytes: u64) -> Result<(), Failure> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        let cut = File::options().write(true).open(path).and_then(|file| {
            if file.metadata()?.len() != source_bytes {
                file.set_len(source_bytes)?;
            }
            file.sync_all()
        });
        cut.map_err(|error| Failure::unwritten(&self.name, &error))
    }

    /// The logical unit, if the destination is one, and the address of its target.
    pub(crate) fn unit(&self) -> Option<(Unit, SocketAddr)> {
        self.opened.unit()
    }

    /// Adds the reason to a failure, if the destination is unreachable.
    pub(crate) async fn explained<T>(&self, done: Result<T, Failure>) -> Result<T, Failure> {
        self.opened.explained(done).await
    }

    pub(crate) async fn close(&self) {
        self.opened.close().await;
    }
}

/// The path, if the location is a regular file or one to be created.
fn regular_file(place: &Location) -> Option<&Path> {
    match place {
        Location::Path(path) => {
            let is_device = path
                .metadata()
                .is_ok_and(|metadata| metadata.file_type().is_block_device());
            (!is_device).then_some(path)
        }
        Location::Lun(_) | Location::Volume(_) => None,
    }
}

/// Creates a file of zeros that takes no space. Its length is the source's length, rounded up to whole
/// blocks.
fn fresh_file(
    path: &Path,
    name: &str,
    source: &Source,
    consent: Consent<'_>,
) -> Result<Opened, Failure> {
    let block = BlockSize::B512;
    let refused = |error: std::io::Error| Failure::refused(format!("{name}: {error}"));
    if source.is_path(path) {
        return Err(Failure::refused(format!("{name} is the source itself")));
    }
    match path.exists() {
        true => give_way(path, name, consent)?,
        false if host::names_device(path) => {
            return Err(Failure::refused(OpenError::NoDevice {
                path: path.to_owned(),
            }));
        }
        false => {}
    }
    let file = private_file::create(path).map_err(refused)?;
    file.set_len(source.bytes.next_multiple_of(u64::from(block.bytes())))
        .map_err(refused)?;
    drop(file);
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(refused)?;
    location::file(FileOptions::new(path))
}

/// Checks that an existing file may be overwritten: it is not in use, and there is consent.
fn give_way(path: &Path, name: &str, consent: Consent<'_>) -> Result<(), Failure> {
    let bytes = fs::metadata(path)
        .map_err(|error| Failure::refused(format!("{name}: {error}")))?
        .len();
    let block = u64::from(BlockSize::B512.bytes());
    if bytes >= block {
        // Opening the file takes the lock that a server also takes.
        let whole = Some(bytes - bytes % block);
        let options = FileOptions {
            bytes: whole,
            ..FileOptions::new(path)
        };
        FileDevice::open(options).map_err(Failure::refused)?;
    }
    if bytes == 0 {
        return Ok(());
    }
    Ok(consent.to(format!("{name} holds {}", Bytes(bytes)))?)
}

/// The position of a copy, with its byte counts: everything before this byte is on the destination.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) done: u64,
    pub(crate) tally: Tally,
}

/// Why a copy stops.
pub(crate) enum Stop {
    /// The destination may have lost acknowledged writes since the last flush.
    WritesLost,
    /// The destination could not be flushed.
    Unflushed(Failure),
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

/// Flushes everything acknowledged so far to stable storage.
pub(crate) async fn flushed(destination: &Destination) -> Result<(), Stop> {
    let name = &destination.name;
    destination.flush().await.map_err(|error| match error {
        DeviceError::WritesLost => Stop::WritesLost,
        error => Stop::Unflushed(Failure::device(format_args!("cannot flush {name}"), error)),
    })
}

/// Byte counts of a copy.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) read: u64,
    pub(crate) written: u64,
    /// Bytes copied by the target itself.
    pub(crate) offloaded: u64,
    /// Bytes zeroed on the destination.
    pub(crate) cleared: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Tally) {
        self.read += more.read;
        self.written += more.written;
        self.offloaded += more.offloaded;
        self.cleared += more.cleared;
    }
}

// The durable checkpoint of a copy: all data before the recorded position is on the destination's stable
// storage, since it was flushed before the position was recorded.
//
// Each copy has its own directory, which is locked while the copy runs. The record in it contains the source,
// the destination, and the position before which everything is copied. Pieces complete in any order but at
// nearby positions, so little data is copied twice.

/// The record of an earlier copy.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Begun {
    source: String,
    destination: String,
    done_bytes: u64,
}

/// The journal of the running copy.
pub(crate) struct Journal {
    keep: Rc<StateDirectory>,
    directory: PathBuf,
    source: String,
    begun: Option<Begun>,
    interval: Duration,
    noted: Instant,
    noting: Option<JoinHandle<Result<Mark, Stop>>>,
}

/// The only file in the directory.
const NAME: &str = "copy.json";

impl Journal {
    /// Opens the journal and reads the record of an earlier copy. Returns `None` if the source's data exists
    /// only while this process runs.
    pub(crate) async fn open(
        options: &Options<'_>,
        source: &Source,
        to: &Location,
    ) -> Result<Option<Journal>, Failure> {
        let Some(identity) = source.identity() else {
            return Ok(None);
        };
        let Some(directory) = directory(&options.journal, &source.name, &to.to_string()) else {
            return Ok(None);
        };
        let keep =
            StateDirectory::open(&directory).map_err(|error| not_opened(&directory, &error))?;
        let kept = keep
            .load(NAME)
            .await
            .map_err(|error| unusable(&directory, &error))?;
        let begun = match kept.filter(|_| !options.restart) {
            Some(kept) => {
                Some(serde_json::from_slice(&kept).map_err(|error| unusable(&directory, &error))?)
            }
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

    /// The record of an earlier copy.
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
            || self
                .noting
                .as_ref()
                .is_some_and(|noting| !noting.is_finished())
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

    /// Makes a checkpoint now and waits for it to complete.
    pub(crate) async fn last(
        &mut self,
        mark: Mark,
        destination: &Rc<Destination>,
    ) -> Result<(), Stop> {
        match self.entry(mark.done, destination) {
            Some(begun) => note(Rc::clone(&self.keep), Rc::clone(destination), begun).await,
            None => flushed(destination).await,
        }
    }

    /// Waits for the checkpoint in progress, if there is one, and returns its position.
    pub(crate) async fn noted(&mut self) -> Result<Option<Mark>, Stop> {
        match self.noting.take() {
            Some(noting) => noting.await.map(Some),
            None => Ok(None),
        }
    }

    fn entry(&self, done_bytes: u64, destination: &Destination) -> Option<Begun> {
        let destination = destination.identity()?.to_owned();
        Some(Begun {
            source: self.source.clone(),
            destination,
            done_bytes,
        })
    }

    /// Whether a copy to this destination can be resumed with this journal.
    pub(crate) fn serves(&self, destination: &Destination) -> bool {
        destination.identity().is_some()
    }

    /// Removes the journal's record.
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

async fn note(
    keep: Rc<StateDirectory>,
    destination: Rc<Destination>,
    begun: Begun,
) -> Result<(), Stop> {
    flushed(&destination).await?;
    let bytes = serde_json::to_vec(&begun).map_err(Failure::failed)?;
    Ok(keep
        .save(NAME, bytes)
        .await
        .map_err(|error| Failure::unwritten("the journal", &error))?)
}

impl Begun {
    /// Checks that the source and the destination match the recorded copy.
    pub(crate) fn is_of(&self, source: &Source, destination: Option<&str>) -> Result<(), Failure> {
        if source.identity().as_ref() != Some(&self.source) {
            return Err(another("source", &source.name));
        }
        if destination != Some(&self.destination) {
            return Err(another("destination", destination.unwrap_or("this one")));
        }
        Ok(())
    }

    /// The position before which everything is copied.
    pub(crate) fn done_bytes(&self) -> u64 {
        self.done_bytes
    }
}

fn another(end: &str, name: &str) -> Failure {
    Failure::refused(format!(
        "the {end} has changed since this copy was interrupted ({name}); use --restart to start over"
    ))
}

/// The failure to resume a copy whose destination no longer exists.
pub(crate) fn gone(name: &str) -> Failure {
    Failure::refused(format!(
        "{name}, the destination of this copy, is gone; use --restart to start over"
    ))
}

/// The failure of an interrupted copy.
pub(crate) fn interrupted(done: u64, bytes: u64, is_resumable: bool) -> Failure {
    let then = match is_resumable {
        true => "run the same command again to resume",
        false => "the destination is incomplete",
    };
    let (done, bytes) = (Bytes(done), Bytes(bytes));
    Failure::new(
        FailureKind::Interrupted,
        format_args!("interrupted at {done} of {bytes}; {then}"),
    )
}

/// Explains that a copy cannot be resumed because the source or the destination has no identity. After an
/// interruption, that side could be another disk, or an empty one.
pub(crate) fn remark(
    options: &Options<'_>,
    source: &Source,
    destination: &Destination,
) -> Option<String> {
    let nameless = match (source.identity(), destination.identity()) {
        (None, _) => &source.name,
        (_, None) => &destination.name,
        _ => return None,
    };
    let is_wanted = !matches!(options.journal, JournalPlace::Nowhere);
    is_wanted.then(|| {
        format!("this copy cannot be resumed if it is interrupted: {nameless} cannot be identified")
    })
}

/// The directory of the journal; `None` if there is none.
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
    Some(copies.join(&source::hex(format!("{from}\n{to}").as_bytes())[..16]))
}

fn unusable(directory: &Path, error: &dyn fmt::Display) -> Failure {
    Failure::refused(format!(
        "the journal in {} cannot be used: {error}",
        directory.display()
    ))
}

/// The failure of opening a journal. A journal in use by another copy is refused, because two copies with one
/// journal would overwrite each other's checkpoints.
fn not_opened(directory: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::WouldBlock => Failure::refused("the same copy is already running"),
        _ => unusable(directory, error),
    }
}
