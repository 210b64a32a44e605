//! Asynchronous files: reads and writes that never block their thread.
//!
//! An [`AsyncFile`] uses one of two engines: the io_uring of the task's reactor, if the kernel allows it, or
//! otherwise a few blocking threads per file. (Docker's and containerd's default seccomp profiles forbid
//! io_uring.) Cached data needs neither (`nowait`). Operations own their buffers until the kernel is done
//! with them. An operation whose future is dropped is cancelled if it has not started; otherwise it continues
//! as an *orphan*, for which [`AsyncFile::quiesced`] waits.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::FileTypeExt as _;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use block::{Buffer, Durability, Slice};
use derive_more::{Display, Error};
use operation::Nowait;
use operation::Operation;
use orphans::Orphans;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FallocateFlags, OFlags, fcntl_getfl};
use syncs::{Stable, SyncStep, Syncs};

use self::ring::Ring;

pub(crate) use lane::Lane;

mod lane;
mod operation;
pub(crate) mod orphans;
pub(crate) mod ring;
mod syncs;

/// A file with asynchronous operations.
pub struct AsyncFile {
    file: Arc<File>,
    /// The same file in another open file description, for syncs: the kernel reports a failed write-back to
    /// each once.
    synced: Arc<File>,
    syncs: Arc<Syncs>,
    /// Writes go through the page cache: an error reported to one stable write may be the failure of another.
    is_cached: bool,
    lane: Lane,
    orphans: Arc<Orphans>,
    nowait: Nowait,
}

/// Threads that one file may keep busy without io_uring, and for operations that io_uring does not support. A
/// hung file blocks only its own threads.
const LANE_THREADS: usize = 16;

/// The result of an operation on many bytes: the number moved, and the final status.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) done: usize,
    pub(crate) result: io::Result<()>,
}

impl AsyncFile {
    /// The file, for asynchronous use from any number of threads. Fails if a writable file cannot be opened a
    /// second time: its failed write-backs could go undetected.
    pub fn new(file: File) -> io::Result<AsyncFile> {
        let (nowait, flags, file) = (Nowait::new(&file), fcntl_getfl(&file)?, Arc::new(file));
        Ok(AsyncFile {
            nowait,
            synced: match flags & OFlags::ACCMODE {
                OFlags::RDONLY => Arc::clone(&file),
                _ => reopened(&file)?,
            },
            is_cached: !flags.contains(OFlags::DIRECT),
            file,
            syncs: Arc::default(),
            lane: Lane::new(LANE_THREADS),
            orphans: Arc::default(),
        })
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Fills the buffer from byte `at` on, on this thread, if that needs no waiting. False implies nothing
    /// about the file.
    pub(crate) fn read_nowait(&self, buffer: &mut [u8], at: u64) -> bool {
        self.nowait.read(&self.file, buffer, at)
    }

    /// Writes `data` from byte `at` on, on this thread, if that needs no waiting. After false, a part may be
    /// written.
    pub(crate) fn write_nowait(&self, data: &[u8], at: u64) -> bool {
        self.nowait.write(&self.file, data, at)
    }

    /// Reads from byte `at` on until the buffer is full or the file ends.
    pub(crate) async fn read(&self, buffer: Buffer, at: u64) -> (Buffer, Progress) {
        let length = buffer.len();
        let (operation, progress) = self.transfer(Operation::Read { buffer, done: 0, at }, length).await;
        (operation.into_buffer(), progress)
    }

    /// Writes all of `data` from byte `at` on. If [`AsyncFile::losses`] has risen since a stable write
    /// started, the write may be lost although it succeeded.
    pub(crate) async fn write(&self, data: Slice, at: u64, durability: Durability) -> Progress {
        let length = data.len();
        let stable = (durability == Durability::Stable).then(|| self.syncs.begin_stable());
        match self.transfer(Operation::Write { data, done: 0, at, stable }, length).await {
            (Operation::Write { data, stable: Some(stable), .. }, progress) => {
                self.end_stable(stable, data, at, &progress).await;
                progress
            }
            (_, progress) => progress,
        }
    }

    /// Records losses of earlier writes that the result of a stable write reveals.
    async fn end_stable(&self, mut stable: Stable, data: Slice, at: u64, progress: &Progress) {
        if let (true, Err(error)) = (stable.is_unclear(), &progress.result) {
            let length = data.len();
            let again = Operation::Write { data, done: 0, at, stable: None };
            let again = self.transfer(again, length).await.1.result;
            if again.is_err_and(|again| again.raw_os_error() == error.raw_os_error()) {
                stable.failed_before_its_sync();
            }
        }
        drop(stable);
        if self.is_cached {
            self.syncs.stable_ended().await;
        }
    }

    /// Repeats an operation that may be partial, until it is complete, makes no progress, or fails.
    async fn transfer(&self, mut operation: Operation, length: usize) -> (Operation, Progress) {
        loop {
            let (returned, moved) = self.perform(operation).await;
            operation = returned;
            let result = match moved {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
                Ok(0) if operation.done() < length => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) if operation.done() < length => continue,
                Ok(_) => Ok(()),
            };
            let done = operation.done();
            return (operation, Progress { done, result });
        }
    }

