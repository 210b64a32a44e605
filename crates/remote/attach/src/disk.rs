//! A block device addressed by bytes, like a file.
//!
//! Whole blocks are written to the device directly. A block that is written in part is read, changed and
//! written back under a lock in [`RangeLocks`]: writers of whole blocks share the lock of their range, and a
//! writer of part of a block takes it exclusively. Readers take no lock, because a read that is concurrent
//! with a write may return the old or the new content.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{
    Allocation, BlockDevice, Buffer, DeviceError, Durability, Extent, Geometry, Lba, RangeLocks,
    Slice,
};

/// The device behind the file.
pub struct Disk {
    device: Arc<dyn BlockDevice>,
    read_only: bool,
    locks: Arc<RangeLocks>,
    /// Whether there are writes since the last flush.
    unflushed: Cell<bool>,
    losses: RefCell<Losses>,
    looked: Cell<Option<Instant>>,
}

/// Lost writes that flushes have detected. As for Linux files (errseq_t), `fsync` reports each loss once to
/// each open file description. A loss that was not reported to any of them is reported to the next one to be
/// opened. `ENOSPC` does not count as the report of a loss: programs such as QEMU wait for space and repeat
/// `fsync`, which must not succeed without the lost data.
#[derive(Debug, Default)]
struct Losses {
    count: u64,
    /// The number of losses that were reported at least once.
    reported: u64,
    /// By open file description: the number of losses reported to it.
    told: HashMap<u64, u64>,
    openings: u64,
}

impl Losses {
    fn open(&mut self) -> u64 {
        self.openings += 1;
        self.told.insert(self.openings, self.reported);
        self.openings
    }

    fn tell(&mut self, opening: u64, flushed: Result<(), DeviceError>) -> Result<(), DeviceError> {
        debug_assert!(
            self.reported <= self.count,
            "only losses that were counted are reported"
        );
        let told = self.told.entry(opening).or_insert(self.reported);
        debug_assert!(
            *told <= self.count,
            "losses were counted before they were reported to an open file"
        );
        if *told < self.count && flushed != Err(DeviceError::NoSpace) {
            *told = self.count;
            self.reported = self.count;
            return flushed.and(Err(DeviceError::WritesLost));
        }
        flushed
    }
}

/// How a range is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clearing {
    /// Deallocated (`FALLOC_FL_PUNCH_HOLE`).
    Punch,
    /// Written as zeros and kept allocated (`FALLOC_FL_ZERO_RANGE`).
    Zero,
}

/// Interval and timeout of size queries. Queries are needed because a target reports growth only on request.
const LOOK: Duration = Duration::from_secs(1);

/// Maximum runs per query in a search for data or a hole.
const RUNS: usize = 64;

impl Disk {
    /// A read-only device stays read-only, whatever `read_only` is.
    pub fn new(device: Arc<dyn BlockDevice>, read_only: bool) -> Disk {
        let read_only = read_only || device.profile().read_only;
        Disk {
            device,
            read_only,
            locks: Arc::default(),
            unflushed: Cell::new(false),
            losses: RefCell::default(),
            looked: Cell::new(None),
        }
    }

    /// The device's geometry at the last query.
    pub fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    /// The device's length in bytes at the last query. The last block may be incomplete.
    pub fn bytes(&self) -> u64 {
        self.device.length_bytes()
    }

