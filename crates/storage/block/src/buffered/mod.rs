//! A page cache for devices that do not have one. With it, a LUN behaves like a file for programs such as
//! `dd` and `bonnie++`.
//!
//! ```text
//!   sequential reads of 8 KiB                ──►  reads of 128 KiB, up to 1 MiB ahead
//!   writes of 8 KiB, acknowledged in memory  ──►  writes of 128 KiB, up to 1 MiB behind
//!   other requests                           ──►  passed on unchanged
//! ```
//!
//! For sequential reads, the layer reads ahead. It collects writes until a chunk is full, its memory is
//! needed, or a flush is requested. There is no periodic write-back: until then, data is only in memory and
//! is lost with the process, as the profile reports (`volatile_cache`). Acknowledged data that could not be
//! written counts as a loss ([`BlockDevice::losses`]). Little data is kept for repeated reads: the layer
//! models how a page cache changes requests, not the size of a machine's memory.

mod cache;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use cache::{Cache, Piece, ReadOutcome, Sizes, WriteBack, WriteOutcome};

use crate::buffer::{Buffer, Slice};
use crate::device::{BlockDevice, DeviceError, Durability, Pending, Profile, Run};
use crate::extent::{Extent, Geometry};
use crate::forward;
use crate::lock::Lock;
use crate::losses::Losses;
use crate::tasks::Spawner;

/// Read-ahead and write-behind of a [`Buffered`] device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Size of the window. Each sequential reader has one, and all writers together have one.
    pub bytes: u64,
    /// Size of one request to the device.
    pub request_bytes: u64,
}

impl Window {
    /// Creates a window of `bytes`, in requests of 128 KiB, which is Linux's default for `read_ahead_kb` and
    /// a common `max_sectors_kb`. A smaller window is one request.
    pub fn new(bytes: u64) -> Window {
        Window {
            bytes,
            request_bytes: bytes.min(128 << 10),
        }
    }

    fn sizes(self, geometry: Geometry) -> Sizes {
        let shift = geometry.block_size.shift();
        let blocks = |bytes: u64| usize::try_from(bytes >> shift).unwrap_or(usize::MAX).max(1);
        let chunk = blocks(self.request_bytes);
        let window = blocks(self.bytes).max(chunk);
        // Space for one window per reader, and one for the writers.
        let chunks_kept = window.div_ceil(chunk).saturating_mul(STREAMS + 1);
        Sizes {
            block_bytes: geometry.block_size.bytes() as usize,
            chunk,
            window,
            chunks_kept,
        }
    }
}

/// A device behind a page cache.
pub struct Buffered<D> {
    traffic: Arc<Traffic<D>>,
    streams: Lock<Streams>,
    sizes: Sizes,
}

