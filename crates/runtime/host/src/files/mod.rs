//! Asynchronous files: reads and writes that never block their thread.
//!
//! An [`AsyncFile`] uses one of two engines: the io_uring of the task's reactor, or, where the kernel forbids
//! io_uring, a few blocking threads per file. (The default seccomp profiles of Docker and containerd forbid
//! io_uring.) Cached data needs neither engine (`nowait`). Each operation owns its buffer until the kernel is
//! done with it. If the future of an operation is dropped, the operation is cancelled if it has not started.
//! Otherwise it continues as an *orphan*, for which [`AsyncFile::quiesced`] waits.

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
    /// The same file in another open file description, for syncs. The kernel reports a failed write-back once
    /// to each description.
    synced: Arc<File>,
    syncs: Arc<Syncs>,
    /// Whether writes go through the page cache. If so, an error reported to one stable write may be due to
    /// another write.
    is_cached: bool,
    lane: Lane,
    orphans: Arc<Orphans>,
    nowait: Nowait,
}

/// Maximum number of threads of one file. They execute all operations where io_uring is not available, and
/// otherwise those that io_uring does not support. A hung file blocks only its own threads.
const LANE_THREADS: usize = 16;

/// The result of a read or write: the number of bytes moved, and the final status.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) done: usize,
    pub(crate) result: io::Result<()>,
}

impl AsyncFile {
    /// Prepares a file for asynchronous use from any number of threads. Fails if a writable file cannot be
    /// opened a second time, because failed write-backs could then go undetected.
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

    /// Fills the buffer with data from offset `at`, on this thread, if that is possible without waiting. A
    /// result of false does not imply an error.
    pub(crate) fn read_nowait(&self, buffer: &mut [u8], at: u64) -> bool {
        self.nowait.read(&self.file, buffer, at)
    }

    /// Writes `data` at offset `at`, on this thread, if that is possible without waiting. If the result is
    /// false, a part may have been written.
    pub(crate) fn write_nowait(&self, data: &[u8], at: u64) -> bool {
        self.nowait.write(&self.file, data, at)
    }

    /// Reads from offset `at` until the buffer is full or the file ends.
    pub(crate) async fn read(&self, buffer: Buffer, at: u64) -> (Buffer, Progress) {
        let length = buffer.len();
        let (operation, progress) = self
            .transfer(
                Operation::Read {
                    buffer,
                    done: 0,
                    at,
                },
                length,
            )
            .await;
        (operation.into_buffer(), progress)
    }

    /// Writes all of `data` at offset `at`. If [`AsyncFile::losses`] has increased since a stable write
    /// started, its data may be lost although it succeeded.
    pub(crate) async fn write(&self, data: Slice, at: u64, durability: Durability) -> Progress {
        let length = data.len();
        let stable = (durability == Durability::Stable).then(|| self.syncs.begin_stable());
        match self
            .transfer(
                Operation::Write {
                    data,
                    done: 0,
                    at,
                    stable,
                },
                length,
            )
            .await
        {
            (
                Operation::Write {
                    data,
                    stable: Some(stable),
                    ..
                },
                progress,
            ) => {
                self.end_stable(stable, data, at, &progress).await;
                progress
            }
            (_, progress) => progress,
        }
    }

    /// Determines whether the failure of a stable write means that earlier writes were lost, and counts a
    /// loss if so. Then waits for concurrent stable writes, because the kernel may have reported a failure to
    /// one of them.
    async fn end_stable(&self, mut stable: Stable, data: Slice, at: u64, progress: &Progress) {
        if let (true, Err(error)) = (stable.is_unclear(), &progress.result) {
            let length = data.len();
            let again = Operation::Write {
                data,
                done: 0,
                at,
                stable: None,
            };
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

    /// Repeats an operation, which may be executed in parts, until it is complete, makes no progress, or
    /// fails.
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

    /// Flushes written data to stable storage. Concurrent requests share a sync. If [`AsyncFile::losses`] has
    /// increased meanwhile, some data may be lost although the sync succeeded.
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

    /// After a failed sync, syncs the file description that is used for writes. The kernel will report the
    /// failure to this description too. Without this sync, the next stable write would receive the report,
    /// and would fail although its data is stable.
    ///
    /// An error counts as a loss, because it may be a newer failure: the kernel may have reported the failure
    /// of a concurrent stable write to this sync, and the write then succeeds. That write waits for this
    /// sync, as it does for every stable write, and detects that the count has increased. Every request that
    /// a failed sync covers calls this function, so that none of them depends on the others being polled.
    async fn clear_error(&self) {
        let stable = self.syncs.begin_stable();
        drop(self.perform(Operation::ClearError(stable)).await);
    }

    /// Number of failed syncs, including syncs of stable writes and of dropped requests.
    pub(crate) fn losses(&self) -> u64 {
        self.syncs.losses()
    }

    /// Changes the space allocation of the file with fallocate(2).
    pub async fn allocate(&self, mode: FallocateFlags, at: u64, length: u64) -> io::Result<()> {
        let fallocates = self.nowait.begin_fallocate();
        self.perform(Operation::Allocate {
            mode,
            at,
            length,
            _reshaping: fallocates,
        })
        .await
        .1
        .map(drop)
    }

    /// Runs any other work on one of the file's threads.
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

/// Opens the same file again, in another open file description. Files such as pipes, which cannot be opened
/// again, have no write-back; for them, returns the same description.
fn reopened(file: &Arc<File>) -> io::Result<Arc<File>> {
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(Arc::clone(file));
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let named = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot open it a second time for syncs, as {path}: {error}"),
        )
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
    /// io_uring. Starting fails if the kernel does not allow it.
    #[display("uring")]
    Uring,
    /// Blocking threads.
    #[display("threads")]
    Threads,
}

static CHOSEN: OnceLock<IoEngine> = OnceLock::new();

impl IoEngine {
    /// Chooses the engine for all reactors that this process starts from now on, and logs the choice:
    /// [`IoEngine::Uring`] or [`IoEngine::Threads`]. The first choice is final. Fails if io_uring is required
    /// but not available.
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

    /// Returns the chosen engine. If none was chosen yet, chooses as [`IoEngine::Auto`] does.
    pub(crate) fn chosen() -> IoEngine {
        IoEngine::Auto.choose().unwrap_or(IoEngine::Threads)
    }
}

/// Opens a ring and closes it again, to find out whether a seccomp profile or the sysctl
/// kernel.io_uring_disabled forbids it.
fn probe() -> io::Result<()> {
    std::thread::scope(|scope| {
        // On a separate thread, because the caller's thread may already have a ring.
        let probing =
            scope.spawn(|| Ring::open(eventfd(0, EventfdFlags::CLOEXEC)?.as_fd()).map(drop));
        probing
            .join()
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
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

/// The error for a name other than `auto`, `uring` or `threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
#[display("the engine must be auto, uring or threads")]
pub struct UnknownEngine;
