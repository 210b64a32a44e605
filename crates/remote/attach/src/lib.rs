//! A LUN as a file, ready for `losetup` and `mount`, or for any program that opens files.
//!
//! ```text
//! fio, mount, QEMU ── kernel ── /dev/fuse ── fuser's threads ──► mailbox ──► reactor: disk ── LUN ── target
//!                                   ▲                                           │
//!                                   └──── replies, each when it is done ◄───────┘
//! ```
//!
//! Reading order: [`NamedVolume`] (the volume to attach), `file` (requests of the kernel), `request` (their
//! tasks), [`disk`] (bytes to blocks); then [`mount_point`] and [`mounts`], [`record`] (current attachments),
//! [`users`], [`detach`](detach()). While a target restarts, requests wait in the initiator. The program is
//! responsible for signals, logs and running in the background.
//!
//! ```
//! use std::sync::Arc;
//!
//! use attach::disk::Disk;
//! use block::Durability;
//! use host::{RamDevice, RamOptions};
//!
//! let device = RamDevice::new(RamOptions::new(1 << 20)).expect("memory");
//! let read = backends::remote::run(async {
//!     let disk = Disk::new(Arc::new(device), false);
//!     disk.write(509, b"a file"[..].into(), Durability::Cached).await.expect("parts of two blocks");
//!     Ok(disk.read(511, 4).await.expect("parts of two blocks"))
//! });
//! assert_eq!(&read.expect("a world")[..], b"file");
//! ```
//!
//! Each attachment is a process. The FUSE part does not depend on blocks, and the block part ([`disk`]) does
//! not depend on FUSE.

pub mod disk;
mod file;
pub mod mount_point;
pub mod mounts;
pub mod record;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use backends::{Failure, location, remote, reservation};
use block::{BlockDevice, DeviceError};
use iscsi_client::{RemoteLun, Url};
use reactor::mailbox;
use volume::spec::Spec;

use crate::disk::Disk;
use crate::file::{File, Owner};
use crate::mount_point::{MountPoint, Terms};
use crate::record::{OwnRecord, Record};

pub use mount_point::detach;

/// The opened volume to attach.
pub struct Volume {
    /// Its device.
    pub device: Arc<dyn BlockDevice>,
    /// The LUN, if the device is one.
    pub lun: Option<Arc<RemoteLun>>,
    /// Its name: a URL without secrets, or a volume specification.
    pub name: String,
}

/// Paths for the record of an attachment, for [`detach`](detach()) and `attachments`.
pub struct RecordPaths<'a> {
    /// The directory of all records.
    pub records: &'a Path,
    /// The log file of this process; `None` if it runs in the foreground.
    pub log: Option<PathBuf>,
}

/// Provides the volume as a file until it is unmounted, in this thread's runtime environment. `ready` is
/// called when the file is mounted, before any request is executed. If it fails, the file is unmounted again.
///
/// # Errors
/// The reason why the volume could not be attached, or a warning that recent writes may be lost. After such a
/// warning, the record is kept, with the reason.
pub async fn attach(
    volume: Volume,
    mut at: MountPoint,
    terms: Terms,
    notes: RecordPaths<'_>,
    ready: impl FnOnce(&Record) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if let Some(lun) = &volume.lun {
        reservation::check(lun, terms.read_only, "--read-only is allowed").await?;
    }
    let disk = Rc::new(Disk::new(volume.device, terms.read_only));
    let (sender, requests) = mailbox();
    let terms = Terms {
        read_only: disk.is_read_only(),
        ..terms
    };
    let session = at.mount(File::new(sender), &terms)?;
    let record = Record {
        path: at.path().to_owned(),
        volume: volume.name,
        pid: std::process::id(),
        bytes: disk.bytes(),
        read_only: terms.read_only,
        made_file: at.is_made(),
        log: notes.log,
        failure: None,
        error: None,
    };
    let kept = OwnRecord::begin(notes.records, record.clone()).map_err(Failure::failed)?;
    if let Err(failure) = ready(&record) {
        kept.remove();
        if let Some(lun) = volume.lun {
            lun.target().close().await;
        }
        return Err(failure);
    }

    file::carry_out(
        Rc::clone(&disk),
        requests,
        Owner::this_process(),
        kept.live(),
    )
    .await;

    let flushed = disk.finish().await;
    if let Some(lun) = volume.lun {
        lun.target().close().await;
    }
    drop(session); // the file is already unmounted; only the session's thread still has to end
    drop(at);
    ended(kept, flushed)
}

