//! A volume opened with direct I/O, accessed through the page cache: to measure the performance of buffered
//! file I/O.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{Advice, fadvise};

use super::failure::LatestError;
use super::{FileDevice, FileOptions, FileProperties};
use crate::OpenError;
use crate::files::AsyncFile;

impl FileDevice {
    /// The same volume through the page cache. It has no lock of its own: the direct one must stay open.
    pub fn through_page_cache(&self) -> Result<FileDevice, OpenError> {
        let options = FileOptions { direct: false, ..self.options.clone() };
        // Whether a file is read past the cache is a matter of the open file description (open(2)): this
        // makes another.
        let same = format!("/proc/self/fd/{}", self.file.file().as_raw_fd());
        let opened = OpenOptions::new().read(true).write(!options.read_only).open(same);
        let file = opened
            .and_then(AsyncFile::new)
            .map_err(|source| OpenError::Io { path: options.path.clone(), source })?;
        Ok(FileDevice {
            file,
            options,
            blocks: AtomicU64::new(self.blocks.load(Ordering::Relaxed)),
            allocated: AtomicU64::new(self.allocated.load(Ordering::Relaxed)),
            looks: AtomicU32::new(1),
            properties: FileProperties { buffer_alignment: 1, ..self.properties },
            latest_error: LatestError::default(),
            created: None,
        })
    }

    /// Lets the page cache forget what it has of the volume, as a remount does. What is not on the medium
    /// stays: flush first. Blocks its thread for as long as that takes.
    pub fn forget_cached(&self) -> io::Result<()> {
        Ok(fadvise(self.file.file(), 0, None, Advice::DontNeed)?)
    }
}
