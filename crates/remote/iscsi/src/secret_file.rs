//! Reads files with a secret: checks their permissions, and determines which of their bytes are the secret.
//! Servers, initiators and agents use the same rules.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fmt};

use volume::spec::shell_word;
use zeroize::Zeroizing;

/// The error for a file with a secret that users other than its owner can access. Such a file is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposed {
    path: PathBuf,
    mode: u32,
}

impl std::error::Error for Exposed {}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, mode) = (self.path.display(), self.mode);
        write!(
            f,
            "{path} contains a secret, but its mode {mode:o} lets other users access it; use `chmod 600 {}`",
            quoted(&self.path)
        )
    }
}

/// Quotes a path as an argument of a shell command.
fn quoted(path: &Path) -> String {
    let path = path.to_string_lossy();
    format!(
        "{}{}",
        if path.starts_with('-') { "-- " } else { "" },
        shell_word(&path)
    )
}

/// Reads the secret in a file.
///
/// # Errors
/// System errors; users other than the owner can access the file ([`Exposed`]); the file is too long.
pub fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    read_at_most(path, SECRET_FILE_BYTES_MAX).map(without_line_end)
}

/// Returns the secret in an environment variable, if the variable is set.
pub fn in_environment(variable: &str) -> Option<Zeroizing<Vec<u8>>> {
    env::var_os(variable).map(|value| without_line_end(Zeroizing::new(value.into_vec())))
}

/// Removes the trailing newline, which editors and `echo` append, and which is not part of the secret. Spaces
/// are part of the secret.
pub fn without_line_end(mut text: Zeroizing<Vec<u8>>) -> Zeroizing<Vec<u8>> {
    let end = text
        .iter()
        .rposition(|byte| !b"\r\n".contains(byte))
        .map_or(0, |last| last + 1);
    text.truncate(end);
    text
}

/// Reads a private key in PEM. The key may follow pages of text, as in files that `certtool` writes.
pub fn read_key(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    read_at_most(path, KEY_FILE_BYTES_MAX)
}

fn read_at_most(path: &Path, bytes_max: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut file = File::open(path)?;
    // Check the opened file, because the path may refer to another file by now.
    if let Some(exposed) = exposed(path, file.metadata()?.permissions().mode()) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, exposed));
    }
    // Allocate enough capacity, because a reallocation would leave a copy of the secret in memory.
    let mut bytes = Zeroizing::new(Vec::with_capacity(2 * bytes_max));
    file.by_ref()
        .take(bytes_max as u64 + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is too large for a secret file",
        ));
    }
    Ok(bytes)
}

/// Returns the error if a file of this mode has any permission for group or others.
pub fn exposed(path: &Path, mode: u32) -> Option<Exposed> {
    const OTHERS: u32 = 0o077;
    (mode & OTHERS != 0).then(|| Exposed {
        path: path.to_owned(),
        mode: mode & 0o777,
    })
}

/// Maximum length of a file with a secret. A longer file is rejected.
const SECRET_FILE_BYTES_MAX: usize = 4096;
const KEY_FILE_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_are_no_part_of_a_secret_and_blanks_are() {
        let secret =
            |text: &str| without_line_end(Zeroizing::new(text.as_bytes().to_vec())).to_vec();
        for text in ["se cret ", "se cret \n", "se cret \r\n", "se cret \n\n"] {
            assert_eq!(secret(text), b"se cret ", "{text:?}");
        }
        assert_eq!(secret("\r\n"), b"");
    }

    #[test]
    fn a_file_that_others_may_use_is_told() {
        let said =
            exposed(Path::new("/etc/linerate.toml"), 0o100_640).map(|exposed| exposed.to_string());
        let expected = "/etc/linerate.toml contains a secret, but its mode 640 lets other users access it; use `chmod 600 \
            /etc/linerate.toml`";
        assert_eq!(said.as_deref(), Some(expected));
        assert_eq!(exposed(Path::new("/etc/linerate.toml"), 0o100_600), None);
        let quoted = ["/srv/my secrets", "-x", "it's"].map(|path| quoted(Path::new(path)));
        assert_eq!(quoted, ["'/srv/my secrets'", "-- -x", r"'it'\''s'"]);
    }
}
