//! A FUSE file system whose root is a regular file, and its only file. This module decodes the kernel's
//! requests; [`super::request`] executes them.
//!
//! Every open uses `FOPEN_DIRECT_IO`: the kernel caches no page of the file. A completed write has therefore
//! reached the device, and another initiator's writes are visible. A file system on a loop device still uses
//! the page cache of that loop device.

use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use block::{Allocation, Buffer, DeviceError, Durability, Geometry};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, TimeOrNow, WriteFlags,
};
use reactor::{Closed, Receiver, Sender, mailbox};
use rustix::fs::{FallocateFlags, OFlags};

use crate::disk::{Clearing, Disk};
use crate::file;
use crate::record::LiveRecord;

/// Time for which the kernel may cache the file's attributes: zero, because a LUN may grow.
pub(crate) const ATTRIBUTES_LAST: Duration = Duration::ZERO;

/// Maximum size of a kernel request: 256 pages, the kernel's limit.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Maximum number of asynchronous requests that the kernel has outstanding. The kernel's default of 12 would
/// limit the queue depth of the loop device.
const REQUESTS_MAX: u16 = 256;

/// How the kernel treats an open file.
pub(crate) const OPEN_FLAGS: FopenFlags = FopenFlags::FOPEN_DIRECT_IO
    .union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES)
    // A forked child closes the files that it has inherited. These closes must not cause a flush, and must
    // not wait for an unavailable target. The last close flushes: see `release`.
    .union(FopenFlags::FOPEN_NOFLUSH);

/// The kernel-facing side of the file.
pub(crate) struct File {
    requests: Sender<Request>,
}

impl File {
    pub(crate) fn new(requests: Sender<Request>) -> File {
        File { requests }
    }

    fn send(&self, request: Request) {
        // If the request could not be sent, its reply handle is dropped, which returns EIO to the kernel.
        let (Ok(()) | Err(Closed(_))) = self.requests.send(request);
    }
}

/// Owner and creation time of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    uid: u32,
    gid: u32,
    since: SystemTime,
}

impl Owner {
    /// The user of this process.
    pub(crate) fn this_process() -> Owner {
        let (uid, gid) = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        Owner {
            uid,
            gid,
            since: SystemTime::now(),
        }
    }

    pub(crate) fn attributes(self, bytes: u64, geometry: Geometry, read_only: bool) -> FileAttr {
        FileAttr {
            ino: INodeNo::ROOT,
            size: bytes,
            blocks: allocated(bytes),
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind: FileType::RegularFile,
            perm: if read_only { 0o400 } else { 0o600 },
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: geometry.block_size.bytes().max(4096),
            flags: 0,
        }
    }
}

/// The value of `st_blocks`, in units of 512 bytes. The true number would require scanning the whole LUN.
/// Programs (cp, tar) look for holes only if it is less than the size, and treat 0 as a file without data.
fn allocated(bytes: u64) -> u64 {
    (bytes / 512).saturating_sub(1).max(1)
}

