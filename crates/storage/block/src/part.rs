//! A part of a device as a separate device, such as the data of a RAID member after its superblock.

use crate::buffer::{Buffer, Slice};
use crate::device::{BlockDevice, DeviceError, Durability, OptimalTransfer, Pending, Profile, Run};
use crate::extent::{Blocks, Extent, Geometry, Lba};
use crate::region::{Region, WholeBlocks};

/// The blocks of one extent of a device, counted from the start of the extent. A flush covers the whole
/// device.
pub struct Part<D> {
    inner: D,
    extent: Extent,
}

impl<D: BlockDevice> Part<D> {
    /// Presents `extent` of `inner` as a device.
    ///
    /// # Errors
    /// Returns [`DeviceError::OutOfRange`] if `inner` does not contain all of `extent`.
    pub fn new(inner: D, extent: Extent) -> Result<Part<D>, DeviceError> {
        inner
            .geometry()
            .check(extent, None)
            .map(|()| Part { inner, extent })
    }

    /// Converts an extent of the part to an extent of the whole device.
    fn shifted(&self, extent: Extent) -> Result<Extent, DeviceError> {
        self.geometry().check(extent, None)?;
        let shifted = Extent::new(self.extent.lba.0 + extent.lba.0, extent.blocks.0);
        debug_assert!(shifted.end() <= self.extent.end(), "within the part");
        Ok(shifted)
    }

    fn on_inner<'a, T: 'a>(
        &'a self,
        extent: Extent,
        request: impl FnOnce(&'a D, Extent) -> Pending<'a, T>,
    ) -> Pending<'a, T> {
        match self.shifted(extent) {
            Ok(extent) => {
                let request = request(&self.inner, extent);
                Box::pin(async move { request.await.map_err(|error| self.shifted_back(error)) })
            }
            Err(error) => Box::pin(async move { Err(error) }),
        }
    }

    /// Converts the block address in an error to a block address of the part.
    fn shifted_back(&self, error: DeviceError) -> DeviceError {
        error.map_lba(|lba| Lba(lba.0.saturating_sub(self.extent.lba.0)))
    }
}

impl<D: BlockDevice> BlockDevice for Part<D> {
    crate::forward!(self => self.inner; flush, losses, refresh, take_os_error, quiesced);

    fn geometry(&self) -> Geometry {
        Geometry {
            blocks: self.extent.blocks,
            ..self.inner.geometry()
        }
    }

    /// Reports the granularity and the stripes of the whole device only if the part starts at a multiple of
    /// them.
    fn profile(&self) -> Profile {
        let inner = self.inner.profile();
        let aligned = self.extent.lba.0.is_multiple_of(inner.granularity.0.max(1));
        let keeps_stripes =
            |optimal: &OptimalTransfer| self.extent.lba.0.is_multiple_of(optimal.length.0.max(1));
        Profile {
            granularity: if aligned {
                inner.granularity
            } else {
                Blocks(1)
            },
            optimal_transfer: inner.optimal_transfer.filter(keeps_stripes),
            ..inner
        }
    }

    fn memory(&self, extent: Extent) -> Option<Region> {
        self.inner.memory(self.shifted(extent).ok()?)
    }

    fn memory_to_write(&self, extent: Extent) -> Option<WholeBlocks> {
        self.inner.memory_to_write(self.shifted(extent).ok()?)
    }

    fn read_nowait(&self, extent: Extent, buffer: &mut [u8]) -> bool {
        self.shifted(extent)
            .is_ok_and(|extent| self.inner.read_nowait(extent, buffer))
    }

