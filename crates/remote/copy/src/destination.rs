//! The destination of a copy.

use std::cell::Cell;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use backends::Failure;
use backends::location::{self, Location, Opened};
use block::{Allocation, BlockSize, DeviceError, Slice, bytewise};
use disk_contents::{Consent, Overwritten};
use host::private_file;
use host::{FileDevice, FileOptions, OpenError};
use iscsi_client::Unit;
use volume::spec::Bytes;

use crate::journal::{self, Begun};
use crate::source::Source;

/// A destination, open for writing.
pub(crate) struct Destination {
    opened: Opened,
    pub(crate) name: String,
    /// A file that this copy has created or resumes.
    file: Option<PathBuf>,
    /// It reads as zeros where this copy has not written.
    is_fresh: Cell<bool>,
}

impl Destination {
    /// Opens it, or makes the file, if it is large enough, and not the source, and may be overwritten.
    /// `begun` tells of an earlier copy that is to be gone on with.
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
            Some(path) if !path.exists() => return Err(journal::gone(&name)),
            _ => place.open_by_bytes(false).await?,
        };
        let is_fresh = Cell::new(path.is_some() && begun.is_none());
        let file = path.map(Path::to_owned);
        let destination = Destination { file, is_fresh, ..Destination::from_opened(opened, name) };
        let checked = destination.check(source, begun, consent).await;
        if checked.is_err() {
            destination.close().await;
        }
        checked.map(|()| destination)
    }

    /// An opened device; its content is unknown.
    pub(crate) fn from_opened(opened: Opened, name: String) -> Destination {
        Destination { opened, name, file: None, is_fresh: Cell::new(false) }
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
        Overwritten { device: &**device, name, part: None }.consent(consent).await?;
        begun.map_or(Ok(()), |begun| begun.is_of(source, self.identity()))
    }

    /// The identity that must match for a copy to be resumed; `None` if it is not resumable.
    pub(crate) fn identity(&self) -> Option<&str> {
        self.opened.identity.as_deref()
    }

    /// The block that is written at once, in bytes.
    pub(crate) fn block_bytes(&self) -> u64 {
        u64::from(self.opened.device.geometry().block_size.bytes())
    }

    /// A remark if the destination is longer than the source.
    pub(crate) fn note(&self, source_bytes: u64) -> Option<String> {
        // A file in whole blocks is cut when it is complete.
        let behind = self.opened.device.length_bytes().saturating_sub(source_bytes);
        let left_alone = behind > 0 && self.file.is_none();
        left_alone.then(|| format!("the last {behind} bytes of {} are left as they are", self.name))
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

    /// Waits until no aborted request can change the destination any more.
    pub(crate) async fn quiesced(&self) -> Result<(), DeviceError> {
        self.opened.device.quiesced().await
    }

    /// Data after the checkpoint may have been written or not: that part is copied again, and zeros must be
    /// written.
    pub(crate) fn copied_again(&self) {
        self.is_fresh.set(false);
    }

    /// Makes `range` read as zeros. Returns how many bytes had to be zeroed.
    pub(crate) async fn clear(&self, range: Range<u64>) -> Result<u64, DeviceError> {
        let mut cleared = 0;
        if self.is_fresh.get() {
            return Ok(cleared);
        }
        let mut at = range.start;
        while at < range.end {
            let (end, is_zero) = self.is_zero(at..range.end).await?;
            if !is_zero {
                bytewise::zero(&*self.opened.device, at..end).await?;
                cleared += end - at;
            }
            at = end;
        }
        Ok(cleared)
    }

    /// Whether the beginning of `range` is known to read as zeros, and how far that holds.
    pub(crate) async fn is_zero(&self, range: Range<u64>) -> Result<(u64, bool), DeviceError> {
        let device = &self.opened.device;
        if !device.profile().thin {
            return Ok((range.end, false));
        }
        let runs = device.allocation(bytewise::covering(&**device, &range)?, 1).await?;
        let geometry = device.geometry();
        let first = runs.first().map(|run| {
            let end = geometry.offset(run.extent) + geometry.length(run.extent);
            (end.min(range.end), run.allocation == Allocation::Deallocated)
        });
        // Nothing told, or nothing new: all of it is taken for data.
        Ok(first.filter(|(end, _)| *end > range.start).unwrap_or((range.end, false)))
    }

    /// All is written: a file gets its length to the byte.
    pub(crate) fn complete(&self, source_bytes: u64) -> Result<(), Failure> {
        let Some(path) = &self.file else { return Ok(()) };
        let cut = File::options().write(true).open(path).and_then(|file| {
            if file.metadata()?.len() != source_bytes {
                file.set_len(source_bytes)?;
            }
            file.sync_all()
        });
        cut.map_err(|error| Failure::unwritten(&self.name, &error))
    }

    /// The logical unit that it is, if it is one, and where its target was reached.
    pub(crate) fn unit(&self) -> Option<(Unit, SocketAddr)> {
        self.opened.unit()
    }

    /// A failure of it, with the reason if it cannot be reached any more.
    pub(crate) async fn explained<T>(&self, done: Result<T, Failure>) -> Result<T, Failure> {
        self.opened.explained(done).await
    }

    pub(crate) async fn close(&self) {
        self.opened.close().await;
    }
}

/// The path of a place that is, or is to become, a file with a name of its own and nothing else about it.
fn regular_file(place: &Location) -> Option<&Path> {
    match place {
        Location::Path(path) => {
            let is_device = path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device());
            (!is_device).then_some(path)
        }
        Location::Lun(_) | Location::Volume(_) => None,
    }
}

/// A file of zeros that takes no space, as long as the source is in whole blocks.
fn fresh_file(path: &Path, name: &str, source: &Source, consent: Consent<'_>) -> Result<Opened, Failure> {
    let block = BlockSize::B512;
    let refused = |error: std::io::Error| Failure::refused(format!("{name}: {error}"));
    if source.is_path(path) {
        return Err(Failure::refused(format!("{name} is the source itself")));
    }
    match path.exists() {
        true => give_way(path, name, consent)?,
        false if host::names_device(path) => {
            return Err(Failure::refused(OpenError::NoDevice { path: path.to_owned() }));
        }
        false => {}
    }
    let file = private_file::create(path).map_err(refused)?;
    file.set_len(source.bytes.next_multiple_of(u64::from(block.bytes()))).map_err(refused)?;
    drop(file);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(refused)?;
    location::file(FileOptions::new(path))
}

/// Checks that an existing file may be overwritten: it is not in use, and there is consent.
fn give_way(path: &Path, name: &str, consent: Consent<'_>) -> Result<(), Failure> {
    let bytes = fs::metadata(path).map_err(|error| Failure::refused(format!("{name}: {error}")))?.len();
    let block = u64::from(BlockSize::B512.bytes());
    if bytes >= block {
        // Opening it takes the lock that a server would hold.
        let whole = Some(bytes - bytes % block);
        let options = FileOptions { bytes: whole, ..FileOptions::new(path) };
        FileDevice::open(options).map_err(Failure::refused)?;
    }
    if bytes == 0 {
        return Ok(());
    }
    Ok(consent.to(format!("{name} holds {}", Bytes(bytes)))?)
}
