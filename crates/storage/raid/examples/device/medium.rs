//! Media for members and journals: memory and files.

use std::fs::File;
use std::io::IoSlice;
use std::os::unix::fs::FileExt as _;

use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry,
    Lock, Pending, Profile, Run, Slice,
};
use rustix::io::{ReadWriteFlags, pwritev2};

enum Store {
    Memory(Lock<Box<[u8]>>),
    File(File),
}

pub(crate) struct Medium {
    store: Store,
    geometry: Geometry,
}

impl Medium {
    pub(crate) fn memory(bytes: u64) -> Medium {
        let memory = Lock::new(vec![0; bytes as usize].into_boxed_slice());
        Medium {
            store: Store::Memory(memory),
            geometry: geometry(bytes),
        }
    }

    /// Creates a medium in a file that is deleted when the medium is dropped.
    pub(crate) fn file(bytes: u64) -> std::io::Result<Medium> {
        let file = tempfile::tempfile_in("/dev/shm")?;
        file.set_len(bytes)?;
        Ok(Medium {
            store: Store::File(file),
            geometry: geometry(bytes),
        })
    }

    fn start(&self, extent: Extent) -> Result<u64, DeviceError> {
        let fits = self.geometry.contains(extent);
        if fits {
            Ok(extent.lba.0 << self.geometry.block_size.shift())
        } else {
            Err(DeviceError::OutOfRange)
        }
    }

    fn load(&self, extent: Extent, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let start = self.start(extent)?;
        match &self.store {
            Store::Memory(memory) => {
                let start = start as usize;
                buffer.copy_from_slice(&memory.lock()[start..start + buffer.len()]);
                Ok(())
            }
            Store::File(file) => file
                .read_exact_at(buffer, start)
                .map_err(|_| DeviceError::NotReady),
        }
    }

    fn store(
        &self,
        extent: Extent,
        data: &[u8],
        durability: Durability,
    ) -> Result<(), DeviceError> {
        let start = self.start(extent)?;
        match &self.store {
            Store::Memory(memory) => {
                let start = start as usize;
                memory.lock()[start..start + data.len()].copy_from_slice(data);
                Ok(())
            }
            Store::File(file) => {
                let flags = match durability {
                    Durability::Cached => ReadWriteFlags::empty(),
                    Durability::Stable => ReadWriteFlags::DSYNC,
                };
                let written = pwritev2(file, &[IoSlice::new(data)], start, flags);
                if written == Ok(data.len()) {
                    Ok(())
                } else {
                    Err(DeviceError::NotReady)
                }
            }
        }
    }

    fn sync(&self) -> Result<(), DeviceError> {
        match &self.store {
            Store::Memory(_) => Ok(()),
            Store::File(file) => file.sync_data().map_err(|_| DeviceError::NotReady),
        }
    }
}

/// Measures the CPU time in nanoseconds for writing one journal record to a file, without a set.
pub(crate) fn bare_write_ns(file: &Medium, writes: u64) -> f64 {
    /// Length of a record: a one-block header, 4 KiB of data, 4 KiB of parity.
    const RECORD_BYTES: u64 = 512 + (8 << 10);
    /// The part of a journal that is normally in use.
    const USED_BYTES: u64 = 2 << 20;
    let record = vec![0x5a; RECORD_BYTES as usize];
    let places = USED_BYTES / RECORD_BYTES;
    let begun = crate::cpu_time();
    for write in 0..writes {
        let extent = Extent::new(write % places * (RECORD_BYTES >> 9), RECORD_BYTES >> 9);
        file.store(extent, &record, Durability::Stable)
            .expect("/dev/shm has room");
    }
    (crate::cpu_time() - begun) / writes as f64
}

fn geometry(bytes: u64) -> Geometry {
    Geometry {
        block_size: BlockSize::B512,
        blocks: Blocks(bytes >> 9),
        physical_exponent: 3,
    }
}

impl BlockDevice for Medium {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn profile(&self) -> Profile {
        Profile {
            read_only: false,
            thin: false,
            granularity: Blocks(1),
            // Memory has no volatile cache to flush.
            volatile_cache: matches!(self.store, Store::File(_)),
            durable: false,
            solid_state: true,
            optimal_transfer: None,
            loses_unseen: false,
        }
    }

    fn read_nowait(&self, extent: Extent, buffer: &mut [u8]) -> bool {
        matches!(self.store, Store::Memory(_)) && self.load(extent, buffer).is_ok()
    }

    fn read(&self, extent: Extent, mut buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move { self.load(extent, &mut buffer).map(|()| buffer) })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(async move { self.store(extent, &data, durability) })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async { self.sync() })
    }

    fn unmap(&self, _: Extent) -> Pending<'_, ()> {
        Box::pin(async { Err(DeviceError::Unsupported) })
    }

    fn write_zeroes(&self, _: Extent, _: bool) -> Pending<'_, ()> {
        Box::pin(async { Err(DeviceError::Unsupported) })
    }

    fn allocation(&self, extent: Extent, _: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            Ok(vec![Run {
                extent,
                allocation: Allocation::Mapped,
            }])
        })
    }

    fn losses(&self) -> block::Losses {
        block::Losses::NONE
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}
