//! 512-byte blocks over a device with longer blocks ("512e"). A write that does not cover whole blocks of the
//! device becomes a read-modify-write.
//!
//! ```text
//!   blocks of the device   |       0       |       1       |
//!   blocks of 512 bytes    |0 1 2 3 4 5 6 7|8 9 ...
//!   a write to 6 to 9                  [. . . .]
//!   reads blocks 0 and 1 of the device, changes four short blocks in them, and writes both
//! ```
//!
//! A read-modify-write excludes other requests for its blocks from the start of the read to the end of the
//! write, even if the request is dropped. Otherwise it could overwrite data that was written in between with
//! the old data that it has read. Whole blocks are passed to the device unchanged.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use crate::buffer::{Buffer, Slice};
use crate::device::{BlockDevice, DeviceError, Durability, Pending, Profile, Run};
use crate::extent::{BlockSize, Blocks, Extent, Geometry, Lba};
use crate::forward;
use crate::range_lock::RangeLocks;
use crate::tasks::{Operations, Spawner};

/// A device with 512-byte blocks over a device with longer blocks. Over a device with 512-byte blocks, it
/// passes requests on unchanged.
pub struct Emulated512<D> {
    inner: Arc<D>,
    /// log2 of the 512-byte blocks in a block of the inner device.
    shift: u32,
    locks: Arc<RangeLocks>,
    /// Writes that hold their blocks exclusively.
    operations: Operations,
}

/// A request converted to blocks of the inner device: the blocks that it touches, and its range of bytes in
/// them.
#[derive(Clone)]
struct Cover {
    extent: Extent,
    bytes: Range<usize>,
    length: usize,
}

impl Cover {
    fn is_whole(&self) -> bool {
        self.bytes == (0..self.length)
    }

    /// Returns the blocks that must be read first, because the request changes only a part of them: the
    /// blocks at its ends.
    fn edges(&self, block_bytes: usize) -> Vec<Extent> {
        let Extent {
            lba: Lba(first),
            blocks: Blocks(blocks),
        } = self.extent;
        let head = !self.bytes.start.is_multiple_of(block_bytes);
        let tail = !self.bytes.end.is_multiple_of(block_bytes);
        match (head, tail) {
            // If these are adjacent blocks or the same block, one request is enough.
            (true, true) if blocks <= 2 => vec![self.extent],
            (true, true) => vec![Extent::new(first, 1), Extent::new(first + blocks - 1, 1)],
            (true, false) => vec![Extent::new(first, 1)],
            (false, true) => vec![Extent::new(first + blocks - 1, 1)],
            (false, false) => Vec::new(),
        }
    }
}

impl<D: BlockDevice + 'static> Emulated512<D> {
    /// Presents `inner` with 512-byte blocks. `spawner` runs writes that continue after their requests were
    /// dropped.
    pub fn new(inner: D, spawner: Arc<dyn Spawner>) -> Emulated512<D> {
        let shift = inner.geometry().block_size.shift() - BlockSize::B512.shift();
        Emulated512 {
            inner: Arc::new(inner),
            shift,
            locks: Arc::default(),
            operations: Operations::new(spawner),
        }
    }

    fn block_bytes(&self) -> usize {
        self.inner.geometry().block_size.bytes() as usize
    }

    /// Converts `extent`, which must lie within the device.
    fn cover(&self, extent: Extent) -> Cover {
        let end = extent.lba.0 + extent.blocks.0;
        let first = extent.lba.0 >> self.shift;
        if extent.is_empty() {
            return Cover {
                extent: Extent::new(first, 0),
                bytes: 0..0,
                length: 0,
            };
        }
        let last = end.div_ceil(1 << self.shift);
        let start = (extent.lba.0 - (first << self.shift)) as usize * SHORT_BYTES;
        let bytes = start..start + extent.blocks.0 as usize * SHORT_BYTES;
        debug_assert!(
            first < last && last <= self.inner.geometry().blocks.0,
            "a request within the device"
        );
        Cover {
            extent: Extent::new(first, last - first),
            bytes,
            length: (last - first) as usize * self.block_bytes(),
        }
    }

    /// Converts blocks of the inner device to an extent for the locks, with one zone per block, so that
    /// adjacent blocks do not conflict.
    fn locked(extent: Extent) -> Extent {
        Extent::new(
            extent.lba.0.saturating_mul(ZONE),
            extent.blocks.0.saturating_mul(ZONE),
        )
    }

    /// Converts the LBA in an error of the inner device to 512-byte blocks.
    fn in_short_blocks(&self, error: DeviceError) -> DeviceError {
        error.map_lba(|lba| Lba(lba.0 << self.shift))
    }

    async fn read_part(&self, cover: Cover, mut buffer: Buffer) -> Result<Buffer, DeviceError> {
        let whole = self
            .inner
            .read(cover.extent, Buffer::recycled(cover.length))
            .await?;
        buffer.copy_from_slice(&whole[cover.bytes]);
        Ok(buffer)
    }

    /// Executes a read-modify-write.
    async fn write_part(
        &self,
        cover: Cover,
        data: &[u8],
        durability: Durability,
    ) -> Result<(), DeviceError> {
        let exclusive = self.locks.exclude(Self::locked(cover.extent)).await;
        debug_assert_eq!(data.len(), cover.bytes.len());
        let mut whole = Buffer::recycled(cover.length);
        let block_bytes = self.block_bytes();
        for edge in cover.edges(block_bytes) {
            let at = (edge.lba.0 - cover.extent.lba.0) as usize * block_bytes;
            let length = edge.blocks.0 as usize * block_bytes;
            let kept = self.inner.read(edge, Buffer::recycled(length)).await?;
            whole[at..at + length].copy_from_slice(&kept);
        }
        whole[cover.bytes.clone()].copy_from_slice(data);
        // The blocks stay locked until the write ends, even if the request is dropped.
        let inner = Arc::clone(&self.inner);
        let write = async move {
            let result = inner.write(cover.extent, whole.share(), durability).await;
            drop(exclusive);
            result
        };
        self.operations.run(write).await
    }

    /// Zeroes the blocks of `extent`: partial blocks by writing zeros, whole blocks with `whole`.
    async fn clear<'a>(
        &'a self,
        extent: Extent,
        zeros_wanted: bool,
        whole: impl FnOnce(&'a D, Extent) -> Pending<'a, ()>,
    ) -> Result<(), DeviceError> {
        let per_block = 1 << self.shift;
        debug_assert!(self.geometry().contains(extent));
        let end = extent.lba.0 + extent.blocks.0;
        let (first, last) = (
            extent.lba.0.next_multiple_of(per_block).min(end),
            end - end % per_block,
        );
        let ends = match first <= last {
            true => [extent.lba.0..first, last..end],
            false => [extent.lba.0..end, end..end],
        };
        for part in ends
            .into_iter()
            .filter(|part| zeros_wanted && !part.is_empty())
        {
            let zeros = vec![0; (part.end - part.start) as usize * SHORT_BYTES];
            let cover = self.cover(Extent::new(part.start, part.end - part.start));
            self.write_part(cover, &zeros, Durability::Cached).await?;
        }
        if first < last {
            let cover = self.cover(Extent::new(first, last - first));
            let _shared = self.locks.share(Self::locked(cover.extent)).await;
            whole(&self.inner, cover.extent).await?;
        }
        Ok(())
    }
}