impl Filesystem for File {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        // These capabilities are optional. Old kernels do not support all of them.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(REQUESTS_MAX);
        Ok(())
    }

    fn getattr(&self, _: &fuser::Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.send(Request::Measure(reply));
    }

    fn setattr(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match (mode, uid, gid, size) {
            // Requests that set times succeed without effect, so that `touch` succeeds.
            (None, None, None, None) => self.send(Request::Measure(reply)),
            (None, None, None, Some(bytes)) => self.send(Request::Resize { bytes, reply }),
            _ => reply.error(Errno::EPERM),
        }
    }

    fn open(&self, _: &fuser::Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.send(Request::Open(reply));
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.send(Request::Read {
            offset,
            length: size as usize,
            reply,
        });
    }

    fn write(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let durability = durability(flags);
        self.send(Request::Write {
            offset,
            data: Buffer::from(data),
            durability,
            reply,
        });
    }

    fn release(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        file: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.send(Request::Close { file, reply });
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, file: FileHandle, _: bool, reply: ReplyEmpty) {
        self.send(Request::Flush { file, reply });
    }

    fn fallocate(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        match clearing(mode) {
            Some(how) => self.send(Request::Clear {
                offset,
                length,
                how,
                reply,
            }),
            None => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn lseek(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::ENXIO);
        };
        match whence {
            SEEK_DATA => self.send(Request::Seek {
                offset,
                wanted: Allocation::Mapped,
                reply,
            }),
            SEEK_HOLE => self.send(Request::Seek {
                offset,
                wanted: Allocation::Deallocated,
                reply,
            }),
            _ => reply.error(Errno::EINVAL), // the kernel handles all other types
        }
    }

    /// A loop device uses the block size as the granularity of its discards.
    fn statfs(&self, _: &fuser::Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 1, 0, 4096, 255, 4096);
    }

    /// After this error the kernel sends no more of these requests. Otherwise it would send one before every
    /// write.
    fn getxattr(&self, _: &fuser::Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &fuser::Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }
}

/// lseek(2) values, which are the same on every Linux architecture.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// The kernel sets these flags on the writes of a descriptor with `O_SYNC` or `O_DSYNC`, and on writes with
/// `RWF_DSYNC`.
fn durability(flags: OpenFlags) -> Durability {
    let sync =
        OFlags::from_bits_retain(flags.0.cast_unsigned()).intersects(OFlags::SYNC | OFlags::DSYNC);
    if sync {
        Durability::Stable
    } else {
        Durability::Cached
    }
}

/// The fallocate(2) mode; `None` for reserving space or changing the size.
fn clearing(mode: i32) -> Option<Clearing> {
    let mode = FallocateFlags::from_bits(mode.cast_unsigned())?;
    match mode - FallocateFlags::KEEP_SIZE {
        FallocateFlags::PUNCH_HOLE => Some(Clearing::Punch),
        FallocateFlags::ZERO_RANGE => Some(Clearing::Zero),
        _ => None,
    }
}

// Kernel requests for the file, passed from the FUSE threads to the device's thread. There, a task executes
// each request, and replies when it ends.