/// Removes the record, or adds the failure of the last flush to it.
fn ended(kept: OwnRecord, flushed: Result<(), DeviceError>) -> Result<(), Failure> {
    let Err(error) = flushed else {
        kept.remove();
        return Ok(());
    };
    let failure = Failure::device("the latest writes may be lost: cannot flush", error);
    tracing::error!("{failure}");
    kept.fail(failure.to_string()).map_err(Failure::failed)?;
    Err(failure)
}

/// Marks this process as an I/O flusher (prctl(2), `PR_SET_IO_FLUSHER`). When memory is short, the kernel
/// writes pages out, possibly to the file system that this process serves. After this call, the process's own
/// allocations never wait for such writes, which would be a deadlock. The mark applies to this thread and to
/// threads started later, so call this function first. Without CAP_SYS_RESOURCE it has no effect.
pub fn be_behind_a_disk() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        // Without CAP_SYS_RESOURCE, the process cannot mount the file system on the file either.
        tracing::debug!("cannot mark the process as an I/O flusher (PR_SET_IO_FLUSHER): {error}");
    }
}

// The volume to attach: a LUN by its URL, or any volume that a server could serve.

/// The name of a volume that has not been opened yet.
pub enum NamedVolume {
    /// A LUN.
    Remote(Box<Url>),
    /// A volume of this machine.
    Local(Spec),
}

/// Number of attempts for a command that times out, unless the URL sets `command-tries`. Linux disk drivers
/// make the same number.
const TRIES: u32 = 5;

impl NamedVolume {
    /// Parses an argument. Prompts for missing secrets. Makes the paths of secret files absolute, because the
    /// process may change its directory before a later login reads them.
    ///
    /// # Errors
    /// An error in the text, or a missing secret.
    pub fn parse(text: &str) -> Result<NamedVolume, Failure> {
        if !location::is_url(text) {
            return backends::parse(text)
                .map(NamedVolume::Local)
                .map_err(Failure::refused);
        }
        let mut url = remote::url(text)?;
        // The secret files are read again at every login.
        make_absolute(url.settings.secret_file.as_mut())?;
        make_absolute(url.settings.target_secret_file.as_mut())?;
        // After a single failed command, a file system treats the disk as broken.
        url.settings.command_tries.get_or_insert(TRIES);
        Ok(NamedVolume::Remote(Box::new(url)))
    }

    /// Opens the volume. With `read_only`, a volume of this machine is opened read-only, and a missing file
    /// is not created. For a LUN, `read_only` has no effect here: [`attach()`] enforces it.
    ///
    /// # Errors
    /// The reason why the volume cannot be used.
    pub async fn open(&self, read_only: bool) -> Result<Volume, Failure> {
        match self {
            NamedVolume::Local(spec) => {
                let opened = Spec {
                    readonly: spec.readonly || read_only,
                    ..spec.clone()
                };
                let device = backends::open_by_bytes(&opened).await?;
                Ok(Volume {
                    device,
                    lun: None,
                    name: spec.to_string(),
                })
            }
            NamedVolume::Remote(url) => {
                let lun = Arc::new(remote::open(url).await?);
                Ok(Volume {
                    device: Arc::clone(&lun) as _,
                    lun: Some(lun),
                    name: url.to_string(),
                })
            }
        }
    }
}

fn make_absolute(path: Option<&mut PathBuf>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    *path = std::path::absolute(&*path).map_err(Failure::refused)?;
    Ok(())
}
