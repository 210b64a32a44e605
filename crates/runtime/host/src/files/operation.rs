//! A file operation with its buffer, and how each engine executes it.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use block::{Buffer, Slice};
use io_uring::{opcode, squeue, types};
use rustix::fs::{FallocateFlags, OFlags, fcntl_getfl, fstatfs};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwrite, pwritev2};

use super::syncs::{Stable, Sync, Woken};

/// An operation. It owns its buffer, and records its progress.
pub(crate) enum Operation {
    Read {
        buffer: Buffer,
        done: usize,
        at: u64,
    },
    Write {
        data: Slice,
        done: usize,
        at: u64,
        stable: Option<Stable>,
    },
    SyncData(Sync),
    /// Syncs the file description of the writes, so that it reports the failure that a sync has already
    /// reported, and later writes do not fail because of it.
    ClearError(Stable),
    Allocate {
        mode: FallocateFlags,
        at: u64,
        length: u64,
        _reshaping: FallocateGuard,
    },
}

/// Maximum bytes per system call, below the kernel's limit of 2 GiB minus a page.
const CALL_BYTES_MAX: usize = 1 << 30;

impl Operation {
    /// Bytes moved so far.
    pub(crate) fn done(&self) -> usize {
        match self {
            Operation::Read { done, .. } | Operation::Write { done, .. } => *done,
            Operation::SyncData(_) | Operation::ClearError(_) | Operation::Allocate { .. } => 0,
        }
    }

    /// The buffer of a read, or an empty buffer for other operations.
    pub(crate) fn into_buffer(self) -> Buffer {
        match self {
            Operation::Read { buffer, .. } => buffer,
            _ => Buffer::zeroed(0),
        }
    }

    /// Records the kernel's result. Engines call this for every executed operation, even if its future was
    /// dropped, and wake the tasks that it returns.
    pub(super) fn ended(&mut self, result: &io::Result<usize>) -> Woken {
        if let (Operation::Read { done, .. } | Operation::Write { done, .. }, Ok(moved)) =
            (&mut *self, result)
        {
            *done += moved;
        }
        match self {
            // A partial write does not complete the stable write.
            Operation::Write {
                data,
                done,
                stable: Some(stable),
                ..
            } if result.is_err() || *done == data.len() => stable.note(result),
            Operation::SyncData(sync) => sync.note(result),
            Operation::ClearError(stable) => stable.note(result),
            Operation::Read { .. } | Operation::Write { .. } | Operation::Allocate { .. } => {
                Woken::default()
            }
        }
    }

    /// Executes the operation, or a part of it, on this thread.
    pub(super) fn run(&mut self, file: &File) -> io::Result<usize> {
        let moved = self.call(file);
        self.ended(&moved).wake();
        moved
    }

    fn call(&mut self, file: &File) -> io::Result<usize> {
        Ok(match self {
            Operation::Read { buffer, done, at } => {
                let rest = piece_mut(buffer, *done);
                rustix::io::pread(file, rest, *at + *done as u64)?
            }
            Operation::Write {
                data,
                done,
                at,
                stable,
            } => {
                let rest = [IoSlice::new(piece(data, *done))];
                let flags = if stable.is_some() {
                    ReadWriteFlags::DSYNC
                } else {
                    ReadWriteFlags::empty()
                };
                rustix::io::pwritev2(file, &rest, *at + *done as u64, flags)?
            }
            Operation::SyncData(_) | Operation::ClearError(_) => {
                rustix::fs::fdatasync(file).map(|()| 0)?
            }
            Operation::Allocate {
                mode, at, length, ..
            } => rustix::fs::fallocate(file, *mode, *at, *length).map(|()| 0)?,
        })
    }

    /// Returns the operation, or a part of it, as an entry for io_uring. The entry points into the
    /// operation's buffer, whose memory does not move with the operation. The submitter must keep the
    /// operation until it completes.
    pub(super) fn entry(&mut self, file: &File) -> squeue::Entry {
        let fd = types::Fd(file.as_raw_fd());
        match self {
            Operation::Read { buffer, done, at } => {
                let rest = piece_mut(buffer, *done);
                opcode::Read::new(fd, rest.as_mut_ptr(), rest.len() as u32)
                    .offset(*at + *done as u64)
                    .build()
            }
            Operation::Write {
                data,
                done,
                at,
                stable,
            } => {
                let rest = piece(data, *done);
                let flags = if stable.is_some() { libc::RWF_DSYNC } else { 0 };
                opcode::Write::new(fd, rest.as_ptr(), rest.len() as u32)
                    .offset(*at + *done as u64)
                    .rw_flags(flags)
                    .build()
            }
            Operation::SyncData(_) | Operation::ClearError(_) => opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            Operation::Allocate {
                mode, at, length, ..
            } => opcode::Fallocate::new(fd, *length)
                .offset(*at)
                .mode(mode.bits() as i32)
                .build(),
        }
    }
}

