//! Words that survive a crash of the process: a file mapped into memory.
//!
//! A store needs no system call, and the kernel retains every store made before a SIGKILL. The words do not
//! survive a crash of the machine, because they are never synced.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU32;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A file mapped as words in native byte order. Only one process at a time can have it open.
pub struct MappedWords {
    start: NonNull<c_void>,
    words: usize,
    /// Holds the lock.
    _file: File,
}

impl MappedWords {
    /// Creates a file of `words` zero words, or overwrites an existing one. The file's space is allocated
    /// immediately, so a full disk causes an error here instead of a signal later. Fails with
    /// [`io::ErrorKind::WouldBlock`] if another process has the file open.
    pub fn create(path: &Path, words: usize) -> io::Result<MappedWords> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let bytes = words
            .checked_mul(size_of::<AtomicU32>())
            .ok_or(io::ErrorKind::OutOfMemory)?;
        file.set_len(0)?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
        MappedWords::map(file, words)
    }

    /// Opens an existing file at its current length.
    pub fn open(path: &Path) -> io::Result<MappedWords> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not a file",
            ));
        }
        let bytes = usize::try_from(metadata.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        MappedWords::map(file, bytes / size_of::<AtomicU32>())
    }

    fn map(file: File, words: usize) -> io::Result<MappedWords> {
        if words == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the file is empty",
            ));
        }
        let (length, protection) = (
            words * size_of::<AtomicU32>(),
            ProtFlags::READ | ProtFlags::WRITE,
        );
        // SAFETY: the kernel chooses the place, so no existing memory is touched.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                protection,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(MappedWords {
            start,
            words,
            _file: file,
        })
    }
}

impl AsRef<[AtomicU32]> for MappedWords {
    fn as_ref(&self) -> &[AtomicU32] {
        // SAFETY: page-aligned and mapped with this length as long as `self` lives. Every bit pattern is a
        // valid word, and others may change atomics, for example through another mapping of the file. The
        // lock keeps well-behaved programs from shortening the file; if one does, an access causes a SIGBUS,
        // which ends this process without undefined behaviour.
        unsafe { slice::from_raw_parts(self.start.as_ptr().cast(), self.words) }
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        // SAFETY: this is the mapping's only owner, and slices of it do not outlive it.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.words * size_of::<AtomicU32>()) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn what_was_noted_is_there_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("words");
        let words = MappedWords::create(&path, 1000).expect("room for them");
        words.as_ref()[999].store(7, Relaxed);
        assert_eq!(
            MappedWords::open(&path).err().map(|error| error.kind()),
            Some(io::ErrorKind::WouldBlock)
        );
        drop(words);
        let again = MappedWords::open(&path).expect("they are there");
        assert_eq!(
            (again.as_ref().len(), again.as_ref()[999].load(Relaxed)),
            (1000, 7)
        );
        drop(again);
        let anew = MappedWords::create(&path, 2).expect("room for them");
        assert!(anew.as_ref().iter().all(|word| word.load(Relaxed) == 0));
    }

    #[test]
    fn more_than_there_is_room_for_is_refused_and_not_a_signal() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(MappedWords::create(&directory.path().join("words"), usize::MAX / 8).is_err());
    }

    #[test]
    fn an_empty_file_and_a_directory_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("empty");
        File::create(&path).expect("a file");
        assert!(MappedWords::open(&path).is_err());
        assert!(MappedWords::open(directory.path()).is_err());
    }
}