impl<D: BlockDevice + 'static> Buffered<D> {
    /// Creates a cache over `inner`. Requests and windows are at least one block. `spawner` runs read-ahead
    /// and write-back.
    pub fn new(inner: D, window: Window, spawner: Arc<dyn Spawner>) -> Buffered<D> {
        let sizes = window.sizes(inner.geometry());
        Buffered {
            traffic: Traffic::new(inner, sizes, spawner),
            streams: Lock::default(),
            sizes,
        }
    }

    /// Returns the block up to which to load for this read: the read's end, or a window further if the read
    /// is sequential.
    fn far(&self, extent: Extent) -> u64 {
        let end = extent.lba.0 + extent.blocks.0;
        let follows = self.streams.lock().follow(extent);
        let ahead = (end + self.sizes.window as u64).next_multiple_of(self.sizes.chunk as u64);
        debug_assert!(ahead >= end);
        if follows {
            ahead.min(self.geometry().blocks.0)
        } else {
            end
        }
    }

    async fn read_piece(
        &self,
        piece: &Piece,
        far: u64,
        into: &mut [u8],
    ) -> Result<(), DeviceError> {
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

    /// Extends a piece to the end of its chunk, but not beyond block `far` of the device.
    fn reaching(&self, piece: &Piece, far: u64) -> Piece {
        let start = piece.chunk * self.sizes.chunk as u64;
        debug_assert!(
            start < far && piece.blocks.end <= self.sizes.chunk,
            "{piece:?}"
        );
        // Not larger than `chunk`, which is a usize.
        let end = (far - start).min(self.sizes.chunk as u64) as usize;
        Piece {
            chunk: piece.chunk,
            blocks: piece.blocks.start..end.max(piece.blocks.end),
        }
    }

    /// Returns the pieces in the chunks that follow, up to block `far` of the device, but no more than a
    /// window.
    fn following(&self, piece: &Piece, far: u64) -> impl Iterator<Item = Piece> + use<'_, D> {
        let chunk = self.sizes.chunk as u64;
        let chunks = piece.chunk + 1..far.div_ceil(chunk);
        let whole = move |index| Piece {
            chunk: index,
            blocks: 0..(far - index * chunk).min(chunk) as usize,
        };
        chunks
            .take(self.sizes.window.div_ceil(self.sizes.chunk))
            .map(whole)
    }

    async fn write_piece(&self, piece: &Piece, from: &[u8]) {
        loop {
            match self.traffic.until(|cache| cache.write(piece, from)).await {
                WriteOutcome::Yes {
                    write_back_now: true,
                } => return self.traffic.write_back(piece.chunk),
                WriteOutcome::Yes {
                    write_back_now: false,
                } => return,
                WriteOutcome::After(chunk) => self.traffic.write_back(chunk),
                WriteOutcome::Aborted => drop(self.traffic.quiesced().await),
            }
        }
    }

    /// Runs a request that changes the device directly. While it runs, its blocks in the cache are held.
    async fn alone(&self, extent: Extent, request: Pending<'_, ()>) -> Result<(), DeviceError> {
        self.traffic.check_owner().await?;
        let chunks = self.chunks(extent);
        let held = self.traffic.hold(chunks.clone()).await;
        self.traffic.drain(chunks.clone()).await;
        self.traffic
            .until(|cache| cache.evict(chunks.clone()))
            .await;
        held.run(request).await
    }

    /// Makes the writes to these chunks durable, for a request that started when `before` losses had been
    /// counted. A loss since then takes precedence over other errors: if another error were returned, a retry
    /// of the request would not report the loss.
    async fn settle(&self, chunks: Range<u64>, before: u64) -> Result<(), DeviceError> {
        self.traffic.drain(chunks).await;
        let flushed = self.traffic.inner.flush().await;
        if self.losses().count() == before {
            flushed
        } else {
            Err(self.traffic.lost())
        }
    }

    fn chunks(&self, extent: Extent) -> Range<u64> {
        let chunk = self.sizes.chunk as u64;
        extent.lba.0 / chunk..(extent.lba.0 + extent.blocks.0).div_ceil(chunk)
    }

    /// Returns the pieces of a request, each with its range of bytes in the request's buffer.
    fn pieces(&self, extent: Extent) -> impl Iterator<Item = (Piece, Range<usize>)> + use<D> {
        let Sizes {
            chunk, block_bytes, ..
        } = self.sizes;
        let end = extent.lba.0 + extent.blocks.0;
        self.chunks(extent).map(move |index| {
            let start = index * chunk as u64;
            let from = extent.lba.0.max(start);
            let to = end.min(start + chunk as u64);
            // The differences fit, because they are at most a chunk and a request in memory.
            let blocks = (from - start) as usize..(to - start) as usize;
            let at = (from - extent.lba.0) as usize * block_bytes;
            let length = blocks.len() * block_bytes;
            (
                Piece {
                    chunk: index,
                    blocks,
                },
                at..at + length,
            )
        })
    }
}

impl<D: BlockDevice + 'static> BlockDevice for Buffered<D> {
    forward!(self => self.traffic.inner; geometry, resolve_losses, space, allocated_bytes, refresh, grow, take_os_error);

    fn profile(&self) -> Profile {
        Profile {
            volatile_cache: true,
            ..self.traffic.inner.profile()
        }
    }

    fn read(&self, extent: Extent, mut buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            self.geometry().check(extent, Some(buffer.len()))?;
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
            self.geometry().check(extent, Some(data.len()))?;
            if self.profile().read_only {
                return Err(DeviceError::ReadOnly);
            }
            self.traffic.check_owner().await?;
            // Read the count before the first piece: a full chunk may be written back, and lost, before the
            // last piece is accepted.
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

    fn losses_recorded(&self, count: u64) {
        let own = self.traffic.losses();
        self.traffic
            .inner
            .losses_recorded(count.saturating_sub(own));
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(async move {
            self.geometry().check(extent, None)?;
            self.alone(extent, self.traffic.inner.unmap(extent)).await
        })
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(async move {
            self.geometry().check(extent, None)?;
            self.alone(extent, self.traffic.inner.write_zeroes(extent, may_unmap))
                .await
        })
    }

    /// Dirty blocks count as allocated, so they are written back before the query.
    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            self.geometry().check(extent, None)?;
            self.traffic.drain(self.chunks(extent)).await;
            self.traffic.inner.allocation(extent, runs_max).await
        })
    }

    /// Drains the cache first, because the accepted part of a dropped write is written back like any other
    /// write.
    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.traffic.drain(0..u64::MAX).await;
            self.traffic.quiesced().await
        })
    }
}