fn piece(data: &[u8], done: usize) -> &[u8] {
    let rest = data.get(done..).unwrap_or_default();
    &rest[..rest.len().min(CALL_BYTES_MAX)]
}

fn piece_mut(data: &mut [u8], done: usize) -> &mut [u8] {
    let rest = data.get_mut(done..).unwrap_or_default();
    let length = rest.len().min(CALL_BYTES_MAX);
    &mut rest[..length]
}

// Reads and writes without an engine: the calling thread copies from or to the page cache.
//
// Copying 4 KiB takes less time than passing the operation to an engine. With RWF_NOWAIT, the kernel returns
// an error if it would have to wait. After this and any other error, the caller uses its engine, which also
// handles errors. For a file in memory (tmpfs), RWF_NOWAIT is not used: such a file never waits, except for
// pages in swap, where the pages of this process may also be. Direct I/O always uses an engine, because a
// direct read waits for the disk.

/// Operations that the calling thread can perform without an engine.
pub(super) struct Nowait {
    location: DataLocation,
    reads: MissCounter,
    writes: MissCounter,
    fallocates: Arc<AtomicUsize>,
}

/// The location of a file's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataLocation {
    /// All data is in memory.
    Memory,
    /// Frequently used data is in the page cache.
    PageCache,
    /// Every access waits: direct I/O and pipes.
    Disk,
}

/// Counts an outstanding fallocate while this value exists. A fallocate holds the file's lock, for a long
/// time if it deallocates much.
#[derive(Debug)]
pub(crate) struct FallocateGuard(Arc<AtomicUsize>);

impl Nowait {
    /// Determines the location of this file's data.
    pub(super) fn new(file: &File) -> Nowait {
        Nowait {
            location: DataLocation::from_file(file),
            reads: MissCounter::default(),
            writes: MissCounter::default(),
            fallocates: Arc::default(),
        }
    }

    /// Fills the buffer with data from offset `at`. Returns false if not all of the data was available
    /// without waiting.
    pub(super) fn read(&self, file: &File, buffer: &mut [u8], at: u64) -> bool {
        let length = buffer.len();
        match self.location {
            DataLocation::Disk => false,
            // pread, which has neither flags nor a vector, takes 0.1 µs less.
            DataLocation::Memory => pread(file, buffer, at) == Ok(length),
            DataLocation::PageCache => self.reads.take(length, || {
                preadv2(
                    file,
                    &mut [IoSliceMut::new(buffer)],
                    at,
                    ReadWriteFlags::NOWAIT,
                )
            }),
        }
    }

    /// Writes all of `data` to the page cache. Returns false if that was not possible without waiting; a part
    /// may then have been written.
    pub(super) fn write(&self, file: &File, data: &[u8], at: u64) -> bool {
        if self.fallocates.load(Ordering::Acquire) > 0 {
            return false;
        }
        match self.location {
            DataLocation::Disk => false,
            DataLocation::Memory => pwrite(file, data, at) == Ok(data.len()),
            DataLocation::PageCache => self.writes.take(data.len(), || {
                pwritev2(file, &[IoSlice::new(data)], at, ReadWriteFlags::NOWAIT)
            }),
        }
    }

    /// Announces a fallocate. While the returned value exists, writes use an engine, which waits for the
    /// file's lock.
    pub(super) fn begin_fallocate(&self) -> FallocateGuard {
        self.fallocates.fetch_add(1, Ordering::AcqRel);
        FallocateGuard(Arc::clone(&self.fallocates))
    }
}

impl DataLocation {
    fn from_file(file: &File) -> DataLocation {
        let Ok(metadata) = file.metadata() else {
            return DataLocation::Disk;
        };
        let kind = metadata.file_type();
        // <linux/magic.h>
        const TMPFS: i64 = 0x0102_1994;
        match kind.is_file() {
            true if fstatfs(file).is_ok_and(|found| found.f_type == TMPFS) => {
                return DataLocation::Memory;
            }
            false if !kind.is_block_device() => return DataLocation::Disk,
            _ => {}
        }
        match fcntl_getfl(file) {
            Ok(flags) if !flags.contains(OFlags::DIRECT) => DataLocation::PageCache,
            _ => DataLocation::Disk,
        }
    }
}

