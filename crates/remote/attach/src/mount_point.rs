//! The mount point: an existing empty file, or one created for it.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use backends::Failure;
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::file::File;
use crate::mount_point;
use crate::mounts::{self, UnmountMode};
use crate::record::FoundRecord;

/// A path that can be mounted on. If the file was created for this, it is removed at the end.
#[derive(Debug)]
pub struct MountPoint {
    path: PathBuf,
    made: bool,
}

/// Access rights of the mounted file.
pub struct Terms {
    /// Whether writes are rejected.
    pub read_only: bool,
    /// Whether root also has access if another user attaches the volume.
    pub allow_root: bool,
}

/// Threads that read requests, so that copying the data of a write does not delay the next request. More
/// threads would not be faster, since the device has one thread.
const READERS: usize = 2;

impl MountPoint {
    /// Checks that the path can be mounted on, and removes the leftovers of a killed process.
    ///
    /// # Errors
    /// The reason why the path cannot be mounted on.
    pub fn prepare(path: &Path, records: &Path) -> Result<MountPoint, Failure> {
        let path = resolved(path)?;
        if mounts::is_ours(&path) {
            clear(&path, records)?;
        }
        let refused = |why: &str| Err(Failure::refused(format!("{}: {why}", path.display())));
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return refused(&error.to_string()),
            Ok(metadata) if metadata.is_dir() => {
                return refused("this is a directory; add a file name");
            }
            Ok(metadata) if !metadata.is_file() => return refused("this is not a regular file"),
            Ok(metadata) if metadata.len() > 0 => {
                return refused("this file is not empty, and attaching would hide its content");
            }
            Ok(_) => {}
        }
        Ok(MountPoint { path, made: false })
    }

    /// The absolute path, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the mount created the file.
    pub fn is_made(&self) -> bool {
        self.made
    }

    /// Creates the file if it is missing, and mounts on it. Dropping the session unmounts.
    pub(crate) fn mount(
        &mut self,
        file: File,
        terms: &Terms,
    ) -> Result<BackgroundSession, Failure> {
        let failed = |error: io::Error| {
            Failure::failed(format!(
                "cannot attach at {}: {}",
                self.path.display(),
                in_words(&error)
            ))
        };
        can_be_mounted().map_err(Failure::refused)?;
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.path)
        {
            Ok(_) => self.made = true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        let session = Session::new(file, &self.path, &terms.config());
        session.and_then(Session::spawn).map_err(|error| {
            Failure::failed(format!(
                "cannot attach at {}: {}",
                self.path.display(),
                in_words(&error)
            ))
        })
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        if self.made {
            remove_empty(&self.path);
        }
    }
}

/// Removes a file created by [`MountPoint::mount`]. Leaves a file with content, and anything else, unchanged.
pub(crate) fn remove_empty(path: &Path) {
    let is_empty = fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0);
    if let Some(Err(error)) = is_empty.then(|| fs::remove_file(path)) {
        tracing::warn!("{} could not be removed: {error}", path.display());
    }
}

/// Resolves symbolic links. The last component need not exist, and may be an unresponsive mount.
pub(crate) fn resolved(path: &Path) -> Result<PathBuf, Failure> {
    if let Ok(path) = fs::canonicalize(path) {
        return Ok(path);
    }
    let refused =
        |why: &dyn std::fmt::Display| Failure::refused(format!("{}: {why}", path.display()));
    let name = path
        .file_name()
        .ok_or_else(|| refused(&"not a file name"))?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    Ok(fs::canonicalize(folder)
        .map_err(|error| refused(&error))?
        .join(name))
}

/// Removes an existing Linerate mount at the path if its process has terminated.
fn clear(path: &Path, records: &Path) -> Result<(), Failure> {
    let record = FoundRecord::at(records, path).map_err(Failure::failed)?;
    let shown = path.display();
    if record.as_ref().is_some_and(FoundRecord::is_alive) || fs::metadata(path).is_ok() {
        return Err(Failure::refused(format!(
            "{shown}: a volume is already attached there; to detach it, use `linerate detach {shown}`"
        )));
    }
    mounts::unmount(path, UnmountMode::Lazy).map_err(|error| {
        Failure::failed(format!(
            "{shown}: leftover mount of a killed process: {error}"
        ))
    })?;
    if let Some(record) = record {
        if record.record.made_file {
            remove_empty(path);
        }
        record.remove();
    }
    Ok(())
}

const DEVICE: &str = "/dev/fuse";

/// Checks that FUSE is available. If not, the error names the remedy, which fuser's own message does not.
fn can_be_mounted() -> Result<(), String> {
    match OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
            "{DEVICE} does not exist; load the module with `modprobe fuse`, or start the container with \
             --device {DEVICE}"
        )),
        Err(error) => Err(format!("{DEVICE}: {error}")),
    }
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        // All other causes were excluded before: the setuid helper, which users other than root need, is
        // missing.
        io::ErrorKind::NotFound => "fusermount3 is missing; install the package fuse3".to_owned(),
        _ => error.to_string().trim().to_owned(),
    }
}

