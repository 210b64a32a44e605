//! Requests between the cache and the device: loads, write-backs, and the tasks that wait for them.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::cache::{Cache, Piece, Sizes, WriteBack};
use crate::{BlockDevice, Buffer, DeviceError, Durability, Extent, Lock, Spawner};

pub(super) struct Traffic<D> {
    pub(super) inner: D,
    cache: Lock<Cache>,
    sizes: Sizes,
    spawner: Arc<dyn Spawner>,
    taken_over: Lock<Option<TakenOver>>,
}

/// Another host has the device: blocks could not be written back for that.
#[derive(Clone, Copy)]
struct TakenOver {
    error: DeviceError,
    is_told: bool,
}

impl<D> Traffic<D> {
    pub(super) fn new(inner: D, sizes: Sizes, spawner: Arc<dyn Spawner>) -> Arc<Traffic<D>> {
        let cache = Lock::new(Cache::new(sizes));
        Arc::new(Traffic { inner, cache, sizes, spawner, taken_over: Lock::default() })
    }

    /// Waits until `look` returns something; it is called after every state change.
    pub(super) async fn until<T>(&self, mut look: impl FnMut(&mut Cache) -> Option<T>) -> T {
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

    /// Number of chunks in memory.
    #[cfg(test)]
    pub(super) fn chunks(&self) -> usize {
        self.cache.lock().chunks()
    }

    /// Number of losses of acknowledged data.
    pub(super) fn losses(&self) -> u64 {
        self.cache.lock().losses()
    }

    /// The error with which a request fails whose blocks were lost.
    pub(super) fn lost(&self) -> DeviceError {
        let mut taken_over = self.taken_over.lock();
        taken_over.as_mut().map_or(DeviceError::WritesLost, |taken_over| {
            taken_over.is_told = true;
            taken_over.error
        })
    }

    /// Holds these chunks until the guard is dropped.
    pub(super) async fn hold(&self, chunks: Range<u64>) -> HeldChunks<'_, D> {
        self.until(|cache| cache.hold(&chunks)).await;
        HeldChunks { traffic: self, chunks, in_flight: false }
    }

    fn extent(&self, chunk: u64, blocks: &Range<usize>) -> Extent {
        Extent::new(chunk * self.sizes.chunk as u64 + blocks.start as u64, blocks.len() as u64)
    }
}

impl<D: BlockDevice + 'static> Traffic<D> {
    /// Fails if another host has the device, once at least, and until it can be flushed: a set of disks is to end then, before it looks
    /// for lost writes and goes on without this disk.
    pub(super) async fn check_owner(&self) -> Result<(), DeviceError> {
        let Some(TakenOver { error, is_told }) = *self.taken_over.lock() else { return Ok(()) };
        if is_told && self.inner.flush().await.is_ok() {
            let mut taken_over = self.taken_over.lock();
            // A write-back may have failed for the same reason meanwhile, which nobody was told.
            if taken_over.is_none_or(|taken_over| taken_over.is_told) {
                *taken_over = None;
                return Ok(());
            }
        }
        self.lost();
        Err(error)
    }

    /// Loads a piece, unless a load of it is outstanding.
    pub(super) async fn load(self: &Arc<Self>, piece: &Piece) -> Result<(), DeviceError> {
        match self.begin_load(piece, true) {
            Some(load) => load.carry_out().await,
            None => Ok(()),
        }
    }

    /// Loads a piece in advance. An error is ignored here: the read that needs the piece loads it again.
    pub(super) fn read_ahead(self: &Arc<Self>, piece: &Piece) {
        if let Some(load) = self.begin_load(piece, false) {
            self.spawner.spawn(Box::pin(async move {
                let _ = load.carry_out().await;
            }));
        }
    }

    fn begin_load(self: &Arc<Self>, piece: &Piece, urgent: bool) -> Option<LoadGuard<D>> {
        let failures = self.cache.lock().load(piece, urgent)?;
        Some(LoadGuard { traffic: Arc::clone(self), piece: piece.clone(), failures, data: None })
    }

    /// Waits until the device can no longer carry out requests aborted before.
    pub(super) async fn quiesced(&self) -> Result<(), DeviceError> {
        let aborts = self.cache.lock().aborts();
        let quiesced = self.inner.quiesced().await;
        // An error of this request is ignored here: the next read or write reports what is wrong.
        self.change(|cache| cache.quiesced(aborts));
        quiesced
    }

    /// Begins a write-back of the chunk's dirty blocks.
    pub(super) fn write_back(self: &Arc<Self>, chunk: u64) {
        let job = self.cache.lock().write_back(chunk);
        let Some(job) = job else { return };
        let mut guard = WriteBackGuard { traffic: Arc::clone(self), chunk, under_way: true };
        self.spawner.spawn(Box::pin(async move {
            let mut next = Some(job);
            while let Some(job) = next {
                next = guard.carry_out(job).await;
            }
        }));
    }

    /// Waits until all blocks dirty now in these chunks have been written back.
    pub(super) async fn drain(self: &Arc<Self>, chunks: Range<u64>) {
        let mut goals = self.cache.lock().goals(chunks);
        while let Some(chunk) = self.until(|cache| cache.next_goal(&mut goals)).await {
            self.write_back(chunk);
        }
    }
}

/// Chunks held for a direct change of the device.
pub(super) struct HeldChunks<'a, D> {
    traffic: &'a Traffic<D>,
    chunks: Range<u64>,
    /// The change is outstanding at the device.
    in_flight: bool,
}

impl<D> HeldChunks<'_, D> {
    /// Carries out the change for which the chunks are held.
    pub(super) async fn run<T>(mut self, request: impl Future<Output = T>) -> T {
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

/// A load; its end is reported to the cache even if it is dropped.
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
        self.traffic.change(|cache| cache.loaded(&self.piece, self.failures, data));
    }
}

/// A write-back; its blocks stay dirty if it is dropped before its end.
struct WriteBackGuard<D> {
    traffic: Arc<Traffic<D>>,
    chunk: u64,
    under_way: bool,
}

impl<D: BlockDevice> WriteBackGuard<D> {
    /// Returns the write-back that follows.
    async fn carry_out(&mut self, job: WriteBack) -> Option<WriteBack> {
        self.under_way = true;
        let traffic = &self.traffic;
        if job.after_abandoned {
            // An error here is ignored: the next write reports what is wrong.
            let _ = traffic.inner.quiesced().await;
        }
        let mut failed = Vec::new();
        for (run, data) in job.runs {
            let extent = traffic.extent(job.chunk, &run);
            if let Err(error) = traffic.inner.write(extent, data, Durability::Cached).await {
                failed.push(run);
                if matches!(error, DeviceError::Fenced | DeviceError::Reserved) {
                    *traffic.taken_over.lock() = Some(TakenOver { error, is_told: false });
                }
            }
        }
        self.under_way = false;
        let again = traffic.change(|cache| cache.written_back(job.chunk, &failed));
        let next = if again { traffic.cache.lock().write_back(job.chunk) } else { None };
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