    /// Whether writes are rejected.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn writable(&self) -> Result<(), DeviceError> {
        if self.read_only {
            Err(DeviceError::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Queries and returns the current geometry. If the target does not respond in time, returns the geometry
    /// from the last query.
    pub async fn measured(&self) -> Geometry {
        // If the target is unavailable, the last known size is used.
        let _ = self.look().await;
        self.geometry()
    }

    /// Queries the size; `None` if the last query was less than a second ago.
    pub(crate) async fn look(&self) -> Option<Result<(), DeviceError>> {
        let now = reactor::now();
        let is_stale = self
            .looked
            .get()
            .is_none_or(|looked| now.saturating_duration_since(looked) >= LOOK);
        if !is_stale {
            return None;
        }
        self.looked.set(Some(now));
        let looked = reactor::timeout(LOOK, self.device.refresh()).await;
        Some(looked.unwrap_or(Err(DeviceError::TimedOut)))
    }

    /// Reads `length` bytes from `offset` on, or fewer up to the end of the device.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn read(&self, offset: u64, length: usize) -> Result<Slice, DeviceError> {
        let geometry = self.geometry();
        let bytes = clipped(self.bytes(), offset, length as u64);
        if bytes.is_empty() {
            return Ok(Buffer::recycled(0).share());
        }
        let span = Span::over(geometry, &bytes);
        let buffer = Buffer::recycled(geometry.length(span.extent) as usize);
        let blocks = self.device.read(span.extent, buffer).await?.share();
        blocks.part(span.within).ok_or(DeviceError::OutOfRange)
    }

    /// Writes the data at `offset`, up to the end of the device. Returns the number of bytes written.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn write(
        &self,
        offset: u64,
        mut data: Buffer,
        durability: Durability,
    ) -> Result<usize, DeviceError> {
        self.writable()?;
        let geometry = self.geometry();
        let bytes = clipped(self.bytes(), offset, data.len() as u64);
        if bytes.is_empty() && !data.is_empty() {
            return Err(DeviceError::OutOfRange);
        }
        let written = (bytes.end - bytes.start) as usize;
        data.truncate(written);
        let span = Span::over(geometry, &bytes);
        match span.is_whole(geometry) {
            true => {
                let _with_others = self.locks.share(span.extent).await;
                self.put(span.extent, data.share(), durability).await?;
            }
            false => self.patch(geometry, &span, &data, durability).await?,
        }
        Ok(written)
    }

    /// Writes parts of blocks: reads the blocks, changes them, and writes them back.
    async fn patch(
        &self,
        geometry: Geometry,
        span: &Span,
        data: &[u8],
        durability: Durability,
    ) -> Result<(), DeviceError> {
        let _alone = self.locks.exclude(span.extent).await;
        let buffer = Buffer::recycled(geometry.length(span.extent) as usize);
        let mut blocks = self.device.read(span.extent, buffer).await?;
        blocks
            .get_mut(span.within.clone())
            .ok_or(DeviceError::OutOfRange)?
            .copy_from_slice(data);
        self.put(span.extent, blocks.share(), durability).await
    }

    async fn put(
        &self,
        extent: Extent,
        data: Slice,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        debug_assert_eq!(
            data.len() as u64,
            self.geometry().length(extent),
            "a write has the data of its blocks"
        );
        self.unflushed.set(true);
        self.device.write(extent, data, durability).await
    }

