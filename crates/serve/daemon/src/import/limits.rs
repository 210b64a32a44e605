//! Reading files within limits: a configuration may name any file, and a file may include itself.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use backends::Failure;
use zeroize::Zeroizing;

/// Reads files until they are too many, or too long together.
pub(super) struct Reader {
    files_left: usize,
    bytes_left: u64,
}

/// More than a folder of one file for each target has.
const FILES_MAX: usize = 4096;
/// 16 MiB: ten thousand LUNs, each with an access list, are less.
const BYTES_MAX: u64 = 16 << 20;

impl Default for Reader {
    fn default() -> Reader {
        Reader { files_left: FILES_MAX, bytes_left: BYTES_MAX }
    }
}

impl Reader {
    /// The text of a file; bytes that are not UTF-8 become U+FFFD, which no value is believed with.
    pub(super) fn read(&mut self, path: &Path) -> Result<Zeroizing<String>, Failure> {
        let refused = |why: &str| Failure::refused(format_args!("{}: {why}", path.display()));
        self.files_left =
            self.files_left.checked_sub(1).ok_or_else(|| refused("too many files are included"))?;
        let mut bytes = Zeroizing::new(Vec::new());
        let file = File::open(path).map_err(|error| refused(&error.to_string()))?;
        let read = file.take(self.bytes_left + 1).read_to_end(&mut bytes);
        let length = read.map_err(|error| refused(&error.to_string()))? as u64;
        let left = self.bytes_left.checked_sub(length);
        self.bytes_left = left.ok_or_else(|| refused("it is longer than 16 MiB, with what it includes"))?;
        Ok(Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned()))
    }
}
