//! Opens a volume in a file or on a block device, with a specific error for each cause of failure.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use block::{BlockSize, Blocks, Space};
use derive_more::{Display, Error};
use rustix::fs::{
    AtFlags, FallocateFlags, OFlags, SeekFrom, StatxFlags, fallocate, fcntl_getfl, fcntl_setfl,
    seek, statx,
};

use super::{FileDevice, FileOptions, FileProperties, LatestError};
use crate::files::AsyncFile;

impl FileDevice {
    /// Opens and locks the volume, or creates it. This blocks the thread, so call it before serving starts.
    pub fn open(options: FileOptions) -> Result<FileDevice, OpenError> {
        if let Some(bytes) = options.bytes {
            whole_blocks(bytes, options.block_size)?;
        }
        let (file, is_created) = open_locked(&options)?;
        let created = is_created.then(|| file.try_clone()).transpose();
        let created = created.map_err(|source| failed(&options.path, source))?;
        let unused = created
            .as_ref()
            .and_then(|file| CreatedFile::new(&options.path, file));
        FileDevice::of(file, created, options)
            .inspect_err(|_| unused.into_iter().for_each(CreatedFile::remove))
    }

    fn of(
        file: File,
        created: Option<File>,
        options: FileOptions,
    ) -> Result<FileDevice, OpenError> {
        leave_access_time(&file);
        // Treat an empty file as new: a process may have been killed between creating the file and setting
        // its length.
        let is_new = created.is_some()
            || (options.create && !options.read_only && is_empty(&file, &options.path)?);
        if is_new && let Some(bytes) = options.bytes {
            make(&file, &options.path, bytes).map_err(|source| failed(&options.path, source))?;
        }
        let blocks = capacity(&file, &options)?;
        let allocated = allocated(&file).map_err(|source| failed(&options.path, source))?;
        let properties =
            inspect(&file, &options).map_err(|source| failed(&options.path, source))?;
        check_direct(&file, &options)?;
        let file = AsyncFile::new(file).map_err(|source| failed(&options.path, source))?;
        Ok(FileDevice {
            file,
            created,
            options,
            blocks: AtomicU64::new(blocks.0),
            allocated: AtomicU64::new(allocated),
            looks: AtomicU32::new(1),
            properties,
            latest_error: LatestError::default(),
        })
    }

    /// Returns the file if this open created it, so that the caller can remove it if the volume is not used
    /// after all.
    pub fn created(&self) -> Option<CreatedFile> {
        CreatedFile::new(&self.options.path, self.created.as_ref()?)
    }
}

/// A file created for a volume. It stays locked while this value exists, so that no other process starts to
/// use a file that is about to be removed.
#[derive(Debug)]
pub struct CreatedFile {
    path: PathBuf,
    file: File,
}

impl CreatedFile {
    /// Returns `None` if the process has no free descriptor. The file is then not removed.
    fn new(path: &Path, file: &File) -> Option<CreatedFile> {
        Some(CreatedFile {
            path: path.to_owned(),
            file: file.try_clone().ok()?,
        })
    }

