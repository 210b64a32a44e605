//! Creates files that contain data of a disk, or traffic to it. They are accessible only to their owner,
//! whatever the umask, because a disk contains files of all users. An existing file keeps its mode.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

const MODE: u32 = 0o600;

/// Opens a file for writing and truncates it, or creates it.
///
/// # Errors
/// System errors.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(MODE)
        .open(path)
}

/// Creates a file that must not exist.
///
/// # Errors
/// System errors, or an error if the file already exists.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(path)
}

/// Opens a pipe, or a character device such as `/dev/null`, for writing. If the path is neither, creates a
/// file that must not exist. Opening a pipe waits for a reader.
///
/// # Errors
/// The same as for [`create_new`].
pub fn create_new_or_open_pipe(path: &Path) -> io::Result<File> {
    match fs::metadata(path).map(|there| there.file_type()) {
        Ok(kind) if kind.is_fifo() || kind.is_char_device() => {
            OpenOptions::new().write(true).open(path)
        }
        _ => create_new(path),
    }
}

/// Removes a file only if it is empty.
///
/// # Errors
/// System errors.
pub fn remove_if_empty(path: &Path) -> io::Result<()> {
    let is_empty = fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0);
    if is_empty {
        fs::remove_file(path)
    } else {
        Ok(())
    }
}