/// Number of sequential readers that are tracked. More than 16 files are seldom read concurrently.
const STREAMS: usize = 16;

/// The expected next block of each sequential reader. The reader that read last is last.
#[derive(Debug, Default)]
struct Streams(Vec<u64>);

impl Streams {
    /// Records a read. Returns true if it is sequential.
    fn follow(&mut self, extent: Extent) -> bool {
        let valid = self.0.iter().position(|next| *next == extent.lba.0);
        match valid {
            Some(at) => drop(self.0.remove(at)),
            None if self.0.len() == STREAMS => drop(self.0.remove(0)),
            None => {}
        }
        self.0.extend(extent.end().map(|end| end.0));
        valid.is_some()
    }
}

struct Traffic<D> {
    inner: D,
    cache: Lock<Cache>,
    sizes: Sizes,
    spawner: Arc<dyn Spawner>,
    taken_over: Lock<Option<TakenOver>>,
}

/// The state after another host has taken over the device, which made a write-back fail.
#[derive(Clone, Copy)]
struct TakenOver {
    error: DeviceError,
    is_reported: bool,
}

impl<D> Traffic<D> {
    fn new(inner: D, sizes: Sizes, spawner: Arc<dyn Spawner>) -> Arc<Traffic<D>> {
        let cache = Lock::new(Cache::new(sizes));
        Arc::new(Traffic {
            inner,
            cache,
            sizes,
            spawner,
            taken_over: Lock::default(),
        })
    }

    /// Waits until `look` returns a value. `look` is called after every state change.
    async fn until<T>(&self, mut look: impl FnMut(&mut Cache) -> Option<T>) -> T {
        poll_fn(|context| {
            let mut cache = self.cache.lock();
            match look(&mut cache) {
                Some(found) => Poll::Ready(found),
                None => {
                    cache.wait(context.waker());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Changes the cache and wakes all waiting tasks.
    fn change<T>(&self, change: impl FnOnce(&mut Cache) -> T) -> T {
        let mut cache = self.cache.lock();
        let result = change(&mut cache);
        let waiters = cache.take_waiters();
        drop(cache);
        waiters.into_iter().for_each(Waker::wake);
        result
    }

    #[cfg(test)]
    fn chunks(&self) -> usize {
        self.cache.lock().chunks()
    }

    fn losses(&self) -> u64 {
        self.cache.lock().losses()
    }

    /// Returns the error for a request whose blocks were lost: the error of a takeover, which then counts as
    /// reported, or `WritesLost`.
    fn lost(&self) -> DeviceError {
        let mut taken_over = self.taken_over.lock();
        taken_over
            .as_mut()
            .map_or(DeviceError::WritesLost, |taken_over| {
                taken_over.is_reported = true;
                taken_over.error
            })
    }

    /// Holds these chunks until the guard is dropped.
    async fn hold(&self, chunks: Range<u64>) -> HeldChunks<'_, D> {
        self.until(|cache| cache.hold(&chunks)).await;
        HeldChunks {
            traffic: self,
            chunks,
            in_flight: false,
        }
    }

    fn extent(&self, chunk: u64, blocks: &Range<usize>) -> Extent {
        Extent::new(
            chunk * self.sizes.chunk as u64 + blocks.start as u64,
            blocks.len() as u64,
        )
    }
}

impl<D: BlockDevice + 'static> Traffic<D> {
    /// Fails if another host has taken over the device. It fails at least once, and until the device can be
    /// flushed. A RAID set must receive this error and stop, before it detects lost writes and continues
    /// without this member.
    async fn check_owner(&self) -> Result<(), DeviceError> {
        let Some(TakenOver { error, is_reported }) = *self.taken_over.lock() else {
            return Ok(());
        };
        if is_reported && self.inner.flush().await.is_ok() {
            let mut taken_over = self.taken_over.lock();
            // In the meantime, another write-back may have failed because of a takeover that has not been
            // reported yet.
            if taken_over.is_none_or(|taken_over| taken_over.is_reported) {
                *taken_over = None;
                return Ok(());
            }
        }
        self.lost();
        Err(error)
    }

    /// Loads a piece, unless a load of its chunk is outstanding.
    async fn load(self: &Arc<Self>, piece: &Piece) -> Result<(), DeviceError> {
        match self.begin_load(piece, true) {
            Some(load) => load.carry_out().await,
            None => Ok(()),
        }
    }

    /// Loads a piece in advance. An error is ignored, because the read that needs the piece loads it again.
    fn read_ahead(self: &Arc<Self>, piece: &Piece) {
        if let Some(load) = self.begin_load(piece, false) {
            self.spawner.spawn(Box::pin(async move {
                let _ = load.carry_out().await;
            }));
        }
    }

    fn begin_load(self: &Arc<Self>, piece: &Piece, urgent: bool) -> Option<LoadGuard<D>> {
        let failures = self.cache.lock().load(piece, urgent)?;
        Some(LoadGuard {
            traffic: Arc::clone(self),
            piece: piece.clone(),
            failures,
            data: None,
        })
    }

    /// Waits until the device can no longer execute requests that were aborted before this call.
    async fn quiesced(&self) -> Result<(), DeviceError> {
        let aborts = self.cache.lock().aborts();
        let quiesced = self.inner.quiesced().await;
        // An error does not matter here, because the next read or write reports the problem.
        self.change(|cache| cache.quiesced(aborts));
        quiesced
    }

    /// Starts a write-back of the chunk's dirty blocks.
    fn write_back(self: &Arc<Self>, chunk: u64) {
        let job = self.cache.lock().write_back(chunk);
        let Some(job) = job else { return };
        let mut guard = WriteBackGuard {
            traffic: Arc::clone(self),
            chunk,
            under_way: true,
        };
        self.spawner.spawn(Box::pin(async move {
            let mut next = Some(job);
            while let Some(job) = next {
                next = guard.carry_out(job).await;
            }
        }));
    }

    /// Waits until all currently dirty blocks in these chunks have been written back.
    async fn drain(self: &Arc<Self>, chunks: Range<u64>) {
        let mut goals = self.cache.lock().goals(chunks);
        while let Some(chunk) = self.until(|cache| cache.next_goal(&mut goals)).await {
            self.write_back(chunk);
        }
    }
}

/// Chunks held for a direct change of the device.
struct HeldChunks<'a, D> {
    traffic: &'a Traffic<D>,
    chunks: Range<u64>,
    /// Whether the change is outstanding at the device.
    in_flight: bool,
}

impl<D> HeldChunks<'_, D> {
    /// Runs the change for which the chunks are held.
    async fn run<T>(mut self, request: impl Future<Output = T>) -> T {
        self.in_flight = true;
        let answer = request.await;
        self.in_flight = false;
        answer
    }
}

impl<D> Drop for HeldChunks<'_, D> {
    fn drop(&mut self) {
        self.traffic.change(|cache| match self.in_flight {
            true => cache.abort(&self.chunks),
            false => cache.release(&self.chunks),
        });
    }
}