    /// Flushes written data to stable storage, shared with concurrent requests. If [`AsyncFile::losses`] has
    /// risen meanwhile, some data may be lost although the sync succeeded.
    pub async fn sync_data(&self) -> io::Result<()> {
        let wanted = self.syncs.next();
        let outcome = loop {
            match self.syncs.turn(wanted).await {
                SyncStep::Ended(outcome) => break outcome,
                SyncStep::Sync(sync) => drop(self.perform(Operation::SyncData(sync)).await),
            }
        };
        if outcome.is_err() && !Arc::ptr_eq(&self.file, &self.synced) {
            self.clear_error().await;
        }
        self.syncs.stable_ended().await;
        outcome
    }

    /// Syncs the file description of the writes, which has yet to report the failure of a sync: otherwise the
    /// next stable write would fail although its data is stable. An error counts as a loss: it may be a newer
    /// failure, of a concurrent stable write, which then succeeds. Such a write waits for this, as for every
    /// stable write, and finds the count increased. Every request that a failed sync covers does this, so
    /// that none depends on the others being polled.
    async fn clear_error(&self) {
        let stable = self.syncs.begin_stable();
        drop(self.perform(Operation::ClearError(stable)).await);
    }

    /// Number of failed syncs, including those of stable writes and of dropped requests.
    pub(crate) fn losses(&self) -> u64 {
        self.syncs.losses()
    }

    /// Changes the space allocation of the file: fallocate(2).
    pub async fn allocate(&self, mode: FallocateFlags, at: u64, length: u64) -> io::Result<()> {
        let fallocates = self.nowait.begin_fallocate();
        self.perform(Operation::Allocate { mode, at, length, _reshaping: fallocates }).await.1.map(drop)
    }

    /// Runs anything else on one of the file's threads.
    pub async fn blocking<T, F>(&self, work: F) -> T
    where
        T: Send + 'static,
        F: FnOnce(&File) -> T + Send + 'static,
    {
        let file = Arc::clone(&self.file);
        let (claim, ticket) = self.orphans.ticket();
        let output = self
            .lane
            .run(move || {
                let output = work(&file);
                drop(ticket);
                output
            })
            .await;
        drop(claim);
        output
    }

    /// Waits until no operation dropped before this call is outstanding, on any thread.
    pub async fn quiesced(&self) {
        self.orphans.ended().await;
    }

    /// Number of operations that continue after their futures were dropped.
    pub fn orphans(&self) -> usize {
        self.orphans.count()
    }

    async fn perform(&self, mut operation: Operation) -> (Operation, io::Result<usize>) {
        let (claim, ticket) = self.orphans.ticket();
        let file = Arc::clone(match operation {
            Operation::SyncData(_) => &self.synced,
            _ => &self.file,
        });
        let outcome = match ring::current() {
            Some(ring) => ring.perform(operation, file, ticket).await,
            None => {
                let run = move || {
                    let moved = operation.run(&file);
                    drop(ticket);
                    (operation, moved)
                };
                self.lane.run(run).await
            }
        };
        drop(claim);
        outcome
    }
}

/// The same file in another open file description. Pipes and similar files cannot be reopened; they have no
/// write-back.
fn reopened(file: &Arc<File>) -> io::Result<Arc<File>> {
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(Arc::clone(file));
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot open it a second time for syncs, as {path}: {error}"))
    };
    File::open(&path).map(Arc::new).map_err(named)
}

#[cfg(test)]
mod tests;

/// The engine for file operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display)]
pub enum IoEngine {
    /// io_uring if the kernel allows it, otherwise threads.
    #[default]
    #[display("auto")]
    Auto,
    /// io_uring; fail to start without it.
    #[display("uring")]
    Uring,
    /// Blocking threads.
    #[display("threads")]
    Threads,
}

static CHOSEN: OnceLock<IoEngine> = OnceLock::new();

impl IoEngine {
    /// Decides for all reactors of this process started from now on, and logs the result: [`IoEngine::Uring`]
    /// or [`IoEngine::Threads`]. The first decision is final. Fails if io_uring is required and unavailable.
    pub fn choose(self) -> io::Result<IoEngine> {
        if let Some(&chosen) = CHOSEN.get() {
            return Ok(chosen);
        }
        let chosen = match self {
            IoEngine::Threads => IoEngine::Threads,
            IoEngine::Uring => probe().map(|()| IoEngine::Uring)?,
            IoEngine::Auto => match probe() {
                Ok(()) => IoEngine::Uring,
                Err(error) => {
                    tracing::info!(%error, "io_uring is unavailable; using threads for file I/O");
                    IoEngine::Threads
                }
            },
        };
        tracing::info!(engine = %chosen, "file operations");
        Ok(*CHOSEN.get_or_init(|| chosen))
    }

    /// The chosen engine, or the result of `auto` if none was chosen.
    pub(crate) fn chosen() -> IoEngine {
        IoEngine::Auto.choose().unwrap_or(IoEngine::Threads)
    }
}

/// Opens a ring and closes it again: seccomp profiles and the sysctl kernel.io_uring_disabled refuse that.
fn probe() -> io::Result<()> {
    std::thread::scope(|scope| {
        // On a separate thread, because the caller's thread may already have a ring.
        let probing = scope.spawn(|| Ring::open(eventfd(0, EventfdFlags::CLOEXEC)?.as_fd()).map(drop));
        probing.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}

impl FromStr for IoEngine {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<IoEngine, UnknownEngine> {
        match name {
            "auto" => Ok(IoEngine::Auto),
            "uring" => Ok(IoEngine::Uring),
            "threads" => Ok(IoEngine::Threads),
            _ => Err(UnknownEngine),
        }
    }
}

/// The name is not `auto`, `uring` or `threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
#[display("the engine must be auto, uring or threads")]
pub struct UnknownEngine;
