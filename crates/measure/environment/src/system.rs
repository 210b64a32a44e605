//! Files and links of the kernel in `/proc` and `/sys`, any of which may be missing.

use std::fs;
use std::path::{Path, PathBuf};

/// The files of the kernel; those of a folder in tests.
pub struct System {
    root: PathBuf,
}

impl System {
    /// This machine's.
    pub fn this() -> System {
        System { root: PathBuf::from("/") }
    }

    /// Those below this folder, instead of this machine's.
    pub fn below(root: PathBuf) -> System {
        System { root }
    }

    /// A file's text without blanks at its ends, unless it is not there, empty, or not to be read.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// A file's text, if it is a number.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// Whether something is there.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.root.join(path).exists()
    }

    /// The last part of what a link points to: the name of a driver.
    pub fn link(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.root.join(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// The value of `key` in a file of lines `key: value`, at its first place.
    pub fn value(&self, path: impl AsRef<Path>, key: &str) -> Option<String> {
        let text = self.text(path)?;
        let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
        pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
    }
}

/// A machine for tests, with given files.
#[cfg(test)]
pub(super) struct TestSystem {
    pub(super) system: System,
    _folder: tempfile::TempDir,
}

#[cfg(test)]
impl TestSystem {
    /// Of these files, and links whose targets begin with `->`.
    pub(super) fn with(files: &[(&str, &str)]) -> TestSystem {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, content) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("in the folder")).expect("a folder");
            match content.strip_prefix("->") {
                Some(target) => std::os::unix::fs::symlink(target, path).expect("a link"),
                None => fs::write(path, content).expect("a file"),
            }
        }
        TestSystem { system: System::below(folder.path().to_owned()), _folder: folder }
    }
}
