//! A volume in memory, which allocates memory for writes and frees it on unmap.
//!
//! Front ends send directly from the volume's memory and receive directly into it ([`BlockDevice::memory`]),
//! so data is copied only by the kernel, between socket and volume. A flush has nothing to do. The data is
//! lost when the process ends, as the profile states (`durable: false`). All requests complete in their first
//! poll.

mod bits;
mod mapping;
mod memory;

use std::ops::Range;
use std::sync::Arc;

use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry,
    Losses, Medium, Pending, Profile, Region, Run, Slice, Space, WholeBlocks,
};

use crate::file::OpenError;
use memory::Memory;

/// Options of a RAM volume.
#[derive(Clone, Copy, Debug)]
pub struct RamOptions {
    /// The capacity in bytes: a whole number of blocks, at least one.
    pub bytes: u64,
    /// The length of a logical block.
    pub block_size: BlockSize,
    /// log2 of the logical blocks per physical block; 3 for 512e.
    pub physical_exponent: u8,
    /// Reject writes, so that the volume contains only zeros.
    pub read_only: bool,
    /// Convert mostly written regions to huge pages after a while, if the kernel supports it. Random access
    /// is then faster, but the volume uses up to a third more memory than its written data needs.
    pub huge_pages: bool,
}

impl RamOptions {
    /// Options for a writable volume with logical and physical blocks of 512 bytes, which uses huge pages.
    pub fn new(bytes: u64) -> RamOptions {
        RamOptions {
            bytes,
            block_size: BlockSize::B512,
            physical_exponent: 0,
            read_only: false,
            huge_pages: true,
        }
    }
}

/// A volume in memory.
pub struct RamDevice {
    memory: Arc<Memory>,
    geometry: Geometry,
    read_only: bool,
}

impl RamDevice {
    /// Creates a volume of zeros.
    pub fn new(options: RamOptions) -> Result<RamDevice, OpenError> {
        let RamOptions {
            bytes,
            block_size,
            physical_exponent,
            read_only,
            huge_pages,
        } = options;
        let blocks = block_size.exact(bytes).filter(|blocks| blocks.0 > 0);
        let blocks = blocks.ok_or(OpenError::NotWholeBlocks { bytes, block_size })?;
        let no_memory = |source| OpenError::NoMemory { bytes, source };
        let length = usize::try_from(bytes)
            .map_err(|_| no_memory(std::io::ErrorKind::OutOfMemory.into()))?;
        let memory =
            Memory::new(length, block_size.bytes() as usize, huge_pages).map_err(no_memory)?;
        Ok(RamDevice {
            memory,
            geometry: Geometry {
                block_size,
                blocks,
                physical_exponent,
            },
            read_only,
        })
    }

    /// The number of allocated bytes. Bytes are allocated if they were written, or zeroed without unmapping,
    /// and not unmapped since. They are counted in whole pages, or in blocks if those are larger. Zeroed
    /// parts count even if they were never written and use no memory.
    pub fn bytes_written(&self) -> u64 {
        self.memory.written.count() * self.memory.granule() as u64
    }

    /// Returns the memory range of an extent, if the extent is within the device.
    fn range(&self, extent: Extent) -> Result<Range<usize>, DeviceError> {
        if !self.geometry.contains(extent) {
            return Err(DeviceError::OutOfRange);
        }
        // The whole device fits the address space, so the conversion is lossless.
        let start = self.geometry.offset(extent) as usize;
        Ok(start..start + self.geometry.length(extent) as usize)
    }

    fn range_to_change(&self, extent: Extent) -> Result<Range<usize>, DeviceError> {
        let range = self.range(extent)?;
        if self.read_only {
            Err(DeviceError::ReadOnly)
        } else {
            Ok(range)
        }
    }

    fn store(&self, extent: Extent, data: &[u8]) -> Result<(), DeviceError> {
        let range = self.range_to_change(extent)?;
        if data.len() != range.len() {
            return Err(DeviceError::OutOfRange);
        }
        self.memory.store(range.start, data);
        Ok(())
    }

