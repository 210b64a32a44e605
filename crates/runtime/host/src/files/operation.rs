//! A file operation with its buffer, and how each engine carries it out.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd as _;

use block::{Buffer, Slice};
use io_uring::{opcode, squeue, types};
use rustix::fs::FallocateFlags;
use rustix::io::ReadWriteFlags;

use super::nowait::FallocateGuard;
use super::syncs::{Stable, Sync, Woken};

/// An operation. It owns its buffer, and remembers how much of it is done.
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
    /// Makes the file description of the writes report what a sync has reported.
    ClearError(Stable),
    Allocate {
        mode: FallocateFlags,
        at: u64,
        length: u64,
        _reshaping: FallocateGuard,
    },
}

/// The most one system call moves: below the kernel's own limit of 2 GiB less a page.
const CALL_BYTES_MAX: usize = 1 << 30;

impl Operation {
    /// Bytes moved so far.
    pub(crate) fn done(&self) -> usize {
        match self {
            Operation::Read { done, .. } | Operation::Write { done, .. } => *done,
            Operation::SyncData(_) | Operation::ClearError(_) | Operation::Allocate { .. } => 0,
        }
    }

    /// The buffer of a read; an empty one for others.
    pub(crate) fn into_buffer(self) -> Buffer {
        match self {
            Operation::Read { buffer, .. } => buffer,
            _ => Buffer::zeroed(0),
        }
    }

    /// The kernel has returned this. Engines call it for every operation that they have carried out, also for
    /// one whose future was dropped, and wake the tasks that it returns.
    pub(super) fn ended(&mut self, result: &io::Result<usize>) -> Woken {
        if let (Operation::Read { done, .. } | Operation::Write { done, .. }, Ok(moved)) =
            (&mut *self, result)
        {
            *done += moved;
        }
        match self {
            // The first parts of a long one are not its end.
            Operation::Write { data, done, stable: Some(stable), .. }
                if result.is_err() || *done == data.len() =>
            {
                stable.note(result)
            }
            Operation::SyncData(sync) => sync.note(result),
            Operation::ClearError(stable) => stable.note(result),
            Operation::Read { .. } | Operation::Write { .. } | Operation::Allocate { .. } => Woken::default(),
        }
    }

    /// Carries the operation out on this thread, or a part of it.
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
            Operation::Write { data, done, at, stable } => {
                let rest = [IoSlice::new(piece(data, *done))];
                let flags = if stable.is_some() { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
                rustix::io::pwritev2(file, &rest, *at + *done as u64, flags)?
            }
            Operation::SyncData(_) | Operation::ClearError(_) => rustix::fs::fdatasync(file).map(|()| 0)?,
            Operation::Allocate { mode, at, length, .. } => {
                rustix::fs::fallocate(file, *mode, *at, *length).map(|()| 0)?
            }
        })
    }

    /// The operation, or a part of it, for an io_uring. It points into the operation's buffer, whose memory
    /// stays in place when the operation moves: the submitter of the entry keeps the operation until it
    /// completes.
    pub(super) fn entry(&mut self, file: &File) -> squeue::Entry {
        let fd = types::Fd(file.as_raw_fd());
        match self {
            Operation::Read { buffer, done, at } => {
                let rest = piece_mut(buffer, *done);
                opcode::Read::new(fd, rest.as_mut_ptr(), rest.len() as u32).offset(*at + *done as u64).build()
            }
            Operation::Write { data, done, at, stable } => {
                let rest = piece(data, *done);
                let flags = if stable.is_some() { libc::RWF_DSYNC } else { 0 };
                opcode::Write::new(fd, rest.as_ptr(), rest.len() as u32)
                    .offset(*at + *done as u64)
                    .rw_flags(flags)
                    .build()
            }
            Operation::SyncData(_) | Operation::ClearError(_) => {
                opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build()
            }
            Operation::Allocate { mode, at, length, .. } => {
                opcode::Fallocate::new(fd, *length).offset(*at).mode(mode.bits() as i32).build()
            }
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
