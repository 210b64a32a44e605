//! An in-memory disk whose requests may take time and fail, and whose write cache can be lost.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry,
    LossCounter, Losses, Pending, Profile, Run, Slice,
};

use crate::Random;

/// An in-memory disk. Its requests complete in their first poll, unless [`TestDisk::slow`] or
/// [`TestDisk::delay_next`] was called.
pub struct TestDisk {
    geometry: Geometry,
    profile: Profile,
    state: Mutex<State>,
    losses: LossCounter,
}

struct State {
    bytes: Vec<u8>,
    /// The contents on stable storage.
    stable: Vec<u8>,
    /// By block: a failed flush has left its content in the cache. Reads return it, but no flush stores it.
    abandoned: Vec<bool>,
    /// Each request takes a random time below this duration.
    slowness: Option<(Random, Duration)>,
    /// An additional delay for the next request.
    delay: Duration,
    /// The next flush fails with this error.
    flush_error: Option<DeviceError>,
    /// Each write fails with this error.
    write_error: Option<DeviceError>,
    /// The number of bytes that can still be written. The write that exceeds it is torn and fails.
    left_bytes: Option<usize>,
    writes: u64,
}

impl TestDisk {
    /// Creates a thin-provisioned disk of zeros with a volatile write cache.
    pub fn new(block_size: BlockSize, blocks: u64) -> TestDisk {
        let length = (blocks << block_size.shift()) as usize;
        let profile = Profile {
            read_only: false,
            thin: true,
            granularity: Blocks(1),
            volatile_cache: true,
            durable: true,
            solid_state: true,
            optimal_transfer: None,
            loses_unseen: false,
        };
        let state = State {
            bytes: vec![0; length],
            stable: vec![0; length],
            abandoned: vec![false; blocks as usize],
            slowness: None,
            delay: Duration::ZERO,
            flush_error: None,
            write_error: None,
            left_bytes: None,
            writes: 0,
        };
        let geometry = Geometry {
            block_size,
            blocks: Blocks(blocks),
            physical_exponent: 0,
        };
        TestDisk {
            geometry,
            profile,
            state: Mutex::new(state),
            losses: LossCounter::default(),
        }
    }

    /// Makes each request take a random time below `longest`.
    pub fn slow(mut self, seed: u64, longest: Duration) -> TestDisk {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.slowness = Some((Random::new(seed), longest));
        self
    }

    /// Changes the properties that the disk reports.
    pub fn with_profile(mut self, change: impl FnOnce(&mut Profile)) -> TestDisk {
        change(&mut self.profile);
        self
    }

    /// An additional delay for the next request.
    pub fn delay_next(&self, time: Duration) {
        self.state().delay = time;
    }

    /// Makes the next flush fail. If its error is a loss, later flushes do not store the blocks either,
    /// although reads return them until the cache is lost: Linux keeps the pages of a failed write-back in
    /// its cache.
    pub fn fail_next_flush(&self, error: DeviceError) {
        self.state().flush_error = Some(error);
    }

    /// From now on, each write fails with this error and changes nothing. `None` makes writes succeed again.
    pub fn fail_writes(&self, error: Option<DeviceError>) {
        self.state().write_error = error;
    }

    /// Allows this number of bytes to be written from now on. The write that exceeds it is torn and fails,
    /// and so do all later writes. `None` removes the limit.
    pub fn tear_after(&self, bytes: Option<usize>) {
        self.state().left_bytes = bytes;
    }

    /// Discards the cache, and so all writes that were not flushed.
    pub fn lose_cache(&self) {
        self.lose_cache_except(|_| false);
    }

    /// Discards the cache, except blocks for which `is_written` returns true: the disk has already written
    /// these to stable storage.
    pub fn lose_cache_except(&self, is_written: impl Fn(u64) -> bool) {
        let block_bytes = 1 << self.geometry.block_size.shift();
        let State {
            bytes,
            stable,
            abandoned,
            ..
        } = &mut *self.state();
        let blocks = bytes
            .chunks_mut(block_bytes)
            .zip(stable.chunks(block_bytes))
            .zip(abandoned);
        for (lba, ((block, stable), abandoned)) in (0..).zip(blocks) {
            if std::mem::take(abandoned) || !is_written(lba) {
                block.copy_from_slice(stable);
            }
        }
    }