    /// Removes the file, unless its name now refers to something else.
    pub fn remove(self) {
        if is_at(&self.file, &self.path).unwrap_or(false) {
            // A missing file is not an error.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether the path refers to this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (own, there) = (file.metadata()?, std::fs::metadata(path)?);
    Ok((own.dev(), own.ino()) == (there.dev(), there.ino()))
}

/// Opens and locks the file. Also returns whether it was just created. If another process removed the file
/// before it released its lock, this opens or creates the path again: data in the removed file would vanish
/// when the last process closes it.
fn open_locked(options: &FileOptions) -> Result<(File, bool), OpenError> {
    loop {
        let (file, is_created) = open(options)?;
        lock(&file, options)?;
        let links = file
            .metadata()
            .map_err(|source| failed(&options.path, source))?
            .nlink();
        if links > 0 {
            return Ok((file, is_created));
        }
    }
}

/// Sets O_NOATIME: the access time of a volume is useless, and checking whether to update it costs 0.1 µs per
/// read. If the file belongs to another user, this is not permitted (open(2)), and the access time is
/// updated.
fn leave_access_time(file: &File) {
    let _ = fcntl_getfl(file).and_then(|flags| fcntl_setfl(file, flags | OFlags::NOATIME));
}

fn is_empty(file: &File, path: &Path) -> Result<bool, OpenError> {
    let metadata = file.metadata().map_err(|source| failed(path, source))?;
    Ok(metadata.is_file() && metadata.len() == 0)
}

/// Sets the length of a new file, and makes its directory entry durable, so that data written with FUA can be
/// found after a crash.
fn make(file: &File, path: &Path, bytes: u64) -> io::Result<()> {
    file.set_len(bytes)?;
    file.sync_all()?;
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

fn whole_blocks(bytes: u64, block_size: BlockSize) -> Result<Blocks, OpenError> {
    let blocks = block_size.exact(bytes).filter(|blocks| blocks.0 > 0);
    blocks.ok_or(OpenError::NotWholeBlocks { bytes, block_size })
}

fn failed(path: &Path, source: io::Error) -> OpenError {
    OpenError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Opens the file; also returns whether it was just created.
fn open(options: &FileOptions) -> Result<(File, bool), OpenError> {
    let path = &options.path;
    match existing(options) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && names_device(path) => {
            Err(OpenError::NoDevice { path: path.clone() })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => match options.bytes {
            Some(_) if !options.create => Err(OpenError::Missing { path: path.clone() }),
            Some(_) if !options.read_only => {
                let made = access(options).create_new(true).mode(0o600).open(path);
                let failed = |source| OpenError::NotCreated {
                    path: path.clone(),
                    source,
                };
                made.map(|file| (file, true)).map_err(failed)
            }
            _ => Err(OpenError::NotFound { path: path.clone() }),
        },
        opened => opened
            .map(|file| (file, false))
            .map_err(|source| refused(options, source)),
    }
}

/// Whether a path is in the directory of device nodes, where no regular files may be created: `/dev`, except
/// for the memory in `/dev/shm`.
pub fn names_device(path: &Path) -> bool {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    folder.starts_with("/dev") && !folder.starts_with("/dev/shm")
}

fn existing(options: &FileOptions) -> io::Result<File> {
    let kind = std::fs::metadata(&options.path)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // O_EXCL makes the open fail if the block device is mounted, used as swap or part of a RAID set
    // (open(2)).
    let exclusive = kind.is_block_device() && !options.read_only;
    let flags = direct(options) | if exclusive { libc::O_EXCL } else { 0 };
    let attempt = || access(options).custom_flags(flags).open(&options.path);
    patiently(&options.path, attempt, &[libc::EBUSY])
}

fn access(options: &FileOptions) -> OpenOptions {
    let mut access = OpenOptions::new();
    access
        .read(true)
        .write(!options.read_only)
        .custom_flags(direct(options));
    access
}

fn direct(options: &FileOptions) -> i32 {
    if options.direct { libc::O_DIRECT } else { 0 }
}

fn refused(options: &FileOptions, source: io::Error) -> OpenError {
    let path = options.path.clone();
    match (source.kind(), source.raw_os_error()) {
        (io::ErrorKind::NotFound, _) => OpenError::NotFound { path },
        (io::ErrorKind::PermissionDenied, _) => OpenError::NotAllowed {
            path,
            writing: !options.read_only,
        },
        (_, Some(libc::EROFS)) => OpenError::NotAllowed {
            path,
            writing: true,
        },
        (_, Some(libc::EBUSY)) => OpenError::AlreadyInUse { path },
        (_, Some(libc::EINVAL)) if options.direct => OpenError::NoDirect { path },
        (io::ErrorKind::InvalidInput, None) => OpenError::NotAFile { path },
        _ => OpenError::Io { path, source },
    }
}

/// Locks the file for one writer or any number of readers. The lock belongs to the open file description, and
/// is released with the last copy of the descriptor. So the lock is held as long as an operation of this
/// volume may still access the file, but not longer than the process exists.
fn lock(file: &File, options: &FileOptions) -> Result<(), OpenError> {
    let held = [libc::EAGAIN, libc::EACCES];
    let path = || options.path.clone();
    let outcome = patiently(&options.path, || try_lock(file, options.read_only), &held);
    outcome.map_err(|source| match source.raw_os_error() {
        Some(error) if held.contains(&error) => OpenError::AlreadyInUse { path: path() },
        _ => OpenError::NoLock {
            path: path(),
            source,
        },
    })
}

/// Retries an attempt for up to [`PATIENCE`] if it fails because another process uses the file. Logs the
/// wait.
fn patiently<T>(
    path: &Path,
    mut attempt: impl FnMut() -> io::Result<T>,
    held: &[i32],
) -> io::Result<T> {
    let patience = Instant::now() + PATIENCE;
    let mut waits = false;
    loop {
        match attempt() {
            Err(error)
                if error
                    .raw_os_error()
                    .is_some_and(|error| held.contains(&error))
                    && Instant::now() < patience =>
            {
                if !std::mem::replace(&mut waits, true) {
                    let seconds = PATIENCE.as_secs();
                    tracing::warn!(path = %path.display(), seconds, "in use by another process; waiting");
                }
                thread::sleep(RETRY);
            }
            outcome => return outcome,
        }
    }
}

/// Time to wait for a file that another process uses. The kernel keeps the files of a killed server open and
/// locked until the last outstanding write or sync has ended; this happened in each of three kills under
/// load. A restart must not fail because of that.
const PATIENCE: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(50);

fn try_lock(file: &File, read_only: bool) -> io::Result<()> {
    let kind = if read_only {
        libc::F_RDLCK
    } else {
        libc::F_WRLCK
    };
    // SAFETY: a flock of zeros is a legal value: from the start of the file to its end.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as i16;
    range.l_whence = libc::SEEK_SET as i16;
    // SAFETY: F_OFD_SETLK reads a flock, which lives until the call returns.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn capacity(file: &File, options: &FileOptions) -> Result<Blocks, OpenError> {
    let path = options.path.clone();
    let found = size(file).map_err(|source| failed(&options.path, source))?;
    match options.bytes {
        Some(asked) if found < asked => Err(OpenError::TooShort { path, found, asked }),
        Some(asked) => whole_blocks(asked, options.block_size),
        None if found == 0 => Err(OpenError::Empty { path }),
        None => whole_blocks(found, options.block_size).map_err(|_| OpenError::Ragged {
            path,
            bytes: found,
            block_size: options.block_size,
        }),
    }
}

/// Extends the file to this length, and makes the length durable, even if an earlier call has set it without
/// a sync.
pub(super) fn lengthen(file: &File, bytes: u64) -> io::Result<()> {
    if size(file)? < bytes {
        if file.metadata()?.file_type().is_block_device() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.set_len(bytes)?;
    }
    file.sync_all()
}

/// Returns the length of a file or block device in bytes.
pub(super) fn size(file: &File) -> io::Result<u64> {
    if file.metadata()?.file_type().is_block_device() {
        return Ok(seek(file, SeekFrom::End(0))?);
    }
    Ok(file.metadata()?.len())
}

/// Returns the space allocated to the file, and the space that its file system has available for unprivileged
/// users.
pub(super) fn space(file: &File) -> io::Result<Space> {
    let system = rustix::fs::fstatvfs(file)?;
    let available_bytes = Some(system.f_bavail.saturating_mul(system.f_frsize));
    Ok(Space {
        used_bytes: allocated(file)?,
        available_bytes,
    })
}

/// Returns the space allocated to the file in bytes. The kernel counts it in 512-byte blocks, whatever the
/// file system's block size (inode(7)).
pub(super) fn allocated(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.blocks() * 512)
}

fn inspect(file: &File, options: &FileOptions) -> io::Result<FileProperties> {
    let metadata = file.metadata()?;
    let block_device = metadata.file_type().is_block_device();
    let device = if block_device {
        metadata.rdev()
    } else {
        metadata.dev()
    };
    let (thin, granule, sector) = match block_device {
        true => {
            let granule = queue(device, "discard_granularity").unwrap_or(0);
            let sector = queue(device, "logical_block_size").unwrap_or(0);
            (
                queue(device, "discard_max_bytes").is_some_and(|bytes| bytes > 0),
                granule,
                sector,
            )
        }
        false => (
            !options.read_only && punches_holes(file, metadata.len()),
            metadata.blksize(),
            0,
        ),
    };
    let blocks = |bytes: u64| Blocks((bytes >> options.block_size.shift()).max(1));
    Ok(FileProperties {
        block_device,
        thin,
        granularity: blocks(granule),
        sector: blocks(sector),
        solid_state: queue(device, "rotational") != Some(1),
        buffer_alignment: if options.direct {
            alignment(file)?.0
        } else {
            1
        },
    })
}

/// Whether the file system can punch holes. This is tested beyond the end of the file, where punching a hole
/// changes nothing.
fn punches_holes(file: &File, end: u64) -> bool {
    let beyond = end.next_multiple_of(1 << 16);
    fallocate(
        file,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        beyond,
        4096,
    )
    .is_ok()
}

/// Reads a queue attribute of a block device from sysfs. For a partition, reads the attribute of the whole
/// device.
fn queue(device: u64, name: &str) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let device = format!("/sys/dev/block/{major}:{minor}");
    ["queue", "../queue"].iter().find_map(|queue| {
        let text = std::fs::read_to_string(format!("{device}/{queue}/{name}")).ok()?;
        text.trim().parse().ok()
    })
}

/// Returns the alignment that direct I/O requires of buffers and offsets, in bytes. Linux before 6.1 does not
/// report it; then the usual values are returned.
fn alignment(file: &File) -> io::Result<(usize, u64)> {
    let told = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    match (told.stx_dio_mem_align, told.stx_dio_offset_align) {
        (0, _) | (_, 0) => Ok((512, 512)),
        (memory, offset) => Ok((memory as usize, u64::from(offset))),
    }
}

fn check_direct(file: &File, options: &FileOptions) -> Result<(), OpenError> {
    if !options.direct {
        return Ok(());
    }
    let (_, offset) = alignment(file).map_err(|source| failed(&options.path, source))?;
    if u64::from(options.block_size.bytes()).is_multiple_of(offset) {
        return Ok(());
    }
    Err(OpenError::DirectNeedsLargerBlocks {
        path: options.path.clone(),
        bytes: offset,
    })
}

/// The reason why a volume could not be opened.
#[derive(Debug, Display, Error)]
#[expect(
    missing_docs,
    reason = "the fields are the words of the sentences below"
)]
pub enum OpenError {
    /// The requested size is zero or not a whole number of blocks.
    #[display(
        "the size must be a multiple of the block size, {} bytes, and not 0; it is {bytes} bytes",
        block_size.bytes()
    )]
    NotWholeBlocks { bytes: u64, block_size: BlockSize },
    /// The address space or the kernel's tables have no room for a RAM volume.
    #[display("not enough memory for a RAM volume of {bytes} bytes ({source}); use a smaller size")]
    NoMemory { bytes: u64, source: io::Error },
    /// The file does not exist, and no size was specified for creating it.
    #[display("{} does not exist; to create it, specify a size, as in file:PATH?size=1GiB", path.display())]
    NotFound { path: PathBuf },
    /// The file does not exist, and must not be created because the volume was served before.
    #[display(
        "{} does not exist, and is not created, because its volume was served before; check whether its file \
         system is mounted. To create a new, empty file, add `create` to the specification, as in \
         file:PATH?size=1GiB&create",
        path.display()
    )]
    Missing { path: PathBuf },
    /// The file does not exist, and must not be created a second time although the specification contains `create`.
    #[display(
        "{path} does not exist, and the `create` in the specification of its volume has already been used; \
         check whether its file system is mounted. To start with a new, empty file, create it (truncate -s \
         {bytes} {path})",
        path = path.display()
    )]
    OrderUsed { path: PathBuf, bytes: u64 },
    /// The device does not exist; creating a file with its name would hide it until the next boot.
    #[display("the device {} does not exist", path.display())]
    NoDevice { path: PathBuf },
    /// The file does not exist, and its directory is missing or does not allow new files.
    #[display("cannot create {}: {source}; check its directory", path.display())]
    NotCreated { path: PathBuf, source: io::Error },
    /// The path is neither a regular file nor a block device.
    #[display("{} is neither a regular file nor a block device", path.display())]
    NotAFile { path: PathBuf },
    /// The file's permissions, or a read-only file system, forbid the access.
    #[display(
        "{} cannot be {}",
        path.display(),
        if *writing { "written; change its permissions, or serve it read-only" }
        else { "read; change its permissions" }
    )]
    NotAllowed { path: PathBuf, writing: bool },
    /// Another process uses the file, or the block device is mounted.
    #[display(
        "{} is in use by another server or mounted; stop that server or unmount it, or use another volume",
        path.display()
    )]
    AlreadyInUse { path: PathBuf },
    /// The file system does not support locks.
    #[display("{} cannot be locked ({source}); move it to a file system that supports locks", path.display())]
    NoLock { path: PathBuf, source: io::Error },
    /// The file is shorter than the requested size.
    #[display(
        "{} has {found} bytes, less than the requested {asked}; extend it (truncate -s {asked}), or request \
         less",
        path.display()
    )]
    TooShort {
        path: PathBuf,
        found: u64,
        asked: u64,
    },
    /// The file is empty, and no size was requested.
    #[display("{} is empty; specify a size", path.display())]
    Empty { path: PathBuf },
    /// The size of the file is not a whole number of blocks.
    #[display(
        "the size of {}, {bytes} bytes, is not a multiple of the block size, {} bytes; specify a size that \
         is",
        path.display(), block_size.bytes()
    )]
    Ragged {
        path: PathBuf,
        bytes: u64,
        block_size: BlockSize,
    },
    /// The file system does not support direct I/O.
    #[display("the file system of {} does not support direct I/O; omit direct", path.display())]
    NoDirect { path: PathBuf },
    /// Direct I/O requires blocks larger than those of the volume.
    #[display(
        "direct I/O on {} requires blocks of {bytes} bytes; set block={bytes}, or omit direct",
        path.display()
    )]
    DirectNeedsLargerBlocks { path: PathBuf, bytes: u64 },
    /// Any other system error.
    #[display("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}
