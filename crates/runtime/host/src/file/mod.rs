//! A volume in a regular file or on a block device.
//!
//! Writes go through the page cache, or bypass it with `direct`. In both cases, a crash may lose an
//! acknowledged write until the next flush (fdatasync), unless the write was [`Durability::Stable`]
//! (RWF_DSYNC). So the volume reports a write cache. After a failed write-back, the kernel drops the data and
//! clears the error (fsync(2)), so a later successful sync does not prove that the data is stable. Therefore
//! each failed sync counts as a loss of acknowledged writes ([`BlockDevice::losses`]). The volume stays in
//! service.
//!
//! A lock on the open file ensures that only one process writes to a volume.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry,
    Lba, Losses, Pending, Profile, Run, Slice, Space,
};
use rustix::fs::{Advice, FallocateFlags, SeekFrom, fadvise, seek};
use rustix::io::Errno;

use crate::files::AsyncFile;

pub use open::{CreatedFile, OpenError, names_device};

mod open;

/// Options of a volume in a file or on a block device.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// The path of the file or device.
    pub path: PathBuf,
    /// The capacity in bytes. An existing file must not be shorter. `None` uses the existing size.
    pub bytes: Option<u64>,
    /// Create a missing file, or extend an empty one, to a length of `bytes`, without allocating space.
    pub create: bool,
    /// Bypass the page cache (O_DIRECT).
    pub direct: bool,
    /// Open for reading only. Other processes may read the volume at the same time.
    pub read_only: bool,
    /// The length of a logical block.
    pub block_size: BlockSize,
    /// log2 of the logical blocks per physical block; 3 for 512e.
    pub physical_exponent: u8,
}

impl FileOptions {
    /// Options for the existing file or block device at `path`: writable, with 512-byte blocks, through the
    /// page cache.
    pub fn new(path: impl Into<PathBuf>) -> FileOptions {
        FileOptions {
            path: path.into(),
            bytes: None,
            create: true,
            direct: false,
            read_only: false,
            block_size: BlockSize::B512,
            physical_exponent: 0,
        }
    }
}

/// A volume in a regular file or on a block device.
pub struct FileDevice {
    file: AsyncFile,
    options: FileOptions,
    /// Number of blocks. It grows with the file, unless the options fix it, and never shrinks: if the file
    /// becomes shorter, requests for blocks beyond its end fail.
    blocks: AtomicU64,
    /// Bytes allocated to the file at the last check.
    allocated: AtomicU64,
    /// Number of calls to `refresh`, which checks the file's length and allocation.
    looks: AtomicU32,
    properties: FileProperties,
    latest_error: LatestError,
    /// A copy of the file's descriptor, if this open created the file.
    created: Option<File>,
}

#[derive(Clone, Copy, Debug)]
struct FileProperties {
    block_device: bool,
    /// Whether blocks can be deallocated.
    thin: bool,
    granularity: Blocks,
    /// The granularity with which the kernel zeroes and deallocates: the sector of a block device, 1 for a
    /// file.
    sector: Blocks,
    solid_state: bool,
    /// Required alignment of buffer addresses; 1 without `direct`.
    buffer_alignment: usize,
}

impl FileDevice {
    /// Number of operations that continue after their requests were dropped.
    pub fn orphans(&self) -> usize {
        self.file.orphans()
    }

    fn check(&self, extent: Extent) -> Result<(), DeviceError> {
        if self.geometry().contains(extent) {
            Ok(())
        } else {
            Err(DeviceError::OutOfRange)
        }
    }

    fn check_change(&self, extent: Extent) -> Result<(), DeviceError> {
        self.check(extent)?;
        if self.options.read_only {
            Err(DeviceError::ReadOnly)
        } else {
            Ok(())
        }
    }

    fn check_length(&self, extent: Extent, bytes: usize) -> Result<(), DeviceError> {
        if self.geometry().length(extent) == bytes as u64 {
            Ok(())
        } else {
            Err(DeviceError::OutOfRange)
        }
    }

