//! Detaching: flushes, unmounts, and waits for the end of the process.

use std::fs::File;
use std::io;
use std::path::Path;

use backends::Failure;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::mount_point;
use crate::mounts::{self, UnmountMode};
use crate::record::FoundRecord;
use crate::users;

/// Flushes and unmounts what [`attach`](crate::attach()) has mounted at `path`, and waits until the session
/// has ended, except with [`UnmountMode::Lazy`]. `records` is the directory of all records.
///
/// # Errors
/// Why it stays attached, or what may be lost.
pub fn detach(records: &Path, path: &Path, way: UnmountMode) -> Result<(), Failure> {
    let path = mount_point::resolved(path)?;
    let found = FoundRecord::at(records, &path).map_err(Failure::failed)?;
    let is_mounted = mounts::is_ours(&path);
    if found.is_none() && !is_mounted {
        return Err(Failure::refused(format!("{}: nothing is attached there", path.display())));
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
        // Its process would be waited for until somebody detaches it there.
        return Err(Failure::refused(format!(
            "{path} stays attached: it is mounted in the mount namespace of process {pid}, which is another one; \
             `nsenter --target {pid} --mount linerate detach {path}` detaches it there, --force ends it from here",
            path = path.display(),
            pid = found.record.pid
        )));
    }
    if way == UnmountMode::Lazy { Ok(()) } else { tidy(found) }
}

/// Flushes before unmounting, so that an error can be reported.
fn flush(path: &Path) -> Result<(), Failure> {
    let flushed = File::open(path).and_then(|file| file.sync_all());
    flushed.map_err(|error| {
        Failure::failed(format!(
            "{} stays attached: what was written cannot be flushed: {error}; --force gives it up",
            path.display()
        ))
    })
}

fn stays(path: &Path, error: &io::Error) -> Failure {
    let users = match users::list(path) {
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

/// Ends the process that holds the record.
fn kill(found: &FoundRecord) -> Result<(), Failure> {
    let process = Pid::from_raw(found.record.pid.cast_signed());
    let Some(Ok(process)) = process.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return Ok(()) };
    // Held after the descriptor was opened: the number is still the same process's.
    if !found.is_alive() {
        return Ok(());
    }
    pidfd_send_signal(process, Signal::KILL).map_err(|error| Failure::failed(io::Error::from(error)))
}

/// Waits for the end, and removes what a killed process has left.
fn tidy(mut found: FoundRecord) -> Result<(), Failure> {
    let failure = found.wait().map_err(Failure::failed)?;
    if found.record.made_file {
        mount_point::remove_empty(&found.record.path);
    }
    found.remove();
    failure.map_or(Ok(()), |why| Err(Failure::failed(why)))
}
