//! Small files that survive a crash, such as volumes' UUIDs and reservations that persist through power loss
//! (APTPL, SPC-4 5.13.5).
//!
//! A file is replaced as a whole: the new bytes are written to a temporary file, the file is synced and
//! renamed, and then the directory is synced. After a crash, the file has either the old or the new content.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{FlockOperation, flock};

use crate::files::Lane;

/// A directory of small durable files, which one process at a time can use.
pub struct StateDirectory {
    /// Shared with outstanding operations, so that the directory stays locked until they have ended.
    directory: Arc<Directory>,
    /// Runs on one thread, so that saves are stored in order.
    lane: Lane,
}

struct Directory {
    /// Read-locked while an operation uses the path.
    path: RwLock<PathBuf>,
    /// The directory itself, open for the lock and for syncs.
    file: File,
}

impl StateDirectory {
    /// Opens the directory, creates it if necessary, and locks it. Fails with [`io::ErrorKind::WouldBlock`]
    /// if another process has locked it. Blocks the thread, so call it before serving starts.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<StateDirectory> {
        let path = path.into();
        fs::create_dir_all(&path)?;
        let file = File::open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let directory = Directory {
            path: RwLock::new(path),
            file,
        };
        directory.sweep()?;
        Ok(StateDirectory {
            directory: Arc::new(directory),
            lane: Lane::new(1),
        })
    }

    /// Returns the bytes last saved under `name`; `None` if there are none. Blocks the thread, so call it
    /// before serving starts.
    pub fn load_at_start(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.directory.load(&checked(name)?)
    }

    /// Does the same as [`StateDirectory::save`], but blocks the thread, and does not wait for outstanding
    /// saves. So call it before serving starts.
    pub fn save_at_start(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.directory.save(&checked(name)?, bytes)
    }

    /// Returns a function that restores the bytes currently saved under `name`. The function blocks the
    /// thread; the directory stays locked while the function exists.
    pub fn restore(
        &self,
        name: &str,
    ) -> io::Result<impl FnOnce() -> io::Result<()> + Send + use<>> {
        let (directory, name) = (Arc::clone(&self.directory), checked(name)?);
        let before = directory.load(&name)?;
        Ok(move || match before {
            Some(bytes) => directory.save(&name, &bytes),
            None => directory.remove(&name),
        })
    }

    /// Returns the bytes last saved under `name`; `None` if there are none.
    pub async fn load(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let (directory, name) = (Arc::clone(&self.directory), checked(name)?);
        self.lane.run(move || directory.load(&name)).await
    }

    /// Saves `bytes` under `name`: once this has completed, they survive a crash. If the future is dropped,
    /// the old or the new bytes remain.
    pub async fn save(&self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        let (directory, name) = (Arc::clone(&self.directory), checked(name)?);
        self.lane.run(move || directory.save(&name, &bytes)).await
    }

    /// The path of the directory.
    pub fn path(&self) -> PathBuf {
        self.directory.at("")
    }

    /// Renames the directory to a name that must not exist, after outstanding saves have completed.
    pub async fn rename(&self, to: PathBuf) -> io::Result<()> {
        let directory = Arc::clone(&self.directory);
        self.lane.run(move || directory.rename(to)).await
    }

    /// Removes the bytes saved under `name`, if any.
    pub async fn remove(&self, name: &str) -> io::Result<()> {
        let (directory, name) = (Arc::clone(&self.directory), checked(name)?);
        self.lane.run(move || directory.remove(&name)).await
    }

    /// Returns the sorted names of all saved files.
    pub async fn names(&self) -> io::Result<Vec<String>> {
        let directory = Arc::clone(&self.directory);
        self.lane.run(move || directory.names()).await
    }
}

/// Checks a name, which becomes a file name. Letters, digits, `-` and `_` are allowed, and `.` except at the
/// start.
fn checked(name: &str) -> io::Result<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    // File systems limit names to 255 bytes, and the temporary name is longer than `name`.
    let legal =
        !name.is_empty() && name.len() <= 200 && !name.starts_with('.') && name.bytes().all(plain);
    legal
        .then(|| name.to_owned())
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Prefix of the temporary name of a new file. [`checked`] rejects names that start with it.
const UNFINISHED: &str = ".unfinished-";

