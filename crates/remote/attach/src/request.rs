//! Requests of the kernel for the file, passed from the FUSE threads to the thread of the device. Each
//! request is a task there, and is answered when it ends.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

use block::{Allocation, Buffer, DeviceError, Durability, Geometry};
use fuser::{Errno, FileHandle, ReplyAttr, ReplyData, ReplyEmpty, ReplyLseek, ReplyOpen, ReplyWrite};
use reactor::{Receiver, mailbox};

use crate::disk::{Clearing, Disk};
use crate::file;

/// A request, and where its answer goes.
pub(crate) enum Request {
    Measure(ReplyAttr),
    /// `ftruncate`, which succeeds where it changes nothing.
    Resize {
        bytes: u64,
        reply: ReplyAttr,
    },
    Read {
        offset: u64,
        length: usize,
        reply: ReplyData,
    },
    Write {
        offset: u64,
        data: Buffer,
        durability: Durability,
        reply: ReplyWrite,
    },
    Open(ReplyOpen),
    /// `fsync` and `fdatasync`.
    Flush {
        file: FileHandle,
        reply: ReplyEmpty,
    },
    /// The last close of an open file description. Its caller does not wait for it.
    Close {
        file: FileHandle,
        reply: ReplyEmpty,
    },
    Clear {
        offset: u64,
        length: u64,
        how: Clearing,
        reply: ReplyEmpty,
    },
    Seek {
        offset: u64,
        wanted: Allocation,
        reply: ReplyLseek,
    },
}

/// Carries out requests until all senders are dropped and all requests have ended.
pub(crate) async fn carry_out(disk: Rc<Disk>, mut requests: Receiver<Request>, owner: file::Owner) {
    let (under_way, mut over) = mailbox::<Infallible>();
    let health = Rc::new(Health::default());
    while let Some(request) = requests.recv().await {
        let (disk, health, under_way) = (Rc::clone(&disk), Rc::clone(&health), under_way.clone());
        reactor::spawn(async move {
            answer(&disk, request, &health, owner).await;
            drop(under_way);
        });
    }
    drop(under_way);
    let None = over.recv().await; // once the last request has let go of its sender
}

async fn answer(disk: &Disk, request: Request, health: &Health, owner: file::Owner) {
    match request {
        Request::Measure(reply) => {
            let geometry = disk.measured().await;
            reply.attr(&file::ATTRIBUTES_LAST, &attributes(disk, geometry, owner));
        }
        Request::Resize { bytes, reply } => match disk.measured().await {
            geometry if disk.bytes() == bytes => {
                reply.attr(&file::ATTRIBUTES_LAST, &attributes(disk, geometry, owner));
            }
            _ => reply.error(Errno::EPERM),
        },
        Request::Read { offset, length, reply } => {
            match health.note(disk.read(offset, length).await, "read", offset) {
                Ok(data) => reply.data(&data),
                Err(error) => reply.error(error),
            }
        }
        Request::Write { offset, data, durability, reply } => {
            match health.note(disk.write(offset, data, durability).await, "write", offset) {
                // A request of the kernel has far less than 4 GiB.
                Ok(bytes) => reply.written(bytes as u32),
                Err(error) => reply.error(error),
            }
        }
        Request::Open(reply) => reply.opened(FileHandle(disk.open()), file::OPEN_FLAGS),
        Request::Flush { file, reply } => end(reply, health.note(disk.flush(file.0).await, "flush", 0)),
        Request::Close { file, reply } => {
            disk.close(file.0);
            end(reply, health.note(disk.flush_if_written().await, "flush", 0));
        }
        Request::Clear { offset, length, how, reply } => {
            end(reply, health.note(disk.clear(offset, length, how).await, "zero", offset));
        }
        Request::Seek { offset, wanted, reply } => {
            match health.note(disk.seek(offset, wanted).await, "look for holes", offset) {
                Ok(Some(found)) => reply.offset(found.cast_signed()),
                Ok(None) => reply.error(Errno::ENXIO),
                Err(error) => reply.error(error),
            }
        }
    }
}

fn attributes(disk: &Disk, geometry: Geometry, owner: file::Owner) -> fuser::FileAttr {
    owner.attributes(disk.bytes(), geometry, disk.is_read_only())
}

fn end(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

/// Whether requests succeed: the first failure of a row is told, not all that follow it.
#[derive(Default)]
struct Health {
    fails: Cell<bool>,
}

impl Health {
    fn note<T>(&self, outcome: Result<T, DeviceError>, doing: &str, offset: u64) -> Result<T, Errno> {
        match outcome {
            Ok(value) => {
                if self.fails.replace(false) {
                    tracing::warn!("requests succeed again");
                }
                Ok(value)
            }
            // Reported to the caller only; not logged.
            Err(error @ (DeviceError::Unsupported | DeviceError::OutOfRange)) => Err(errno(error)),
            Err(error) => {
                if !self.fails.replace(true) {
                    tracing::error!(offset, "cannot {doing}: {error}");
                }
                Err(errno(error))
            }
        }
    }
}

/// What a failure of the device is called by system calls.
fn errno(error: DeviceError) -> Errno {
    match error {
        // Only writes can be out of range, and at the end of a block device they are told this.
        DeviceError::OutOfRange | DeviceError::NoSpace => Errno::ENOSPC,
        DeviceError::ReadOnly => Errno::EROFS,
        DeviceError::Unsupported => Errno::EOPNOTSUPP,
        DeviceError::Reserved => Errno::EBUSY,
        DeviceError::Unreadable(_)
        | DeviceError::Unwritable(_)
        | DeviceError::NotReady
        | DeviceError::Fenced
        | DeviceError::TimedOut
        | DeviceError::Cancelled
        | DeviceError::WritesLost
        | DeviceError::Unsettled => Errno::EIO,
    }
}
