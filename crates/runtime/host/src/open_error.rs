//! Why a volume could not be opened, one variant per cause, each a sentence with its remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;

use block::BlockSize;

/// Why a volume could not be opened.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are the words of the sentences below")]
pub enum OpenError {
    /// The size asked for is none, or would cut the last block.
    NotWholeBlocks { bytes: u64, block_size: BlockSize },
    /// The address space or the kernel's tables have no room for a RAM volume.
    NoMemory { bytes: u64, source: io::Error },
    /// The file does not exist, and there is no size to create it with.
    NotFound { path: PathBuf },
    /// It is neither a regular file nor a block device.
    NotAFile { path: PathBuf },
    /// The file's permissions, or its read-only file system, forbid it.
    NotAllowed { path: PathBuf, writing: bool },
    /// Another process serves it, or a block device is mounted.
    AlreadyInUse { path: PathBuf },
    /// The file system cannot lock.
    NoLock { path: PathBuf, source: io::Error },
    /// The file is shorter than the size asked for.
    TooShort { path: PathBuf, found: u64, asked: u64 },
    /// The file has no bytes, and no size was asked for.
    Empty { path: PathBuf },
    /// The file's own size would cut the last block.
    Ragged { path: PathBuf, bytes: u64, block_size: BlockSize },
    /// The file system has no direct I/O.
    NoDirect { path: PathBuf },
    /// Direct I/O works in larger units than the blocks.
    DirectNeedsLargerBlocks { path: PathBuf, bytes: u64 },
    /// Any other error of the system.
    Io { path: PathBuf, source: io::Error },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use OpenError::*;
        match self {
            NotWholeBlocks { bytes, block_size } => write!(
                f,
                "{bytes} bytes are not a whole number of blocks of {} bytes, at least one: give a multiple",
                block_size.bytes()
            ),
            NoMemory { bytes, source } => {
                write!(f, "no room for a RAM volume of {bytes} bytes ({source}): make it smaller")
            }
            NotFound { path } => {
                write!(f, "{} does not exist: give a size to create it", path.display())
            }
            NotAFile { path } => {
                write!(f, "{} is neither a regular file nor a block device: name one", path.display())
            }
            NotAllowed { path, writing: true } => write!(
                f,
                "{} may not be written: change its permissions, or serve it read-only",
                path.display()
            ),
            NotAllowed { path, writing: false } => {
                write!(f, "{} may not be read: change its permissions", path.display())
            }
            AlreadyInUse { path } => write!(
                f,
                "{} is in use by another server or mounted: stop that one, or serve another volume",
                path.display()
            ),
            NoLock { path, source } => write!(
                f,
                "{} cannot be locked ({source}): move it to a file system with locks",
                path.display()
            ),
            TooShort { path, found, asked } => write!(
                f,
                "{} has {found} bytes, not the {asked} asked for: extend it (truncate -s {asked}), or ask for less",
                path.display()
            ),
            Empty { path } => write!(f, "{} is empty: give a size", path.display()),
            Ragged { path, bytes, block_size } => write!(
                f,
                "{} has {bytes} bytes, which {}-byte blocks do not divide: give a size that they do",
                path.display(),
                block_size.bytes()
            ),
            NoDirect { path } => {
                write!(f, "the file system of {} has no direct I/O: leave direct off", path.display())
            }
            DirectNeedsLargerBlocks { path, bytes } => write!(
                f,
                "direct I/O on {} needs blocks of {bytes} bytes: set block={bytes}, or leave direct off",
                path.display()
            ),
            Io { path, source } => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::NoMemory { source, .. }
            | OpenError::NoLock { source, .. }
            | OpenError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
