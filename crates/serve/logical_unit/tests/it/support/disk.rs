//! A RAM disk that records what would survive a crash, and fails on request.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry,
    Losses, Medium, OptimalTransfer, Pending, Profile, Region, Run, Slice, Space, WholeBlocks,
};

pub struct DiskOptions {
    pub block_size: BlockSize,
    pub blocks: u64,
    /// The reported size, for tests of limits that would take too much memory.
    pub claimed_blocks: Option<u64>,
    pub physical_exponent: u8,
    pub thin: bool,
    /// The reported available space.
    pub available_bytes: Option<u64>,
    pub read_only: bool,
    pub volatile_cache: bool,
    pub durable: bool,
    /// Whether the disk exposes its blocks in memory.
    pub in_memory: bool,
    /// Whether all blocks are cached and the cache has free space, so that no request waits.
    pub cached: bool,
    /// Whether the disk queues writes, as a kernel does. It then executes them at [`Disk::settle`], even if
    /// no task waits for them.
    pub queues: bool,
    pub optimal_transfer: Option<OptimalTransfer>,
}

impl Default for DiskOptions {
    fn default() -> DiskOptions {
        DiskOptions {
            block_size: BlockSize::B512,
            blocks: 4096,
            claimed_blocks: None,
            physical_exponent: 0,
            thin: true,
            available_bytes: Some((5 << 20) + 1),
            read_only: false,
            volatile_cache: true,
            durable: true,
            in_memory: false,
            cached: false,
            queues: false,
            optimal_transfer: None,
        }
    }
}

pub struct Disk {
    options: DiskOptions,
    bytes: Arc<Bytes>,
    inner: Mutex<Inner>,
}

struct Inner {
    stable: Vec<u8>,
    mapped: Vec<bool>,
    failure: Option<DeviceError>,
    losses: u64,
    queued: Vec<(Extent, Slice)>,
    /// Number of queued writes that have been executed.
    settled: usize,
}

struct Bytes(Vec<AtomicU8>);

impl Medium for Bytes {
    fn bytes(&self) -> &[AtomicU8] {
        &self.0
    }

    fn store(&self, at: usize, from: &[u8]) {
        self.0[at..]
            .iter()
            .zip(from)
            .for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
    }

    fn load(&self, at: usize, into: &mut [u8]) {
        self.0[at..]
            .iter()
            .zip(into)
            .for_each(|(from, to)| *to = from.load(Ordering::Relaxed));
    }

    fn receive(&self, range: Range<usize>, receive: &mut dyn FnMut(&[AtomicU8]) -> usize) {
        receive(&self.0[range]);
    }
}

impl Disk {
    pub fn new(options: DiskOptions) -> Disk {
        let length = (options.blocks as usize) << options.block_size.shift();
        let inner = Inner {
            stable: vec![0; length],
            mapped: vec![false; options.blocks as usize],
            failure: None,
            losses: 0,
            queued: Vec::new(),
            settled: 0,
        };
        let bytes = Arc::new(Bytes((0..length).map(|_| AtomicU8::new(0)).collect()));
        Disk {
            options,
            bytes,
            inner: Mutex::new(inner),
        }
    }

    /// Makes the next request fail with this error.
    pub fn fail(&self, error: DeviceError) {
        self.inner().failure = Some(error);
    }

    /// Makes a write-back of acknowledged data fail. No request reports the failure.
    pub fn lose_writes(&self) {
        self.inner().losses += 1;
    }

    /// Number of queued writes.
    pub fn queued(&self) -> usize {
        self.inner().queued.len()
    }

    /// Executes the queued writes in reverse order, since a disk may choose any order.
    pub fn settle(&self) {
        let queued = std::mem::take(&mut self.inner().queued);
        for (extent, data) in queued.iter().rev() {
            self.bytes.store(self.range(*extent).start, data);
        }
        self.inner().settled += queued.len();
    }

    /// Returns the first byte of a block.
    pub fn byte(&self, lba: u64) -> u8 {
        self.bytes.0[(lba as usize) << self.options.block_size.shift()].load(Ordering::Relaxed)
    }

    /// Returns the first byte of a block after a crash.
    pub fn stable_byte(&self, lba: u64) -> u8 {
        self.inner().stable[(lba as usize) << self.options.block_size.shift()]
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner
            .lock()
            .expect("no test panics with the disk in its hands")
    }

    fn range(&self, extent: Extent) -> Range<usize> {
        let shift = self.options.block_size.shift();
        let start = (extent.lba.0 as usize) << shift;
        start..start + ((extent.blocks.0 as usize) << shift)
    }

