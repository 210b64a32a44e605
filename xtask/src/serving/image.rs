//! Files in memory (/dev/shm) for servers that serve files.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// A file of this size, every byte of it written, so that nobody reads holes.
pub(super) fn written(server: &str, port: u16, size_bytes: u64) -> Result<PathBuf> {
    let path = path(server, port);
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&path)?;
        let piece = vec![0x5a; 1 << 20];
        (0..size_bytes >> 20).try_for_each(|_| file.write_all(&piece))
    };
    write().with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Where the image of a server on this port lies.
pub(super) fn path(server: &str, port: u16) -> PathBuf {
    PathBuf::from(format!("/dev/shm/linerate-xtask-{server}-{port}.img"))
}
