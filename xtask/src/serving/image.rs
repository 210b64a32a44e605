//! Image files for servers and measurements.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace;

/// A file, deleted when dropped.
#[derive(Debug)]
pub struct Image(PathBuf);

impl Image {
    /// Returns an image whose file is in memory (/dev/shm), a device with almost no latency.
    pub fn in_memory(name: &str) -> Image {
        Image(PathBuf::from(format!(
            "/dev/shm/linerate-xtask-{name}-{}.img",
            std::process::id()
        )))
    }

    /// Returns an image whose file is on the disk of the target directory.
    pub fn on_disk(name: &str) -> Image {
        let folder = workspace::target_directory().join("xtask");
        Image(folder.join(format!("{name}-{}.img", std::process::id())))
    }

    /// Writes the whole file, so that reads never find holes.
    pub fn written(self, bytes: u64) -> Result<Image> {
        write(&self.0, bytes).map(|()| self)
    }

    /// Creates the image as a sparse file of this size.
    pub fn sparse(self, bytes: u64) -> Result<Image> {
        let file = File::create(&self.0).and_then(|file| file.set_len(bytes));
        file.with_context(|| self.0.display().to_string())?;
        Ok(self)
    }

    /// Returns the path of the image.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // its name contains this process's ID, so a leftover conflicts with nothing
    }
}

/// Writes a file of this size, and flushes it to the disk.
pub fn write(path: &Path, bytes: u64) -> Result<()> {
    let write = || {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        let mut file = File::create(path)?;
        io::copy(&mut io::Read::take(io::repeat(90), bytes), &mut file)?;
        file.sync_all()
    };
    write().with_context(|| path.display().to_string())
}

/// Reads a file into the page cache.
pub fn cache(path: &Path) -> Result<()> {
    let read = File::open(path).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
    read.map(drop).with_context(|| path.display().to_string())
}
