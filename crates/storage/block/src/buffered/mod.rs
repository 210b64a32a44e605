//! A page cache for devices that have none: what `dd` and `bonnie++` see when they read and write a file, but
//! over a LUN.
//!
//! ```text
//!   reads of 8 KiB, one after the other     ──►  128 KiB at a time, a window of 1 MiB ahead
//!   writes of 8 KiB, answered from memory   ──►  128 KiB at a time, a window of 1 MiB behind
//!   anything else                           ──►  as it comes
//! ```
//!
//! Sequential reads are read ahead. Writes are collected until a chunk is full, its memory is needed, or a
//! flush comes. There is no timed write-back: data stay in memory until then and are lost with the process,
//! which the profile says (`volatile_cache`). Acknowledged data that could not be written count as a loss
//! ([`BlockDevice::losses`]). Little is kept for repeated reads: the layer models how a page cache changes
//! requests, not how much memory a machine has.

mod bitmap;
mod cache;
mod streams;
#[cfg(test)]
mod tests;
mod traffic;

use std::ops::Range;
use std::sync::Arc;

use cache::{Piece, ReadOutcome, Sizes, WriteOutcome};
use streams::{STREAMS, Streams};
use traffic::Traffic;

use crate::forward;
use crate::{
    BlockDevice, Buffer, DeviceError, Durability, Extent, Geometry, Lock, Losses, Pending, Profile, Run,
    Slice, Spawner,
};

/// Read-ahead and write-behind of a [`Buffered`] device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Total: per sequential reader, and for all writers together.
    pub bytes: u64,
    /// Size of one request.
    pub request_bytes: u64,
}

impl Window {
    /// A window of `bytes`, in requests of 128 KiB, which is Linux's `read_ahead_kb` and a common
    /// `max_sectors_kb`; smaller windows in one request.
    pub fn new(bytes: u64) -> Window {
        Window { bytes, request_bytes: bytes.min(128 << 10) }
    }

    fn sizes(self, geometry: Geometry) -> Sizes {
        let shift = geometry.block_size.shift();
        let blocks = |bytes: u64| usize::try_from(bytes >> shift).unwrap_or(usize::MAX).max(1);
        let chunk = blocks(self.request_bytes);
        let window = blocks(self.bytes).max(chunk);
        // Room for the window of every reader, and one for the writers.
        let chunks_kept = window.div_ceil(chunk).saturating_mul(STREAMS + 1);
        Sizes { block_bytes: geometry.block_size.bytes() as usize, chunk, window, chunks_kept }
    }
}

/// A device behind a page cache.
pub struct Buffered<D> {
    traffic: Arc<Traffic<D>>,
    streams: Lock<Streams>,
    sizes: Sizes,
}