/// A request and its reply handle.
pub(crate) enum Request {
    Measure(ReplyAttr),
    /// `ftruncate`, which succeeds only if the size is unchanged.
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
    /// The last close of an open file description. The caller of close(2) does not wait for it.
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

/// Executes requests until all senders are dropped and all requests have ended.
pub(crate) async fn carry_out(
    disk: Rc<Disk>,
    mut requests: Receiver<Request>,
    owner: file::Owner,
    record: LiveRecord,
) {
    let (under_way, mut over) = mailbox::<Infallible>();
    let health = Rc::new(Health {
        fails: Cell::new(false),
        record,
    });
    while let Some(request) = requests.recv().await {
        let (disk, health, under_way) = (Rc::clone(&disk), Rc::clone(&health), under_way.clone());
        reactor::spawn(async move {
            answer(&disk, request, &health, owner).await;
            drop(under_way);
        });
    }
    drop(under_way);
    let None = over.recv().await; // returns when the last request has dropped its sender
}

async fn answer(disk: &Disk, request: Request, health: &Health, owner: file::Owner) {
    match request {
        Request::Measure(reply) => {
            if let Some(looked) = disk.look().await {
                // If the query fails, the last known size is used.
                let _ = health.note(looked, "query the size", 0);
            }
            health.record.set_bytes(disk.bytes());
            let geometry = disk.geometry();
            reply.attr(&file::ATTRIBUTES_LAST, &attributes(disk, geometry, owner));
        }
        Request::Resize { bytes, reply } => match disk.measured().await {
            geometry if disk.bytes() == bytes => {
                reply.attr(&file::ATTRIBUTES_LAST, &attributes(disk, geometry, owner));
            }
            _ => reply.error(Errno::EPERM),
        },
        Request::Read {
            offset,
            length,
            reply,
        } => match health.note(disk.read(offset, length).await, "read", offset) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        },
        Request::Write {
            offset,
            data,
            durability,
            reply,
        } => {
            match health.note(disk.write(offset, data, durability).await, "write", offset) {
                // A kernel request is far smaller than 4 GiB.
                Ok(bytes) => reply.written(bytes as u32),
                Err(error) => reply.error(error),
            }
        }
        Request::Open(reply) => reply.opened(FileHandle(disk.open()), file::OPEN_FLAGS),
        Request::Flush { file, reply } => {
            end(reply, health.note(disk.flush(file.0).await, "flush", 0))
        }
        Request::Close { file, reply } => {
            disk.close(file.0);
            if disk.is_flushed() {
                return reply.ok(); // the device was not used, so this does not count as a success
            }
            end(
                reply,
                health.note(disk.flush_if_written().await, "flush", 0),
            );
        }
        Request::Clear {
            offset,
            length,
            how,
            reply,
        } => {
            end(
                reply,
                health.note(disk.clear(offset, length, how).await, "zero", offset),
            );
        }
        Request::Seek {
            offset,
            wanted,
            reply,
        } => match health.note(disk.seek(offset, wanted).await, "look for holes", offset) {
            Ok(Some(found)) => reply.offset(found.cast_signed()),
            Ok(None) => reply.error(Errno::ENXIO),
            Err(error) => reply.error(error),
        },
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

/// Tracks whether requests succeed. Of consecutive failures, only the first is logged and recorded.
struct Health {
    fails: Cell<bool>,
    record: LiveRecord,
}

impl Health {
    fn note<T>(
        &self,
        outcome: Result<T, DeviceError>,
        doing: &str,
        offset: u64,
    ) -> Result<T, Errno> {
        match outcome {
            Ok(value) => {
                if self.fails.replace(false) {
                    tracing::warn!("requests succeed again");
                    self.record.set_error(None);
                }
                Ok(value)
            }
            // These errors are reported to the caller only, and are not logged.
            Err(error @ (DeviceError::Unsupported | DeviceError::OutOfRange)) => Err(errno(error)),
            Err(error) => {
                if !self.fails.replace(true) {
                    tracing::error!(offset, "cannot {doing}: {error}");
                    self.record
                        .set_error(Some(format!("cannot {doing}: {error}")));
                }
                Err(errno(error))
            }
        }
    }
}

/// The errno of a device error.
fn errno(error: DeviceError) -> Errno {
    match error {
        // Only writes can be out of range. A Linux block device returns ENOSPC for a write beyond its end.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_that_is_synchronous_writes_to_stable_storage() {
        let of = |flags: OFlags| durability(OpenFlags(flags.bits().cast_signed()));
        assert_eq!(of(OFlags::RDWR), Durability::Cached);
        assert_eq!(of(OFlags::RDWR | OFlags::DSYNC), Durability::Stable);
        assert_eq!(of(OFlags::RDWR | OFlags::SYNC), Durability::Stable);
    }

    #[test]
    fn programs_that_compare_blocks_with_the_size_look_for_holes() {
        assert!(allocated(1 << 30) * 512 < 1 << 30);
        assert!(allocated(512) > 0, "not a file without data");
    }

    #[test]
    fn what_fallocate_may_ask_for() {
        let of = |mode: FallocateFlags| clearing(mode.bits().cast_signed());
        let keep = FallocateFlags::KEEP_SIZE;
        assert_eq!(of(keep | FallocateFlags::PUNCH_HOLE), Some(Clearing::Punch));
        assert_eq!(of(keep | FallocateFlags::ZERO_RANGE), Some(Clearing::Zero));
        assert_eq!(of(FallocateFlags::ZERO_RANGE), Some(Clearing::Zero));
        assert_eq!(of(keep), None);
        assert_eq!(of(FallocateFlags::COLLAPSE_RANGE), None);
        assert_eq!(clearing(i32::MIN), None);
    }
}