impl Directory {
    fn at(&self, name: &str) -> PathBuf {
        self.path
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .join(name)
    }

    fn rename(&self, to: PathBuf) -> io::Result<()> {
        let mut path = self.path.write().unwrap_or_else(PoisonError::into_inner);
        if to.exists() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::rename(&*path, &to)?;
        *path = to;
        match path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    }

    fn load(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.at(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    fn save(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let unfinished = self.at(&format!("{UNFINISHED}{name}"));
        write_to_last(&unfinished, bytes)?;
        fs::rename(&unfinished, self.at(name))?;
        self.file.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.at(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed?,
        }
        self.file.sync_all()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.at(""))? {
            names.extend(
                entry?
                    .file_name()
                    .into_string()
                    .ok()
                    .filter(|name| checked(name).is_ok()),
            );
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Removes incomplete files left by a crash.
    fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.at(""))? {
            let entry = entry?;
            if entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(UNFINISHED.as_bytes())
            {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

fn write_to_last(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoll, EpollOptions};
    use reactor::block_on;

    fn run<F: Future>(future: F) -> F::Output {
        block_on(
            Epoll::shared(EpollOptions::default()).expect("an epoll"),
            future,
        )
    }

    #[test]
    fn what_was_saved_last_is_loaded_after_a_restart() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let keep = StateDirectory::open(directory.path().join("state")).expect("made");
        run(async {
            assert_eq!(keep.load("vm1").await.expect("readable"), None);
            keep.save("vm1", b"old".to_vec()).await.expect("saved");
            keep.save("vm1", b"new".to_vec()).await.expect("saved");
            keep.save("vm2", Vec::new()).await.expect("saved");
        });
        drop(keep);
        let again = StateDirectory::open(directory.path().join("state")).expect("opened");
        run(async {
            assert_eq!(again.names().await.expect("listed"), ["vm1", "vm2"]);
            assert_eq!(
                again.load("vm1").await.expect("readable"),
                Some(b"new".to_vec())
            );
            again.remove("vm1").await.expect("removed");
            again.remove("vm1").await.expect("removed already");
            assert_eq!(again.load("vm1").await.expect("readable"), None);
        });
    }

    #[test]
    fn what_is_saved_at_the_start_is_there_for_everybody() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let keep = StateDirectory::open(directory.path()).expect("opened");
        assert_eq!(keep.load_at_start("uuid").expect("readable"), None);
        keep.save_at_start("uuid", b"1").expect("saved");
        assert_eq!(
            keep.load_at_start("uuid").expect("readable"),
            Some(b"1".to_vec())
        );
        assert_eq!(
            run(keep.load("uuid")).expect("readable"),
            Some(b"1".to_vec())
        );
        let (uuid, other) = (
            keep.restore("uuid").expect("known"),
            keep.restore("other").expect("new"),
        );
        keep.save_at_start("uuid", b"2").expect("saved");
        keep.save_at_start("other", b"3").expect("saved");
        uuid().and_then(|()| other()).expect("restored");
        assert_eq!(
            keep.load_at_start("uuid").expect("readable"),
            Some(b"1".to_vec())
        );
        assert_eq!(keep.load_at_start("other").expect("readable"), None);
        let refused = keep.save_at_start("../x", b"").expect_err("refused");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn what_a_crash_left_unfinished_is_not_seen_and_swept() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::write(directory.path().join(".unfinished-vm1"), b"half").expect("written");
        let keep = StateDirectory::open(directory.path()).expect("opened");
        assert_eq!(run(keep.names()).expect("listed"), [""; 0]);
        assert_eq!(fs::read_dir(directory.path()).expect("listed").count(), 0);
    }

    #[test]
    fn a_second_user_is_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let _first = StateDirectory::open(directory.path()).expect("opened");
        let refused = StateDirectory::open(directory.path())
            .err()
            .expect("locked");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn names_cannot_leave_the_directory() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let keep = StateDirectory::open(directory.path()).expect("opened");
        for name in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            ".hidden",
            "a\0b",
            "naïve",
            &"x".repeat(201),
        ] {
            let refused = run(keep.save(name, Vec::new())).expect_err("refused");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{name:?}");
        }
    }
}
