//! `linerate attach`: a LUN as a file, ready for `losetup` and `mount`, or for any program that opens files.
//!
//! ```text
//! mount, fio, QEMU ── kernel ── /dev/fuse ── fuser's threads ──► mailbox ──► one reactor: disk ── RemoteLun ── target
//!                                     ▲                                                      │
//!                                     └──────────────── replies, each when it is done ◄──────┘
//! ```
//!
//! Reading order: [`file`] (what the kernel asks), [`request`] (on its way), [`disk`] (bytes to blocks); then what is
//! around them: [`volume`], [`place`] and [`mounts`], [`background`], [`record`], [`signals`],
//! and the commands that look after the result, [`detach`] and [`attachments`]. That a target restarts is nothing to
//! any of these: requests wait in the initiator.

mod attachments;
mod background;
mod detach;
mod disk;
mod file;
mod mounts;
mod place;
mod record;
mod request;
mod signals;
mod users;
mod volume;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use backends::reservation;
use reactor::mailbox;

pub(crate) use attachments::{AttachmentsArguments, run as list};
pub(crate) use detach::{DetachArguments, run as detach};

use crate::failure::Failure;
use crate::output::say;
use crate::remote;
use crate::spec::Bytes;
use disk::Disk;
use file::{File, Owner};
use place::{Place, Terms};
use record::{Kept, Record};
use volume::Volume;

/// Makes a LUN, or any volume, a file: for losetup, mount and every program that opens files
#[derive(Debug, clap::Args)]
pub(crate) struct AttachArguments {
    /// The LUN, iscsi://HOST[:PORT]/TARGET/LUN, or a volume such as file:/data/vm1.img
    #[arg(value_name = "URL")]
    volume: String,
    /// The file: an empty one, or none yet
    path: PathBuf,
    /// Lets nobody write
    #[arg(long)]
    read_only: bool,
    /// Lets root use the file too, which losetup needs when somebody else attaches; /etc/fuse.conf must say
    /// user_allow_other
    #[arg(long)]
    allow_root: bool,
    /// Stays in the foreground until the file is detached, and logs to standard error
    #[arg(long)]
    foreground: bool,
}

/// Carries the command out.
pub(crate) fn run(arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    if arguments.goes_into_background() {
        return background::start();
    }
    let volume = Volume::parse(&arguments.volume)?;
    let records = record::directory().map_err(Failure::failed)?;
    let place = Place::prepare(&arguments.path, &records)?;
    be_behind_a_disk();
    remote::run(attach(arguments, &volume, place, &records))?;
    Ok(ExitCode::SUCCESS)
}

/// When memory is short the kernel writes pages out, perhaps to the very file system that waits for us: from here on
/// our own allocations never wait for that (prctl(2), `PR_SET_IO_FLUSHER`). Threads inherit it.
fn be_behind_a_disk() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        // Without CAP_SYS_RESOURCE nobody can mount what is on the file either.
        tracing::debug!("not favoured when memory is short: {error}");
    }
}

async fn attach(
    arguments: &AttachArguments,
    volume: &Volume,
    mut place: Place,
    records: &Path,
) -> Result<(), Failure> {
    let opened = volume.open(arguments.read_only).await?;
    if let Some(lun) = &opened.remote {
        reservation::check(lun, arguments.read_only, "--read-only is possible").await?;
    }
    let disk = Rc::new(Disk::new(opened.device, arguments.read_only));
    let terms = Terms { read_only: disk.is_read_only(), allow_root: arguments.allow_root };
    let (sender, requests) = mailbox();
    let session = place.mount(File::new(sender), &terms)?;
    let record = arguments.record(volume, &place, &disk, records);
    let kept = Kept::begin(records, record.clone()).map_err(Failure::failed)?;
    signals::watch(place.path().to_owned())?;
    announce(&record).map_err(Failure::failed)?;

    request::carry_out(Rc::clone(&disk), requests, Owner::this_process()).await;

    let flushed = disk.finish().await;
    if let Some(lun) = opened.remote {
        lun.target().close().await;
    }
    drop(session); // unmounted already: nothing is left but its thread's end
    drop(place);
    ended(kept, flushed)
}

impl AttachArguments {
    /// Whether this process only starts the one that does the work.
    pub(crate) fn goes_into_background(&self) -> bool {
        !self.foreground && !background::is_this()
    }

    fn record(&self, volume: &Volume, place: &Place, disk: &Disk, records: &Path) -> Record {
        let pid = std::process::id();
        Record {
            path: place.path().to_owned(),
            volume: volume.to_string(),
            pid,
            bytes: disk.geometry().bytes(),
            read_only: disk.is_read_only(),
            made_file: place.is_made(),
            log: (!self.foreground).then(|| records.join(format!("{pid}.log"))),
            failure: None,
        }
    }
}

/// The file is ready to use: says so, and leaves the terminal unless it is to stay.
fn announce(record: &Record) -> std::io::Result<()> {
    let kind = if record.read_only { ", read-only" } else { "" };
    say(&format!("{}: {}{kind}\n", record.path.display(), Bytes(record.bytes)));
    record.log.as_deref().map_or(Ok(()), background::leave)
}

fn ended(kept: Kept, flushed: Result<(), block::DeviceError>) -> Result<(), Failure> {
    let Err(error) = flushed else {
        kept.remove();
        return Ok(());
    };
    let failure = Failure::device("what was written last may be lost: cannot flush", error);
    tracing::error!("{failure}");
    kept.fail(failure.to_string()).map_err(Failure::failed)?;
    Err(failure)
}
