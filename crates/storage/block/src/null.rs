//! A device that stores nothing and takes no time, for measuring the layers above it.

use crate::buffer::{Buffer, Slice};
use crate::device::{Allocation, BlockDevice, Durability, Pending, Profile, Run};
use crate::extent::{Blocks, Extent, Geometry};
use crate::losses::Losses;

/// Discards writes, and reads as zeros. Each request completes in its first poll.
///
/// Reads fill their buffers with zeros. Skipping that would be faster, but clients would then see data of
/// other requests.
pub struct Null {
    geometry: Geometry,
}

impl Null {
    /// Creates a device with this geometry.
    pub fn new(geometry: Geometry) -> Null {
        Null { geometry }
    }
}

impl BlockDevice for Null {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn profile(&self) -> Profile {
        Profile {
            read_only: false,
            thin: true,
            granularity: Blocks(1),
            volatile_cache: false,
            durable: false,
            solid_state: true,
            optimal_transfer: None,
            loses_unseen: false,
        }
    }

    fn losses(&self) -> Losses {
        Losses::NONE
    }

    fn read(&self, extent: Extent, mut buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            buffer.fill(0);
            self.geometry
                .check(extent, Some(buffer.len()))
                .map(|()| buffer)
        })
    }

    fn write(&self, extent: Extent, data: Slice, _: Durability) -> Pending<'_, ()> {
        Box::pin(async move { self.geometry.check(extent, Some(data.len())) })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(async move { self.geometry.check(extent, None) })
    }

    fn write_zeroes(&self, extent: Extent, _: bool) -> Pending<'_, ()> {
        Box::pin(async move { self.geometry.check(extent, None) })
    }

    fn allocation(&self, extent: Extent, _: usize) -> Pending<'_, Vec<Run>> {
        let hole = Run {
            extent,
            allocation: Allocation::Deallocated,
        };
        let runs = if extent.is_empty() {
            Vec::new()
        } else {
            vec![hole]
        };
        Box::pin(async move { self.geometry.check(extent, None).map(|()| runs) })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceError;
    use crate::extent::BlockSize;
    use crate::testing::ready;

    fn null() -> Null {
        Null::new(Geometry {
            block_size: BlockSize::B512,
            blocks: Blocks(8),
            physical_exponent: 0,
        })
    }

    #[test]
    fn what_was_written_reads_as_zeros() {
        let null = null();
        let ones = Buffer::from(&[1; 512][..]);
        ready(null.write(Extent::new(7, 1), ones.share(), Durability::Stable)).expect("taken");
        let read = ready(null.read(Extent::new(7, 1), Buffer::from(&[1; 512][..]))).expect("read");
        assert!(read.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let null = null();
        let read = ready(null.read(Extent::new(7, 2), Buffer::zeroed(1024)));
        assert_eq!(read.err(), Some(DeviceError::OutOfRange));
        let short = ready(null.write(
            Extent::new(0, 2),
            Buffer::zeroed(512).share(),
            Durability::Cached,
        ));
        assert_eq!(short, Err(DeviceError::OutOfRange));
        assert_eq!(
            ready(null.unmap(Extent::new(u64::MAX, 1))),
            Err(DeviceError::OutOfRange)
        );
    }

    #[test]
    fn all_of_it_is_a_hole() {
        let runs = ready(null().allocation(Extent::new(0, 8), 1)).expect("runs");
        assert_eq!(
            runs,
            [Run {
                extent: Extent::new(0, 8),
                allocation: Allocation::Deallocated
            }]
        );
    }
}