    /// Returns the block at which an operation stopped after `done` bytes.
    fn failed_at(&self, extent: Extent, done: usize) -> Lba {
        Lba(extent.lba.0 + (done as u64 >> self.options.block_size.shift()))
    }

    /// Whether `extent` is within the volume, matches the number of bytes, and is not empty.
    fn fits(&self, extent: Extent, bytes: usize) -> bool {
        !extent.is_empty() && self.check(extent).is_ok() && self.check_length(extent, bytes).is_ok()
    }

    async fn load(&self, extent: Extent, buffer: Buffer) -> Result<Buffer, DeviceError> {
        self.check(extent)?;
        self.check_length(extent, buffer.len())?;
        if extent.is_empty() {
            return Ok(buffer);
        }
        let (buffer, progress) = self.file.read(buffer, self.geometry().offset(extent)).await;
        match progress.result {
            Ok(()) => Ok(buffer),
            Err(error) => Err(self.latest_error.told(
                &error,
                Verb::Read,
                self.failed_at(extent, progress.done),
            )),
        }
    }

    async fn store(
        &self,
        extent: Extent,
        data: Slice,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        self.check_change(extent)?;
        self.check_length(extent, data.len())?;
        if extent.is_empty() {
            return Ok(());
        }
        let data = self.aligned(data);
        let losses = self.file.losses();
        let progress = self
            .file
            .write(data, self.geometry().offset(extent), durability)
            .await;
        progress.result.map_err(|error| {
            self.latest_error
                .told(&error, Verb::Write, self.failed_at(extent, progress.done))
        })?;
        match durability {
            Durability::Cached => Ok(()),
            Durability::Stable => self.lost_nothing_since(losses),
        }
    }

    /// Returns the data in memory that is aligned for direct writes. If necessary, copies it.
    fn aligned(&self, data: Slice) -> Slice {
        if data
            .as_ptr()
            .addr()
            .is_multiple_of(self.properties.buffer_alignment)
        {
            return data;
        }
        Buffer::from(&*data).share()
    }

    /// Executes a flush that was requested when `losses` losses had been counted.
    async fn sync(&self, losses: u64) -> Result<(), DeviceError> {
        if self.options.read_only {
            return Ok(());
        }
        let synced = self.file.sync_data().await;
        if let Err(error) = &synced {
            tracing::error!(path = %self.options.path.display(), %error, "a flush failed: data is lost");
        }
        let synced = synced.map_err(|error| self.latest_error.told(&error, Verb::Write, Lba(0)));
        self.lost_nothing_since(losses)?;
        synced
    }

    fn lost_nothing_since(&self, losses: u64) -> Result<(), DeviceError> {
        if self.file.losses() == losses {
            Ok(())
        } else {
            Err(DeviceError::WritesLost)
        }
    }

    async fn give_back(&self, extent: Extent) -> Result<(), DeviceError> {
        self.check_change(extent)?;
        if extent.is_empty() {
            return Ok(());
        }
        let (whole, rest) = self.whole_sectors(extent);
        for part in rest {
            self.write_zeros(part).await?;
        }
        match self
            .allocate(
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                whole,
            )
            .await
        {
            Err(DeviceError::Unsupported) => self.zero(whole).await,
            punched => punched,
        }
    }

    async fn zero(&self, extent: Extent) -> Result<(), DeviceError> {
        self.check_change(extent)?;
        if extent.is_empty() {
            return Ok(());
        }
        let (whole, rest) = self.whole_sectors(extent);
        for part in rest {
            self.write_zeros(part).await?;
        }
        match self
            .allocate(
                FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                whole,
            )
            .await
        {
            Err(DeviceError::Unsupported) => self.write_zeros(whole).await,
            zeroed => zeroed,
        }
    }