impl Drop for FallocateGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counts consecutive attempts that failed because data was not cached.
#[derive(Debug, Default)]
struct MissCounter(AtomicU32);

/// The count after the kernel has reported that it does not support RWF_NOWAIT for this file, as for writes
/// on ext4. No further attempt is made.
const NEVER: u32 = u32::MAX;

/// After this many consecutive misses, most attempts are skipped, because each costs a system call and a
/// volume much larger than memory is rarely cached. One attempt in [`RETRY_EVERY`] is still made, to detect
/// when data is cached again.
const MISSES_MAX: u32 = 16;
const RETRY_EVERY: u32 = 16;

impl MissCounter {
    /// Makes an attempt to move `length` bytes, unless this attempt should be skipped. Returns whether all
    /// bytes were moved.
    fn take(&self, length: usize, attempt: impl FnOnce() -> rustix::io::Result<usize>) -> bool {
        self.is_worth_it() && self.record(attempt(), length)
    }

    fn is_worth_it(&self) -> bool {
        match self.0.load(Ordering::Relaxed) {
            NEVER => false,
            misses if misses < MISSES_MAX => true,
            misses => {
                // A concurrent count of another thread may be lost, which affects only one attempt.
                let next = if misses + 1 >= MISSES_MAX + RETRY_EVERY {
                    MISSES_MAX
                } else {
                    misses + 1
                };
                self.0.store(next, Ordering::Relaxed);
                next == MISSES_MAX
            }
        }
    }

    /// Counts an attempt. Returns whether all bytes were moved.
    fn record(&self, moved: rustix::io::Result<usize>, length: usize) -> bool {
        let misses = self.0.load(Ordering::Relaxed);
        let next = match moved {
            Ok(moved) if moved == length => 0,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => NEVER,
            _ if misses < MISSES_MAX => misses + 1,
            _ => misses,
        };
        if next != misses {
            self.0.store(next, Ordering::Relaxed);
        }
        next == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGAIN: rustix::io::Result<usize> = Err(Errno::AGAIN);

    #[test]
    fn what_is_never_there_is_rarely_looked_for() {
        let chance = MissCounter::default();
        for _ in 0..MISSES_MAX {
            assert!(chance.is_worth_it());
            assert!(!chance.record(AGAIN, 4096));
        }
        let attempts = (0..10 * RETRY_EVERY)
            .filter(|_| chance.is_worth_it() && !chance.record(AGAIN, 4096))
            .count();
        assert_eq!(attempts, 10);
    }

    #[test]
    fn one_success_brings_the_attempts_back() {
        let chance = MissCounter(AtomicU32::new(MISSES_MAX));
        assert!((0..RETRY_EVERY).any(|_| chance.is_worth_it()));
        assert!(chance.record(Ok(4096), 4096));
        assert!(chance.is_worth_it() && chance.is_worth_it());
    }

    #[test]
    fn a_file_system_that_cannot_tell_is_asked_once() {
        let chance = MissCounter::default();
        assert!(!chance.record(Err(Errno::OPNOTSUPP), 4096));
        assert!((0..100).all(|_| !chance.is_worth_it()));
    }

    #[test]
    fn a_part_is_not_enough() {
        assert!(!MissCounter::default().record(Ok(100), 4096));
    }

    #[test]
    fn nobody_writes_at_once_while_space_is_given_back() {
        let file = tempfile::tempfile_in("/dev/shm").expect("a file in memory");
        let nowait = Nowait::new(&file);
        let fallocates = nowait.begin_fallocate();
        assert!(!nowait.write(&file, &[7; 512], 0));
        drop(fallocates);
        assert!(nowait.write(&file, &[7; 512], 0));
        let mut found = [0; 512];
        assert!(nowait.read(&file, &mut found, 0) && found == [7; 512]);
        assert!(!nowait.read(&file, &mut found, 1), "the file ends before");
    }

    #[test]
    fn a_pipe_is_left_to_the_engines() {
        let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
        assert_eq!(
            DataLocation::from_file(&File::from(reader)),
            DataLocation::Disk
        );
    }
}