    /// Zeroes bytes. Bytes beyond the end of the device are ignored.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn clear(&self, offset: u64, length: u64, how: Clearing) -> Result<(), DeviceError> {
        self.writable()?;
        if how == Clearing::Punch && !self.device.profile().thin {
            return Err(DeviceError::Unsupported);
        }
        let geometry = self.geometry();
        let bytes = clipped(self.bytes(), offset, length);
        let block = u64::from(geometry.block_size.bytes());
        let (first, last) = (
            bytes.start.next_multiple_of(block),
            bytes.end / block * block,
        );
        if first >= last {
            return self.write_zeros(geometry, bytes).await;
        }
        self.write_zeros(geometry, bytes.start..first).await?;
        self.clear_blocks(Span::over(geometry, &(first..last)).extent, how)
            .await?;
        self.write_zeros(geometry, last..bytes.end).await
    }

    async fn clear_blocks(&self, extent: Extent, how: Clearing) -> Result<(), DeviceError> {
        let _with_others = self.locks.share(extent).await;
        self.unflushed.set(true);
        match how {
            Clearing::Punch => self.device.unmap(extent).await,
            Clearing::Zero => self.device.write_zeroes(extent, false).await,
        }
    }

    /// Writes zeros to parts of at most two blocks.
    async fn write_zeros(&self, geometry: Geometry, bytes: Range<u64>) -> Result<(), DeviceError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let zeros = Buffer::zeroed((bytes.end - bytes.start) as usize);
        let span = Span::over(geometry, &bytes);
        debug_assert!(
            span.extent.blocks.0 <= 2,
            "whole blocks are cleared without data"
        );
        self.patch(geometry, &span, &zeros, Durability::Cached)
            .await
    }

    /// Records an opened file; returns a number for the open file description.
    pub fn open(&self) -> u64 {
        self.losses.borrow_mut().open()
    }

    /// Records that the open file description was closed.
    pub fn close(&self, opening: u64) {
        self.losses.borrow_mut().told.remove(&opening);
    }

    /// Flushes writes to stable storage. Fails if writes were lost and this open file description has not yet
    /// received an error for that loss.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn flush(&self, opening: u64) -> Result<(), DeviceError> {
        let flushed = self.flush_device().await;
        self.losses.borrow_mut().tell(opening, flushed)
    }

    /// Whether there are no writes since the last flush.
    pub(crate) fn is_flushed(&self) -> bool {
        !self.unflushed.get()
    }

    /// Flushes if there are writes since the last flush. A loss is recorded, not reported.
    pub async fn flush_if_written(&self) -> Result<(), DeviceError> {
        if self.unflushed.get() {
            self.flush_device().await
        } else {
            Ok(())
        }
    }

    /// Flushes for the last time. Also fails if an earlier loss was never reported.
    pub async fn finish(&self) -> Result<(), DeviceError> {
        self.flush_if_written().await?;
        let Losses {
            count, reported, ..
        } = *self.losses.borrow();
        if reported < count {
            Err(DeviceError::WritesLost)
        } else {
            Ok(())
        }
    }

    async fn flush_device(&self) -> Result<(), DeviceError> {
        let unflushed = self.unflushed.replace(false);
        let losses = self.losses.borrow().count;
        let flushed = self.device.flush().await;
        // After a failed flush, its writes are still unflushed.
        self.unflushed
            .set(self.unflushed.get() || (unflushed && flushed.is_err()));
        if matches!(
            flushed,
            Err(DeviceError::WritesLost | DeviceError::Unwritable(_) | DeviceError::NoSpace)
        ) {
            // Concurrent flushes count as a single loss.
            let count = &mut self.losses.borrow_mut().count;
            *count = (*count).max(losses + 1);
        }
        flushed
    }

    /// Returns where the next data or the next hole begins, at or after `offset` (lseek(2), `SEEK_DATA` and
    /// `SEEK_HOLE`). `None` if `offset` is beyond the end, or no more data follows. There is always a hole
    /// after the last byte.
    pub async fn seek(&self, offset: u64, wanted: Allocation) -> Result<Option<u64>, DeviceError> {
        let geometry = self.geometry();
        let end = self.bytes();
        if offset >= end {
            return Ok(None);
        }
        let mut lba = offset >> geometry.block_size.shift();
        while lba < geometry.blocks.0 {
            let rest = Extent::new(lba, geometry.blocks.0 - lba);
            for run in self.device.allocation(rest, RUNS).await? {
                if run.allocation == wanted {
                    return Ok(Some(geometry.offset(run.extent).max(offset)));
                }
                let Some(Lba(behind)) = run.extent.end().filter(|behind| behind.0 > lba) else {
                    return Err(DeviceError::Unsupported);
                };
                lba = behind;
            }
        }
        Ok((wanted == Allocation::Deallocated).then_some(end))
    }
}

/// The part of the range that lies within the device.
fn clipped(bytes: u64, offset: u64, length: u64) -> Range<u64> {
    let start = offset.min(bytes);
    start..offset.saturating_add(length).clamp(start, bytes)
}

/// A range of bytes, and the blocks that contain it.
struct Span {
    extent: Extent,
    /// The position of the bytes within the extent.
    within: Range<usize>,
}