    /// Splits `extent` into the whole sectors within it, and the remainders before and after them, because
    /// the kernel deallocates and zeroes whole sectors only.
    fn whole_sectors(&self, extent: Extent) -> (Extent, [Extent; 2]) {
        let (first, end) = (extent.lba.0, extent.lba.0 + extent.blocks.0);
        let begin = first.next_multiple_of(self.properties.sector.0).min(end);
        let last = (end - end % self.properties.sector.0).max(begin);
        let between = |from: u64, to: u64| Extent::new(from, to - from);
        (
            between(begin, last),
            [between(first, begin), between(last, end)],
        )
    }

    async fn allocate(&self, mode: FallocateFlags, extent: Extent) -> Result<(), DeviceError> {
        if extent.is_empty() {
            return Ok(());
        }
        let geometry = self.geometry();
        let done = self
            .file
            .allocate(mode, geometry.offset(extent), geometry.length(extent))
            .await;
        done.map_err(|error| self.latest_error.told(&error, Verb::Write, extent.lba))
    }

    /// Writes zeros as data, for file systems that cannot zero ranges.
    async fn write_zeros(&self, extent: Extent) -> Result<(), DeviceError> {
        let piece = ZEROS_BYTES >> self.options.block_size.shift();
        let zeros = Buffer::zeroed(ZEROS_BYTES).share();
        let mut at = 0;
        while at < extent.blocks.0 {
            let blocks = (piece as u64).min(extent.blocks.0 - at);
            let part = Extent::new(extent.lba.0 + at, blocks);
            let bytes = self.geometry().length(part) as usize;
            let data = zeros.part(0..bytes).ok_or(DeviceError::OutOfRange)?;
            self.store(part, data, Durability::Cached).await?;
            at += blocks;
        }
        Ok(())
    }

    async fn runs(&self, extent: Extent, runs_max: usize) -> Result<Vec<Run>, DeviceError> {
        self.check(extent)?;
        if extent.is_empty() {
            return Ok(Vec::new());
        }
        let (geometry, sparse) = (self.geometry(), !self.properties.block_device);
        let found = self
            .file
            .blocking(move |file| allocation_runs(file, geometry, sparse, extent, runs_max))
            .await;
        found.map_err(|error| self.latest_error.told(&error, Verb::Read, extent.lba))
    }
}

/// A file of fixed size is checked only at every tenth call of `refresh`, because only its allocation can
/// change.
const LOOKS_AT_FIXED: u32 = 10;

/// Number of bytes per write of zeros, if the file system cannot zero ranges.
const ZEROS_BYTES: usize = 1 << 20;

