//! A device, a clock and an executor for the tests of the layers, and scenes of several users at the same
//! time.

mod requests;
mod slow_device;
mod tasks;

pub(crate) use requests::{all_end, filled, read, requests};
pub(crate) use slow_device::SlowDevice;
pub(crate) use tasks::{LocalSpawner, Task, draw, end, run, seed, with_poll_limit};

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Geometry, Losses,
    Pending, Profile, Run, Sleeper, Slice,
};

pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    poll(pin!(future)).expect("ready at once")
}

/// A clock that moves only by [`ManualClock::pass`].
pub(crate) struct ManualClock {
    now: Arc<Mutex<Instant>>,
}

impl Default for ManualClock {
    fn default() -> ManualClock {
        ManualClock { now: Arc::new(Mutex::new(Instant::now())) }
    }
}

impl ManualClock {
    pub(crate) fn pass(&self, time: Duration) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) += time;
    }
}

impl Sleeper for ManualClock {
    fn now(&self) -> Instant {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()>>> {
        let now = Arc::clone(&self.now);
        let read = move || *now.lock().unwrap_or_else(PoisonError::into_inner);
        let end = read() + duration;
        Box::pin(std::future::poll_fn(move |_| if read() >= end { Poll::Ready(()) } else { Poll::Pending }))
    }
}

/// Blocks in a vector; each request ends in its first poll.
pub(crate) struct Memory {
    state: Mutex<(Vec<u8>, Vec<Extent>)>,
    block_size: BlockSize,
    blocks: u64,
}

impl Memory {
    pub(crate) fn new(blocks: u64) -> Memory {
        Memory::with_block_size(BlockSize::B512, blocks)
    }

    pub(crate) fn with_block_size(block_size: BlockSize, blocks: u64) -> Memory {
        let bytes = vec![0; (blocks << block_size.shift()) as usize];
        Memory { state: Mutex::new((bytes, Vec::new())), block_size, blocks }
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        self.state().0[at]
    }

    /// Changes a byte without a request.
    pub(crate) fn corrupt(&self, at: usize) {
        self.state().0[at] ^= 0xff;
    }

    pub(crate) fn requests(&self) -> usize {
        self.state().1.len()
    }

    /// The number of blocks of each request, in order.
    pub(crate) fn lengths(&self) -> Vec<u64> {
        self.state().1.iter().map(|extent| extent.blocks.0).collect()
    }

    fn state(&self) -> MutexGuard<'_, (Vec<u8>, Vec<Extent>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<'a, T: 'a>(&'a self, extent: Extent, act: impl FnOnce(&mut [u8]) -> T + 'a) -> Pending<'a, T> {
        Box::pin(async move {
            if !self.geometry().contains(extent) {
                return Err(DeviceError::OutOfRange);
            }
            let mut state = self.state();
            state.1.push(extent);
            let geometry = self.geometry();
            let start = geometry.offset(extent) as usize;
            Ok(act(&mut state.0[start..start + geometry.length(extent) as usize]))
        })
    }
}

impl BlockDevice for Memory {
    fn geometry(&self) -> Geometry {
        Geometry { block_size: self.block_size, blocks: Blocks(self.blocks), physical_exponent: 0 }
    }

    fn profile(&self) -> Profile {
        Profile {
            read_only: false,
            thin: true,
            granularity: Blocks(1),
            volatile_cache: true,
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

    fn read(&self, extent: Extent, mut buffer: Buffer) -> Pending<'_, Buffer> {
        self.with(extent, move |bytes| {
            buffer.copy_from_slice(bytes);
            buffer
        })
    }

    fn write(&self, extent: Extent, data: Slice, _: Durability) -> Pending<'_, ()> {
        self.with(extent, move |bytes| bytes.copy_from_slice(&data))
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.with(Extent::new(0, 0), |_| ())
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.with(extent, |bytes| bytes.fill(0))
    }

    fn write_zeroes(&self, extent: Extent, _: bool) -> Pending<'_, ()> {
        self.unmap(extent)
    }

    fn allocation(&self, extent: Extent, _: usize) -> Pending<'_, Vec<Run>> {
        let run = Run { extent, allocation: Allocation::Mapped };
        self.with(extent, move |_| if extent.is_empty() { Vec::new() } else { vec![run] })
    }
}