    fn write_nowait(&self, extent: Extent, data: &[u8]) -> bool {
        self.shifted(extent)
            .is_ok_and(|extent| self.inner.write_nowait(extent, data))
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        self.on_inner(extent, |inner, extent| inner.read(extent, buffer))
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        self.on_inner(extent, |inner, extent| {
            inner.write(extent, data, durability)
        })
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.on_inner(extent, |inner, extent| inner.unmap(extent))
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        self.on_inner(extent, move |inner, extent| {
            inner.write_zeroes(extent, may_unmap)
        })
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            let runs = self
                .on_inner(extent, move |inner, extent| {
                    inner.allocation(extent, runs_max)
                })
                .await?;
            let back =
                |extent: Extent| Extent::new(extent.lba.0 - self.extent.lba.0, extent.blocks.0);
            Ok(runs
                .into_iter()
                .map(|run| Run {
                    extent: back(run.extent),
                    ..run
                })
                .collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Memory, filled, read, ready};

    const BLOCKS: u64 = 64;

    /// Returns a device on which each block is filled with its number.
    fn numbered() -> Memory {
        let device = Memory::new(BLOCKS);
        for lba in 0..BLOCKS {
            ready(device.write(
                Extent::new(lba, 1),
                filled(lba as u8, 1),
                Durability::Cached,
            ))
            .expect("room");
        }
        device
    }

    #[test]
    fn a_part_that_is_not_there_is_refused() {
        assert_eq!(
            Part::new(numbered(), Extent::new(60, 5)).err(),
            Some(DeviceError::OutOfRange)
        );
        assert_eq!(
            Part::new(numbered(), Extent::new(u64::MAX, 2)).err(),
            Some(DeviceError::OutOfRange)
        );
    }

    #[test]
    fn an_error_names_the_block_of_the_part() {
        let part = Part::new(numbered(), Extent::new(10, 4)).expect("there");
        assert_eq!(
            part.shifted_back(DeviceError::Unreadable(Lba(12))),
            DeviceError::Unreadable(Lba(2))
        );
        assert_eq!(
            part.shifted_back(DeviceError::NoSpace),
            DeviceError::NoSpace
        );
    }

    proptest! {
        #[test]
        fn a_part_is_the_blocks_of_its_extent_and_no_others(
            start in 0..BLOCKS, length in 0..BLOCKS, lba in 0..BLOCKS, blocks in 0..8u64, zeros: bool,
        ) {
            let extent = Extent::new(start, length.min(BLOCKS - start));
            let part = Part::new(numbered(), extent).expect("within the device");
            let changed = Extent::new(lba, blocks);
            let fits = lba + blocks <= extent.blocks.0;
            let result = match zeros {
                true => ready(part.write_zeroes(changed, true)),
                false => ready(part.write(changed, filled(0, blocks), Durability::Cached)),
            };
            prop_assert_eq!(result, if fits { Ok(()) } else { Err(DeviceError::OutOfRange) });
            for at in 0..BLOCKS {
                let is_changed = fits && (start + lba..start + lba + blocks).contains(&at);
                let expected = if is_changed { 0 } else { at as u8 };
                prop_assert_eq!(part.inner.byte(at as usize * 512), expected, "block {}", at);
            }
            if fits && blocks > 0 {
                prop_assert_eq!(read(&part, lba, blocks)[0], 0);
                let runs = ready(part.allocation(changed, 1)).expect("known");
                prop_assert_eq!(runs[0].extent, changed);
            }
        }
    }

    /// Initiators count stripes from the start of the device that they see.
    #[test]
    fn a_part_keeps_stripes_only_where_it_begins_with_one() {
        struct Striped(Memory);
        impl BlockDevice for Striped {
            crate::forward!(self => self.0; geometry, read, write, flush, losses, unmap, write_zeroes, allocation, quiesced);

            fn profile(&self) -> Profile {
                let optimal = OptimalTransfer {
                    granularity: Blocks(4),
                    length: Blocks(12),
                };
                Profile {
                    optimal_transfer: Some(optimal),
                    ..self.0.profile()
                }
            }
        }
        let stripes = |from| {
            let part = Part::new(Striped(Memory::new(BLOCKS)), Extent::new(from, 24))
                .expect("it is there");
            part.profile().optimal_transfer.is_some()
        };
        assert_eq!([0, 4, 12].map(stripes), [true, false, true]);
    }
}
