//! New files that hold what is on a disk, or what went to and from it: for their owner alone, whatever the umask says. An
//! image has what its file systems keep from their users. A file that is there already keeps its mode.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
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