impl<D: BlockDevice + 'static> Buffered<D> {
    /// `inner` behind a cache. Requests and windows are at least one block. `spawner` runs read-ahead and
    /// write-back.
    pub fn new(inner: D, window: Window, spawner: Arc<dyn Spawner>) -> Buffered<D> {
        let sizes = window.sizes(inner.geometry());
        Buffered { traffic: Traffic::new(inner, sizes, spawner), streams: Lock::default(), sizes }
    }

    fn check(&self, extent: Extent, length: usize) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        let fits = geometry.contains(extent) && geometry.length(extent) == length as u64;
        if fits { Ok(()) } else { Err(DeviceError::OutOfRange) }
    }

    fn check_range(&self, extent: Extent) -> Result<(), DeviceError> {
        if self.geometry().contains(extent) { Ok(()) } else { Err(DeviceError::OutOfRange) }
    }

    /// The block up to which to load for this read: its end, or a window further if the read is sequential.
    fn far(&self, extent: Extent) -> u64 {
        let end = extent.lba.0 + extent.blocks.0;
        let follows = self.streams.lock().follow(extent);
        let ahead = (end + self.sizes.window as u64).next_multiple_of(self.sizes.chunk as u64);
        if follows { ahead.min(self.geometry().blocks.0) } else { end }
    }

    async fn read_piece(&self, piece: &Piece, far: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let write_back_again = self.reaching(piece, far);
        for later in self.following(piece, far) {
            self.traffic.read_ahead(&later);
        }
        loop {
            match self.traffic.until(|cache| cache.read(piece, into)).await {
                ReadOutcome::All => return Ok(()),
                ReadOutcome::Missing => self.traffic.load(&write_back_again).await?,
                ReadOutcome::Aborted => drop(self.traffic.quiesced().await),
            }
        }
    }

    /// The piece extended to the end of its chunk, but not beyond block `far` of the device.
    fn reaching(&self, piece: &Piece, far: u64) -> Piece {
        let start = piece.chunk * self.sizes.chunk as u64;
        // At most `chunk`, a usize.
        let end = (far - start).min(self.sizes.chunk as u64) as usize;
        Piece { chunk: piece.chunk, blocks: piece.blocks.start..end.max(piece.blocks.end) }
    }

    /// The pieces of the chunks that follow, up to block `far` of the device, at most a window.
    fn following(&self, piece: &Piece, far: u64) -> impl Iterator<Item = Piece> + use<'_, D> {
        let chunk = self.sizes.chunk as u64;
        let chunks = piece.chunk + 1..far.div_ceil(chunk);
        let whole = move |index| Piece { chunk: index, blocks: 0..(far - index * chunk).min(chunk) as usize };
        chunks.take(self.sizes.window.div_ceil(self.sizes.chunk)).map(whole)
    }

    async fn write_piece(&self, piece: &Piece, from: &[u8]) {
        loop {
            match self.traffic.until(|cache| cache.write(piece, from)).await {
                WriteOutcome::Yes { write_back_now: true } => return self.traffic.write_back(piece.chunk),
                WriteOutcome::Yes { write_back_now: false } => return,
                WriteOutcome::After(chunk) => self.traffic.write_back(chunk),
                WriteOutcome::Aborted => drop(self.traffic.quiesced().await),
            }
        }
    }

    /// Carries out a request that changes the device directly, while its blocks in the cache are held.
    async fn alone(&self, extent: Extent, request: Pending<'_, ()>) -> Result<(), DeviceError> {
        self.traffic.check_owner().await?;
        let chunks = self.chunks(extent);
        let held = self.traffic.hold(chunks.clone()).await;
        self.traffic.drain(chunks.clone()).await;
        self.traffic.until(|cache| cache.evict(chunks.clone())).await;
        held.run(request).await
    }

    /// Makes the writes of these blocks durable, for a request that began when `before` losses were counted.
    /// A loss since then takes precedence over other errors: the data are gone, so a repetition would not
    /// report it.
    async fn settle(&self, chunks: Range<u64>, before: u64) -> Result<(), DeviceError> {
        self.traffic.drain(chunks).await;
        let flushed = self.traffic.inner.flush().await;
        if self.losses().count() == before { flushed } else { Err(self.traffic.lost()) }
    }

    fn chunks(&self, extent: Extent) -> Range<u64> {
        let chunk = self.sizes.chunk as u64;
        extent.lba.0 / chunk..(extent.lba.0 + extent.blocks.0).div_ceil(chunk)
    }

    /// The pieces of a request, each with its range of bytes in the request's buffer.
    fn pieces(&self, extent: Extent) -> impl Iterator<Item = (Piece, Range<usize>)> + use<D> {
        let Sizes { chunk, block_bytes, .. } = self.sizes;
        let end = extent.lba.0 + extent.blocks.0;
        self.chunks(extent).map(move |index| {
            let start = index * chunk as u64;
            let from = extent.lba.0.max(start);
            let to = end.min(start + chunk as u64);
            // Less than a chunk, and part of a request that lies in memory.
            let blocks = (from - start) as usize..(to - start) as usize;
            let at = (from - extent.lba.0) as usize * block_bytes;
            let length = blocks.len() * block_bytes;
            (Piece { chunk: index, blocks }, at..at + length)
        })
    }
}

impl<D: BlockDevice + 'static> BlockDevice for Buffered<D> {
    forward!(self => self.traffic.inner; geometry, space, allocated_bytes, refresh, grow, take_os_error);

    fn profile(&self) -> Profile {
        Profile { volatile_cache: true, ..self.traffic.inner.profile() }
    }

    fn read(&self, extent: Extent, mut buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            self.check(extent, buffer.len())?;
            if extent.is_empty() {
                return Ok(buffer);
            }
            self.traffic.check_owner().await?;
            let far = self.far(extent);
            for (piece, at) in self.pieces(extent) {
                self.read_piece(&piece, far, &mut buffer[at]).await?;
            }
            Ok(buffer)
        })
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(async move {
            self.check(extent, data.len())?;
            if self.profile().read_only {
                return Err(DeviceError::ReadOnly);
            }
            self.traffic.check_owner().await?;
            // A full chunk of this write may be written back, and lost, before the last piece is accepted.
            let before = self.losses().count();
            for (piece, at) in self.pieces(extent) {
                self.write_piece(&piece, &data[at]).await;
            }
            match durability {
                Durability::Cached => Ok(()),
                Durability::Stable => self.settle(self.chunks(extent), before).await,
            }
        })
    }

    fn flush(&self) -> Pending<'_, ()> {
        let before = self.losses().count();
        Box::pin(async move {
            self.traffic.check_owner().await?;
            self.settle(0..u64::MAX, before).await
        })
    }

    fn losses(&self) -> Losses {
        Losses::counted(self.traffic.losses()).and(self.traffic.inner.losses())
    }

    fn resolve_losses(&self) -> Pending<'_, ()> {
        self.traffic.inner.resolve_losses()
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(async move {
            self.check_range(extent)?;
            self.alone(extent, self.traffic.inner.unmap(extent)).await
        })
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(async move {
            self.check_range(extent)?;
            self.alone(extent, self.traffic.inner.write_zeroes(extent, may_unmap)).await
        })
    }

    /// Dirty blocks count as allocated: they are written back first.
    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            self.check_range(extent)?;
            self.traffic.drain(self.chunks(extent)).await;
            self.traffic.inner.allocation(extent, runs_max).await
        })
    }

    /// What was accepted of a dropped write is written back like any other write, so it is drained first.
    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.traffic.drain(0..u64::MAX).await;
            self.traffic.quiesced().await
        })
    }
}
