//! A LUN as a file, ready for `losetup` and `mount`, or for any program that opens files.
//!
//! ```text
//! fio, mount, QEMU ── kernel ── /dev/fuse ── fuser's threads ──► mailbox ──► reactor: disk ── LUN ── target
//!                                   ▲                                           │
//!                                   └──── replies, each when it is done ◄───────┘
//! ```
//!
//! Reading order: [`NamedVolume`] (what is attached), `file` (requests of the kernel), `request` (their tasks), [`disk`] (bytes to blocks); then
//! [`mount_point`] and [`mounts`], [`record`] (current attachments), [`users`], [`detach`](detach()). While a
//! target restarts, requests wait in the initiator. Signals, logs and running in the background are up to the
//! program.
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

mod detach;
pub mod disk;
mod file;
pub mod mount_point;
pub mod mounts;
mod named;
pub mod record;
mod request;
pub mod users;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use backends::{Failure, reservation};
use block::{BlockDevice, DeviceError};
use iscsi_client::RemoteLun;
use reactor::mailbox;

use disk::Disk;
use file::{File, Owner};
use mount_point::{MountPoint, Terms};
use record::{OwnRecord, Record};

pub use detach::detach;
pub use named::NamedVolume;

/// The opened volume to attach.
pub struct Volume {
    /// Its blocks.
    pub device: Arc<dyn BlockDevice>,
    /// The LUN that the device is, if it is one.
    pub lun: Option<Arc<RemoteLun>>,
    /// What it is: a URL without secrets, or a volume specification.
    pub name: String,
}

/// Paths for the record of an attachment, for [`detach`](detach()) and `attachments`.
pub struct RecordPaths<'a> {
    /// The directory of all records.
    pub records: &'a Path,
    /// The log file of this process; `None` if it runs in the foreground.
    pub log: Option<PathBuf>,
}

/// Makes the volume a file until it is unmounted, in the world of this thread. `ready` is called when the
/// file can be used.
///
/// # Errors
/// Why it cannot be attached; or that what was written last may be lost.
pub async fn attach(
    volume: Volume,
    mut at: MountPoint,
    terms: Terms,
    notes: RecordPaths<'_>,
    ready: impl FnOnce(&Record) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if let Some(lun) = &volume.lun {
        reservation::check(lun, terms.read_only, "--read-only is possible").await?;
    }
    let disk = Rc::new(Disk::new(volume.device, terms.read_only));
    let (sender, requests) = mailbox();
    let terms = Terms { read_only: disk.is_read_only(), ..terms };
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
    };
    let kept = OwnRecord::begin(notes.records, record.clone()).map_err(Failure::failed)?;
    ready(&record)?;

    request::carry_out(Rc::clone(&disk), requests, Owner::this_process()).await;

    let flushed = disk.finish().await;
    if let Some(lun) = volume.lun {
        lun.target().close().await;
    }
    drop(session); // unmounted already: nothing is left but its thread's end
    drop(at);
    ended(kept, flushed)
}

fn ended(kept: OwnRecord, flushed: Result<(), DeviceError>) -> Result<(), Failure> {
    let Err(error) = flushed else {
        kept.remove();
        return Ok(());
    };
    let failure = Failure::device("what was written last may be lost: cannot flush", error);
    tracing::error!("{failure}");
    kept.fail(failure.to_string()).map_err(Failure::failed)?;
    Err(failure)
}

/// When memory is short the kernel writes pages out, perhaps to the very file system that waits for this
/// process: from here on its own allocations never wait for that (prctl(2), `PR_SET_IO_FLUSHER`). Threads
/// inherit it.
pub fn be_behind_a_disk() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        // Without CAP_SYS_RESOURCE the file system on the file cannot be mounted either.
        tracing::debug!("not favoured when memory is short: {error}");
    }
}