    /// Number of completed writes, unmaps and zeroing requests.
    pub fn writes(&self) -> u64 {
        self.state().writes
    }

    /// Passes the contents to `act`, which may read or change them without a request.
    pub fn with_bytes<T>(&self, act: impl FnOnce(&mut [u8]) -> T) -> T {
        act(&mut self.state().bytes)
    }

    /// A copy of the contents.
    pub fn contents(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    /// A copy of the contents on stable storage.
    pub fn stable_contents(&self) -> Vec<u8> {
        self.state().stable.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn range(&self, extent: Extent) -> Result<Range<usize>, DeviceError> {
        if !self.geometry.contains(extent) {
            return Err(DeviceError::OutOfRange);
        }
        let start = self.geometry.offset(extent) as usize;
        Ok(start..start + self.geometry.length(extent) as usize)
    }

    async fn take_time(&self) {
        let time = {
            let state = &mut *self.state();
            let usual = state.slowness.as_mut().map_or(0, |(random, longest)| {
                random.below(longest.as_micros() as u64)
            });
            Duration::from_micros(usual) + std::mem::take(&mut state.delay)
        };
        if !time.is_zero() {
            reactor::sleep(time).await;
        }
    }

    async fn change(
        &self,
        extent: Extent,
        durability: Durability,
        data: Option<Slice>,
    ) -> Result<(), DeviceError> {
        let range = self.range(extent)?;
        self.take_time().await;
        let state = &mut *self.state();
        if let Some(error) = state.write_error {
            return Err(error);
        }
        let written = state
            .left_bytes
            .map_or(range.len(), |left| left.min(range.len()));
        state.left_bytes = state.left_bytes.map(|left| left - written);
        let (start, end) = (range.start, range.start + written);
        match data {
            Some(data) => {
                assert_eq!(
                    data.len(),
                    range.len(),
                    "the data of a write fill its extent"
                );
                state.bytes[start..end].copy_from_slice(&data[..written]);
            }
            None => state.bytes[start..end].fill(0),
        }
        let shift = self.geometry.block_size.shift();
        state.abandoned[start >> shift..end.div_ceil(1 << shift)].fill(false);
        if written < range.len() {
            return Err(DeviceError::Unwritable(extent.lba));
        }
        if durability == Durability::Stable {
            state.stable[range.clone()].copy_from_slice(&state.bytes[range]);
        }
        state.writes += 1;
        Ok(())
    }
}

impl BlockDevice for TestDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn profile(&self) -> Profile {
        self.profile
    }

    fn read(&self, extent: Extent, mut buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            let range = self.range(extent)?;
            self.take_time().await;
            buffer.copy_from_slice(&self.state().bytes[range]);
            Ok(buffer)
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(self.change(extent, durability, Some(data)))
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.take_time().await;
            let State {
                bytes,
                stable,
                abandoned,
                flush_error,
                ..
            } = &mut *self.state();
            let block_bytes = 1 << self.geometry.block_size.shift();
            let cached = bytes
                .chunks(block_bytes)
                .zip(stable.chunks_mut(block_bytes))
                .zip(abandoned);
            let error = flush_error.take();
            let is_loss = error.is_some_and(DeviceError::is_loss);
            for ((cached, stable), abandoned) in cached {
                match error {
                    None if !*abandoned => stable.copy_from_slice(cached),
                    None => {}
                    Some(_) => *abandoned |= is_loss && cached != stable,
                }
            }
            if is_loss {
                self.losses.count();
            }
            error.map_or(Ok(()), Err)
        })
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(self.change(extent, Durability::Cached, None))
    }

    fn write_zeroes(&self, extent: Extent, _: bool) -> Pending<'_, ()> {
        self.unmap(extent)
    }

    fn allocation(&self, extent: Extent, _: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            Ok(vec![Run {
                extent,
                allocation: Allocation::Mapped,
            }])
        })
    }

    fn losses(&self) -> Losses {
        self.losses.get()
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}