impl Span {
    /// Computes the span of bytes, all of which must be within the device.
    fn over(geometry: Geometry, bytes: &Range<u64>) -> Span {
        let shift = geometry.block_size.shift();
        let first = bytes.start >> shift;
        let behind = bytes.end.div_ceil(u64::from(geometry.block_size.bytes()));
        let skipped = (bytes.start - (first << shift)) as usize;
        debug_assert!(
            behind << shift >= bytes.end,
            "the blocks of a span cover its bytes"
        );
        Span {
            extent: Extent::new(first, behind - first),
            within: skipped..skipped + (bytes.end - bytes.start) as usize,
        }
    }

    fn is_whole(&self, geometry: Geometry) -> bool {
        self.within == (0..geometry.length(self.extent) as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use block::{BlockSize, Fault, FaultControl};
    use host::{Epoll, EpollOptions, RamDevice, RamOptions, ReactorClock};

    use super::*;

    const BLOCK: usize = 4096;

    fn disk() -> Disk {
        let options = RamOptions {
            block_size: BlockSize::B4096,
            ..RamOptions::new(1 << 20)
        };
        Disk::new(Arc::new(RamDevice::new(options).expect("memory")), false)
    }

    fn wait<T>(work: impl Future<Output = T>) -> T {
        reactor::block_on(
            Epoll::shared(EpollOptions::default()).expect("a world"),
            work,
        )
    }

    fn bytes(value: u8, length: usize) -> Buffer {
        Buffer::from(&vec![value; length][..])
    }

    #[test]
    fn a_write_of_part_of_a_block_leaves_the_rest() {
        let disk = disk();
        wait(async {
            disk.write(0, bytes(1, 3 * BLOCK), Durability::Cached)
                .await
                .expect("whole blocks");
            disk.write(4090, bytes(2, 12), Durability::Cached)
                .await
                .expect("parts of two");
            let read = disk.read(4088, 16).await.expect("parts of two");
            assert_eq!(read[..], [1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1]);
        });
    }

    #[test]
    fn writes_of_parts_of_one_block_do_not_undo_each_other() {
        let disk = std::rc::Rc::new(disk());
        wait(async {
            let writes: Vec<_> = (0..64_u8)
                .map(|part| {
                    let disk = std::rc::Rc::clone(&disk);
                    reactor::spawn(async move {
                        disk.write(u64::from(part) * 64, bytes(part, 64), Durability::Cached)
                            .await
                    })
                })
                .collect();
            for write in writes {
                assert_eq!(write.await, Ok(64));
            }
            let read = disk.read(0, BLOCK).await.expect("the block");
            assert!(
                read.chunks(64)
                    .enumerate()
                    .all(|(part, piece)| piece == vec![part as u8; 64])
            );
        });
    }

    #[test]
    fn at_the_end_reads_and_writes_are_shortened_and_beyond_it_writes_fail() {
        let disk = disk();
        let end = 1 << 20;
        wait(async {
            assert_eq!(
                disk.write(end - 10, bytes(3, 20), Durability::Stable).await,
                Ok(10)
            );
            assert_eq!(
                disk.read(end - 10, 20).await.expect("a short read")[..],
                [3; 10]
            );
            assert_eq!(disk.read(u64::MAX, 20).await.expect("nothing").len(), 0);
            let beyond = disk.write(end, bytes(3, 1), Durability::Cached).await;
            assert_eq!(beyond, Err(DeviceError::OutOfRange));
        });
    }

    #[test]
    fn punched_bytes_are_zero_and_their_blocks_a_hole() {
        let disk = disk();
        wait(async {
            disk.write(0, bytes(7, 4 * BLOCK), Durability::Cached)
                .await
                .expect("written");
            disk.clear(100, 3 * BLOCK as u64, Clearing::Punch)
                .await
                .expect("punched");
            let read = disk.read(0, 4 * BLOCK).await.expect("read");
            assert!(read[..100].iter().all(|&byte| byte == 7));
            assert!(read[100..3 * BLOCK + 100].iter().all(|&byte| byte == 0));
            assert!(read[3 * BLOCK + 100..].iter().all(|&byte| byte == 7));
            assert_eq!(
                disk.seek(0, Allocation::Deallocated).await,
                Ok(Some(BLOCK as u64))
            );
            assert_eq!(
                disk.seek(BLOCK as u64 + 5, Allocation::Mapped).await,
                Ok(Some(3 * BLOCK as u64))
            );
        });
    }

    #[test]
    fn bytes_within_one_block_are_cleared_by_writing() {
        let disk = disk();
        wait(async {
            disk.write(0, bytes(7, BLOCK), Durability::Cached)
                .await
                .expect("written");
            disk.clear(1, 2, Clearing::Zero).await.expect("cleared");
            assert_eq!(disk.read(0, 4).await.expect("read")[..], [7, 0, 0, 7]);
        });
    }

    #[test]
    fn what_is_attached_read_only_is_not_written() {
        let disk = Disk {
            read_only: true,
            ..disk()
        };
        wait(async {
            let write = disk.write(0, bytes(1, 1), Durability::Cached).await;
            assert_eq!(write, Err(DeviceError::ReadOnly));
            assert_eq!(
                disk.clear(0, 1, Clearing::Zero).await,
                Err(DeviceError::ReadOnly)
            );
        });
    }

    #[test]
    fn a_flush_that_failed_is_still_to_be_done() {
        let faults = FaultControl::default();
        let device = Fault::new(disk().device, Arc::new(ReactorClock), faults.clone());
        let disk = Disk::new(Arc::new(device), false);
        wait(async {
            disk.flush_if_written().await.expect("nothing to do");
            disk.write(0, bytes(1, 1), Durability::Cached)
                .await
                .expect("written");
            faults.fail(DeviceError::NotReady);
            assert_eq!(disk.flush_if_written().await, Err(DeviceError::NotReady));
            assert_eq!(disk.flush_if_written().await, Err(DeviceError::NotReady));
            faults.pass();
            let before = faults.counts().passed;
            disk.flush_if_written().await.expect("done");
            disk.flush_if_written().await.expect("nothing to do");
            assert_eq!(faults.counts().passed, before + 1);
        });
    }

    #[test]
    fn every_opening_is_told_once_of_what_was_lost() {
        let faults = FaultControl::default();
        let device = Fault::new(disk().device, Arc::new(ReactorClock), faults.clone());
        let disk = Disk::new(Arc::new(device), false);
        let lost = Err(DeviceError::WritesLost);
        wait(async {
            let (first, second) = (disk.open(), disk.open());
            disk.write(0, bytes(1, 1), Durability::Cached)
                .await
                .expect("written");
            faults.fail(DeviceError::WritesLost);
            assert_eq!(
                disk.flush_if_written().await,
                lost,
                "by a close, which tells nobody"
            );
            faults.pass();
            assert_eq!(disk.finish().await, lost, "if it ended now");
            let third = disk.open();
            for opening in [first, second, third] {
                assert_eq!(
                    (disk.flush(opening).await, disk.flush(opening).await),
                    (lost, Ok(()))
                );
            }
            let fourth = disk.open();
            assert_eq!(
                disk.flush(fourth).await,
                Ok(()),
                "it was told before this was opened"
            );
            assert_eq!(disk.finish().await, Ok(()));
            disk.write(0, bytes(1, 1), Durability::Cached)
                .await
                .expect("written");
            faults.fail(DeviceError::NoSpace);
            assert_eq!(disk.flush(first).await, Err(DeviceError::NoSpace));
            faults.pass();
            assert_eq!(
                (disk.flush(first).await, disk.flush(first).await),
                (lost, Ok(())),
                "repeated"
            );
        });
    }

    #[test]
    fn seeking_ends_with_the_device() {
        let disk = disk();
        wait(async {
            assert_eq!(disk.seek(0, Allocation::Mapped).await, Ok(None));
            assert_eq!(disk.seek(1 << 20, Allocation::Deallocated).await, Ok(None));
            disk.write(0, bytes(7, 1 << 20), Durability::Cached)
                .await
                .expect("written");
            assert_eq!(disk.seek(5, Allocation::Mapped).await, Ok(Some(5)));
            assert_eq!(
                disk.seek(5, Allocation::Deallocated).await,
                Ok(Some(1 << 20))
            );
        });
    }
}
