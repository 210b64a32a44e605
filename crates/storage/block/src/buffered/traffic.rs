//! What goes between memory and the device: loads, chunks that are passed on, and those who wait for either.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::cache::{Cache, Job, Piece, Sizes};
use crate::{BlockDevice, Buffer, DeviceError, Durability, Extent, Lock, Spawner};

pub(super) struct Traffic<D> {
    pub(super) inner: D,
    cache: Lock<Cache>,
    sizes: Sizes,
    spawner: Arc<dyn Spawner>,
}

impl<D> Traffic<D> {
    pub(super) fn new(inner: D, sizes: Sizes, spawner: Arc<dyn Spawner>) -> Arc<Traffic<D>> {
        Arc::new(Traffic { inner, cache: Lock::new(Cache::new(sizes)), sizes, spawner })
    }

    /// Waits until `look` finds something.
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

    /// Changes something, and lets all who wait look again.
    fn change<T>(&self, change: impl FnOnce(&mut Cache) -> T) -> T {
        let mut cache = self.cache.lock();
        let result = change(&mut cache);
        let waiters = cache.take_waiters();
        drop(cache);
        waiters.into_iter().for_each(Waker::wake);
        result
    }

    /// How often data were lost that had been taken.
    pub(super) fn losses(&self) -> u64 {
        self.cache.lock().losses()
    }

    /// Keeps everybody away from these chunks for as long as what it gives lives.
    pub(super) async fn hold(&self, chunks: Range<u64>) -> Held<'_, D> {
        self.until(|cache| cache.hold(&chunks)).await;
        Held { traffic: self, chunks, is_asked: false }
    }

    fn extent(&self, chunk: u64, blocks: &Range<usize>) -> Extent {
        Extent::new(chunk * self.sizes.chunk as u64 + blocks.start as u64, blocks.len() as u64)
    }
}

impl<D: BlockDevice + 'static> Traffic<D> {
    /// Loads a piece for somebody who waits for it, unless somebody else does so already.
    pub(super) async fn load(self: &Arc<Self>, piece: &Piece) -> Result<(), DeviceError> {
        match self.begin_load(piece, true) {
            Some(load) => load.carry_out().await,
            None => Ok(()),
        }
    }

    /// Loads a piece that nobody waits for yet. If that fails, whoever wants it will find out.
    pub(super) fn read_ahead(self: &Arc<Self>, piece: &Piece) {
        if let Some(load) = self.begin_load(piece, false) {
            self.spawner.spawn(Box::pin(async move {
                let _ = load.carry_out().await;
            }));
        }
    }

    fn begin_load(self: &Arc<Self>, piece: &Piece, urgent: bool) -> Option<Load<D>> {
        let failures = self.cache.lock().load(piece, urgent)?;
        Some(Load { traffic: Arc::clone(self), piece: piece.clone(), failures, data: None })
    }

    /// Waits until the device cannot carry out any more what was aborted before.
    pub(super) async fn quiesced(&self) -> Result<(), DeviceError> {
        let aborts = self.cache.lock().aborts();
        let quiesced = self.inner.quiesced().await;
        // A device that cannot say so will say what is wrong when it is read or written.
        self.change(|cache| cache.quiesced(aborts));
        quiesced
    }

    /// Puts what is dirty of a chunk on its way.
    pub(super) fn pass_on(self: &Arc<Self>, chunk: u64) {
        let job = self.cache.lock().pass_on(chunk);
        let Some(job) = job else { return };
        let mut passing = Passing { traffic: Arc::clone(self), chunk, under_way: true };
        self.spawner.spawn(Box::pin(async move {
            let mut next = Some(job);
            while let Some(job) = next {
                next = passing.carry_out(job).await;
            }
        }));
    }

    /// Waits until all that is dirty now in these chunks has been passed on.
    pub(super) async fn drain(self: &Arc<Self>, chunks: Range<u64>) {
        let mut goals = self.cache.lock().goals(chunks);
        while let Some(chunk) = self.until(|cache| cache.next_goal(&mut goals)).await {
            self.pass_on(chunk);
        }
    }
}

/// Chunks that everybody is kept away from.
pub(super) struct Held<'a, D> {
    traffic: &'a Traffic<D>,
    chunks: Range<u64>,
    /// The device has been asked for the change, and has not answered.
    is_asked: bool,
}

impl<D> Held<'_, D> {
    /// Carries out the change for which they are held.
    pub(super) async fn ask<T>(mut self, request: impl Future<Output = T>) -> T {
        self.is_asked = true;
        let answer = request.await;
        self.is_asked = false;
        answer
    }
}

impl<D> Drop for Held<'_, D> {
    fn drop(&mut self) {
        self.traffic.change(|cache| match self.is_asked {
            true => cache.abort(&self.chunks),
            false => cache.let_go(&self.chunks),
        });
    }
}

/// A load, of whose end its chunk is told even if it is dropped.
struct Load<D> {
    traffic: Arc<Traffic<D>>,
    piece: Piece,
    failures: u64,
    data: Option<Buffer>,
}

impl<D: BlockDevice> Load<D> {
    async fn carry_out(mut self) -> Result<(), DeviceError> {
        let buffer = Buffer::recycled(self.piece.blocks.len() * self.traffic.sizes.block_bytes);
        let extent = self.traffic.extent(self.piece.chunk, &self.piece.blocks);
        self.data = Some(self.traffic.inner.read(extent, buffer).await?);
        Ok(())
    }
}

impl<D> Drop for Load<D> {
    fn drop(&mut self) {
        let data = self.data.as_deref();
        self.traffic.change(|cache| cache.loaded(&self.piece, self.failures, data));
    }
}

/// A chunk on its way, which stays dirty if this is dropped before its end.
struct Passing<D> {
    traffic: Arc<Traffic<D>>,
    chunk: u64,
    under_way: bool,
}

impl<D: BlockDevice> Passing<D> {
    /// Says what is to follow.
    async fn carry_out(&mut self, job: Job) -> Option<Job> {
        self.under_way = true;
        let traffic = &self.traffic;
        if job.after_abandoned {
            // A device that cannot say that it has let go will say what is wrong when it is written to.
            let _ = traffic.inner.quiesced().await;
        }
        let mut failed = Vec::new();
        for (run, data) in job.runs {
            let extent = traffic.extent(job.chunk, &run);
            if traffic.inner.write(extent, data, Durability::Cached).await.is_err() {
                failed.push(run);
            }
        }
        self.under_way = false;
        let again = traffic.change(|cache| cache.passed_on(job.chunk, &failed));
        let next = if again { traffic.cache.lock().pass_on(job.chunk) } else { None };
        self.under_way = next.is_some();
        next
    }
}

impl<D> Drop for Passing<D> {
    fn drop(&mut self) {
        if self.under_way {
            self.traffic.change(|cache| cache.abandoned(self.chunk));
        }
    }
}
