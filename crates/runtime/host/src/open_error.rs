//! Why a volume could not be opened, one variant per cause, each a sentence with its remedy.

use std::io;
use std::path::PathBuf;

use derive_more::{Display, Error};

use block::BlockSize;

/// Why a volume could not be opened.
#[derive(Debug, Display, Error)]
#[expect(missing_docs, reason = "the fields are the words of the sentences below")]
pub enum OpenError {
    /// The size asked for is none, or would cut the last block.
    #[display(
        "{bytes} bytes are not a whole number of blocks of {} bytes, at least one: give a multiple",
        block_size.bytes()
    )]
    NotWholeBlocks { bytes: u64, block_size: BlockSize },
    /// The address space or the kernel's tables have no room for a RAM volume.
    #[display("no room for a RAM volume of {bytes} bytes ({source}): make it smaller")]
    NoMemory { bytes: u64, source: io::Error },
    /// The file does not exist, and there is no size to create it with.
    #[display("{} does not exist: give a size to create it, as in file:PATH?size=1GiB", path.display())]
    NotFound { path: PathBuf },
    /// The file does not exist, and it is not to be created.
    #[display(
        "{} does not exist, and is not created, since its volume was served before: is its file system mounted? If a \
         new, empty file is meant, add `create` to the specification, as in file:PATH?size=1GiB&create",
        path.display()
    )]
    Missing { path: PathBuf },
    /// The same, of which the specification orders that it is created, as it did before.
    #[display(
        "{path} does not exist, and the `create` in the specification of its volume has been used: is its file system mounted? \
         If a new, empty file is meant, make it (truncate -s {bytes} {path})",
        path = path.display()
    )]
    OrderUsed { path: PathBuf, bytes: u64 },
    /// A device that does not exist: a file of its name would take its place until the next boot.
    #[display("there is no device {}", path.display())]
    NoDevice { path: PathBuf },
    /// It does not exist, and its folder does not either or takes no files.
    #[display("cannot create {}: {source}; is its folder right?", path.display())]
    NotCreated { path: PathBuf, source: io::Error },
    /// It is neither a regular file nor a block device.
    #[display("{} is neither a regular file nor a block device: name one", path.display())]
    NotAFile { path: PathBuf },
    /// The file's permissions, or its read-only file system, forbid it.
    #[display(
        "{} may not be {}",
        path.display(),
        if *writing { "written: change its permissions, or serve it read-only" }
        else { "read: change its permissions" }
    )]
    NotAllowed { path: PathBuf, writing: bool },
    /// Another process serves it, or a block device is mounted.
    #[display(
        "{} is in use by another server or mounted: stop that one, or serve another volume",
        path.display()
    )]
    AlreadyInUse { path: PathBuf },
    /// The file system cannot lock.
    #[display("{} cannot be locked ({source}): move it to a file system with locks", path.display())]
    NoLock { path: PathBuf, source: io::Error },
    /// The file is shorter than the size asked for.
    #[display(
        "{} has {found} bytes, not the {asked} asked for: extend it (truncate -s {asked}), or ask for less",
        path.display()
    )]
    TooShort { path: PathBuf, found: u64, asked: u64 },
    /// The file has no bytes, and no size was asked for.
    #[display("{} is empty: give a size", path.display())]
    Empty { path: PathBuf },
    /// The file's own size would cut the last block.
    #[display(
        "{} has {bytes} bytes, which {}-byte blocks do not divide: give a size that they do",
        path.display(), block_size.bytes()
    )]
    Ragged { path: PathBuf, bytes: u64, block_size: BlockSize },
    /// The file system has no direct I/O.
    #[display("the file system of {} has no direct I/O: leave direct off", path.display())]
    NoDirect { path: PathBuf },
    /// Direct I/O works in larger units than the blocks.
    #[display(
        "direct I/O on {} needs blocks of {bytes} bytes: set block={bytes}, or leave direct off",
        path.display()
    )]
    DirectNeedsLargerBlocks { path: PathBuf, bytes: u64 },
    /// Any other error of the system.
    #[display("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}