    fn check(&self, extent: Extent) -> Result<(), DeviceError> {
        if let Some(error) = self.inner().failure.take() {
            return Err(error);
        }
        self.geometry()
            .contains(extent)
            .then_some(())
            .ok_or(DeviceError::OutOfRange)
    }

    fn map(&self, extent: Extent, mapped: bool) {
        let blocks = extent.lba.0 as usize..(extent.lba.0 + extent.blocks.0) as usize;
        self.inner().mapped[blocks].fill(mapped);
    }

    fn fill(&self, extent: Extent) {
        let range = self.range(extent);
        self.bytes.store(range.start, &vec![0; range.len()]);
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: self.options.block_size,
            blocks: Blocks(self.options.claimed_blocks.unwrap_or(self.options.blocks)),
            physical_exponent: self.options.physical_exponent,
        }
    }

    fn profile(&self) -> Profile {
        Profile {
            read_only: self.options.read_only,
            thin: self.options.thin,
            granularity: Blocks(1),
            volatile_cache: self.options.volatile_cache,
            durable: self.options.durable,
            solid_state: true,
            optimal_transfer: self.options.optimal_transfer,
            loses_unseen: false,
        }
    }

    fn memory(&self, extent: Extent) -> Option<Region> {
        self.options
            .in_memory
            .then(|| Region::new(Arc::clone(&self.bytes) as _, self.range(extent)))?
    }

    fn memory_to_write(&self, extent: Extent) -> Option<WholeBlocks> {
        let region = self.memory(extent)?;
        self.map(extent, true);
        Some(WholeBlocks::new(region, self.options.block_size))
    }

    fn read_nowait(&self, extent: Extent, buffer: &mut [u8]) -> bool {
        let ready = self.options.cached && self.inner().failure.is_none();
        if ready {
            self.bytes.load(self.range(extent).start, buffer);
        }
        ready
    }

    fn write_nowait(&self, extent: Extent, data: &[u8]) -> bool {
        let ready = self.options.cached && self.inner().failure.is_none();
        if ready {
            self.map(extent, true);
            self.bytes.store(self.range(extent).start, data);
        }
        ready
    }

    fn read(&self, extent: Extent, mut buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            self.check(extent)?;
            assert_eq!(buffer.len(), self.range(extent).len());
            self.bytes.load(self.range(extent).start, &mut buffer);
            Ok(buffer)
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(async move {
            self.check(extent)?;
            assert_eq!(data.len(), self.range(extent).len());
            self.map(extent, true);
            if self.options.queues {
                let mine = {
                    let mut inner = self.inner();
                    inner.queued.push((extent, data));
                    inner.settled + inner.queued.len()
                };
                return until(|| self.inner().settled >= mine).await;
            }
            self.bytes.store(self.range(extent).start, &data);
            if durability == Durability::Stable {
                self.inner().stable[self.range(extent)].copy_from_slice(&data);
            }
            Ok(())
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.check(Extent::new(0, 0)).inspect_err(|error| {
                self.inner().losses += u64::from(error.is_loss());
            })?;
            let mut inner = self.inner();
            self.bytes.load(0, &mut inner.stable);
            Ok(())
        })
    }

    fn losses(&self) -> Losses {
        Losses::counted(self.inner().losses)
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.write_zeroes(extent, true)
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(async move {
            self.check(extent)?;
            self.fill(extent);
            self.map(extent, !may_unmap);
            Ok(())
        })
    }

    fn space(&self) -> Pending<'_, Space> {
        Box::pin(async {
            let used = self.inner().mapped.iter().filter(|mapped| **mapped).count() as u64;
            Ok(Space {
                used_bytes: used * 512,
                available_bytes: self.options.available_bytes,
            })
        })
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            self.check(extent)?;
            let inner = self.inner();
            // One run per block is the least favourable reply of a device.
            let blocks = (extent.lba.0..extent.lba.0 + extent.blocks.0).take(runs_max.min(100));
            let kind = |lba: u64| match inner.mapped[lba as usize] {
                true => Allocation::Mapped,
                false => Allocation::Deallocated,
            };
            Ok(blocks
                .map(|lba| Run {
                    extent: Extent::new(lba, 1),
                    allocation: kind(lba),
                })
                .collect())
        })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(until(|| self.queued() == 0))
    }
}

/// Resolves when the condition is met. It wakes no task, because tests poll it.
pub(crate) async fn until(is_so: impl Fn() -> bool) -> Result<(), DeviceError> {
    std::future::poll_fn(|_| {
        if is_so() {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    })
    .await
}