    fn load(&self, extent: Extent, mut buffer: Buffer) -> Result<Buffer, DeviceError> {
        let range = self.range(extent)?;
        if buffer.len() != range.len() {
            return Err(DeviceError::OutOfRange);
        }
        self.memory.load(range.start, &mut buffer);
        Ok(buffer)
    }

    fn give_back(&self, extent: Extent) -> Result<(), DeviceError> {
        self.memory.give_back(self.range_to_change(extent)?);
        Ok(())
    }

    fn zero(&self, extent: Extent) -> Result<(), DeviceError> {
        self.memory.zero(self.range_to_change(extent)?);
        Ok(())
    }

    /// Yields to the core's other tasks periodically, because a client can query 16 TiB with a single
    /// command.
    async fn runs(&self, extent: Extent, runs_max: usize) -> Result<Vec<Run>, DeviceError> {
        let range = self.range(extent)?;
        let (written, granule) = (&self.memory.written, self.memory.granule());
        let mut runs = Vec::new();
        let granules = self.memory.granules(&range);
        let (mut at, mut scanned) = (granules.start, 0);
        while at < granules.end && runs.len() < runs_max.max(1) {
            let is_written = written.contains(at);
            let mut end = at;
            loop {
                let stop = granules.end.min(end + SCANNED_GRANULES);
                let found = written.run_end(end, stop);
                scanned += found - end;
                if scanned >= SCANNED_GRANULES {
                    reactor::consume_budget(scanned / 8).await;
                    scanned = 0;
                }
                end = found;
                if end < stop || end == granules.end || written.contains(end) != is_written {
                    break;
                }
            }
            let bytes = (at * granule).max(range.start)..(end * granule).min(range.end);
            let allocation = if is_written {
                Allocation::Mapped
            } else {
                Allocation::Deallocated
            };
            runs.push(Run {
                extent: self.extent(&bytes),
                allocation,
            });
            at = end;
        }
        Ok(runs)
    }

    /// Converts a memory range that consists of whole blocks.
    fn extent(&self, range: &Range<usize>) -> Extent {
        let shift = self.geometry.block_size.shift();
        Extent::new(
            range.start as u64 >> shift,
            (range.end - range.start) as u64 >> shift,
        )
    }

    fn region(&self, range: Range<usize>) -> Option<Region> {
        Region::new(Arc::clone(&self.memory) as Arc<dyn Medium>, range)
    }
}

impl BlockDevice for RamDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn profile(&self) -> Profile {
        Profile {
            read_only: self.read_only,
            thin: true,
            granularity: Blocks((self.memory.granule() >> self.geometry.block_size.shift()) as u64),
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

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn memory(&self, extent: Extent) -> Option<Region> {
        self.region(self.range(extent).ok()?)
    }

    fn memory_to_write(&self, extent: Extent) -> Option<WholeBlocks> {
        let region = self.region(self.range_to_change(extent).ok()?)?;
        Some(WholeBlocks::new(region, self.geometry.block_size))
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move { self.load(extent, buffer) })
    }

    fn write(&self, extent: Extent, data: Slice, _: Durability) -> Pending<'_, ()> {
        Box::pin(async move { self.store(extent, &data) })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(async move { self.give_back(extent) })
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(async move {
            if may_unmap {
                self.give_back(extent)
            } else {
                self.zero(extent)
            }
        })
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(self.runs(extent, runs_max))
    }

    fn allocated_bytes(&self) -> Option<u64> {
        Some(self.bytes_written())
    }

    fn space(&self) -> Pending<'_, Space> {
        Box::pin(async {
            Ok(Space {
                used_bytes: self.bytes_written(),
                available_bytes: None,
            })
        })
    }
}

/// Number of bits of the written map that are scanned without yielding: 64 KiB of the map.
const SCANNED_GRANULES: usize = 512 << 10;

#[cfg(test)]
mod tests;