/// An outstanding load. If it is dropped, it still reports to the cache that the load has ended.
struct LoadGuard<D> {
    traffic: Arc<Traffic<D>>,
    piece: Piece,
    failures: u64,
    data: Option<Buffer>,
}

impl<D: BlockDevice> LoadGuard<D> {
    async fn carry_out(mut self) -> Result<(), DeviceError> {
        let buffer = Buffer::recycled(self.piece.blocks.len() * self.traffic.sizes.block_bytes);
        let extent = self.traffic.extent(self.piece.chunk, &self.piece.blocks);
        self.data = Some(self.traffic.inner.read(extent, buffer).await?);
        Ok(())
    }
}

impl<D> Drop for LoadGuard<D> {
    fn drop(&mut self) {
        let data = self.data.as_deref();
        self.traffic
            .change(|cache| cache.loaded(&self.piece, self.failures, data));
    }
}

/// An outstanding write-back. If it is dropped before its end, its blocks become dirty again.
struct WriteBackGuard<D> {
    traffic: Arc<Traffic<D>>,
    chunk: u64,
    under_way: bool,
}

impl<D: BlockDevice> WriteBackGuard<D> {
    /// Executes a write-back. Returns the write-back that must follow it, if any.
    async fn carry_out(&mut self, job: WriteBack) -> Option<WriteBack> {
        self.under_way = true;
        let traffic = &self.traffic;
        if job.after_abandoned {
            // An error does not matter here, because the next write reports the problem.
            let _ = traffic.inner.quiesced().await;
        }
        let mut failed = Vec::new();
        for (run, data) in job.runs {
            let extent = traffic.extent(job.chunk, &run);
            if let Err(error) = traffic.inner.write(extent, data, Durability::Cached).await {
                failed.push(run);
                if matches!(error, DeviceError::Fenced | DeviceError::Reserved) {
                    *traffic.taken_over.lock() = Some(TakenOver {
                        error,
                        is_reported: false,
                    });
                }
            }
        }
        self.under_way = false;
        let again = traffic.change(|cache| cache.written_back(job.chunk, &failed));
        let next = if again {
            traffic.cache.lock().write_back(job.chunk)
        } else {
            None
        };
        self.under_way = next.is_some();
        next
    }
}

impl<D> Drop for WriteBackGuard<D> {
    fn drop(&mut self) {
        if self.under_way {
            self.traffic.change(|cache| cache.abandoned(self.chunk));
        }
    }
}