const SHORT_BYTES: usize = 512;
/// Number of blocks per zone of [`RangeLocks`].
const ZONE: u64 = 2048;

impl<D: BlockDevice + 'static> BlockDevice for Emulated512<D> {
    forward!(self => self.inner; flush, losses, space, allocated_bytes, refresh, grow, take_os_error);

    fn geometry(&self) -> Geometry {
        let inner = self.inner.geometry();
        Geometry {
            block_size: BlockSize::B512,
            blocks: Blocks(inner.blocks.0 << self.shift),
            physical_exponent: inner.physical_exponent + self.shift as u8,
        }
    }

    fn profile(&self) -> Profile {
        let inner = self.inner.profile();
        let optimal_transfer = inner.optimal_transfer;
        Profile {
            granularity: Blocks(inner.granularity.0 << self.shift),
            optimal_transfer: optimal_transfer
                .map(|optimal| optimal.in_blocks_shorter_by(self.shift)),
            ..inner
        }
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            self.geometry().check(extent, Some(buffer.len()))?;
            let cover = self.cover(extent);
            let result = match cover.is_whole() {
                true => self.inner.read(cover.extent, buffer).await,
                false => self.read_part(cover, buffer).await,
            };
            result.map_err(|error| self.in_short_blocks(error))
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(async move {
            self.geometry().check(extent, Some(data.len()))?;
            let cover = self.cover(extent);
            let result = match cover.is_whole() {
                true => {
                    let _shared = self.locks.share(Self::locked(cover.extent)).await;
                    self.inner.write(cover.extent, data, durability).await
                }
                false => self.write_part(cover, &data, durability).await,
            };
            result.map_err(|error| self.in_short_blocks(error))
        })
    }

    /// On a device that is not thin, unmap need not have an effect, so partial blocks stay unchanged.
    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(async move {
            self.geometry().check(extent, None)?;
            let zeros_wanted = self.inner.profile().thin;
            let result = self
                .clear(extent, zeros_wanted, |inner, extent| inner.unmap(extent))
                .await;
            result.map_err(|error| self.in_short_blocks(error))
        })
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(async move {
            self.geometry().check(extent, None)?;
            let result = self
                .clear(extent, true, |inner, extent| {
                    inner.write_zeroes(extent, may_unmap)
                })
                .await;
            result.map_err(|error| self.in_short_blocks(error))
        })
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            self.geometry().check(extent, None)?;
            let runs = self
                .inner
                .allocation(self.cover(extent).extent, runs_max)
                .await?;
            let end = extent.lba.0 + extent.blocks.0;
            let clipped = runs.into_iter().map(|run| {
                let start = (run.extent.lba.0 << self.shift).max(extent.lba.0);
                let stop = ((run.extent.lba.0 + run.extent.blocks.0) << self.shift).min(end);
                Run {
                    extent: Extent::new(start, stop - start),
                    ..run
                }
            });
            Ok(clipped.collect())
        })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.operations.quiesced().await;
            self.inner.quiesced().await
        })
    }
}