impl BlockDevice for FileDevice {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: self.options.block_size,
            blocks: Blocks(self.blocks.load(Ordering::Relaxed)),
            physical_exponent: self.options.physical_exponent,
        }
    }

    fn profile(&self) -> Profile {
        Profile {
            read_only: self.options.read_only,
            thin: self.properties.thin && !self.options.read_only,
            granularity: self.properties.granularity,
            volatile_cache: true,
            durable: true,
            solid_state: self.properties.solid_state,
            optimal_transfer: None,
            loses_unseen: false,
        }
    }

    fn read_nowait(&self, extent: Extent, buffer: &mut [u8]) -> bool {
        self.fits(extent, buffer.len())
            && self
                .file
                .read_nowait(buffer, self.geometry().offset(extent))
    }

    fn write_nowait(&self, extent: Extent, data: &[u8]) -> bool {
        !self.options.read_only
            && self.fits(extent, data.len())
            && self.file.write_nowait(data, self.geometry().offset(extent))
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(self.load(extent, buffer))
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(self.store(extent, data, durability))
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(self.sync(self.file.losses()))
    }

    fn losses(&self) -> Losses {
        Losses::counted(self.file.losses())
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(self.give_back(extent))
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        if may_unmap {
            Box::pin(self.give_back(extent))
        } else {
            Box::pin(self.zero(extent))
        }
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(self.runs(extent, runs_max))
    }

    fn allocated_bytes(&self) -> Option<u64> {
        (!self.properties.block_device).then(|| self.allocated.load(Ordering::Relaxed))
    }

    /// Supported only for regular files: a block device does not report its allocation.
    fn space(&self) -> Pending<'_, Space> {
        Box::pin(async {
            if self.properties.block_device {
                return Err(DeviceError::Unsupported);
            }
            let found = self.file.blocking(open::space).await;
            found.map_err(|error| self.latest_error.told(&error, Verb::Inspect, Lba(0)))
        })
    }

    fn refresh(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let is_fixed = self.options.bytes.is_some();
            let look = self.looks.fetch_add(1, Ordering::Relaxed);
            if is_fixed && (self.properties.block_device || !look.is_multiple_of(LOOKS_AT_FIXED)) {
                return Ok(());
            }
            let found = self
                .file
                .blocking(|file| Ok((open::size(file)?, open::allocated(file)?)))
                .await;
            let (bytes, allocated) =
                found.map_err(|error| self.latest_error.told(&error, Verb::Inspect, Lba(0)))?;
            self.allocated.store(allocated, Ordering::Relaxed);
            if !is_fixed {
                self.blocks
                    .fetch_max(bytes >> self.options.block_size.shift(), Ordering::Relaxed);
            }
            Ok(())
        })
    }

    /// Grows a regular file. A block device must already be long enough.
    fn grow(&self, bytes: u64) -> Pending<'_, ()> {
        Box::pin(async move {
            let blocks = self
                .options
                .block_size
                .exact(bytes)
                .ok_or(DeviceError::OutOfRange)?;
            if self.options.read_only {
                return Err(DeviceError::ReadOnly);
            }
            let grown = self
                .file
                .blocking(move |file| open::lengthen(file, bytes))
                .await;
            let at_end = Lba(self.geometry().blocks.0);
            grown.map_err(|error| self.latest_error.told(&error, Verb::Write, at_end))?;
            self.blocks.fetch_max(blocks.0, Ordering::Relaxed);
            Ok(())
        })
    }

    fn take_os_error(&self) -> Option<i32> {
        self.latest_error.take()
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.file.quiesced().await;
            Ok(())
        })
    }
}

/// The kind of request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Read,
    Write,
    Inspect,
}

/// The latest errno that has not been read yet; 0 if there is none.
#[derive(Debug, Default)]
pub(crate) struct LatestError(AtomicI32);

impl LatestError {
    /// Records the error of a request that failed at `lba`, and converts it.
    pub(crate) fn told(&self, error: &io::Error, verb: Verb, lba: Lba) -> DeviceError {
        self.0
            .store(error.raw_os_error().unwrap_or(0), Ordering::Relaxed);
        device_error(error, verb, lba)
    }

    pub(crate) fn take(&self) -> Option<i32> {
        Some(self.0.swap(0, Ordering::Relaxed)).filter(|number| *number != 0)
    }
}

fn device_error(error: &io::Error, verb: Verb, lba: Lba) -> DeviceError {
    match (error.raw_os_error(), verb) {
        (Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG), _) => DeviceError::NoSpace,
        (Some(libc::EROFS | libc::EPERM | libc::EACCES | libc::EBADF), Verb::Write) => {
            DeviceError::ReadOnly
        }
        (Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY), _) => DeviceError::Unsupported,
        (
            Some(libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM | libc::ESTALE | libc::ESHUTDOWN),
            _,
        ) => DeviceError::NotReady,
        // A temporary shortage: no memory or no io_uring worker, or a network file system's server is
        // unreachable.
        (Some(libc::ENOMEM | libc::EAGAIN | libc::ENOBUFS | libc::EHOSTUNREACH), _) => {
            DeviceError::NotReady
        }
        (Some(libc::ETIMEDOUT), _) => DeviceError::TimedOut,
        (Some(libc::ECANCELED), _) => DeviceError::Cancelled,
        // EIO, EILSEQ, EREMOTEIO, or an end of file before the block: the block cannot be read or written.
        (_, Verb::Read | Verb::Inspect) => DeviceError::Unreadable(lba),
        (_, Verb::Write) => DeviceError::Unwritable(lba),
    }
}