impl Terms {
    fn config(&self) -> Config {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(mounts::SOURCE.to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoExec,
            if self.read_only {
                MountOption::RO
            } else {
                MountOption::RW
            },
        ];
        config.acl = if self.allow_root {
            SessionACL::RootAndOwner
        } else {
            SessionACL::Owner
        };
        config.n_threads = Some(READERS);
        config.clone_fd = true;
        config
    }
}

// Detaching: flushes, unmounts, and waits for the end of the process.

/// Flushes and unmounts the mount of [`attach`](crate::attach()) at `path`. Waits until the session has
/// ended, except with [`UnmountMode::Lazy`]. `records` is the directory of all records.
///
/// # Errors
/// The reason why the volume stays attached, or a warning that data may be lost.
pub fn detach(records: &Path, path: &Path, way: UnmountMode) -> Result<(), Failure> {
    let path = mount_point::resolved(path)?;
    let found = FoundRecord::at(records, &path).map_err(Failure::failed)?;
    let is_mounted = mounts::is_ours(&path);
    if found.is_none() && !is_mounted {
        return Err(Failure::refused(format!(
            "{}: nothing is attached there",
            path.display()
        )));
    }
    if is_mounted {
        let is_alive = found.as_ref().is_some_and(FoundRecord::is_alive);
        if is_alive && way != UnmountMode::Force {
            flush(&path)?;
        }
        mounts::unmount(&path, way).map_err(|error| stays(&path, &error))?;
    }
    let Some(found) = found else { return Ok(()) };
    if way == UnmountMode::Force {
        kill(&found)?;
    } else if found.is_alive() && mounts::is_ours_elsewhere(&path, found.record.pid) {
        // Waiting here for the process would not end until someone detaches the volume in that namespace.
        return Err(Failure::refused(format!(
            "{path} stays attached: it is mounted in another mount namespace, that of process {pid}; to \
             detach it there, use `nsenter --target {pid} --mount linerate detach {path}`; to end its \
             process from here, use --force",
            path = path.display(),
            pid = found.record.pid
        )));
    }
    if way == UnmountMode::Lazy {
        Ok(())
    } else {
        tidy(found)
    }
}

/// Flushes before unmounting, so that an error can be reported.
fn flush(path: &Path) -> Result<(), Failure> {
    let flushed = fs::File::open(path).and_then(|file| file.sync_all());
    flushed.map_err(|error| {
        Failure::failed(format!(
            "{} stays attached: written data cannot be flushed: {error}; --force discards it",
            path.display()
        ))
    })
}

fn stays(path: &Path, error: &io::Error) -> Failure {
    let users = match mounts::list(path) {
        users if error.kind() != io::ErrorKind::ResourceBusy || users.is_empty() => String::new(),
        users => format!(", by {}", users.join(", ")),
    };
    let why = if error.kind() == io::ErrorKind::ResourceBusy {
        "it is in use".to_owned()
    } else {
        error.to_string()
    };
    Failure::failed(format!("{} stays attached: {why}{users}", path.display()))
}

/// Terminates the process that the record belongs to.
fn kill(found: &FoundRecord) -> Result<(), Failure> {
    let process = Pid::from_raw(found.record.pid.cast_signed());
    let Some(Ok(process)) = process.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
        return Ok(());
    };
    // This check follows the opening of the descriptor, so it proves that the PID still belongs to the same
    // process.
    if !found.is_alive() {
        return Ok(());
    }
    pidfd_send_signal(process, Signal::KILL)
        .map_err(|error| Failure::failed(io::Error::from(error)))
}

/// Waits until the process has ended, and removes the leftovers of a killed process.
fn tidy(mut found: FoundRecord) -> Result<(), Failure> {
    let failure = found.wait().map_err(Failure::failed)?;
    if found.record.made_file {
        mount_point::remove_empty(&found.record.path);
    }
    found.remove();
    failure.map_or(Ok(()), |why| Err(Failure::failed(why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &Path) -> String {
        let folder = path.parent().expect("a folder");
        MountPoint::prepare(path, folder)
            .expect_err("refused")
            .to_string()
    }

    #[test]
    fn nothing_is_hidden_by_a_mount() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("file");
        fs::write(&file, "precious").expect("written");
        assert!(
            refusal(&file)
                .ends_with("this file is not empty, and attaching would hide its content")
        );
        assert!(refusal(&folder.path().join("sub/..")).contains("sub"));
        assert!(refusal(folder.path()).ends_with("this is a directory; add a file name"));
        assert!(refusal(&folder.path().join("none/disk")).contains("No such file"));
    }

    #[test]
    fn only_a_file_that_was_made_is_removed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("written");
        drop(MountPoint::prepare(&file, folder.path()).expect("a place"));
        assert!(file.exists());
        drop(MountPoint {
            path: file.clone(),
            made: true,
        });
        assert!(!file.exists());
    }
}
