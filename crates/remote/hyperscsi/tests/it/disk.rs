//! A disk of memory whose requests take some time, each another, and whose cache can be lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry, Pending,
    Profile, Run, Slice,
};

use crate::ethernet::Random;

pub(crate) const BLOCK: usize = 512;

pub(crate) struct Disk(Mutex<State>);

struct State {
    bytes: Vec<u8>,
    /// As they are behind the cache.
    stable: Vec<u8>,
    random: Random,
    /// Of the next request, beyond the usual.
    delay: Duration,
    /// Of any request.
    usual: Duration,
    writes: u64,
}

impl Disk {
    pub(crate) fn new(seed: u64, blocks: usize) -> Arc<Disk> {
        let (bytes, stable) = (vec![0; blocks * BLOCK], vec![0; blocks * BLOCK]);
        let usual = Duration::from_millis(3);
        let state = State { bytes, stable, random: Random(seed), delay: Duration::ZERO, usual, writes: 0 };
        Arc::new(Disk(Mutex::new(state)))
    }

    /// One that answers at once.
    pub(crate) fn fast(blocks: usize) -> Arc<Disk> {
        let disk = Disk::new(0, blocks);
        disk.state().usual = Duration::ZERO;
        disk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn delay_next(&self, time: Duration) {
        self.state().delay = time;
    }

    /// What was not flushed is gone.
    pub(crate) fn lose_cache(&self) {
        let state = &mut *self.state();
        state.bytes.clone_from(&state.stable);
    }

    /// Writes that were carried out.
    pub(crate) fn writes(&self) -> u64 {
        self.state().writes
    }

    async fn work(&self) {
        let time = {
            let mut state = self.state();
            let usual = state.usual.as_micros() as u64;
            let time = if usual == 0 { 0 } else { state.random.below(usual) };
            Duration::from_micros(time) + std::mem::take(&mut state.delay)
        };
        if !time.is_zero() {
            reactor::sleep(time).await;
        }
    }

    fn range(extent: Extent) -> std::ops::Range<usize> {
        let start = extent.lba.0 as usize * BLOCK;
        start..start + extent.blocks.0 as usize * BLOCK
    }

    async fn put(
        &self,
        extent: Extent,
        durability: Durability,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), DeviceError> {
        self.work().await;
        let state = &mut *self.state();
        fill(&mut state.bytes[Disk::range(extent)]);
        if durability == Durability::Stable {
            state.stable[Disk::range(extent)].copy_from_slice(&state.bytes[Disk::range(extent)]);
        }
        state.writes += 1;
        Ok(())
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        let blocks = Blocks((self.state().bytes.len() / BLOCK) as u64);
        Geometry { block_size: BlockSize::B512, blocks, physical_exponent: 0 }
    }

    fn profile(&self) -> Profile {
        Profile {
            read_only: false,
            thin: true,
            granularity: Blocks(1),
            volatile_cache: true,
            durable: true,
            solid_state: true,
            optimal_transfer: None,
            loses_unseen: false,
        }
    }

    fn read(&self, extent: Extent, mut buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            self.work().await;
            buffer.copy_from_slice(&self.state().bytes[Disk::range(extent)]);
            Ok(buffer)
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(async move { self.put(extent, durability, |place| place.copy_from_slice(&data)).await })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.work().await;
            let state = &mut *self.state();
            state.stable.clone_from(&state.bytes);
            Ok(())
        })
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(self.put(extent, Durability::Cached, |place| place.fill(0)))
    }

    fn write_zeroes(&self, extent: Extent, _: bool) -> Pending<'_, ()> {
        self.unmap(extent)
    }

    fn allocation(&self, extent: Extent, _: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move { Ok(vec![Run { extent, allocation: Allocation::Mapped }]) })
    }

    fn losses(&self) -> block::Losses {
        block::Losses::NONE
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}