impl FileDevice {
    /// Opens the same volume a second time, through the page cache. The second device takes no lock, so this
    /// one must stay open as long as the second one is used.
    pub fn through_page_cache(&self) -> Result<FileDevice, OpenError> {
        let options = FileOptions {
            direct: false,
            ..self.options.clone()
        };
        // Direct I/O is a property of the open file description (open(2)), so this opens another one.
        let same = format!("/proc/self/fd/{}", self.file.file().as_raw_fd());
        let opened = OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .open(same);
        let file = opened
            .and_then(AsyncFile::new)
            .map_err(|source| OpenError::Io {
                path: options.path.clone(),
                source,
            })?;
        Ok(FileDevice {
            file,
            options,
            blocks: AtomicU64::new(self.blocks.load(Ordering::Relaxed)),
            allocated: AtomicU64::new(self.allocated.load(Ordering::Relaxed)),
            looks: AtomicU32::new(1),
            properties: FileProperties {
                buffer_alignment: 1,
                ..self.properties
            },
            latest_error: LatestError::default(),
            created: None,
        })
    }

    /// Drops the volume's data from the page cache, as a remount does. Dirty data stays cached, so flush
    /// first. Blocks the thread while it runs.
    pub fn forget_cached(&self) -> io::Result<()> {
        Ok(fadvise(self.file.file(), 0, None, Advice::DontNeed)?)
    }
}

/// Returns up to `runs_max` allocation runs, starting at the beginning of `extent`, which must not be empty.
/// Without `sparse`, all blocks count as mapped; a file system without holes reports the same (lseek(2)).
/// This moves the file position, which is not used for anything else.
fn allocation_runs(
    file: &File,
    geometry: Geometry,
    sparse: bool,
    extent: Extent,
    runs_max: usize,
) -> io::Result<Vec<Run>> {
    if !sparse {
        return Ok(vec![Run {
            extent,
            allocation: Allocation::Mapped,
        }]);
    }
    let (start, end) = (extent.lba.0, extent.lba.0 + extent.blocks.0);
    let mut runs: Vec<Run> = Vec::new();
    let mut at = start;
    while at < end && runs.len() < runs_max.max(1) {
        let (blocks, allocation) = next_run(file, geometry, at, end)?;
        match runs.last_mut().filter(|last| last.allocation == allocation) {
            Some(last) => last.extent.blocks.0 += blocks,
            None => runs.push(Run {
                extent: Extent::new(at, blocks),
                allocation,
            }),
        }
        at += blocks;
    }
    Ok(runs)
}

/// Returns the allocation state at block `at`, and the number of consecutive blocks with that state. A block
/// that contains any data counts as mapped.
fn next_run(file: &File, geometry: Geometry, at: u64, end: u64) -> io::Result<(u64, Allocation)> {
    let shift = geometry.block_size.shift();
    let data = position(seek(file, SeekFrom::Data(at << shift)), end << shift)? >> shift;
    if data > at {
        return Ok((data.min(end) - at, Allocation::Deallocated));
    }
    let hole = position(seek(file, SeekFrom::Hole(at << shift)), end << shift)?;
    let hole = hole.div_ceil(u64::from(geometry.block_size.bytes()));
    Ok((hole.clamp(at + 1, end) - at, Allocation::Mapped))
}

/// Converts the result of a seek to data or a hole. ENXIO means that there is none before the end of the
/// file; then this returns `none`.
fn position(sought: Result<u64, Errno>, none: u64) -> io::Result<u64> {
    match sought {
        Err(Errno::NXIO) => Ok(none),
        sought => Ok(sought?),
    }
}

#[cfg(test)]
mod tests;
