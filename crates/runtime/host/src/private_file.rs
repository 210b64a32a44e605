//! New files with data of a disk, or of traffic to it: accessible to their owner only, regardless of the
//! umask, since an image contains files of all users. An existing file keeps its mode.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

const MODE: u32 = 0o600;

/// Opens a file for writing and empties it, or makes it.
///
/// # Errors
/// The system's.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(path)
}

/// Makes a file that is not there.
///
/// # Errors
/// The system's; that it is there already.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)
}

/// Opens a pipe or a character device such as `/dev/null` for writing, or makes a file that is not there. A pipe is waited for
/// until somebody reads it.
///
/// # Errors
/// As [`create_new`].
pub fn create_new_or_open_pipe(path: &Path) -> io::Result<File> {
    match fs::metadata(path).map(|there| there.file_type()) {
        Ok(kind) if kind.is_fifo() || kind.is_char_device() => OpenOptions::new().write(true).open(path),
        _ => create_new(path),
    }
}

/// Removes a file that was made and has stayed empty, and nothing else.
///
/// # Errors
/// The system's.
pub fn remove_if_empty(path: &Path) -> io::Result<()> {
    let is_empty = fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0);
    if is_empty { fs::remove_file(path) } else { Ok(()) }
}
