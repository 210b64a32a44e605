//! A member of a set that is only read: what assembling writes, above all the replay of a journal, stays in memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use block::{
    Allocation, BlockDevice, Buffer, DeviceError, Durability, Extent, Lock, Pending, Run, Slice, forward,
};

/// More than a journal holds, so that a damaged one takes no more memory.
const BYTES_MAX: usize = 512 << 20;

fn blocks_of(extent: Extent) -> Range<u64> {
    extent.lba.0..extent.lba.0.saturating_add(extent.blocks.0)
}

/// Blocks that were written, over a device that is not.
pub(super) struct Overlay {
    below: Arc<dyn BlockDevice>,
    written: Lock<BTreeMap<u64, Box<[u8]>>>,
}

impl Overlay {
    pub(super) fn new(below: Arc<dyn BlockDevice>) -> Overlay {
        Overlay { below, written: Lock::default() }
    }

    fn keep(&self, extent: Extent, data: &[u8]) -> Result<(), DeviceError> {
        let block_bytes = self.below.geometry().block_size.bytes() as usize;
        let mut written = self.written.lock();
        for (lba, block) in (extent.lba.0..).zip(data.chunks(block_bytes)) {
            if (written.len() + 1) * block_bytes > BYTES_MAX {
                return Err(DeviceError::NoSpace);
            }
            written.insert(lba, block.into());
        }
        Ok(())
    }
}

impl BlockDevice for Overlay {
    forward!(self => self.below; geometry, profile, losses, refresh, take_os_error, quiesced);

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            let mut buffer = self.below.read(extent, buffer).await?;
            let block_bytes = self.below.geometry().block_size.bytes() as usize;
            let written = self.written.lock();
            for (lba, block) in written.range(blocks_of(extent)) {
                let at = (lba - extent.lba.0) as usize * block_bytes;
                buffer[at..at + block_bytes].copy_from_slice(block);
            }
            Ok(buffer)
        })
    }

    fn write(&self, extent: Extent, data: Slice, _durability: Durability) -> Pending<'_, ()> {
        Box::pin(async move { self.keep(extent, &data) })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.write_zeroes(extent, true)
    }

    fn write_zeroes(&self, extent: Extent, _may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(async move {
            let zeros = vec![0; self.below.geometry().block_size.bytes() as usize];
            blocks_of(extent).try_for_each(|lba| self.keep(Extent::new(lba, 1), &zeros))
        })
    }

    fn allocation(&self, extent: Extent, _runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move { Ok(vec![Run { extent, allocation: Allocation::Mapped }]) })
    }
}
